// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roquetmq/roquet/internal/broker/filter"
	"github.com/roquetmq/roquet/internal/broker/pop"
)

// popAnswer is what a receive was answered with.
type popAnswer struct {
	req *PopRequest
	err error
}

// pops receives; the answer is in the channel.
func (w *popWorld) pops(change ...func(*PopRequest)) chan popAnswer {
	got := make(chan popAnswer, 1)
	req := &PopRequest{
		Group: "g", Topic: "T", QueueID: AllQueues, MaxCount: 32, Invisible: 10 * time.Second,
		Done: func(req *PopRequest, err error) { got <- popAnswer{req, err} },
	}
	for _, fn := range change {
		fn(req)
	}
	w.popper.Pop(req)
	return got
}

// A receive whose filter's type is switched off, or is none, is told that it is the filter, as by the original: to gRPC
// and REST clients that is not the server's fault, as a pull's SYSTEM_ERROR would be.
func TestPopByOtherTypes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		filters := filter.NewCache()
		filters.SetSQL(false)
		w := openPopWorld(t, newMemStore(), func(c *PopperConfig) { c.Filters = filters })
		w.start()
		defer func() { w.stop() }()
		w.topic(t, "T", 1)
		w.group(t, "g")
		for _, exprType := range []string{"SQL92", "NOPE"} {
			got := <-w.pops(func(req *PopRequest) { req.Filter = PullExpression{Text: "a = 1", Type: exprType} })
			if !errors.Is(got.err, SubscriptionIllegal) || !strings.Contains(got.err.Error(), exprType) {
				t.Errorf("%s: %v", exprType, got.err)
			}
		}
	})
}

// TestTenThousandWaitingReceives: they cost their bookkeeping alone, and each message goes to one of them.
func TestTenThousandWaitingReceives(t *testing.T) { // alone: it measures memory
	const waiting = 10_000
	synctest.Test(t, func(t *testing.T) {
		w := openPopWorld(t, newMemStore(), nil)
		w.start()
		defer func() { w.stop() }()
		w.topic(t, "T", 8)
		w.group(t, "g")
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		found := make(chan int64, waiting)
		for range waiting {
			req := &PopRequest{
				Group: "g", Topic: "T", QueueID: AllQueues, MaxCount: 1, Invisible: time.Minute,
				Wait: time.Minute, Done: func(req *PopRequest, err error) {
					if err == nil {
						found <- int64(len(req.Result().Messages))
					}
				},
			}
			w.popper.Pop(req)
		}
		w.settle()
		runtime.GC()
		runtime.ReadMemStats(&after)
		if n := w.popper.PollingCount("g", "T", AllQueues); n != waiting {
			t.Fatalf("%d receives wait", n)
		}
		if each := int64(after.HeapAlloc-before.HeapAlloc) / waiting; each > 2048 {
			t.Errorf("a waiting receive takes %d bytes", each)
		} else {
			t.Logf("a waiting receive takes %d bytes", each)
		}
		if n := w.st.waiting(); n != 8 {
			t.Errorf("%d waiters in the store, want one a queue", n)
		}
		for i := range 100 {
			w.mustSend(t, "T", fmt.Sprint(i), func(r *SendRequest) { r.QueueID = int32(i % 8) })
		}
		w.settle()
		if len(found) != 100 {
			t.Fatalf("%d receives were answered for 100 messages", len(found))
		}
		w.pass(time.Minute)
		if len(found) != waiting || w.popper.holds.count() != 0 {
			t.Errorf("%d receives were answered, %d still wait", len(found), w.popper.holds.count())
		}
	})
}

func TestPollingFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := openPopWorld(t, newMemStore(), func(c *PopperConfig) { c.PollingSize, c.MaxPollingSize = 2, 3 })
		w.start()
		w.topic(t, "T", 2)
		w.topic(t, "U", 1)
		w.group(t, "g")
		wait := func(req *PopRequest) { req.Wait = time.Minute }
		var held []chan popAnswer
		for range 2 {
			held = append(held, w.pops(wait))
		}
		w.settle()
		if a := <-w.pops(wait); a.req.Result().Outcome != PopPollingFull {
			t.Errorf("the third of one key: %v, %v", a.req.Result().Outcome, a.err)
		}
		held = append(held, w.pops(wait, func(r *PopRequest) { r.QueueID = 1 }))
		w.settle()
		if a := <-w.pops(wait, func(r *PopRequest) { r.Topic = "U" }); a.req.Result().Outcome != PopPollingFull {
			t.Errorf("the fourth in all: %v, %v", a.req.Result().Outcome, a.err)
		}
		w.stop() // answers all that wait
		for _, got := range held {
			if a := <-got; a.err != nil || a.req.Result().Outcome != PopPollingTimeout {
				t.Errorf("at the end: %v, %v", a.req.Result().Outcome, a.err)
			}
		}
	})
}

func TestPopPermissions(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		denial string
		change func(*popWorld, *testing.T)
	}{
		{"broker", "pop message is forbidden", func(w *popWorld, _ *testing.T) { w.topics.SetDenied(PermRead) }},
		{"topic", "the topic[T] peeking", func(w *popWorld, t *testing.T) {
			w.topic(t, "T", 1, func(c *TopicConfig) { c.Perm = PermWrite })
		}},
		{"group", "subscription group no permission, g", func(w *popWorld, t *testing.T) {
			w.group(t, "g", func(c *GroupConfig) { c.ConsumeEnable = false })
		}},
		{"subscription", "the consumer group[g] is forbidden for topic[T]", func(w *popWorld, t *testing.T) {
			var o outcome
			w.groups.SetForbidden("g", "T", PermRead, true, o.done)
			w.st.apply()
			o.want(t, 1, true)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := openPopWorld(t, newMemStore(), nil)
			w.topic(t, "T", 1)
			w.group(t, "g")
			tt.change(w, t)
			if a := <-w.pops(); !denied(tt.denial)(a.err) {
				t.Errorf("%v", a.err)
			}
		})
	}
}

// TestPopCreatesTheGroup: a group that nobody knows is created by its first receive, unless that is
// forbidden.
func TestPopCreatesTheGroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := openPopWorld(t, newMemStore(), nil)
		w.start()
		defer func() { w.stop() }()
		w.topic(t, "T", 1)
		w.mustSend(t, "T", "hello")
		got := w.pops()
		w.settle()
		if a := <-got; a.err != nil || len(a.req.Result().Messages) != 1 {
			t.Fatalf("%v", a.err)
		}
		w.groups.SetAutoCreate(false)
		if a := <-w.pops(func(r *PopRequest) { r.Group = "h" }); !errors.Is(a.err, GroupNotExist) {
			t.Errorf("%v", a.err)
		}
	})
}

// TestReleaseGivesBack: what a client did not get comes at once, and is not counted (C122: only deliveries
// count).
func TestReleaseGivesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := openPopWorld(t, newMemStore(), nil)
		w.start()
		defer func() { w.stop() }()
		w.topic(t, "T", 2)
		w.group(t, "g")
		for i := range 4 {
			w.mustSend(t, "T", fmt.Sprint(i), func(r *SendRequest) { r.QueueID = int32(i % 2) })
		}
		got := w.pops()
		w.settle()
		first := <-got
		w.popper.Release(first.req)
		w.pass(10 * time.Millisecond)
		got = w.pops()
		w.settle()
		again := (<-got).req.Result()
		if len(again.Messages) != 4 {
			t.Fatalf("%d messages came again", len(again.Messages))
		}
		for _, m := range again.Messages {
			if m.ReconsumeTimes != 0 {
				t.Errorf("offset %d: reconsumeTimes %d", m.Offset, m.ReconsumeTimes)
			}
		}
	})
}

func TestOrderCountInfo(t *testing.T) {
	t.Parallel()
	r := PopResult{Order: OrderQueue, Messages: []PopMessage{
		{QueueID: 3, Offset: 10, StartOffset: 10},
		{QueueID: 3, Offset: 12, StartOffset: 10, ReconsumeTimes: 2},
		{QueueID: 5, Offset: 7, StartOffset: 7, ReconsumeTimes: 1},
	}}
	for _, tt := range []struct{ what, got, want string }{
		{"startOffsetInfo", string(r.AppendStartOffsetInfo(nil)), "0 3 10;0 5 7"},
		{"msgOffsetInfo", string(r.AppendMsgOffsetInfo(nil)), "0 3 10,12;0 5 7"},
		{"orderCountInfo", string(r.AppendOrderCountInfo(nil)), "0 qo3%12 2;0 3 0;0 qo5%7 1;0 5 1"},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %q, want %q", tt.what, tt.got, tt.want)
		}
	}
	if r.ReviveQueueID() != pop.OrderReviveQueueID || (&PopResult{Order: OrderGroup}).ReviveQueueID() != 0 {
		t.Error("reviveQid")
	}
}

func TestPopKeys(t *testing.T) {
	t.Parallel()
	for _, want := range []popRecord{
		{popSpanKey, popKey{"T", "g"}, 0, 0}, {popKeptKey, popKey{"%RETRY%a_b", "%|-"}, 65535, 1 << 60},
	} {
		key := appendPopKey(nil, want.letter, want.key, want.queueID, want.offset)
		if got, ok := parsePopKey(key); !ok || got != want {
			t.Errorf("%q is %+v, %v; want %+v", key, got, ok, want)
		}
		for n := range key {
			if got, ok := parsePopKey(key[:n]); ok && got == want {
				t.Errorf("%q is taken for %+v", key[:n], got)
			}
		}
	}
}

// TestDeletionThatFails leaves the claims alone.
func TestDeletionThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := openPopWorld(t, newMemStore(), nil)
		w.start()
		defer func() { w.stop() }()
		w.topic(t, "T", 1)
		w.group(t, "g")
		w.mustSend(t, "T", "hello")
		got := w.pops()
		w.settle()
		h := (<-got).req.Result().Handle(0)
		for _, broken := range [][2]error{{nil, errors.New("failed")}, {errors.New("refused"), nil}} {
			w.st.setErrors(broken[0], broken[1])
			var o, deleted outcome
			w.topics.Delete("T", o.done)
			w.groups.Delete("g", w.offsets, deleted.done)
			w.settle()
			o.want(t, 1, false)
			deleted.want(t, 1, false)
			w.st.setErrors(nil, nil)
		}
		acked := make(chan error, 1)
		ack := &SettleRequest{Group: "g", Topic: "T", Handles: []pop.Handle{h}}
		ack.Done = func(req *SettleRequest, err error) { acked <- errors.Join(append(req.Results, err)...) }
		w.popper.Ack(ack)
		w.settle()
		if err := <-acked; err != nil {
			t.Error(err)
		}
	})
}

// With appendCkAsync a receive does not wait for its claims, an orderly one does; what a crash takes of them comes
// at once.
func TestClaimsAsync(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := openPopWorld(t, newMemStore(), func(c *PopperConfig) { c.ClaimsAsync = true })
		w.start()
		defer func() { w.stop() }()
		w.topic(t, "T", 1)
		w.group(t, "g")
		w.mustSend(t, "T", "first")
		first := w.pops()
		if len(first) != 1 {
			t.Fatal("a receive waited for its claim")
		}
		w = w.crash(t)
		if got := <-w.pops(); got.err != nil || len(got.req.Result().Messages) != 1 {
			t.Fatal("a message whose claim was lost did not come at once", got.err)
		}
		w.settle()
		w = w.crash(t)
		if got := <-w.pops(); got.err != nil || len(got.req.Result().Messages) != 0 {
			t.Fatal("a message came although its claim was stored", got.err)
		}
		w.mustSend(t, "T", "second")
		orderly := w.pops(func(req *PopRequest) { req.Order = OrderGroup })
		if len(orderly) != 0 {
			t.Fatal("an orderly receive did not wait for its claim")
		}
		w.settle()
		if got := <-orderly; got.err != nil || len(got.req.Result().Messages) != 1 {
			t.Fatal(got.err)
		}
	})
}
