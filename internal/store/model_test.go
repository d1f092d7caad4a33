// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/roquetmq/roquet/internal/message"
)

// modelTB lets the test helpers report to rapid, so that a failure is shrunk and can be replayed.
type modelTB struct {
	testing.TB
	rt *rapid.T
}

func (m modelTB) Helper()                           {}
func (m modelTB) Fatal(args ...any)                 { m.rt.Fatal(args...) }
func (m modelTB) Fatalf(format string, args ...any) { m.rt.Fatalf(format, args...) }
func (m modelTB) Error(args ...any)                 { m.rt.Error(args...) }
func (m modelTB) Errorf(format string, args ...any) { m.rt.Errorf(format, args...) }
func (m modelTB) Cleanup(fn func())                 { m.rt.Cleanup(fn) }
func (m modelTB) Context() context.Context          { return m.rt.Context() }

func (m modelTB) TempDir() string {
	dir, err := os.MkdirTemp("", "roquet-store-model")
	if err != nil {
		m.rt.Fatal(err)
	}
	m.rt.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// model is what the store must be like, kept in plain maps.
type model struct {
	r      *runner
	clock  *clock
	queues map[queueKey]*modelQueue
	states map[string]string // of SpaceKV
	serial int
}

type modelQueue struct {
	bodies []string // by queue offset, from the beginning
	low    message.QueueOffset
}

func TestModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		tb := modelTB{TB: t, rt: rt}
		cfg, c := retainConfig(tb)
		m := &model{
			r: start(tb, cfg), clock: c,
			queues: make(map[queueKey]*modelQueue), states: make(map[string]string),
		}
		rt.Repeat(map[string]func(*rapid.T){
			"":              m.check,
			"send":          m.send,
			"state":         m.state,
			"delete topic":  m.deleteTopic,
			"retain":        m.retain,
			"restart":       m.restart,
			"crash":         m.crash,
			"lose index":    m.loseIndex,
			"search by key": m.searchByKey,
		})
		m.r.stop()
		wantSound(tb, m.r.cfg)
	})
}

func (m *model) draw(t *rapid.T) queueKey {
	return queueKey{
		topic: rapid.SampledFrom([]string{"a", "b", "%RETRY%g"}).Draw(t, "topic"),
		id:    rapid.Int32Range(0, 2).Draw(t, "queue"),
	}
}

func (m *model) send(t *rapid.T) {
	w := &Write{}
	n := rapid.IntRange(1, 6).Draw(t, "messages")
	pad := strings.Repeat("x", rapid.SampledFrom([]int{0, 100, 10_000}).Draw(t, "pad"))
	for range n {
		key := m.draw(t)
		m.serial++
		body := fmt.Sprint(m.serial, pad)
		w.Messages = append(
			w.Messages,
			msg(key.topic, key.id, body, message.PropertyKeys, fmt.Sprint("all k", m.serial)),
		)
		q := m.queues[key]
		if q == nil {
			q = &modelQueue{}
			m.queues[key] = q
		}
		q.bodies = append(q.bodies, body)
	}
	m.r.write(w)
	for i := range w.Messages {
		sent := &w.Messages[i]
		q := m.queues[queueKey{sent.Topic, sent.QueueID}]
		if q.bodies[sent.QueueOffset] != string(sent.Body) {
			t.Fatalf("queue offset %d is wrong", sent.QueueOffset)
		}
	}
}

func (m *model) state(t *rapid.T) {
	w := &Write{}
	for range rapid.IntRange(1, 4).Draw(t, "states") {
		key := fmt.Sprint("k", rapid.IntRange(0, 9).Draw(t, "key"))
		m.serial++
		st := put(message.SpaceKV, key, fmt.Sprint(m.serial))
		st.Delete = rapid.IntRange(0, 4).Draw(t, "delete") == 0
		if st.Delete {
			delete(m.states, key)
		} else {
			m.states[key] = string(st.Value)
		}
		w.State = append(w.State, st)
	}
	m.r.write(w)
}

func (m *model) deleteTopic(t *rapid.T) {
	topic := m.draw(t).topic
	m.r.write(&Write{State: []message.State{TopicDeletion(topic)}})
	for key := range m.queues {
		if key.topic == topic {
			delete(m.queues, key)
		}
	}
}

func (m *model) retain(t *rapid.T) {
	if rapid.Bool().Draw(t, "all expired") {
		m.clock.advance(73 * time.Hour)
	} else {
		small := m.r.cfg.Retention
		small.MaxBytes = 128 << 10
		m.r.SetRetention(small)
	}
	m.r.retainNow()
	m.r.SetRetention(m.r.cfg.Retention)
}

func (m *model) restart(*rapid.T) { m.r = m.r.restart() }

func (m *model) crash(t *rapid.T) {
	unsynced := rapid.SampledFrom([]int{0, 50, 100}).Draw(t, "percent of unsynced index data that survives")
	cfg := crashImage(m.r.tb, m.r.cfg, unsynced)
	if torn := rapid.IntRange(0, 40).Draw(t, "torn bytes"); torn > 0 {
		m.r.tear(cfg, garbage(rapid.Uint64().Draw(t, "torn seed"), torn))
	}
	m.r.stop()
	m.r = start(m.r.tb, cfg)
}

func (m *model) loseIndex(*rapid.T) {
	cfg := m.r.withoutIndex()
	m.r.stop()
	m.r = start(m.r.tb, cfg)
}

// check compares every queue and all state.
func (m *model) check(t *rapid.T) {
	for key, q := range m.queues {
		low, high, ok := m.r.Bounds(key.topic, key.id)
		if !ok || high != message.QueueOffset(len(q.bodies)) || low < q.low || low > high {
			t.Fatalf("%v: bounds [%d, %d) %v, want [≥%d, %d)", key, low, high, ok, q.low, len(q.bodies))
		}
		q.low = low
		if got := m.r.bodies(key.topic, key.id, low); !slices.Equal(got, q.bodies[low:]) {
			t.Fatalf("%v: %d bodies differ from %d", key, len(got), len(q.bodies[low:]))
		}
	}
	for _, topic := range m.r.db.Topics() {
		for _, idx := range m.r.db.Queues(topic) {
			if m.queues[queueKey{topic, idx.ID()}] == nil && idx.Next() > 0 {
				t.Fatalf("there is a queue %s/%d", topic, idx.ID())
			}
		}
	}
	states := make(map[string]string)
	for st, err := range m.r.States(message.SpaceKV, nil) {
		if err != nil {
			t.Fatal(err)
		}
		states[string(st.Key)] = string(st.Value)
	}
	if fmt.Sprint(states) != fmt.Sprint(m.states) {
		t.Fatalf("state %v, want %v", states, m.states)
	}
}

func (m *model) searchByKey(t *rapid.T) {
	topic := m.draw(t).topic
	var want int
	for key, q := range m.queues {
		if key.topic == topic {
			want += len(q.bodies) - int(q.low)
		}
	}
	recs, err := m.r.ByKey(topic, "all", false, 1<<20, 0, forever)
	if err != nil {
		t.Fatal(err)
	}
	// Messages of a deleted topic are found as long as the log has them.
	if len(recs) < want {
		t.Fatalf("%d records by key, want %d", len(recs), want)
	}
	for i := range recs[:max(0, len(recs)-1)] {
		if recs[i].LogOffset() <= recs[i+1].LogOffset() {
			t.Fatal("not newest first")
		}
	}
}

// garbage is what an unfinished write may have left: bytes that are no entry.
func garbage(seed uint64, n int) []byte {
	rnd := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rnd.Uint32()) | 1
	}
	return b
}
