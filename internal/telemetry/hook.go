// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"errors"
	"strings"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"

	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

const (
	traceparentField = "traceparent" // W3C Trace Context, as ext field and as message property
	unknownMethod    = "_OTHER"      // semantic conventions: keeps the names of spans few
	systemRemoting   = "rocketmq_remoting"
	systemGRPC       = "grpc"
)

var (
	_ remoting.Hook        = (*SpanHook)(nil)
	_ remoting.SuspendHook = (*SpanHook)(nil)
)

// SpanHook makes one span of each sampled call, from its arrival to its answer. A call that is held until a
// message arrives is one span with an event "suspended". Safe for concurrent use.
type SpanHook struct {
	tracer     trace.Tracer // samples everything: whom the hook asks for a span has been chosen
	sampler    sampler
	propagator propagation.TextMapPropagator
}

type spanKey struct{}

// spanOf returns the call's own span, nil when the call is not sampled. A span that a door has put into the
// context before is that door's to end.
func spanOf(ctx context.Context) trace.Span {
	span, _ := ctx.Value(spanKey{}).(trace.Span) // a nil span when there is none
	return span
}

// Before starts the call's span if the sampler wants it. Nearly all calls have no parent; for them that is one
// random number. A call of the HTTP door has a span below that of its request, or none.
func (h *SpanHook) Before(ctx context.Context, c *remoting.Call) context.Context {
	parent, kind, hasParent := ctx, trace.SpanKindServer, false
	switch {
	case c.Protocol == remoting.ProtocolREST:
		if !trace.SpanFromContext(ctx).IsRecording() {
			return ctx
		}
		kind = trace.SpanKindInternal
	case c.Protocol == remoting.ProtocolGRPC:
		if hasParent = metadata.ValueFromIncomingContext(ctx, traceparentField) != nil; hasParent {
			parent = h.propagator.Extract(ctx, carrier(func(name string) string {
				return strings.Join(metadata.ValueFromIncomingContext(ctx, name), ",")
			}))
		}
	case c.Ext != nil:
		if _, hasParent = c.Ext.Get(traceparentField); hasParent {
			parent = h.propagator.Extract(ctx, carrier(c.Ext.Value))
		}
	}
	if kind == trace.SpanKindServer && !h.sampler.wants(parent, hasParent) {
		return ctx
	}
	links, count := sent(c)
	named, span := h.tracer.Start(parent, methodOf(c), trace.WithSpanKind(kind), trace.WithTimestamp(c.Received),
		trace.WithAttributes(requestAttributes(c, count)...), trace.WithLinks(links...))
	return context.WithValue(named, spanKey{}, span)
}

// Suspended notes that the call is held.
func (h *SpanHook) Suspended(ctx context.Context, _ *remoting.Call) {
	if span := spanOf(ctx); span != nil {
		span.AddEvent("suspended")
	}
}

// After ends the span with the outcome. Status is an error only for what is this server's fault.
func (h *SpanHook) After(ctx context.Context, c *remoting.Call, r *remoting.Response, err error) {
	span := spanOf(ctx)
	if span == nil {
		return
	}
	defer span.End()
	if r == nil {
		span.SetAttributes(semconv.ErrorTypeKey.String(causeOf(err)))
		return
	}
	span.SetAttributes(responseAttributes(r)...)
	if serverFault(r.Code) {
		span.SetStatus(codes.Error, r.Remark)
	}
	for _, link := range receiveLinks(c, r) {
		span.AddLink(link)
	}
}

// causeOf names why a call has no answer.
func causeOf(err error) string {
	switch {
	case errors.Is(err, remoting.ErrConnClosed):
		return "connection_closed"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	default:
		return "cancelled"
	}
}

// methodOf returns the span's name: the door's own name of the call, or Apache's name of its code.
func methodOf(c *remoting.Call) string {
	if c.Method != "" {
		return c.Method
	}
	if !c.Code.Known() {
		return unknownMethod
	}
	return "RocketMQ/" + c.Code.String()
}

// failed reports whether a code is a failure at all: finding nothing is none.
func failed(code protocol.ResponseCode) bool {
	switch code {
	case protocol.Success, protocol.PullNotFound, protocol.PullRetryImmediately, protocol.PullOffsetMoved,
		protocol.QueryNotFound, protocol.NoMessage, protocol.PollingTimeout, protocol.GoAway:
		return false
	default:
		return true
	}
}

// serverFault reports whether a code says that the server, not the request, is at fault. It follows the
// conventions' list for gRPC: unknown, deadline, unimplemented, internal, unavailable, data loss.
func serverFault(code protocol.ResponseCode) bool {
	switch code {
	case protocol.SystemError, protocol.SystemBusy, protocol.RequestCodeNotSupported,
		protocol.FlushDiskTimeout, protocol.FlushSlaveTimeout, protocol.SlaveNotAvailable, protocol.ServiceNotAvailable:
		return true
	default:
		return false
	}
}

// carrier lets a propagator read what came with a request.
type carrier func(name string) string

var _ propagation.TextMapCarrier = carrier(nil)

// Get returns a value. It is cloned: the fields are gone when the processor returns, baggage lives longer.
func (c carrier) Get(name string) string { return strings.Clone(c(name)) }

// Set does nothing: the fields are what the client sent.
func (carrier) Set(string, string) {}

// Keys returns nothing: no propagator of OTEL_PROPAGATORS that roquet is asked about needs them.
func (carrier) Keys() []string { return nil }
