// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Config describes a Server.
type Config struct {
	Listeners []Listener
	TLS       *tls.Config  // nil: no TLS anywhere; certificates are reloaded by its GetCertificate
	HTTP1     ConnHandler  // nil: health, readiness and a pointer to the right port are answered here
	HTTP2     ConnHandler  // nil: such connections are told the right port and closed
	Ready     func() error // nil, or why it should get no traffic
	OnEnd     func(*Conn)  // nil, or told of each native connection that ended, on its goroutine
	Limits    Limits
	Logger    *slog.Logger
}

// A Server listens, recognises what each connection speaks, serves native connections through its registry
// and hands the others to their doors. All methods are safe for concurrent use.
type Server struct {
	cfg       Config
	eng       *engine
	listeners []*Listener
	sockets   []net.Listener // parallel to listeners, set by Listen
	doors     doors
	ready     atomic.Bool // Listen has succeeded

	mu struct {
		sync.Mutex
		conns map[*Conn]bool // true once it is known to be native
	}
}

// NewServer checks cfg, all faults at once, and returns a server that does nothing yet.
func NewServer(cfg Config, reg *Registry) (*Server, error) {
	cfg.Limits.setDefaults()
	var faults []error
	s := &Server{cfg: cfg, eng: newEngine(reg, cfg.Limits, cfg.Logger)}
	if cfg.HTTP1 == nil {
		s.cfg.HTTP1 = s.answerHTTP
	}
	for i := range cfg.Listeners {
		l := cfg.Listeners[i]
		faults = append(faults, l.validate())
		s.listeners = append(s.listeners, &l)
	}
	s.mu.conns, s.doors.byIP = make(map[*Conn]bool), make(map[netip.Addr]int)
	return s, errors.Join(faults...)
}

// Listen binds all listeners, or none. From then on Listeners tells the addresses; connections wait until
// Serve.
func (s *Server) Listen(ctx context.Context) error {
	config := listenConfig(s.cfg.Limits.KeepAliveTimeout)
	for _, l := range s.listeners {
		socket, err := config.Listen(ctx, "tcp", l.Addr)
		if err != nil {
			s.closeSockets()
			return fmt.Errorf("listener %s: %w", l.Name, err)
		}
		s.sockets = append(s.sockets, socket)
	}
	for i, socket := range s.sockets {
		s.listeners[i].Addr = socket.Addr().String()
	}
	s.ready.Store(true)
	return nil
}

func (s *Server) closeSockets() {
	for _, socket := range s.sockets {
		// A listening socket holds no data that closing could lose.
		_ = socket.Close()
	}
	s.sockets = nil
}

// Listeners returns the listeners; after Listen their Addr is what was bound.
func (s *Server) Listeners() []*Listener { return slices.Clone(s.listeners) }

// Serve accepts and serves until ctx is done. Then it accepts no more, answers new requests of clients that
// understand it with GO_AWAY, waits for calls in flight and for answers to be taken, DrainTimeout at most,
// closes all native connections and returns once every goroutine it started has ended, the lanes' workers
// included. Held calls are not waited for: their holder answers them, or they are cancelled. Connections of
// other doors are theirs to end.
func (s *Server) Serve(ctx context.Context) error {
	if !s.ready.Load() {
		return ErrServerClosed
	}
	callCtx, endCalls := context.WithCancel(context.WithoutCancel(ctx))
	defer endCalls()
	s.eng.ctx = callCtx
	upkeepCtx, endUpkeep := context.WithCancel(callCtx)
	defer endUpkeep()
	var upkeep, accepting sync.WaitGroup
	upkeep.Go(func() { s.janitor(upkeepCtx) })
	for i, socket := range s.sockets { // not in the goroutine: closeSockets may come first
		accepting.Go(func() { s.accept(ctx, socket, s.listeners[i]) })
	}
	<-ctx.Done()
	s.closeSockets()
	accepting.Wait()
	err := s.drain()
	endCalls()
	for _, c := range s.conns(false) {
		c.shut(ErrServerClosed)
	}
	s.eng.running.Wait()
	endUpkeep()
	upkeep.Wait()
	return errors.Join(err, s.waitLanes())
}

// waitLanes waits for the workers. Their processors have been given up by now, so the wait is short or a bug.
func (s *Server) waitLanes() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.eng.limits.DrainTimeout)
	defer cancel()
	var faults []error
	for _, lane := range s.eng.reg.lanes {
		faults = append(faults, lane.wait(ctx))
	}
	return errors.Join(faults...)
}

// drainTick is how often the end looks whether everything has settled.
const drainTick = 5 * time.Millisecond

// drain waits for calls in flight and untaken answers.
func (s *Server) drain() error {
	s.eng.draining.Store(true)
	tick, late := time.Tick(drainTick), time.After(s.eng.limits.DrainTimeout)
	for {
		s.FlushPending()
		calls, owing := s.unsettled()
		if calls == 0 && owing == 0 {
			return nil
		}
		select {
		case <-tick:
		case <-late:
			s.eng.log.Warn("gave up on calls in flight", slog.Int("calls", calls),
				slog.Int("connections_owed", owing))
			return nil
		}
	}
}

// unsettled counts the calls in flight and the connections that have not taken all answers.
func (s *Server) unsettled() (calls, owing int) {
	for _, c := range s.conns(true) {
		calls += int(c.state.open.Load())
		if c.owes() {
			owing++
		}
	}
	return calls, owing
}

// Open returns how many connections are open, of all doors.
func (s *Server) Open() int { return s.doors.open() }

// FlushPending writes the answers given with ReplyLater: one write a connection, without blocking.
func (s *Server) FlushPending() { s.eng.pending.flush() }

// conns returns the connections that are open, or of these the native ones, in no order.
func (s *Server) conns(onlyNative bool) []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	conns := make([]*Conn, 0, len(s.mu.conns))
	for c, native := range s.mu.conns {
		if native || !onlyNative {
			conns = append(conns, c)
		}
	}
	return conns
}

// keepAliveProbes is how many probes go unanswered before a peer counts as gone.
const keepAliveProbes = 3

// listenConfig makes listeners whose connections notice within timeout that their idle peer vanished: a third
// of it in silence, then probes.
func listenConfig(timeout time.Duration) net.ListenConfig {
	interval := max(timeout*2/3/keepAliveProbes, time.Second)
	return net.ListenConfig{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: max(timeout/3, time.Second), Interval: interval, Count: keepAliveProbes,
	}}
}
