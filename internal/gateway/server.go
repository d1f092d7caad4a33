// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	_ "embed"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	v1 "github.com/roquetmq/roquet/api/proto/roquet/v1"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// What clients may cost. A body is bounded by the largest message, see door.maxBody.
const (
	maxHeaderBytes = 64 << 10
	maxNDJSONBytes = 64 << 20          // of a batch
	headTimeout    = 10 * time.Second  // for a request's head to arrive
	requestTimeout = 2 * time.Minute   // for a request to arrive, and for its answer to be taken
	idleTimeout    = 120 * time.Second // of a connection between requests
	drainTimeout   = 5 * time.Second   // requests under way when the server stops are waited for so long
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

// Config is what a Server needs.
type Config struct {
	Rules        Rules
	IDs          *message.UniqueIDs // names the messages that are published
	BrokerName   string
	MaxBodyBytes func() int    // the largest message body in force
	Gate         remoting.Gate // nil: everybody may
	Ready        func() error  // nil, or why clients should not come
	Metrics      http.Handler  // of GET /metrics; nil for none
	// Trace makes spans of requests, whose routes it finds in their Pattern; nil for none.
	Trace func(next http.Handler) http.Handler
	// Backup writes the broker's data as a tar stream, without the files in have, a JSON array: see internal/backup.
	Backup func(ctx context.Context, w io.Writer, have []byte) error
	Logger *slog.Logger // nil discards
}

// Server is the HTTP door.
type Server struct {
	door     *door
	http     *http.Server
	listener *remoting.ConnListener
}

// door answers requests. It is the services of roquet.v1; their methods are in the file of their family.
type door struct {
	cfg       Config
	log       *slog.Logger
	registry  *remoting.Registry
	routes    http.Handler      // those that are not plain JSON; the others go to plain
	plain     *runtime.ServeMux // those of the generated code
	described []described
	stopping  chan struct{} // closed when the server begins to stop
}

// openAPI describes the routes, generated from api/proto/roquet/v1.
//
//go:embed openapi.swagger.json
var openAPI []byte

// New returns a door that dispatches through registry. It serves nothing before Run.
func New(cfg Config, registry *remoting.Registry) (*Server, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	d := &door{cfg: cfg, log: cfg.Logger, registry: registry, stopping: make(chan struct{}), described: describe()}
	d.plain = runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, &codec{}),
		runtime.WithUnescapingMode(runtime.UnescapingModeAllCharacters),
		runtime.WithDisableHTTPMethodOverride(),
		runtime.WithDisablePathLengthFallback(),
		runtime.WithIncomingHeaderMatcher(carried),
		runtime.WithErrorHandler(d.plainError),
		runtime.WithRoutingErrorHandler(d.routingError),
		runtime.WithForwardResponseOption(created),
	)
	ctx := context.Background()
	err := errors.Join(
		v1.RegisterTopicServiceHandlerServer(ctx, d.plain, d),
		v1.RegisterMessageServiceHandlerServer(ctx, d.plain, d),
		v1.RegisterGroupServiceHandlerServer(ctx, d.plain, d),
		v1.RegisterClusterServiceHandlerServer(ctx, d.plain, d),
		v1.RegisterUserServiceHandlerServer(ctx, d.plain, d),
	)
	mux := http.NewServeMux()
	for pattern, handler := range map[string]http.HandlerFunc{
		"POST /v1/topics/{topic}/messages":                        d.publish,
		"POST /v1/topics/{topic}/messages:batch":                  d.publishBatch,
		"POST /v1/groups/{group}/topics/{topic}/messages:receive": d.receiveOne,
		"GET /v1/groups/{group}/topics/{topic}/messages:stream":   d.stream,
		"POST /v1/backup": d.backup,
		"GET /healthz":    d.healthy,
		"GET /livez":      d.healthy,
		"GET /readyz":     d.ready,
		"GET /openapi.json": func(w http.ResponseWriter, _ *http.Request) {
			d.write(w, typeJSON, http.StatusOK, openAPI)
		},
		"/": d.servePlain,
	} {
		mux.HandleFunc(pattern, handler)
	}
	if cfg.Metrics != nil {
		mux.Handle("GET /metrics", cfg.Metrics)
	}
	if d.routes = mux; cfg.Trace != nil {
		d.routes = cfg.Trace(mux)
	}
	return &Server{door: d, listener: remoting.NewConnListener("HTTP"), http: &http.Server{
		Handler: d, ReadHeaderTimeout: headTimeout, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes, ConnContext: d.accepted,
		ErrorLog: slog.NewLogLogger(d.log.Handler(), slog.LevelDebug),
	}}, err
}

// created makes 201 the status of what was stored.
func created(_ context.Context, w http.ResponseWriter, m proto) error {
	if _, ok := m.(*v1.PublishResult); ok {
		w.WriteHeader(http.StatusCreated)
	}
	return nil
}

// Deliver takes over an HTTP/1 connection. It is a remoting.ConnHandler.
func (s *Server) Deliver(conn net.Conn) { s.listener.Deliver(conn) }

// Run serves until ctx is done. Then it accepts no more, held receives and streams end, requests under way are
// waited for, 5 s at most, and Run returns once every connection is closed.
func (s *Server) Run(ctx context.Context) error {
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(s.listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	close(s.door.stopping)
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
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

// ServeHTTP answers a request. A panic of this package is an answer too; those of processors are the registry's.
func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer d.recovered(w, r)
	r.URL.RawPath = r.URL.EscapedPath() // so that it is decoded by whoever splits it, and once
	dropUnprintable(r.Header)
	r, err := d.identified(r)
	if err == nil {
		err = d.checkQuery(r)
	}
	if err != nil {
		d.fail(w, err)
		return
	}
	d.routes.ServeHTTP(w, r)
}

func (d *door) healthy(w http.ResponseWriter, _ *http.Request) {
	d.write(w, "text/plain; charset=utf-8", http.StatusOK, []byte("ok\n"))
}

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

// write writes an answer. A client that is gone does not need it.
func (d *door) write(w http.ResponseWriter, contentType string, status int, b []byte) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	if _, err := w.Write(b); err != nil {
		d.log.Debug("could not answer an HTTP request", slog.Any("error", err))
	}
}
