// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	_ "embed"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	roquetv1 "github.com/roquetmq/roquet/api/proto/roquet/v1"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// Rules are the rules for messages and errors that this door has in common with the gRPC door.
type Rules interface {
	// Outgoing checks a message and returns the header of the call that sends it.
	Outgoing(m *v2.Message, remote netip.AddrPort, now time.Time) (*protocol.SendMessageRequestHeader, error)
	// Incoming makes a client's message of a stored one.
	Incoming(rec message.Record) (*v2.Message, error)
	// StatusOf names an error.
	StatusOf(err error) *v2.Status
}

// Config is what a Server needs. Rules, IDs and BrokerName are required; zero fields else have the defaults in
// parentheses.
type Config struct {
	Rules      Rules
	IDs        *message.UniqueIDs // names the messages that are published
	BrokerName string
	// MaxBodyBytes returns the largest message body in force. (4 MiB)
	MaxBodyBytes func() int
	// Orderly tells whether a group receives in order. (none does)
	Orderly func(group string) bool
	// Ready tells why clients should not come, or nil. (always ready)
	Ready  func() error
	Limits Limits
	Logger *slog.Logger
}

// Limits bounds what clients may cost. Zero fields take the defaults in parentheses.
type Limits struct {
	MaxHeaderBytes int           // a request's head (64 KiB)
	MaxBatchBytes  int64         // a batch in NDJSON; other requests are bounded by the largest message (64 MiB)
	HeadTimeout    time.Duration // for the head to arrive (10 s)
	Timeout        time.Duration // for a request to arrive, and for its answer to be taken (2 min)
	IdleTimeout    time.Duration // of a connection between requests (120 s)
	DrainTimeout   time.Duration // requests under way when the server stops are waited for so long (5 s)
}

func orDefault[T ~int | ~int64](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

func (c *Config) setDefaults() error {
	orDefault(&c.Limits.MaxHeaderBytes, 64<<10)
	orDefault(&c.Limits.MaxBatchBytes, 64<<20)
	orDefault(&c.Limits.HeadTimeout, 10*time.Second)
	orDefault(&c.Limits.Timeout, 2*time.Minute)
	orDefault(&c.Limits.IdleTimeout, 120*time.Second)
	orDefault(&c.Limits.DrainTimeout, 5*time.Second)
	if c.MaxBodyBytes == nil {
		c.MaxBodyBytes = func() int { return 4 << 20 }
	}
	if c.Orderly == nil {
		c.Orderly = func(string) bool { return false }
	}
	if c.Ready == nil {
		c.Ready = func() error { return nil }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Rules == nil || c.IDs == nil || c.BrokerName == "" {
		return errors.New("gateway: Rules, IDs and BrokerName are required")
	}
	return nil
}

// Server is the HTTP door.
type Server struct {
	door     *door
	http     *http.Server
	listener *remoting.ConnListener
}

// door answers requests.
type door struct {
	cfg       Config
	log       *slog.Logger
	registry  *remoting.Registry
	routes    *http.ServeMux    // those that are not plain JSON; the others go to plain
	plain     *runtime.ServeMux // those of the generated code
	described []pathMethods
	stopping  chan struct{} // closed when the server begins to stop
}

// New returns a door that dispatches through registry. It serves nothing before Run.
func New(cfg Config, registry *remoting.Registry) (*Server, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	d := &door{cfg: cfg, log: cfg.Logger, registry: registry, stopping: make(chan struct{})}
	d.plain = runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, &codec{}),
		runtime.WithUnescapingMode(runtime.UnescapingModeAllCharacters),
		runtime.WithDisableHTTPMethodOverride(), runtime.WithDisablePathLengthFallback(),
		runtime.WithErrorHandler(d.plainError), runtime.WithRoutingErrorHandler(d.routingError),
		runtime.WithForwardResponseOption(created),
	)
	var err error
	if d.described, err = described(openAPI); err != nil {
		return nil, err
	}
	ctx := context.Background()
	err = errors.Join(
		roquetv1.RegisterTopicServiceHandlerClient(ctx, d.plain, topics{d}),
		roquetv1.RegisterMessageServiceHandlerClient(ctx, d.plain, messages{d}),
		roquetv1.RegisterGroupServiceHandlerClient(ctx, d.plain, groups{d}),
		roquetv1.RegisterClusterServiceHandlerClient(ctx, d.plain, cluster{d}),
	)
	d.route()
	s := &Server{door: d, listener: remoting.NewConnListener("HTTP")}
	s.http = &http.Server{
		Handler:           d,
		ReadHeaderTimeout: cfg.Limits.HeadTimeout,
		ReadTimeout:       cfg.Limits.Timeout,
		WriteTimeout:      cfg.Limits.Timeout,
		IdleTimeout:       cfg.Limits.IdleTimeout,
		MaxHeaderBytes:    cfg.Limits.MaxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(d.log.Handler(), slog.LevelDebug),
		ConnContext:       d.accepted,
	}
	return s, err
}

// created makes 201 the status of what was stored.
func created(_ context.Context, w http.ResponseWriter, m proto) error {
	if _, ok := m.(*roquetv1.PublishResponse); ok {
		w.WriteHeader(http.StatusCreated)
	}
	return nil
}

// Deliver takes over an HTTP/1 connection. It is a remoting.ConnHandler.
func (s *Server) Deliver(conn net.Conn) { s.listener.Deliver(conn) }

// Run serves until ctx is done. Then it accepts no more, held receives and streams end, requests under way are
// waited for, DrainTimeout at most, and Run returns once every connection is closed.
func (s *Server) Run(ctx context.Context) error {
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(s.listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	close(s.door.stopping)
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.door.cfg.Limits.DrainTimeout)
	defer cancel()
	err := s.http.Shutdown(drain)
	if errors.Is(err, context.DeadlineExceeded) {
		s.door.log.Warn("gave up on HTTP requests under way")
		err = s.http.Close()
	}
	if end := <-served; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, end)
	}
	return err
}

// openAPI describes the routes, generated from api/proto/roquet/v1.
//
//go:embed openapi.swagger.json
var openAPI []byte

// route lays out what is not plain JSON.
func (d *door) route() {
	d.routes = http.NewServeMux()
	for pattern, handler := range map[string]http.HandlerFunc{
		"POST /v1/topics/{topic}/messages":                        d.publish,
		"POST /v1/topics/{topic}/messages:batch":                  d.publishBatch,
		"POST /v1/groups/{group}/topics/{topic}/messages:receive": d.receiveOne,
		"GET /v1/groups/{group}/topics/{topic}/messages:stream":   d.stream,
		"GET /openapi.json":                                       d.describe,
		"GET /healthz":                                            d.healthy,
		"GET /livez":                                              d.healthy,
		"GET /readyz":                                             d.ready,
		"/":                                                       d.servePlain,
	} {
		d.routes.HandleFunc(pattern, handler)
	}
}

// ServeHTTP answers a request. A panic of this package is an answer too; those of processors are the registry's.
func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer d.recovered(w, r)
	r.URL.RawPath = r.URL.EscapedPath() // so that it is decoded by whoever splits it, and once
	d.routes.ServeHTTP(w, r)
}

func (d *door) describe(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	d.write(w, openAPI)
}

func (d *door) healthy(w http.ResponseWriter, _ *http.Request) { d.write(w, []byte("ok\n")) }

func (d *door) ready(w http.ResponseWriter, r *http.Request) {
	err := d.cfg.Ready()
	select {
	case <-d.stopping:
		err = errStopping
	default:
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	d.healthy(w, r)
}

// write writes an answer, or a part of one. A client that is gone does not need it.
func (d *door) write(w http.ResponseWriter, b []byte) {
	if _, err := w.Write(b); err != nil {
		d.log.Debug("could not answer an HTTP request", slog.Any("error", err))
	}
}
