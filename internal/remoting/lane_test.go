// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roquetmq/roquet/internal/protocol"
)

func TestLaneAdmitsByCountAndBytes(t *testing.T) {
	t.Parallel()
	l := NewLane(LaneConfig{MaxCalls: 3, MaxBytes: 100})
	if !l.tryEnter(500) {
		t.Fatal("a call larger than the lane must have it to itself")
	}
	if l.tryEnter(1) {
		t.Fatal("over the bytes")
	}
	l.leave(500)
	for range 3 {
		if !l.tryEnter(10) {
			t.Fatal("within both limits")
		}
	}
	if l.tryEnter(10) {
		t.Fatal("over the count")
	}
	if s := l.Stats(); s.Calls != 3 || s.Bytes != 30 || s.Done != 1 {
		t.Fatalf("%+v", s)
	}
}

func TestLaneWaitsInOrderUntilTheDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := NewLane(LaneConfig{Name: "send", MaxCalls: 1, MaxWait: time.Minute})
		if !l.tryEnter(1) {
			t.Fatal("empty lane")
		}
		var mu sync.Mutex
		var order []int
		for i := range 3 {
			go func() {
				waited, ok := l.enter(1, time.Now().Add(10*time.Second), nil)
				if !ok || waited != time.Duration(i+1)*time.Second {
					t.Errorf("waiter %d: waited %v, %v", i, waited, ok)
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
			}()
			synctest.Wait() // they queue up in this order
		}
		if l.tryEnter(1) {
			t.Fatal("overtook the waiters")
		}
		start := time.Now()
		if waited, ok := l.enter(1, start.Add(500*time.Millisecond), nil); ok || waited != 500*time.Millisecond {
			t.Fatalf("waited %v, %v; want the deadline", waited, ok)
		}
		<-time.After(500 * time.Millisecond) // the bubble's clock
		for range 3 {
			l.leave(1)
			synctest.Wait()
			<-time.After(time.Second) // the bubble's clock
		}
		if len(order) != 3 || order[0] != 0 || order[1] != 1 || order[2] != 2 {
			t.Fatalf("order %v", order)
		}
		stop := make(chan struct{})
		close(stop)
		if _, ok := l.enter(1, start.Add(time.Hour), stop); ok {
			t.Fatal("entered though nobody left and its caller gave up")
		}
		if s := l.Stats(); s.Waiting != 0 || s.Calls != 1 {
			t.Fatalf("%+v", s)
		}
	})
}

func TestLaneDeadlineInThePast(t *testing.T) {
	t.Parallel()
	l := NewLane(LaneConfig{MaxCalls: 1})
	l.tryEnter(1)
	if waited, ok := l.enter(1, time.Now().Add(-time.Second), nil); ok || waited != 0 {
		t.Fatalf("%v %v", waited, ok)
	}
	if e := l.busy(0); e.Code != protocol.SystemBusy || !strings.HasPrefix(e.Remark, "[OVERLOAD]system busy, ") {
		t.Fatalf("%v", e)
	}
}

// TestLaneUnderContention: never more calls in flight than allowed, and nobody is forgotten.
func TestLaneUnderContention(t *testing.T) {
	t.Parallel()
	const most = 3
	l := NewLane(LaneConfig{MaxCalls: most, MaxWait: patience})
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 300 {
				if !l.tryEnter(1) {
					if _, ok := l.enter(1, time.Time{}, nil); !ok {
						t.Error("refused within the patience")
						return
					}
				}
				if n := l.Stats().Calls; n > most+16 { // others' attempts show for a moment
					t.Errorf("%d in flight", n)
				}
				l.leave(1)
			}
		})
	}
	wg.Wait()
	if s := l.Stats(); s.Calls != 0 || s.Bytes != 0 || s.Waiting != 0 || s.Done != 16*300 {
		t.Fatalf("%+v", s)
	}
}

// TestC214RefusedIsNotExecuted: a full lane answers SYSTEM_BUSY in RocketMQ's words with numbers, and what
// was refused never reached the processor; other connections and lanes go on meanwhile.
func TestC214RefusedIsNotExecuted(t *testing.T) {
	t.Parallel()
	entered := make(chan *Call, 10)
	full := NewLane(LaneConfig{Name: "send", MaxCalls: 1, MaxWait: 50 * time.Millisecond})
	h := start(t, []Route{
		{Code: codeAsync, Lane: full, Processor: func(_ context.Context, c *Call) { entered <- c }},
		{Code: codeEcho, Lane: NewLane(LaneConfig{Name: "pull"}), Processor: HandleBody(echo)},
	})
	busy, free := h.dial(t), h.client(t)
	write(t, busy, frameOf(codeAsync, 1, nil, nil))
	held := <-entered
	write(t, busy, frameOf(codeAsync, 2, nil, nil))
	eventually(t, "the second waits", func() bool { return full.Stats().Waiting == 1 || full.Stats().Refused == 1 })
	for range 20 { // another connection, another lane
		if got := invoke(t, free, codeEcho, nil, nil); got.Code != int32(protocol.Success) {
			t.Fatalf("got %d %s", got.Code, got.Remark)
		}
	}
	got := readFrame(t, busy)
	if got.Code != int32(protocol.SystemBusy) || got.Opaque != 2 {
		t.Fatalf("got %d for %d", got.Code, got.Opaque)
	}
	for _, part := range []string{"[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: ", "lane send: 1 of 1 calls"} {
		if !strings.Contains(got.Remark, part) {
			t.Errorf("remark %q lacks %q", got.Remark, part)
		}
	}
	if len(entered) != 0 {
		t.Fatal("the refused call was executed")
	}
	held.Reply(Response{})
	if got := readFrame(t, busy); got.Opaque != 1 || got.Code != int32(protocol.Success) {
		t.Fatalf("got %d for %d", got.Code, got.Opaque)
	}
	if s := full.Stats(); s.Refused != 1 || s.Calls != 0 {
		t.Fatalf("%+v", s)
	}
}

// TestWaitingReaderGetsItsPlace: backpressure without refusal when a place comes free in time.
func TestWaitingReaderGetsItsPlace(t *testing.T) {
	t.Parallel()
	entered := make(chan *Call, 10)
	lane := NewLane(LaneConfig{Name: "send", MaxCalls: 2, MaxWait: patience})
	h := start(
		t,
		[]Route{{Code: codeAsync, Lane: lane, Processor: func(_ context.Context, c *Call) { entered <- c }}},
		withLimits(Limits{CallTimeout: patience}),
	)
	nc := h.dial(t)
	const calls = 50
	var burst []byte
	for i := range calls {
		burst = append(burst, frameOf(codeAsync, int32(i), nil, nil)...)
	}
	write(t, nc, burst)
	for range calls {
		(<-entered).Reply(Response{})
	}
	for range calls {
		if got := readFrame(t, nc); got.Code != int32(protocol.Success) {
			t.Fatalf("got %d %s", got.Code, got.Remark)
		}
	}
}

func TestPooledLaneRunsAtMostItsWorkers(t *testing.T) {
	t.Parallel()
	const workers = 3
	running := make(chan struct{}, 100)
	release := make(chan struct{})
	lane := NewLane(LaneConfig{Name: "admin", MaxCalls: 100, Workers: workers})
	h := start(
		t,
		[]Route{
			{Code: codeAsync, Lane: lane, Processor: HandleBody(func(c *Call) (Response, error) {
				running <- struct{}{}
				<-release
				return Response{Remark: c.Ext.Value("topic")}, nil
			})},
		},
	)
	nc := h.dial(t)
	topics := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	for i, topic := range topics {
		write(t, nc, frameOf(codeAsync, int32(i), &protocol.GetRouteInfoRequestHeader{Topic: topic}, nil))
	}
	for range workers {
		<-running
	}
	eventually(t, "all are in the lane", func() bool { return lane.Stats().Calls == int64(len(topics)) })
	if len(running) != 0 {
		t.Fatal("more workers than allowed")
	}
	close(release)
	for range topics {
		if got := readFrame(t, nc); got.Remark != topics[got.Opaque] {
			t.Fatalf("call %d saw the fields of another: %q", got.Opaque, got.Remark)
		}
	}
}

func TestCallsOfOneConnectionAreBounded(t *testing.T) {
	t.Parallel()
	entered := make(chan *Call, 10)
	h := start(
		t,
		[]Route{
			{
				Code:      codeAsync,
				Lane:      NewLane(LaneConfig{}),
				Processor: func(_ context.Context, c *Call) { entered <- c },
			},
		},
		withLimits(Limits{MaxCallsPerConn: 2, CallTimeout: 50 * time.Millisecond}),
	)
	nc := h.dial(t)
	for i := range 3 {
		write(t, nc, frameOf(codeAsync, int32(i), nil, nil))
	}
	if got := readFrame(t, nc); got.Opaque != 2 || got.Code != int32(protocol.SystemBusy) ||
		!strings.Contains(got.Remark, "limit 2") {
		t.Fatalf("got %d %d %q", got.Opaque, got.Code, got.Remark)
	}
	(<-entered).Reply(Response{})
	readFrame(t, nc)
	write(t, nc, frameOf(codeAsync, 7, nil, nil))
	(<-entered).Reply(Response{})
	(<-entered).Reply(Response{})
	for range 2 {
		if got := readFrame(t, nc); got.Code != int32(protocol.Success) {
			t.Fatalf("got %d %q", got.Code, got.Remark)
		}
	}
}
