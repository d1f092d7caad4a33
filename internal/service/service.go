// SPDX-License-Identifier: Apache-2.0

// Package service puts the process together: the registry of all request codes (routes.go) with the
// processors behind it, the listeners in front of it, the store and the broker's rules below. It is the only
// package that knows both the doors and the broker; each file is a family of requests and turns wire headers
// into calls of the rules and back.
//
// Order of stopping: not ready → unregister from name servers → serve on for drainDelay → accept no more, answer
// GO_AWAY, drain calls in flight → held pulls and timers end → consumer offsets are written → the store settles,
// syncs and closes.
package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/roquetmq/roquet/internal/config"
	"github.com/roquetmq/roquet/internal/gateway"
	"github.com/roquetmq/roquet/internal/grpcapi"
	"github.com/roquetmq/roquet/internal/remoting"
	"github.com/roquetmq/roquet/internal/store"
	"github.com/roquetmq/roquet/internal/telemetry"
)

// wireVersion is the release of RocketMQ that answers claim to be: V5_5_0.
const wireVersion = 513

// Service is the whole server. New opens everything and finds what is wrong; Run serves.
type Service struct {
	cfg       *config.Config
	log       *slog.Logger
	self      *identity
	node      *node      // nil without the broker role
	names     *names     // nil without the nameserver role
	registrar *registrar // nil without the broker role
	server    *remoting.Server
	grpc      *grpcapi.Server // nil without the broker role
	rest      *gateway.Server // nil without the broker role
	certs     *certificates   // nil without TLS
	access    *access
	tracing   *telemetry.Telemetry
	metrics   *telemetry.Metrics
	listening chan struct{} // closed by Run
	stopping  atomic.Bool
}

// New opens the store, recovers it, and builds the table of request codes. Nothing is served before Run.
// version is what the build calls itself; level is the logger's, so that it can be changed at run time.
func New(cfg *config.Config, version string, log *slog.Logger, level *slog.LevelVar) (*Service, error) {
	self, err := newIdentity(context.Background(), cfg)
	if err != nil {
		return nil, err
	}
	s := &Service{cfg: cfg, log: log, self: self, listening: make(chan struct{})}
	set := newSettings(cfg, log)
	set.watchers = append(set.watchers, func(next *config.Config) {
		_ = level.UnmarshalText([]byte(next.Log.Level)) // it was checked
	})
	if s.certs, err = newCertificates(&cfg.TLS, log.With("component", "tls")); err != nil {
		return nil, err
	}
	s.tracing, err = telemetry.Setup(context.Background(), telemetry.Options{Version: version, Logger: log})
	if err != nil {
		return nil, err
	}
	l, fast := newLanes(&cfg.Client, ""), newLanes(&cfg.Client, "fast-")
	var routes []remoting.Route
	if cfg.HasRole(config.RoleNameServer) {
		if s.names, err = newNames(cfg, self, set, log); err != nil {
			return nil, err
		}
		routes = append(routes, s.names.namesRoutes(l, fast)...)
	}
	if cfg.HasRole(config.RoleBroker) {
		if s.node, err = newNode(cfg, self, set, l, version, log); err != nil {
			return nil, err
		}
		routes = append(routes, s.node.brokerRoutes(l, fast)...)
	}
	if err = s.secure(); err == nil {
		err = s.setUpMetrics(version)
	}
	if err == nil {
		err = s.assemble(routes, set)
	}
	if err == nil {
		err = s.startMetrics(l)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// secure reads who may come in.
func (s *Service) secure() (err error) {
	if s.node == nil {
		s.access, err = newAccess(s.cfg, nil, s.log)
		return err
	}
	if s.access, err = newAccess(s.cfg, s.node.store, s.log); err == nil {
		s.node.users, s.node.mayOn = s.access.table, s.access.mayOn
	}
	return err
}

// assemble makes the registry, the server and what ties them to the broker.
func (s *Service) assemble(routes []remoting.Route, set *settings) error {
	access := remoting.NewAccessLog(s.log.With("component", "access"), s.cfg.Log.SlowCall)
	set.watchers = append(set.watchers, func(next *config.Config) { access.SetSlow(next.Log.SlowCall) })
	mapper := &errorMapper{log: s.log.With("component", "registry")}
	registry, err := remoting.NewRegistry(remoting.RegistryConfig{
		MapError: mapper.mapError, Logger: mapper.log, Wrappers: []remoting.Wrapper{s.access.guard},
		Hooks: []remoting.Hook{access, s.tracing.Hook(), s.metrics.Hook()},
	}, routes)
	if err != nil {
		return err
	}
	var http1, http2 remoting.ConnHandler
	if s.node != nil {
		s.grpc = s.newGRPC(registry)
		if s.rest, err = s.newREST(registry); err != nil {
			return err
		}
		http1, http2 = s.rest.Deliver, s.grpc.Deliver
	}
	s.server, err = remoting.NewServer(remoting.Config{
		TLS: s.certs.server(), HTTP1: http1, HTTP2: http2,
		Listeners: s.listeners(), Ready: s.ready, Logger: s.log.With("component", "remoting"),
		OnEnd: s.disconnected,
		Limits: remoting.Limits{
			MaxConns: s.cfg.Listen.MaxConns, MaxConnsPerIP: s.cfg.Listen.MaxConnsPerIP,
			IdleTimeout: s.cfg.Listen.IdleTimeout, CallTimeout: s.cfg.Client.SendTimeout,
		},
	}, registry)
	if err != nil || s.node == nil {
		return err
	}
	s.node.hold(s.cfg, s.server.FlushPending)
	if err = s.node.share(s.cfg, s.server.FlushPending); err != nil {
		return err
	}
	local := cmp.Or(s.names, &names{})
	s.registrar, err = newRegistrar(s.self, s.node.topics, local.routes, s.cfg, s.log)
	s.node.routes, s.node.registrar = local.routes, s.registrar
	return err
}

// listeners are the configured ports. Each serves every protocol; their names say what each is for.
func (s *Service) listeners() []remoting.Listener {
	var all []remoting.Listener
	for _, l := range []struct {
		name string
		base int
		on   bool
		fast bool
	}{
		{"name server", s.cfg.Listen.NamesrvPort, s.cfg.HasRole(config.RoleNameServer), false},
		{"broker", s.cfg.Listen.BrokerPort, s.cfg.HasRole(config.RoleBroker), false},
		{"fast broker", s.cfg.Listen.FastPort, s.cfg.HasRole(config.RoleBroker), true},
		{"gRPC", s.cfg.Listen.GRPCPort, s.cfg.HasRole(config.RoleBroker), false},
		{"HTTP", s.cfg.Listen.HTTPPort, true, false},
	} {
		port := s.cfg.Listen.Port(l.base)
		if !l.on || port == 0 {
			continue
		}
		all = append(all, remoting.Listener{
			Name: l.name, Addr: net.JoinHostPort(s.cfg.Listen.BindAddress, strconv.Itoa(port)), Fast: l.fast,
		})
	}
	for _, extra := range s.cfg.Listen.Extra {
		addr, advertised, _ := strings.Cut(extra, "=")
		all = append(all, remoting.Listener{Name: "extra", Addr: addr, Advertised: advertised})
	}
	for i := range all {
		all[i].TLS, all[i].NoProxy = remoting.TLSMode(s.cfg.TLS.Mode), !s.cfg.Listen.ProxyProtocol
	}
	return all
}

// ready tells why clients should not come, or nil.
func (s *Service) ready() error {
	if s.stopping.Load() {
		return errors.New("stopping")
	}
	if s.node != nil {
		if writable, cause := s.node.store.Health(); !writable {
			return fmt.Errorf("not writable: %w", cause)
		}
	}
	return nil
}

// disconnected makes the tables forget a connection that ended.
func (s *Service) disconnected(c *remoting.Conn) {
	if s.node != nil {
		s.node.disconnected(c, time.Now())
	}
	if s.names != nil {
		s.names.routes.Disconnected(c.ID())
	}
}

// Listening is closed once Run accepts connections.
func (s *Service) Listening() <-chan struct{} { return s.listening }

// Run serves until ctx is done, finishes what it accepted, and returns once every goroutine it started has
// ended.
func (s *Service) Run(ctx context.Context) error {
	if err := s.server.Listen(ctx); err != nil {
		return errors.Join(err, s.close())
	}
	close(s.listening)
	storing, stopStoring := context.WithCancel(context.WithoutCancel(ctx))
	defer stopStoring()
	below, stopBelow := context.WithCancel(storing)
	defer stopBelow()
	var bottom, middle errgroup.Group
	failed, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	if s.node != nil {
		bottom.Go(func() error { return endWith(fail, s.node.store.Run(storing)) })
		middle.Go(func() error { return endWith(fail, s.node.run(below, s.cfg.Store.FlushOffsetsPeriod)) })
	}
	middle.Go(func() error { return every(below, 5*time.Second, s.access.table.Tick) })
	if s.names != nil {
		middle.Go(func() error { return every(below, 5*time.Second, s.names.routes.Tick) })
	}
	if s.certs != nil {
		middle.Go(func() error { return every(below, certificatesPeriod, s.certs.check) })
	}
	err := s.serve(failed)
	stopBelow()
	err = errors.Join(err, middle.Wait())
	if s.node != nil {
		err = errors.Join(err, s.settleOffsets())
	}
	stopStoring()
	err = errors.Join(err, bottom.Wait(), s.close())
	s.log.Info("stopped")
	return err
}

func endWith(fail context.CancelCauseFunc, err error) error {
	if err != nil {
		fail(err)
	}
	return err
}

// serve registers, announces and serves until ctx is done, and then drains.
func (s *Service) serve(ctx context.Context) error {
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	var g, registering errgroup.Group
	if s.registrar != nil {
		s.registrar.registerLocal(nil, 0)
		registering.Go(func() error { return s.registrar.run(ctx) })
	}
	g.Go(func() error { return s.server.Serve(serving) })
	g.Go(func() error { s.serveMetrics(serving); return nil })
	if s.grpc != nil {
		g.Go(func() error { return s.grpc.Run(serving) })
		g.Go(func() error { return s.rest.Run(serving) })
	}
	s.announce()
	<-ctx.Done()
	s.log.Info("stopping", "cause", context.Cause(ctx))
	s.stopping.Store(true)
	if s.registrar != nil {
		_ = registering.Wait() // so that no registration overtakes the end of it; run has no error but ctx's end
		s.registrar.leave(serving)
		s.linger()
	}
	stopServing()
	return g.Wait()
}

// linger serves on for drainDelay, so that 4.x clients, which ask for routes every 30 s, have turned to other brokers
// before this one is gone: a send to an address that vanished, as a deleted pod's does, takes all of its
// client's time and is not tried elsewhere. A store that takes no writes is not worth the wait.
func (s *Service) linger() {
	if writable, _ := s.node.store.Health(); writable && s.cfg.Client.DrainDelay > 0 {
		s.log.Info("left the name servers; serving on", "for", s.cfg.Client.DrainDelay)
		<-time.After(s.cfg.Client.DrainDelay)
	}
}

// offsetsPatience bounds the last write of consumer offsets; a store that is broken does not take them.
const offsetsPatience = 5 * time.Second

// settleOffsets writes the consumer offsets that changed since the last time.
func (s *Service) settleOffsets() error {
	done := make(chan error, 1)
	s.node.offsets.Flush(func(err error) { done <- err })
	select {
	case err := <-done:
		return err
	case <-time.After(offsetsPatience):
		return errors.New("consumer offsets were not written in time")
	}
}

// announce says what is served where, and what clients are told.
func (s *Service) announce() {
	for _, l := range s.server.Listeners() {
		s.log.Info("listening", "listener", l.Name, "addr", l.Addr)
	}
	if s.node != nil {
		s.log.Info("clients are told this broker address; set another with --advertise",
			"broker_name", s.self.brokerName, "advertised", s.self.addr, "taken_from", s.self.origin,
			"auto_create_topic", s.cfg.Topic.AutoCreateTopic)
	}
	if ip := net.ParseIP(s.cfg.Listen.BindAddress); ip != nil && ip.IsLoopback() {
		s.log.Info("only this machine can connect; serve others with --bind 0.0.0.0")
	}
}

// telemetryPatience bounds how long the last spans may take to leave.
const telemetryPatience = 2 * time.Second

// close closes what New opened.
func (s *Service) close() error {
	var faults []error
	ctx, cancel := context.WithTimeout(context.Background(), telemetryPatience)
	defer cancel()
	if s.metrics != nil { // reads the store
		faults = append(faults, s.metrics.Shutdown(ctx))
	}
	if s.node != nil {
		faults = append(faults, s.node.store.Close())
	}
	return errors.Join(append(faults, s.tracing.Shutdown(ctx))...)
}

// printReport writes what was checked, what is wrong, and an error when anything is.
func printReport(w io.Writer, r *store.Report) error {
	_, err := fmt.Fprintf(w,
		"messages %d, states %d, queue entries %d, live states %d, keys %d, not indexed yet %d, faults %d\n",
		r.Messages, r.States, r.QueueEntries, r.LiveStates, r.Keys, r.NotIndexed,
		r.FaultCount+uint64(r.Log.FaultCount))
	if err != nil || r.OK() {
		return err
	}
	faults := r.Faults
	for _, fault := range r.Log.Faults {
		faults = append(faults, fault)
	}
	return fmt.Errorf("the store is damaged: %w", errors.Join(faults...))
}

// Verify checks the store below a data folder that no process has open and reports to w. An error means that
// something is damaged, or that the check could not be made.
func Verify(ctx context.Context, dir string, w io.Writer) error {
	cfg := config.New()
	cfg.Store.Dir = dir
	report, err := store.Verify(ctx, storeConfig(cfg, nil, slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	return printReport(w, &report)
}
