// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/roquetmq/roquet/internal/broker/pop"
	"github.com/roquetmq/roquet/internal/message"
)

// popFate is what must become of a message that is popped.
type popFate struct {
	key      string     // message group
	acked    bool       // an acknowledgement was answered with success
	maybe    bool       // one was answered with an error: its message may come or not
	dead     bool       // in the dead letter topic
	times    int32      // reconsumeTimes of the last delivery; -1: none yet
	until    time.Time  // when the last claim ends
	handle   pop.Handle // of the last delivery
	handed   bool       // there is a handle
	attempts int        // deliveries
}

// popModel is messages that a group shares, by body, and a broker that keeps failing and dying.
type popModel struct {
	*popWorld
	tb    testing.TB
	order PopOrder
	fates map[string]*popFate
	count int

	carried message.LogOffset // as far as retention got ready
}

const popModelTimes = 2 // RetryMaxTimes

// TestC048C099C120PoppedMessagesSurvive: whatever is received, acknowledged, renewed, and wherever writes
// fail or the process dies in between: no acknowledged message comes again, every other one does, after its
// time, until it is a dead letter, once; and messages of a group keep their order.
func TestC048C099C120PoppedMessagesSurvive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ testing.TB }{t}, func(rt *rapid.T) { // a bubble has no deadline to ask for
			m := &popModel{tb: t, popWorld: openPopWorld(t, newMemStore(), nil), fates: map[string]*popFate{}}
			m.start()
			defer func() { m.stop() }()
			m.topic(rt, "T", 2)
			m.group(rt, "g", func(c *GroupConfig) { c.RetryMaxTimes = popModelTimes })
			m.order = rapid.SampledFrom(
				[]PopOrder{Unordered, OrderQueue, OrderGroup, OrderConfigured},
			).Draw(
				rt,
				"order",
			)
			rt.Repeat(m.actions())
			m.finish(rt)
		})
	})
}

func (m *popModel) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"": func(t *rapid.T) { m.checkDead(t) },
		"send": func(t *rapid.T) {
			body := fmt.Sprint("m", m.count)
			m.count++
			key := rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "message group")
			m.fates[body] = &popFate{key: key, times: -1}
			m.mustSend(t, "T", body, func(r *SendRequest) {
				r.QueueID = int32(len(key)) // of a message group in one queue
				r.Properties = props("UNIQ_KEY", body, "__SHARDINGKEY", key)
			})
		},
		"receive": func(t *rapid.T) {
			m.receive(
				t,
				rapid.IntRange(1, 5).Draw(t, "max"),
				rapid.SampledFrom([]int{1, 3, 8}).Draw(t, "invisible"),
				0,
			)
			m.settle()
		},
		"receive in flight": func(t *rapid.T) { m.receive(t, 3, 2, 0) },
		"wait":              func(t *rapid.T) { m.receive(t, 2, 3, 5*time.Second) },
		"ack":               func(t *rapid.T) { m.ack(t, true) },
		"ack in flight":     func(t *rapid.T) { m.ack(t, false) },
		"renew":             m.renew,
		"pass": func(t *rapid.T) {
			m.pass(time.Duration(rapid.IntRange(1, 4000).Draw(t, "ms")) * time.Millisecond)
		},
		"settle": func(*rapid.T) { m.settle() },
		"fail": func(*rapid.T) {
			m.st.setErrors(nil, errors.New("failed"))
			m.settle()
			m.st.setErrors(nil, nil)
		},
		"refuse": func(t *rapid.T) {
			m.st.setErrors(errors.New("refused"), nil)
			defer m.st.setErrors(nil, nil)
			m.receive(t, 3, 2, 0)
			m.pass(time.Second)
			m.ack(t, false)
		},
		"refuse one": func(t *rapid.T) { // while others are on their way
			m.st.setErrors(errors.New("refused"), nil)
			m.receive(t, 3, 2, 0)
			m.st.setErrors(nil, nil)
			m.receive(t, 3, 2, 0)
		},
		"crash": func(t *rapid.T) {
			m.popWorld = m.crash(t)
			m.carried = 0
		},
		"carry": func(t *rapid.T) { m.carry(t) },
		"configure": func(t *rapid.T) {
			if m.order != OrderConfigured {
				t.Skip("the order is what receives ask for")
			}
			m.group(t, "g", func(c *GroupConfig) {
				c.RetryMaxTimes, c.ConsumeMessageOrderly = popModelTimes, rapid.Bool().Draw(t, "orderly")
			})
		},
		"cut": func(t *rapid.T) {
			m.carry(t)
			for _, lost := range m.st.dropBefore("T", m.carried) {
				if f := m.fates[lost]; !f.handed {
					f.maybe = true
				}
			}
		},
	}
}

// carry is retention getting ready to drop what is in front of some position.
func (m *popModel) carry(t *rapid.T) {
	m.settle()
	cut := message.LogOffset(rapid.Int64Range(0, int64(m.st.endOfLog())).Draw(t, "cut"))
	if cut <= m.carried {
		return
	}
	m.carried = cut
	done := make(chan error, 1)
	go func() { done <- m.popper.CarryForward(t.Context(), cut) }()
	m.settle()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// dropBefore drops the messages of a topic in front of cut and returns their bodies.
func (s *memStore) dropBefore(topic string, cut message.LogOffset) (bodies []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, q := range s.queues {
		for ; key.topic == topic && q.first < q.next() && q.pos[q.first] < cut; q.first++ {
			bodies = append(bodies, string(s.records[q.pos[q.first]].Body()))
		}
	}
	return bodies
}

func (m *popModel) receive(t *rapid.T, maximum, seconds int, wait time.Duration) {
	m.popper.Pop(&PopRequest{
		Group: "g", Topic: "T", QueueID: AllQueues, MaxCount: maximum, Order: m.order, Wait: wait,
		Invisible: time.Duration(seconds) * time.Second, Done: func(req *PopRequest, err error) {
			if err == nil && req.Result().Outcome == PopFound {
				m.delivered(t, req)
			}
		},
	})
}

func (m *popModel) delivered(t *rapid.T, req *PopRequest) {
	r := req.Result()
	this := map[string]bool{}
	for i := range r.Messages {
		body := string(r.Messages[i].Record.Body())
		f := m.fates[body]
		switch {
		case f.acked:
			t.Fatalf("%s comes although it is acknowledged", body)
		case f.dead:
			t.Fatalf("%s comes although it is a dead letter", body)
		case time.Now().Before(f.until):
			t.Fatalf("%s comes %v too early", body, time.Until(f.until))
		case r.Messages[i].ReconsumeTimes > popModelTimes:
			t.Fatalf("%s comes with reconsumeTimes %d", body, r.Messages[i].ReconsumeTimes)
		case r.Messages[i].ReconsumeTimes < f.times:
			t.Fatalf("%s comes with reconsumeTimes %d after %d", body, r.Messages[i].ReconsumeTimes, f.times)
		}
		m.inOrder(t, r.Order, body, this)
		f.handle, f.handed, f.times = r.Handle(i), true, r.Messages[i].ReconsumeTimes
		f.until = time.UnixMilli(r.PopTime).Add(req.Invisible)
		f.attempts++
		this[body] = true
	}
}

// inOrder checks that what has to come before body is finished, or came before it in the same answer.
func (m *popModel) inOrder(t *rapid.T, order PopOrder, body string, this map[string]bool) {
	f := m.fates[body]
	for i := range m.count {
		other := fmt.Sprint("m", i)
		o := m.fates[other]
		same := order == OrderQueue && len(o.key) == len(f.key) ||
			order == OrderGroup && o.key == f.key && f.key != ""
		if other == body {
			return
		}
		if same && !o.acked && !o.maybe && !o.dead && !this[other] && !m.isDead(t, other) {
			t.Fatalf("%s comes before %s", body, other)
		}
	}
}

func (m *popModel) some(t *rapid.T, want func(*popFate) bool) (string, *popFate) {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(m.fates)) {
		if want(m.fates[name]) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		t.Skip("no such message")
	}
	name := rapid.SampledFrom(names).Draw(t, "message")
	return name, m.fates[name]
}

func (m *popModel) ack(t *rapid.T, settle bool) {
	body, f := m.some(t, func(f *popFate) bool { return f.handed })
	h := f.handle
	f.maybe = true // until it is answered: the answer can be lost
	m.popper.Ack(
		&SettleRequest{Group: "g", Topic: "T", Handles: []pop.Handle{h}, Done: func(req *SettleRequest, err error) {
			switch {
			case err != nil:
			case req.Results[0] == nil:
				f.acked = true
			case !f.acked && f.attempts == 0:
				t.Fatalf("%s: %v", body, req.Results[0])
			}
		}},
	)
	if settle {
		m.settle()
	}
}

func (m *popModel) renew(t *rapid.T) {
	_, f := m.some(t, func(f *popFate) bool { return f.handed && !f.acked })
	h := f.handle
	m.popper.ChangeInvisible(&SettleRequest{
		Group: "g", Topic: "T", Handles: []pop.Handle{h}, Invisible: 2 * time.Second,
		Done: func(req *SettleRequest, err error) {
			if err == nil && req.Results[0] == nil && f.handle == h {
				f.handle = req.Handles[0]
				f.until = time.UnixMilli(f.handle.VisibleAt())
			}
		},
	})
	f.until = time.Time{} // until it is answered either claim can be the one
	m.settle()
}

func (m *popModel) isDead(t *rapid.T, body string) bool {
	m.checkDead(t)
	return m.fates[body].dead
}

// checkDead looks at the dead letters: each once, after all its deliveries, and never one that was
// acknowledged.
func (m *popModel) checkDead(t *rapid.T) {
	seen := map[string]bool{}
	for _, letter := range m.messages(t, DLQTopic("g"), 0) {
		body := string(letter.Body)
		f := m.fates[body]
		if seen[body] {
			t.Fatalf("%s is a dead letter twice", body)
		}
		seen[body] = true
		if f.acked && !f.dead {
			t.Fatalf("%s is a dead letter although it is acknowledged", body)
		}
		if letter.ReconsumeTimes != popModelTimes+1 {
			t.Fatalf("dead letter %s has reconsumeTimes %d", body, letter.ReconsumeTimes)
		}
		f.dead = true
	}
}

// finish lets everything come to its end: a message that nobody acknowledges comes as often as it may, and is
// then a dead letter.
func (m *popModel) finish(t *rapid.T) {
	m.settle()
	for range 8*m.count + 20 {
		m.receive(t, 32, 1, 0)
		m.pass(1100 * time.Millisecond)
		m.checkDead(t)
		if m.over() {
			break
		}
	}
	for body, f := range m.fates {
		if !f.acked && !f.maybe && !f.dead {
			t.Fatalf("%s has no end: %+v", body, f)
		}
	}
	for id := range int32(2) {
		_, maximum, _ := m.st.Bounds("T", id)
		progress, _ := m.popper.Progress("g", "T", id)
		if committed, _ := m.offsets.Query("g", "T", id); committed != maximum || progress.InFlight != 0 {
			t.Fatalf("queue %d: committed %d of %d, %+v", id, committed, maximum, progress)
		}
	}
}

// over tells whether nothing is on its way any more.
func (m *popModel) over() bool {
	for id := range int32(2) {
		_, maximum, _ := m.st.Bounds("T", id)
		progress, _ := m.popper.Progress("g", "T", id)
		if progress.Next != maximum || progress.InFlight > 0 {
			return false
		}
	}
	return true
}
