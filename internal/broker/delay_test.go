// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/roquetmq/roquet/internal/message"
)

func delayed(level string, more ...string) func(*SendRequest) {
	return withProps(append([]string{"DELAY", level}, more...)...)
}

func TestC078DelayedMessageWaits(t *testing.T) {
	t.Parallel()
	for asked, level := range map[string]int{"1": 1, "3": 3, "18": 18, "19": 18, "100": 18} {
		t.Run(asked, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.topic(t, "T", 4)
			req := w.mustSend(t, "T", "body", delayed(asked, "TAGS", "a", "TIMER_DELAY_SEC", "5"),
				func(r *SendRequest) { r.QueueID = 3 })
			m := w.only(t, ScheduleTopic, int32(level-1))
			if property(&m, "REAL_TOPIC") != "T" || property(&m, "REAL_QID") != "3" ||
				property(&m, "TIMER_DELAY_SEC") != "" {
				t.Errorf("properties %q", m.Properties)
			}
			if res := req.Result(); res.QueueID != 3 || res.QueueOffset != 0 ||
				res.Messages[0].LogOffset != m.LogOffset {
				t.Errorf("result %+v", res)
			}
			levels := DelayLevels(nil).orDefault()
			want := timerKey{
				due:    m.StoreTimestamp + levels.Delay(level).Milliseconds(),
				level:  uint8(level),
				offset: 0,
			}
			if _, ok := w.st.live[string(byte(message.SpaceTimer))+string(want.encode())]; !ok {
				t.Errorf("no timer %+v", want)
			}
		})
	}
	for _, asked := range []string{"0", "-1"} {
		t.Run(asked, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.topic(t, "T", 1)
			w.mustSend(t, "T", "body", delayed(asked))
			w.only(t, "T", 0)
		})
	}
}

func TestDeliveredCopy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.topic(t, "T", 4)
	w.mustSend(t, "T", "body", delayed("2", "UNIQ_KEY", "u1", "TAGS", "a"), func(r *SendRequest) {
		r.QueueID, r.Flag, r.SysFlag, r.ReconsumeTimes = 3, 7, message.SysFlagCompressed, 2
	})
	parked := w.only(t, ScheduleTopic, 1)
	w.deliverAll(t, time.Now().Add(4*time.Second))
	if n := len(w.messages(t, "T", 3)); n != 0 {
		t.Fatal("C080 delivered before its time")
	}
	w.deliverAll(t, time.Now().Add(6*time.Second))
	w.deliverAll(t, time.Now().Add(time.Hour))
	m := w.only(t, "T", 3)
	for name, want := range map[string]string{
		"UNIQ_KEY": "u1", "TAGS": "a", "DELAY": "2", "REAL_TOPIC": "T",
		"MSG_REGION": "DefaultRegion", "CLUSTER": "C",
	} {
		if got := property(&m, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if m.Flag != 7 || m.SysFlag != message.SysFlagCompressed || m.ReconsumeTimes != 2 ||
		m.BornHost != parked.BornHost ||
		m.BornTimestamp != parked.BornTimestamp ||
		string(m.Body) != "body" {
		t.Errorf("delivered %+v", m)
	}
	if keys := w.timers(); len(keys) != 0 {
		t.Errorf("timers are left: %v", keys)
	}
	if s := w.delays.Stats(); s.Delivered != 1 || s.InFlight != 0 || s.Late <= 0 {
		t.Errorf("stats %+v", s)
	}
}

func (w *world) timers() (keys []timerKey) {
	for st := range w.st.StatesIn(message.SpaceTimer, nil, nil) { // the memory store has no errors
		k, _ := decodeTimerKey(st.Key)
		keys = append(keys, k)
	}
	return keys
}

// runDelays starts the deliveries of a world, and a store that makes writes durable as they come.
func runDelays(t *testing.T, w *world) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.delays.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

// settle lets deliveries run until nothing moves.
func (w *world) settle() {
	synctest.Wait()
	for w.st.apply() > 0 {
		synctest.Wait()
	}
}

func TestDeliveriesComeAtTheirTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.topic(t, "T", 1)
		stop := runDelays(t, w)
		defer stop()
		w.mustSend(t, "T", "in 30 s", delayed("4"))
		w.settle()
		pass(10 * time.Second)
		w.mustSend(t, "T", "in 1 s", delayed("1"))
		start := time.Now()
		for _, want := range []struct {
			body string
			at   time.Duration
		}{{"in 1 s", time.Second}, {"in 30 s", 20 * time.Second}} {
			w.settle()
			pass(want.at - time.Since(start) - time.Millisecond)
			w.settle()
			before := len(w.messages(t, "T", 0))
			pass(time.Millisecond)
			w.settle()
			all := w.messages(t, "T", 0)
			if len(all) != before+1 || string(all[before].Body) != want.body {
				t.Fatalf("at %v: %d messages, before %d", want.at, len(all), before)
			}
		}
	})
}

func TestDeliveriesDoNotPoll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.topic(t, "T", 1)
		scans := &countingLog{memStore: w.st}
		w.delays.log = scans
		stop := runDelays(t, w)
		defer stop()
		w.mustSend(t, "T", "in 2 h", delayed("18"))
		w.settle()
		before := scans.n.Load()
		pass(time.Hour)
		w.settle()
		if n := scans.n.Load() - before; n != 0 {
			t.Errorf("looked %d times in an hour in which nothing was due", n)
		}
	})
}

// pass lets time pass in a bubble.
func pass(d time.Duration) { <-time.After(d) }

// countingLog counts looks at the timers.
type countingLog struct {
	*memStore
	n atomic.Int64
}

func (c *countingLog) StatesIn(space message.Space, from, to []byte) iter.Seq2[message.State, error] {
	c.n.Add(1)
	return c.memStore.StatesIn(space, from, to)
}

func TestDeliveryIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.topic(t, "T", 1)
		stop := runDelays(t, w)
		defer stop()
		w.mustSend(t, "T", "body", delayed("1"))
		w.st.setErrors(errors.New("full"), nil)
		pass(1500 * time.Millisecond)
		w.settle()
		w.st.setErrors(nil, errors.New("broken"))
		pass(time.Second)
		w.settle()
		if n := len(w.messages(t, "T", 0)); n != 0 {
			t.Fatalf("%d messages", n)
		}
		w.st.setErrors(nil, nil)
		pass(2 * time.Second)
		w.settle()
		w.only(t, "T", 0)
		if keys := w.timers(); len(keys) != 0 {
			t.Errorf("timers are left: %v", keys)
		}
	})
}

func TestC079ManyDueTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const many = 10_000
		w := newWorld(t)
		w.topic(t, "T", 1)
		w.topic(t, "Later", 1)
		stop := runDelays(t, w)
		defer stop()
		var o outcome
		for i := range many {
			req := sendRequest("T", fmt.Sprint(i), &o)
			req.Properties = props("DELAY", "1")
			w.sender.Send(req)
		}
		w.st.apply()
		for range 100 {
			w.mustSend(t, "Later", "b", delayed("5"))
		}
		pass(time.Second)
		w.settle()
		all := w.messages(t, "T", 0)
		if len(all) != many {
			t.Fatalf("%d delivered, want %d", len(all), many)
		}
		for i, m := range all {
			if string(m.Body) != fmt.Sprint(i) {
				t.Fatalf("message %d is %s: order of one level was lost", i, m.Body)
			}
		}
		pass(59 * time.Second)
		w.settle()
		if n := len(w.messages(t, "Later", 0)); n != 100 {
			t.Errorf("%d of the later ones came in time", n)
		}
		if s := w.delays.Stats(); s.Delivered != many+100 || s.Late > time.Millisecond {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestC075RestartDuringDelivery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const many = 3000
		w := newWorld(t)
		w.topic(t, "T", 1)
		var o outcome
		for i := range many {
			req := sendRequest("T", fmt.Sprint(i), &o)
			req.Properties = props("DELAY", "2")
			w.sender.Send(req)
		}
		w.st.apply()
		pass(5 * time.Second)
		stop := runDelays(t, w)
		synctest.Wait() // a part of the deliveries is on its way
		for range 10 {
			w.applyOne()
		}
		synctest.Wait()
		stop()
		w = openWorld(t, w.st.reopened()) // what was not durable is gone
		delivered := len(w.messages(t, "T", 0))
		if delivered == 0 || delivered == many {
			t.Fatalf("%d were delivered before the crash", delivered)
		}
		stop = runDelays(t, w)
		defer stop()
		w.settle()
		seen := map[string]bool{}
		for _, m := range w.messages(t, "T", 0) {
			if seen[string(m.Body)] {
				t.Fatalf("message %s came twice", m.Body)
			}
			seen[string(m.Body)] = true
		}
		if len(seen) != many {
			t.Errorf("%d messages, want %d", len(seen), many)
		}
	})
}

// applyOne ends one pending write.
func (w *world) applyOne() {
	w.st.mu.Lock()
	rest := w.st.pending[1:]
	w.st.pending = w.st.pending[:1:1]
	w.st.mu.Unlock()
	w.st.apply()
	w.st.mu.Lock()
	w.st.pending = append(w.st.pending, rest...)
	w.st.mu.Unlock()
}

func TestTimersThatCannotBeDelivered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, topic := range []string{"T", "Gone"} {
		w.topic(t, topic, 1)
	}
	w.mustSend(t, "Gone", "its topic is deleted", delayed("1"))
	w.mustSend(t, "T", "damaged", delayed("1"))
	w.mustSend(t, "T", "good", delayed("1"))
	var o outcome
	w.topics.Delete("Gone", o.done)
	w.st.apply()
	o.want(t, 1, true)
	damaged, err := w.st.At(ScheduleTopic, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	w.st.damaged[damaged.LogOffset()] = errors.New("flipped bit")
	w.deliverAll(t, time.Now().Add(time.Minute))
	if m := w.only(t, "T", 0); string(m.Body) != "good" {
		t.Errorf("delivered %q", m.Body)
	}
	if _, _, ok := w.st.Bounds("Gone", 0); ok {
		t.Error("a deleted topic got a message")
	}
	if keys, s := w.timers(), w.delays.Stats(); len(keys) != 0 || s.Delivered != 1 {
		t.Errorf("timers left %v, stats %+v", keys, s)
	}
}

func TestPending(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.topic(t, "T", 1)
	for _, level := range []string{"1", "1", "2", "2", "5"} {
		w.mustSend(t, "T", "b", delayed(level))
	}
	w.deliverAll(t, time.Now().Add(2*time.Second))
	got, err := w.delays.Pending()
	if err != nil || len(got) != 2 || got[2] != 0 || got[5] != 0 {
		t.Errorf("pending %v, %v", got, err)
	}
}

// TestCarryForward cuts the log while messages wait in it.
func TestCarryForward(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const many = 200
		w := newWorld(t)
		w.topic(t, "T", 1)
		for i := range many {
			w.mustSend(t, "T", fmt.Sprint(i), delayed([]string{"1", "5", "18"}[i%3]))
		}
		cut := w.st.endOfLog()
		w.mustSend(t, "T", "behind the cut", delayed("18"))
		stop := runDelays(t, w)
		defer stop()
		pass(2 * time.Second)
		w.settle() // level 1 is delivered
		done := make(chan error, 1)
		go func() { done <- w.delays.CarryForward(t.Context(), cut) }()
		w.settle()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		for _, k := range w.timers() {
			rec, err := w.st.At(ScheduleTopic, int32(k.level)-1, k.offset)
			if err != nil || rec.LogOffset() < cut {
				t.Fatalf("timer %+v: message at %d, cut %d, %v", k, rec.LogOffset(), cut, err)
			}
		}
		w.drop(cut)
		pass(3 * time.Hour)
		w.settle()
		seen := map[string]int{}
		for _, m := range w.messages(t, "T", 0) {
			seen[string(m.Body)]++
		}
		for i := range many {
			if n := seen[fmt.Sprint(i)]; n != 1 {
				t.Errorf("message %d came %d times", i, n)
			}
		}
		if seen["behind the cut"] != 1 {
			t.Error("the message behind the cut is missing")
		}
	})
}

// drop forgets the schedule topic's records in front of cut.
func (w *world) drop(cut message.LogOffset) {
	w.st.mu.Lock()
	defer w.st.mu.Unlock()
	for key, q := range w.st.queues {
		for key.topic == ScheduleTopic && q.first < q.next() && q.pos[q.first] < cut {
			delete(w.st.records, q.pos[q.first])
			q.first++
		}
	}
}

func TestCarryForwardWaitsForDeliveries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.topic(t, "T", 1)
		w.mustSend(t, "T", "body", delayed("1"))
		cut := w.st.endOfLog()
		stop := runDelays(t, w)
		defer stop()
		pass(time.Second)
		synctest.Wait() // its delivery is on its way
		done := make(chan error, 1)
		go func() { done <- w.delays.CarryForward(t.Context(), cut) }()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("did not wait: %v", err)
		default:
		}
		w.settle()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		w.only(t, "T", 0)
		w.only(t, ScheduleTopic, 0)

		w.mustSend(t, "T", "body", delayed("1"))
		pass(time.Second)
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		go func() { done <- w.delays.CarryForward(ctx, w.st.endOfLog()) }()
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("canceled: %v", err)
		}
		w.settle()
	})
}

func TestTimerKeys(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		gen := func(name string) timerKey {
			return timerKey{
				due: rapid.Int64Range(0, 1<<50).Draw(t, name+"due"),
				level: rapid.Uint8Range(
					1,
					255,
				).Draw(
					t,
					name+"level",
				),
				offset: message.QueueOffset(rapid.Int64Range(0, 1<<50).Draw(t, name)),
			}
		}
		a, b := gen("a"), gen("b")
		got, ok := decodeTimerKey(a.encode())
		if !ok || got != a {
			t.Fatalf("%+v became %+v, %v", a, got, ok)
		}
		if a.due < b.due && string(a.encode()) >= string(b.encode()) {
			t.Fatalf("keys of %+v and %+v are not in order of due time", a, b)
		}
	})
	for _, bad := range [][]byte{nil, make([]byte, 16), make([]byte, 18), make([]byte, 17)} {
		if _, ok := decodeTimerKey(bad); ok {
			t.Errorf("%x is accepted", bad)
		}
	}
}

// TestDueKeys checks the invariant of dueKeys against a plain set, whatever the order of events.
func TestDueKeys(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := newDueKeys()
		live := map[timerKey]bool{}
		now := int64(100)
		check := func() {
			for k := range live {
				_, taken := d.taken[k]
				added := d.looking && d.added != nil && string(k.encode()) >= string(d.added)
				if !taken && !added && string(k.encode()) < string(d.low) {
					t.Fatalf("timer %+v lives below low %x and is not taken", k, d.low)
				}
			}
		}
		var looking []timerKey // what a look that goes on has seen
		inLook, lookedAt := false, int64(0)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				k := timerKey{
					due: rapid.Int64Range(90, 130).Draw(t, "due"), level: 1,
					offset: message.QueueOffset(rapid.IntRange(0, 1000).Draw(t, "offset")),
				}
				live[k] = true
				wakes := d.add(k, k.encode())
				if !inLook && k.due < d.until && !wakes {
					t.Fatalf("timer %+v is due at %d, sleeping until %d, and does not wake", k, now, d.until)
				}
			},
			"look": func(t *rapid.T) {
				if inLook {
					t.Skip()
				}
				from, _, ok := d.begin(now, 100)
				if !ok {
					t.Skip()
				}
				inLook, looking, lookedAt = true, nil, now
				for k := range live {
					if string(k.encode()) >= string(from) && k.due <= now {
						looking = append(looking, k)
					}
				}
			},
			"looked": func(t *rapid.T) {
				if !inLook {
					t.Skip()
				}
				inLook = false
				if rapid.Bool().Draw(t, "fails") {
					d.abort(now)
				} else {
					d.end(looking, false, lookedAt, never)
				}
				if d.resume > now {
					t.Fatal("resumes in the future")
				}
			},
			"settle": func(t *rapid.T) {
				for k := range d.taken {
					if rapid.Bool().Draw(t, "fails") {
						d.release(k, now)
					} else {
						delete(live, k)
						d.settle(k)
					}
					break
				}
			},
			"time": func(t *rapid.T) { now += rapid.Int64Range(0, 10).Draw(t, "passes") },
			"":     func(*rapid.T) { check() },
		})
	})
}
