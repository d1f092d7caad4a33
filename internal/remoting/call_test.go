// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/roquetmq/roquet/internal/protocol"
)

// recorder is a hook that keeps what it sees, in order.
type recorder struct {
	name string
	mu   sync.Mutex
	seen []string
}

type recorderKey struct{}

func (r *recorder) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, r.name+fmt.Sprintf(format, args...))
}

func (r *recorder) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.seen)
}

func (r *recorder) Before(ctx context.Context, c *Call) context.Context {
	r.note("before %s", c.Code)
	return context.WithValue(ctx, recorderKey{}, c.Code)
}

func (r *recorder) Suspended(_ context.Context, c *Call) { r.note("suspended %s", c.Code) }

func (r *recorder) After(ctx context.Context, c *Call, resp *Response, err error) {
	if ctx.Value(recorderKey{}) != c.Code {
		r.note("lost context")
	}
	if resp == nil {
		r.note("after %s: %v", c.Code, err)
		return
	}
	r.note("after %s: %s %q", c.Code, resp.Code, resp.Remark)
}

func wantSeen(t *testing.T, r *recorder, want ...string) {
	t.Helper()
	eventually(t, strings.Join(want, ", "), func() bool { return len(r.all()) >= len(want) })
	if got := r.all(); !slices.Equal(got, want) {
		t.Fatalf("hooks saw %q, want %q", got, want)
	}
}

func TestHooksSeeEveryOutcome(t *testing.T) {
	t.Parallel()
	rec := &recorder{}
	lane := NewLane(LaneConfig{Name: "send"})
	h := start(t, []Route{
		{Code: codeEcho, Lane: lane, Processor: HandleBody(echo)},
		{Code: protocol.SendMessage, Lane: lane, Processor: func(context.Context, *Call) { panic("boom") }},
		{Code: protocol.QueryMessage, Lane: lane, Processor: Handle(
			func(*Call, *protocol.QueryMessageRequestHeader) (Response, error) {
				return Response{}, nil
			})},
	}, withHooks(nil, rec))
	nc := h.dial(t)
	write(t, nc, frameOf(codeEcho, 1, nil, nil))
	readFrame(t, nc)
	oneWay := protocol.Command{Code: int32(codeEcho), Flag: protocol.FlagOneWay}
	write(t, nc, protocol.AppendFrame(nil, &oneWay, fields{"topic": "quiet"}))
	write(t, nc, frameOf(protocol.SendMessage, 2, nil, nil))
	readFrame(t, nc)
	write(t, nc, frameOf(4711, 3, nil, nil))
	readFrame(t, nc)
	write(t, nc, frameOf(protocol.QueryMessage, 4, nil, nil))
	readFrame(t, nc)
	wantSeen(
		t,
		rec,
		`before SEND_MESSAGE_V2`,
		`after SEND_MESSAGE_V2: SUCCESS ""`,
		`before SEND_MESSAGE_V2`,
		`after SEND_MESSAGE_V2: SUCCESS "quiet"`,
		`before SEND_MESSAGE`,
		`after SEND_MESSAGE: SYSTEM_ERROR "internal error in SEND_MESSAGE: boom"`,
		`before 4711`,
		`after 4711: REQUEST_CODE_NOT_SUPPORTED " request type 4711 not supported"`,
		`before QUERY_MESSAGE`,
		`after QUERY_MESSAGE: SYSTEM_ERROR "QueryMessageRequestHeader: required field topic is missing"`,
	)
}

func TestHooksAndWrappersNest(t *testing.T) {
	t.Parallel()
	order := &recorder{}
	wrap := func(name string) Wrapper {
		return func(next Processor) Processor {
			return func(ctx context.Context, c *Call) {
				order.note("into %s", name)
				next(ctx, c)
				order.note("out of %s", name)
			}
		}
	}
	refuse := func(next Processor) Processor {
		return func(ctx context.Context, c *Call) {
			if c.Code == protocol.SendMessage {
				c.Fail(&protocol.Error{Code: protocol.NoPermission, Remark: "no"})
				return
			}
			next(ctx, c)
		}
	}
	reg, err := NewRegistry(
		RegistryConfig{Hooks: []Hook{order}, Wrappers: []Wrapper{wrap("a"), wrap("b"), refuse}},
		[]Route{
			{Code: codeEcho, Lane: NewLane(LaneConfig{}), Processor: HandleBody(
				func(*Call) (Response, error) { return Response{Remark: "done"}, nil })},
			{
				Code:      protocol.SendMessage,
				Lane:      NewLane(LaneConfig{}),
				Processor: func(context.Context, *Call) { t.Error("reached") },
			},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	done := func(r Response, err error) { order.note("door %s %v", r.Remark, err) }
	reg.Dispatch(t.Context(), NewCall(codeEcho, nil, nil, testPeer{}, done))
	reg.Dispatch(t.Context(), NewCall(protocol.SendMessage, nil, nil, testPeer{}, done))
	wantSeen(
		t,
		order,
		`before SEND_MESSAGE_V2`,
		`into a`,
		`into b`,
		`after SEND_MESSAGE_V2: SUCCESS "done"`,
		`door done <nil>`,
		`out of b`,
		`out of a`,
		`before SEND_MESSAGE`,
		`into a`,
		`into b`,
		`after SEND_MESSAGE: NO_PERMISSION "no"`,
		`door no <nil>`,
		`out of b`,
		`out of a`,
	)
}

type testPeer struct{}

func (testPeer) ID() uint64                 { return 1 }
func (testPeer) RemoteAddr() netip.AddrPort { return netip.MustParseAddrPort("192.0.2.1:1234") }

func TestRegistryRefusesBadTables(t *testing.T) {
	t.Parallel()
	lane := NewLane(LaneConfig{})
	_, err := NewRegistry(RegistryConfig{}, []Route{
		{Code: codeEcho, Lane: lane, Processor: HandleBody(echo)},
		{Code: codeEcho, Lane: lane, Processor: HandleBody(echo)},
		{Code: 200050, Processor: HandleBody(echo)},
		{Code: protocol.PullMessage, Lane: lane},
	})
	for _, part := range []string{"SEND_MESSAGE_V2: declared twice", "POP_MESSAGE: no lane", "PULL_MESSAGE: no processor"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error %v lacks %q", err, part)
		}
	}
}

func TestTypedHeaderFromADoor(t *testing.T) {
	t.Parallel()
	reg, err := NewRegistry(RegistryConfig{}, []Route{{Code: codeEcho, Lane: NewLane(LaneConfig{}), Processor: Handle(
		func(_ *Call, h *protocol.SendMessageRequestHeader) (Response, error) {
			return Response{Remark: h.Topic}, nil
		})}})
	if err != nil {
		t.Fatal(err)
	}
	var got Response
	keep := func(r Response, _ error) { got = r }
	reg.Dispatch(
		t.Context(),
		NewCall(codeEcho, &protocol.SendMessageRequestHeader{Topic: "orders"}, nil, testPeer{}, keep),
	)
	if got.Remark != "orders" {
		t.Fatalf("%+v", got)
	}
	reg.Dispatch(t.Context(), NewCall(codeEcho, &protocol.QueryMessageRequestHeader{}, nil, testPeer{}, keep))
	if got.Code != protocol.SystemError || !strings.Contains(got.Remark, "want *protocol.SendMessageRequestHeader") {
		t.Fatalf("%+v", got)
	}
}

// holder suspends calls and keeps them.
type holder struct {
	calls     chan *Call
	cancelled chan *Call
}

func newHolder() *holder {
	return &holder{calls: make(chan *Call, 1000), cancelled: make(chan *Call, 1000)}
}

func (h *holder) process(_ context.Context, c *Call) {
	if c.Suspend(func() { h.cancelled <- c }) {
		h.calls <- c
	}
}

func TestHeldCallsLeaveTheirLaneAndAreAnswered(t *testing.T) {
	t.Parallel()
	held, rec := newHolder(), &recorder{}
	lane := NewLane(LaneConfig{Name: "pull", MaxCalls: 1})
	h := start(t, []Route{{Code: codeAsync, Lane: lane, Processor: held.process}}, withHooks(rec))
	nc := h.dial(t)
	var calls []*Call
	for i := range 20 { // more than the lane has places for
		write(t, nc, frameOf(codeAsync, int32(i), nil, make([]byte, 100)))
		c := <-held.calls
		if c.Body != nil || c.Ext != nil || !c.Held() {
			t.Fatal("a held call keeps the chunk it was read into")
		}
		calls = append(calls, c)
	}
	if s := lane.Stats(); s.Calls != 0 {
		t.Fatalf("%+v", s)
	}
	for _, i := range []int{7, 0, 19} {
		calls[i].Reply(Response{Remark: "found"})
		if got := readFrame(t, nc); got.Opaque != int32(i) || got.Remark != "found" {
			t.Fatalf("got %d %q", got.Opaque, got.Remark)
		}
	}
	if got := rec.all()[:3]; !slices.Equal(
		got,
		[]string{"before PULL_MESSAGE", "suspended PULL_MESSAGE", "before PULL_MESSAGE"},
	) {
		t.Fatalf("hooks saw %q", got)
	}
	h.stop() // held calls do not keep the server
	h.end(t)
	for range 17 {
		if c := <-held.cancelled; slices.Contains([]int32{7, 0, 19}, c.Opaque) {
			t.Fatalf("call %d was answered and cancelled", c.Opaque)
		}
	}
	if len(held.cancelled) != 0 {
		t.Fatal("a call was cancelled twice")
	}
}

func TestLostConnectionCancelsCalls(t *testing.T) {
	t.Parallel()
	held, rec := newHolder(), &recorder{}
	flying := make(chan *Call, 1)
	lane := NewLane(LaneConfig{Name: "pull"})
	h := start(t, []Route{
		{Code: codeAsync, Lane: lane, Processor: held.process},
		{Code: codeEcho, Lane: lane, Processor: func(_ context.Context, c *Call) { flying <- c }},
	}, withHooks(rec))
	nc := h.dial(t)
	write(t, nc, frameOf(codeAsync, 1, nil, nil))
	write(t, nc, frameOf(codeEcho, 2, nil, nil))
	waiting, sending := <-held.calls, <-flying
	if err := nc.Close(); err != nil {
		t.Fatal(err)
	}
	if c := <-held.cancelled; c != waiting {
		t.Fatal("another call was cancelled")
	}
	eventually(t, "the connection has ended", sending.conn.Closed)
	if !waiting.Done() {
		t.Fatal("cancelled but not done")
	}
	waiting.Reply(Response{}) // late: without effect
	sending.Reply(Response{})
	wantSeen(t, rec, "before PULL_MESSAGE", "suspended PULL_MESSAGE", "before SEND_MESSAGE_V2",
		"after PULL_MESSAGE: connection closed", "after SEND_MESSAGE_V2: connection closed")
	if s := lane.Stats(); s.Calls != 0 || h.logged("call answered twice") != 0 {
		t.Fatalf("%+v %s", s, h.log)
	}
	if sending.Suspend(func() { t.Error("cancelled") }) {
		t.Error("a call that is over was suspended")
	}
}

func TestDoorsCancel(t *testing.T) {
	t.Parallel()
	held, rec := newHolder(), &recorder{}
	reg, err := NewRegistry(RegistryConfig{Hooks: []Hook{rec}}, []Route{
		{Code: codeAsync, Lane: NewLane(LaneConfig{MaxCalls: 1}), Processor: held.process},
		{Code: codeEcho, Lane: NewLane(LaneConfig{MaxCalls: 1}), Processor: func(context.Context, *Call) {}},
	})
	if err != nil {
		t.Fatal(err)
	}
	results := make(chan error, 4)
	done := func(_ Response, err error) { results <- err }
	gone := errors.New("client went away")
	c := NewCall(codeAsync, nil, nil, testPeer{}, done)
	reg.Dispatch(t.Context(), c)
	c.Cancel(gone)
	c.Cancel(gone)
	(<-held.calls).Reply(Response{})
	if err := <-results; !errors.Is(err, gone) || <-held.cancelled != c {
		t.Fatalf("done got %v", err)
	}

	c = NewCall(codeEcho, nil, nil, testPeer{}, done) // occupies its lane
	reg.Dispatch(t.Context(), c)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	reg.Dispatch(ctx, NewCall(codeEcho, nil, nil, testPeer{}, done)) // gives up waiting for the lane
	if err := <-results; !errors.Is(err, context.Canceled) {
		t.Fatalf("done got %v", err)
	}
	c.Cancel(nil)
	if err := <-results; !errors.Is(err, ErrCancelled) || len(results) != 0 {
		t.Fatalf("done got %v", err)
	}
	wantSeen(t, rec, "before PULL_MESSAGE", "suspended PULL_MESSAGE", "after PULL_MESSAGE: client went away",
		"before SEND_MESSAGE_V2", "before SEND_MESSAGE_V2", "after SEND_MESSAGE_V2: context canceled",
		"after SEND_MESSAGE_V2: call cancelled")
}

// TestReplyRacesWithTheEnd: whoever is first, every call ends once and every place comes back.
func TestReplyRacesWithTheEnd(t *testing.T) {
	t.Parallel()
	held, rec := newHolder(), &recorder{}
	lane := NewLane(LaneConfig{Name: "pull"})
	h := start(t, []Route{{Code: codeAsync, Lane: lane, Processor: held.process}}, withHooks(rec))
	const rounds, calls = 20, 20
	for range rounds {
		nc := h.dial(t)
		for i := range calls {
			write(t, nc, frameOf(codeAsync, int32(i), nil, nil))
		}
		var wg sync.WaitGroup
		for range calls {
			c := <-held.calls
			wg.Go(func() { c.Reply(Response{}) })
		}
		wg.Go(func() { _ = nc.Close() })
		wg.Wait()
	}
	h.end(t)
	ends := 0
	for _, s := range rec.all() {
		if strings.HasPrefix(s, "after") {
			ends++
		}
	}
	if ends != rounds*calls || lane.Stats().Calls != 0 || h.logged("call answered twice") != 0 {
		t.Fatalf("%d ends, want %d; %+v", ends, rounds*calls, lane.Stats())
	}
}
