// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
	"google.golang.org/grpc/metadata"

	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	traceID = "0af7651916cd43dd8448eb211c80319c"
	parent  = "00-" + traceID + "-b7ad6b7169203331-01"
	ignored = "00-" + traceID + "-b7ad6b7169203331-00" // not sampled
)

// world is a hook with its spans in memory.
type world struct {
	hook  *SpanHook
	ctx   context.Context // of the door
	spans *tracetest.InMemoryExporter
}

func newWorld(t testing.TB, s sampler) *world {
	t.Helper()
	w := &world{spans: tracetest.NewInMemoryExporter(), ctx: context.Background()}
	provider := sdk.NewTracerProvider(
		sdk.WithSyncer(w.spans),
	)
	t.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
	w.hook = &SpanHook{tracer: provider.Tracer(scopeName), sampler: s, propagator: propagation.TraceContext{}}
	return w
}

// sampled chooses this share of the calls without a parent, and of the others as their parents say.
func sampled(ratio float64) sampler {
	return sampler{ratio: ratio, parents: sdk.ParentBased(sdk.NeverSample())}
}

// only returns the one span there is, as text attributes.
func (w *world) only(t *testing.T) (tracetest.SpanStub, map[string]string) {
	t.Helper()
	spans := w.spans.GetSpans()
	if len(spans) != 1 {
		t.Fatalf("%d spans", len(spans))
	}
	w.spans.Reset()
	attrs := map[string]string{}
	for _, a := range spans[0].Attributes {
		attrs[string(a.Key)] = a.Value.String()
	}
	return spans[0], attrs
}

func wantAttrs(t *testing.T, got map[string]string, want map[string]string) {
	t.Helper()
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s is %q, want %q", k, got[k], v)
		}
	}
}

type peer struct{}

func (peer) ID() uint64                 { return 1 }
func (peer) RemoteAddr() netip.AddrPort { return netip.MustParseAddrPort("192.0.2.7:4711") }

// fields is a native header of any fields.
type fields map[string]string

func (fields) DecodeExt(*protocol.Ext) error { return nil }

func (f fields) AppendExt(w *protocol.ExtWriter) {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		w.String(name, f[name])
	}
}

// ext returns the fields as a server reads them.
func (f fields) ext(t *testing.T) *protocol.Ext {
	t.Helper()
	c, err := protocol.DecodeFrame(protocol.AppendFrame(nil, &protocol.Command{}, f)[protocol.FrameLengthBytes:])
	if err != nil {
		t.Fatal(err)
	}
	return &c.Ext
}

// run dispatches a call of that code with these native fields.
func run(t *testing.T, w *world, c *remoting.Call, native fields, process remoting.Processor) {
	t.Helper()
	if native != nil {
		c.Ext = native.ext(t)
	}
	c.Peer = peer{}
	if c.Protocol == 0 {
		c.Protocol = remoting.ProtocolRemoting
	}
	var routes []remoting.Route
	if process != nil {
		routes = []remoting.Route{{Code: c.Code, Lane: remoting.NewLane(remoting.LaneConfig{}), Processor: process}}
	}
	reg, err := remoting.NewRegistry(remoting.RegistryConfig{Hooks: []remoting.Hook{w.hook}}, routes)
	if err != nil {
		t.Fatal(err)
	}
	reg.Dispatch(w.ctx, c)
}

func call(code protocol.Code, h protocol.Header, body []byte) *remoting.Call {
	return remoting.NewCall(code, h, body, peer{}, func(remoting.Response, error) {})
}

func answer(r remoting.Response) remoting.Processor {
	return func(_ context.Context, c *remoting.Call) { c.Reply(r) }
}

func TestSpanOfASend(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sampled(1))
	props := "KEYS\x01k1\x02traceparent\x01" + parent + "\x02"
	run(
		t,
		w,
		call(protocol.SendMessageV2, nil, nil),
		map[string]string{"a": "pg", "b": "orders", "i": props},
		answer(
			remoting.Response{Header: &protocol.SendMessageResponseHeader{MsgID: "AB", QueueID: 3, QueueOffset: 17}},
		),
	)
	span, attrs := w.only(t)
	if span.Name != "RocketMQ/SEND_MESSAGE_V2" || span.SpanKind != trace.SpanKindServer ||
		span.Status.Code != codes.Unset {
		t.Errorf("%s %s %v", span.Name, span.SpanKind, span.Status)
	}
	wantAttrs(t, attrs, map[string]string{
		"rpc.system.name":                    "rocketmq_remoting",
		"rpc.method":                         "RocketMQ/SEND_MESSAGE_V2",
		"rpc.response.status_code":           "SUCCESS",
		"messaging.system":                   "rocketmq",
		"messaging.destination.name":         "orders",
		"messaging.message.id":               "AB",
		"messaging.destination.partition.id": "3",
		"roquet.queue_offset":                "17",
		"error.type":                         "",
		"network.peer.address":               "192.0.2.7",
		"network.peer.port":                  "4711",
	})
	if len(span.Links) != 1 || span.Links[0].SpanContext.TraceID().String() != traceID {
		t.Errorf("links %v", span.Links)
	}
	if span.Parent.IsValid() {
		t.Error("the message's context became the parent")
	}
}

// TestC205ParentOfTheRequest: the request's own traceparent is the parent, the message's stays a link.
func TestC205ParentOfTheRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sampled(0))
	other := strings.Replace(parent, "0af7", "1111", 1)
	run(t, w, call(protocol.SendMessage, nil, nil), map[string]string{
		"topic": "orders", "properties": "TRACE_CONTEXT\x01" + other + "\x02", "traceparent": parent,
	}, answer(remoting.Response{}))
	span, _ := w.only(t)
	if span.SpanContext.TraceID().String() != traceID || span.Parent.SpanID().String() != "b7ad6b7169203331" {
		t.Errorf("trace %s, parent %s", span.SpanContext.TraceID(), span.Parent.SpanID())
	}
	if len(span.Links) != 1 || !strings.HasPrefix(span.Links[0].SpanContext.TraceID().String(), "1111") {
		t.Errorf("links %v", span.Links)
	}
	run(
		t,
		w,
		call(protocol.SendMessage, nil, nil),
		map[string]string{"traceparent": ignored},
		answer(remoting.Response{}),
	)
	run(
		t,
		w,
		call(protocol.SendMessage, nil, nil),
		map[string]string{"traceparent": "nonsense"},
		answer(remoting.Response{}),
	)
	if n := len(w.spans.GetSpans()); n != 0 {
		t.Errorf("%d spans of calls whose parent is not sampled", n)
	}
	w.ctx = metadata.NewIncomingContext(t.Context(), metadata.Pairs(traceparentField, parent))
	c := call(
		protocol.SendMessage,
		&protocol.SendMessageRequestHeader{Properties: "traceparent\x01" + other + "\x02"},
		nil,
	)
	c.Protocol = remoting.ProtocolGRPC
	run(t, w, c, nil, answer(remoting.Response{}))
	span, _ = w.only(t)
	if span.SpanContext.TraceID().String() != traceID || len(span.Links) != 1 {
		t.Errorf("gRPC: trace %s, links %v", span.SpanContext.TraceID(), span.Links)
	}
}

// TestC204BatchKeepsItsLinks: three messages, three contexts, three links, on sending and on receiving.
func TestC204BatchKeepsItsLinks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sampled(1))
	var body, records []byte
	var want []string
	for i := range 3 {
		id := strings.Replace(traceID, "0af7", "aaa"+string(rune('0'+i)), 1)
		want = append(want, id)
		props := "traceparent\x01" + strings.Replace(parent, traceID, id, 1) + "\x02"
		body = message.AppendBatchEntry(body, 0, []byte("hello"), props)
		m := message.Message{
			Topic: "orders", Body: []byte("hello"), Properties: props,
			BornHost: netip.MustParseAddrPort("192.0.2.1:1"), StoreHost: netip.MustParseAddrPort("192.0.2.2:2"),
		}
		records = m.AppendTo(records)
	}
	links := func(span tracetest.SpanStub) (ids []string) {
		for _, l := range span.Links {
			ids = append(ids, l.SpanContext.TraceID().String())
		}
		return ids
	}
	run(
		t,
		w,
		call(protocol.SendBatchMessage, nil, body),
		map[string]string{"b": "orders"},
		answer(remoting.Response{}),
	)
	span, attrs := w.only(t)
	if got := links(span); !slices.Equal(got, want) || attrs["messaging.batch.message_count"] != "3" {
		t.Errorf("sent: links %v, count %s", got, attrs["messaging.batch.message_count"])
	}
	h := &protocol.SendMessageRequestHeader{Topic: "orders", Batch: protocol.Some(true)}
	run(t, w, call(protocol.SendMessageV2, h, body[:len(body)-1]), nil, answer(remoting.Response{})) // cut short
	if span, _ = w.only(t); len(span.Links) != 2 {
		t.Errorf("cut batch: links %v", links(span))
	}
	run(
		t,
		w,
		call(protocol.PullMessage, nil, nil),
		map[string]string{"topic": "orders", "consumerGroup": "g"},
		answer(
			remoting.Response{
				Body:   records[:len(records)/3],
				Bodies: [][]byte{records[len(records)/3:], []byte("torn")},
			},
		),
	)
	span, attrs = w.only(t)
	if got := links(span); !slices.Equal(got, want) || attrs["messaging.consumer.group.name"] != "g" {
		t.Errorf("received: links %v, group %s", got, attrs["messaging.consumer.group.name"])
	}
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sampled(1))
	for _, tc := range []struct {
		name      string
		code      protocol.Code
		process   remoting.Processor
		status    codes.Code
		errorType string
		span      string
	}{
		{"not found is no error", protocol.PullMessage, answer(remoting.Response{Code: protocol.PullNotFound}), codes.Unset, "", "RocketMQ/PULL_MESSAGE"},
		{
			"the client's fault", protocol.SendMessage, answer(remoting.Response{Code: protocol.TopicNotExist, Remark: "no"}),
			codes.Unset, "TOPIC_NOT_EXIST", "RocketMQ/SEND_MESSAGE",
		},
		{"ours", protocol.QueryMessage, func(context.Context, *remoting.Call) { panic("x") }, codes.Error, "SYSTEM_ERROR", "RocketMQ/QUERY_MESSAGE"},
		{"unknown code", 4711, nil, codes.Error, "REQUEST_CODE_NOT_SUPPORTED", "_OTHER"},
		{"cancelled", protocol.PullMessage, func(_ context.Context, c *remoting.Call) { c.Cancel(nil) }, codes.Unset, "cancelled", "RocketMQ/PULL_MESSAGE"},
		{"lost", protocol.PullMessage, func(_ context.Context, c *remoting.Call) { c.Cancel(remoting.ErrConnClosed) }, codes.Unset, "connection_closed", "RocketMQ/PULL_MESSAGE"},
		{"timed out", protocol.PullMessage, func(_ context.Context, c *remoting.Call) { c.Cancel(context.DeadlineExceeded) }, codes.Unset, "timeout", "RocketMQ/PULL_MESSAGE"},
	} {
		run(t, w, call(tc.code, nil, nil), nil, tc.process)
		span, attrs := w.only(t)
		if span.Status.Code != tc.status || attrs["error.type"] != tc.errorType || span.Name != tc.span {
			t.Errorf("%s: %v, error.type %q, name %s", tc.name, span.Status, attrs["error.type"], span.Name)
		}
	}
}

func TestSuspendedIsAnEvent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sampled(1))
	c := call(protocol.PullMessage, nil, nil)
	run(t, w, c, map[string]string{"topic": "t"}, func(_ context.Context, c *remoting.Call) { c.Suspend(nil) })
	if n := len(w.spans.GetSpans()); n != 0 {
		t.Fatalf("%d spans ended while the call is held", n)
	}
	c.Reply(remoting.Response{Code: protocol.PullNotFound})
	span, _ := w.only(t)
	if len(span.Events) != 1 || span.Events[0].Name != "suspended" {
		t.Errorf("events %v", span.Events)
	}
}

func TestSpansOfTheOtherDoors(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sampled(1))
	c := call(protocol.PopMessage, &protocol.PopMessageRequestHeader{Topic: "orders", ConsumerGroup: "g"}, nil)
	c.Protocol, c.Method = remoting.ProtocolGRPC, "apache.rocketmq.v2.MessagingService/ReceiveMessage"
	run(t, w, c, nil, answer(remoting.Response{}))
	span, attrs := w.only(t)
	if span.Name != c.Method {
		t.Errorf("name %s", span.Name)
	}
	wantAttrs(t, attrs, map[string]string{
		"rpc.system.name":               "grpc",
		"rpc.method":                    c.Method,
		"messaging.destination.name":    "orders",
		"messaging.consumer.group.name": "g",
	})
	c = call(protocol.SendMessageV2, &protocol.SendMessageRequestHeader{Topic: "orders"}, nil)
	c.Protocol = remoting.ProtocolREST
	run(t, w, c, nil, answer(remoting.Response{}))
	if n := len(w.spans.GetSpans()); n != 0 {
		t.Errorf("%d spans of a call whose HTTP request has none", n)
	}
	w.ctx, _ = w.hook.tracer.Start(t.Context(), "POST")
	c = call(protocol.SendMessageV2, &protocol.SendMessageRequestHeader{Topic: "orders"}, nil)
	c.Protocol = remoting.ProtocolREST
	run(t, w, c, nil, answer(remoting.Response{}))
	if span, attrs = w.only(t); span.SpanKind != trace.SpanKindInternal || attrs["rpc.system.name"] != "" {
		t.Errorf("%s %v", span.SpanKind, attrs)
	}
}

// TestSpanOfAnHTTPRequest: the span of a call is below that of its request, which is below the client's.
func TestSpanOfAnHTTPRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sampled(0))
	provider := sdk.NewTracerProvider(sdk.WithSyncer(w.spans))
	defer func() { _ = provider.Shutdown(context.Background()) }()
	handler := (&Telemetry{hook: w.hook, provider: provider}).Handler(
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			w.ctx, r.Pattern = r.Context(), "POST /v1/topics/{topic}/messages"
			c := call(protocol.SendMessageV2, &protocol.SendMessageRequestHeader{Topic: "orders"}, nil)
			c.Protocol = remoting.ProtocolREST
			run(t, w, c, nil, answer(remoting.Response{}))
		}))
	for _, path := range []string{"/v1/topics/orders/messages", "/healthz", "/v1/groups/g/topics/t/messages:stream"} {
		r := httptest.NewRequest(http.MethodPost, path, nil)
		r.Header.Set(traceparentField, parent)
		handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	spans := w.spans.GetSpans()
	if len(spans) != 2 {
		t.Fatalf("%d spans", len(spans))
	}
	inner, outer := spans[0], spans[1]
	if outer.Name != "POST /v1/topics/{topic}/messages" || outer.SpanKind != trace.SpanKindServer ||
		outer.Parent.SpanID().String() != "b7ad6b7169203331" || inner.SpanKind != trace.SpanKindInternal ||
		inner.Parent.SpanID() != outer.SpanContext.SpanID() {
		t.Errorf(
			"request %s of %s, call %s of %s",
			outer.Name,
			outer.Parent.SpanID(),
			inner.Name,
			inner.Parent.SpanID(),
		)
	}
}

// TestRatio: the share is about right, and the SDK records every span that the hook wants.
func TestRatio(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sampled(0.25))
	const calls = 4000
	started := 0
	for range calls {
		c := call(protocol.HeartBeat, nil, nil)
		ctx := w.hook.Before(t.Context(), c)
		if span := spanOf(ctx); span != nil {
			started++
			if !span.IsRecording() {
				t.Fatal("the SDK decided otherwise")
			}
		}
		w.hook.After(ctx, c, &remoting.Response{}, nil)
	}
	if ended := len(w.spans.GetSpans()); ended != started || started < calls/5 || started > calls/3 {
		t.Errorf("%d started, %d ended of %d", started, ended, calls)
	}
}

func TestUnsampledCallsDoNotAllocate(t *testing.T) {
	for name, ratio := range map[string]float64{"never": 0, "ratio": 1e-12} {
		w := newWorld(t, sampled(ratio))
		c := call(protocol.SendMessageV2, nil, nil)
		c.Protocol = remoting.ProtocolRemoting
		c.Ext = fields{"b": "orders"}.ext(t)
		r := &remoting.Response{}
		ctx := context.Background()
		if n := testing.AllocsPerRun(1000, func() { w.hook.After(w.hook.Before(ctx, c), c, r, nil) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// TestNativeSpanEndToEnd: through the real server, from a frame to an exported span.
func TestNativeSpanEndToEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sampled(0))
	addr := serve(t, w.hook)
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	cmd := protocol.Command{Code: int32(protocol.SendMessageV2), Opaque: 1}
	for range 2 { // the second reuses what the first was decoded into
		if _, err := nc.Write(
			protocol.AppendFrame(nil, &cmd, fields{"b": "orders", "traceparent": parent}),
		); err != nil {
			t.Fatal(err)
		}
		var word [4]byte
		if _, err := io.ReadFull(nc, word[:]); err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, nc, int64(binary.BigEndian.Uint32(word[:]))); err != nil {
			t.Fatal(err)
		}
		span, attrs := w.only(t)
		if span.Parent.TraceID().String() != traceID || attrs["messaging.destination.name"] != "orders" {
			t.Errorf("%v %v", span.Parent, attrs)
		}
	}
}

// serve starts a server whose sends succeed.
func serve(t *testing.T, hook remoting.Hook) (addr string) {
	t.Helper()
	reg, err := remoting.NewRegistry(remoting.RegistryConfig{Hooks: []remoting.Hook{hook}}, []remoting.Route{
		{
			Code:      protocol.SendMessageV2,
			Lane:      remoting.NewLane(remoting.LaneConfig{}),
			Processor: answer(remoting.Response{}),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := remoting.NewServer(remoting.Config{
		Listeners: []remoting.Listener{{Name: "broker", Addr: "127.0.0.1:0"}}, Logger: slog.New(slog.DiscardHandler),
	}, reg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(20 * time.Second):
			t.Error("Serve did not return")
		}
	})
	return s.Listeners()[0].Addr
}
