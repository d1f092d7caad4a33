// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/remoting"
)

// Names checks names by the rules that hold for every door. An error's text is told to the client.
type Names interface {
	// CheckTopic refuses what no topic may be called, and topics of the system.
	CheckTopic(name string) error
	// CheckGroup refuses what no consumer group may be called, and groups of the system.
	CheckGroup(name string) error
}

// Metadata is what the broker knows of topics and groups at the moment. Both methods are on the path of every
// message.
type Metadata interface {
	// Topic returns a topic of this broker.
	Topic(name string) (Topic, bool)
	// Group returns a consumer group of this broker.
	Group(name string) (Group, bool)
}

// Topic is what a door has to know of a topic.
type Topic struct {
	MessageType    string // the attribute message.type; empty stands for NORMAL
	WriteQueueNums int32
	Writable       bool
}

// Group is what a door has to know of a consumer group.
type Group struct {
	Orderly       bool
	RetryMaxTimes int32
	// Rests between tries: a table, or (when Multiplier is not 0) from Initial growing by the factor up to
	// Max.
	Rests        []time.Duration
	Initial, Max time.Duration
	Multiplier   int64
}

// Config is what a Server needs.
type Config struct {
	Names        Names
	Metadata     Metadata
	BrokerName   string
	MaxBodyBytes func() int          // the largest message body in force
	MaxDelay     time.Duration       // how far ahead a message may ask to be delivered
	Gate         remoting.Gate       // tells who makes an rpc; nil: everybody may
	Ready        func() error        // nil, or why clients should not come
	OnEnd        func(remoting.Peer) // is told of each session that ended, as of a connection; it must not block
	Limits       Limits
	Logger       *slog.Logger
}

// Limits bounds what clients may cost.
type Limits struct {
	InboundBytes      int64         // requests of all connections that are not whole
	MaxUntakenBytes   int64         // messages a connection was given and has not taken
	MaxStreamsPerConn uint32        // rpcs under way on a connection
	MaxSessions       int           // clients known at once
	MaxRenewed        int           // messages of one client whose receipts are renewed
	MaxOwedBytes      int           // commands a client has not taken off its telemetry stream
	SessionIdle       time.Duration // without stream and rpcs a client counts as gone after this
	RenewPeriod       time.Duration // how often receipts are looked at
}

// DefaultLimits are those that are in force.
func DefaultLimits() Limits {
	return Limits{
		InboundBytes: 512 << 20, MaxUntakenBytes: 64 << 20, MaxStreamsPerConn: 10_000, MaxSessions: 200_000,
		MaxRenewed: 20_000, MaxOwedBytes: 8 << 20, SessionIdle: time.Minute, RenewPeriod: 5 * time.Second,
	}
}

// api is the rpcs. Its methods are in the file of their family.
type api struct {
	v2.UnimplementedMessagingServiceServer

	cfg      Config
	log      *slog.Logger
	registry *remoting.Registry
	sessions *sessions
	waiters  sync.Pool     // *waiter
	stopping chan struct{} // closed when the server begins to stop
	meter    *meter
	health   *health
	inFlight atomic.Int64 // rpcs that have an end of their own: not telemetry streams and health watches
}

func (a *api) isStopping() bool {
	select {
	case <-a.stopping:
		return true
	default:
		return false
	}
}

// Server is the gRPC door.
type Server struct {
	api      *api
	grpc     *grpc.Server
	listener *remoting.ConnListener
}

// Sizes of grpc-go's buffers for a connection. Small ones are enough, since the client's requests are, and
// thousands of clients wait.
const (
	readBufferBytes  = 8 << 10
	writeBufferBytes = 32 << 10 // shared by all connections, held only while something is written
	maxHeaderBytes   = 64 << 10
	maxRequestBytes  = 130 << 20         // as the original
	connIdle         = 120 * time.Second // a connection without rpcs is closed after this
	keepAlive        = 30 * time.Second  // a silent connection is asked for a sign of life after this
	keepAliveTimeout = 20 * time.Second  // and closed when none comes for this
	drainTimeout     = 5 * time.Second   // rpcs under way when the server stops are waited for so long
	leastPingGap     = 5 * time.Second   // clients ping every 60 s (C++) or 300 s (Java), without rpcs too
	streamWorkers    = 256
	// Windows that grow would cost a ping and its answer whenever a request comes. What is on its way is bounded
	// by the meter.
	streamWindow = 1 << 20
	connWindow   = 4 << 20
	drainTick    = 5 * time.Millisecond // how often the end looks whether rpcs are under way
	writeGrace   = 200 * time.Millisecond
)

// New returns a door that dispatches through registry. It serves nothing before Run.
func New(cfg Config, registry *remoting.Registry) *Server {
	a := &api{
		cfg: cfg, log: cfg.Logger, registry: registry, stopping: make(chan struct{}),
		meter: &meter{limit: cfg.Limits.InboundBytes, log: cfg.Logger}, waiters: sync.Pool{New: newWaiter},
	}
	a.sessions = &sessions{api: a}
	a.sessions.mu.byID = map[string]*session{}
	s := &Server{api: a, listener: remoting.NewConnListener("gRPC")}
	s.grpc = grpc.NewServer(
		grpc.Creds(&handshake{nextID: registry.NextPeerID, meter: a.meter}),
		grpc.MaxRecvMsgSize(maxRequestBytes),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.MaxConcurrentStreams(cfg.Limits.MaxStreamsPerConn),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.ReadBufferSize(readBufferBytes),
		grpc.WriteBufferSize(writeBufferBytes),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connWindow),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.WaitForHandlers(true),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: leastPingGap, PermitWithoutStream: true,
		}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: connIdle, Time: keepAlive, Timeout: keepAliveTimeout,
		}),
		grpc.UnaryInterceptor(a.recoverUnary),
		grpc.StreamInterceptor(a.recoverStream),
	)
	v2.RegisterMessagingServiceServer(s.grpc, a)
	a.health = newHealth(a)
	healthpb.RegisterHealthServer(s.grpc, a.health)
	reflection.Register(s.grpc)
	return s
}

// Deliver takes over an HTTP/2 connection. It is a remoting.ConnHandler.
func (s *Server) Deliver(conn net.Conn) { s.listener.Deliver(conn) }

// Run serves until ctx is done. Then clients are told to go elsewhere (GOAWAY), telemetry streams and held
// receives end, rpcs under way are waited for, DrainTimeout at most, and Run returns once every goroutine it
// started has ended.
func (s *Server) Run(ctx context.Context) error {
	var g sync.WaitGroup
	upkeep, endUpkeep := context.WithCancel(context.WithoutCancel(ctx))
	defer endUpkeep()
	g.Go(func() { s.api.sessions.run(upkeep) })
	served := make(chan error, 1)
	go func() { served <- s.grpc.Serve(s.listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("gRPC door: %w", err)
	case <-ctx.Done():
	}
	close(s.api.stopping)
	s.drain()
	err := <-served
	endUpkeep()
	g.Wait()
	s.api.sessions.endAll()
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// drain lets rpcs under way end, and then closes the connections, which ends the telemetry streams. An rpc's handler
// is done before its answer is written, and grpc-go does not tell when that is, but for the last stream of all: where
// clients keep streams open, writeGrace is left for it.
func (s *Server) drain() {
	drained := make(chan struct{})
	go func() {
		s.grpc.GracefulStop() // ends when Stop has closed the last connection, if not before
		close(drained)
	}()
	patience := time.NewTimer(drainTimeout)
	defer patience.Stop()
	tick := time.NewTicker(drainTick)
	defer tick.Stop()
	for since := time.Now(); time.Since(since) < writeGrace; {
		select {
		case <-tick.C:
			if s.api.inFlight.Load() > 0 {
				since = time.Now()
			}
		case <-drained:
			return
		case <-patience.C:
			s.api.log.Warn("gave up on gRPC calls in flight", slog.Int64("calls", s.api.inFlight.Load()))
			since = time.Time{}
		}
	}
	s.grpc.Stop()
	<-drained
}

// recoverUnary counts an rpc, and puts an error into its answer.
func (a *api) recoverUnary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (answer any, err error) {
	defer a.recovered(info.FullMethod, &err)
	a.inFlight.Add(1)
	defer a.inFlight.Add(-1)
	a.meter.arrived(ctx, req)
	return answered(handler(ctx, req))
}

// answered puts an error into the answer's status, where clients look for it; one that is a gRPC status stays so.
func answered(answer any, err error) (any, error) {
	m, ok := answer.(proto.Message)
	var own interface{ GRPCStatus() *grpcstatus.Status }
	if err == nil || !ok || errors.As(err, &own) {
		return answer, err
	}
	r := m.ProtoReflect()
	if !r.IsValid() {
		r = r.New()
	}
	r.Set(r.Descriptor().Fields().ByName("status"), protoreflect.ValueOfMessage(statusOf(err).ProtoReflect()))
	return r.Interface(), nil
}

func (a *api) recoverStream(
	srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
) (err error) {
	defer a.recovered(info.FullMethod, &err)
	switch info.FullMethod {
	case v2.MessagingService_Telemetry_FullMethodName, healthpb.Health_Watch_FullMethodName:
	default:
		a.inFlight.Add(1)
		defer a.inFlight.Add(-1)
	}
	return handler(srv, stream)
}

// recovered makes an error of a panic of this package; those of processors are the registry's.
func (a *api) recovered(method string, err *error) {
	if v := recover(); v != nil {
		a.log.Error("gRPC door panicked", slog.String("method", method), slog.Any("error", v),
			slog.String("stack", string(debug.Stack())))
		*err = grpcstatus.Errorf(codes.Internal, "internal error in %s: %v", method, v)
	}
}
