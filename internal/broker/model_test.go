// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/roquetmq/roquet/internal/message"
)

// model is what must be there: everything that was acknowledged. In between the last acknowledged and the
// last proposed value nothing else can be.
type model struct {
	topics  map[string]int32                  // queues
	offsets map[[2]string]message.QueueOffset // by group and topic: what was committed
	flushed map[[2]string]message.QueueOffset // of these, what a flush acknowledged
	pending []func()                          // what to do with the model when the write is acknowledged
}

// TestC163C164TablesSurviveCrashes: whatever is done and wherever the process dies, what was acknowledged is
// there and whole, and what was not is there or not.
func TestC163C164TablesSurviveCrashes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := openTables(t, newMemJournal())
		m := &model{
			topics: map[string]int32{}, offsets: map[[2]string]message.QueueOffset{},
			flushed: map[[2]string]message.QueueOffset{},
		}
		topic := rapid.SampledFrom([]string{"a", "b", "c"})
		group := rapid.SampledFrom([]string{"g", "h"})
		acknowledge := func() {
			s.journal.apply(t, nil)
			for _, fn := range m.pending {
				fn()
			}
			m.pending = nil
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				name, n := topic.Draw(t, "topic"), rapid.Int32Range(1, 9).Draw(t, "queues")
				cfg := plainTopic(name)
				cfg.ReadQueueNums, cfg.WriteQueueNums = n, n
				s.topics.Put(cfg, func(err error) { m.topics[name] = n })
			},
			"delete": func(t *rapid.T) {
				name := topic.Draw(t, "topic")
				drop := func(of map[[2]string]message.QueueOffset) {
					maps.DeleteFunc(of, func(key [2]string, _ message.QueueOffset) bool { return key[1] == name })
				}
				s.topics.Delete(name, func(error) {
					delete(m.topics, name)
					drop(m.flushed)
				})
				drop(m.offsets)
			},
			"commit": func(t *rapid.T) {
				key := [2]string{group.Draw(t, "group"), topic.Draw(t, "topic")}
				off := message.QueueOffset(rapid.Int64Range(0, 1000).Draw(t, "offset"))
				if _, ok := s.topics.Lookup(key[1]); !ok || m.topics[key[1]] == 0 || len(s.journal.pending) > 0 {
					return // offsets of topics on the way are the matter of TestC133
				}
				s.offsets.Commit(key[0], key[1], 0, off)
				m.offsets[key] = off
			},
			"flush": func(t *rapid.T) {
				for key, off := range m.offsets {
					m.pending = append(m.pending, func() {
						if _, still := m.offsets[key]; still {
							m.flushed[key] = off
						}
					})
				}
				s.offsets.Flush(nil)
				acknowledge()
			},
			"acknowledge": func(*rapid.T) { acknowledge() },
			"crash": func(t *rapid.T) {
				s = openTables(t, s.journal.reopened())
				m.pending = nil
				m.offsets = maps.Clone(m.flushed)
			},
			"": func(t *rapid.T) { m.check(t, s) },
		})
	})
}

func (m *model) check(t *rapid.T, s *tables) {
	for _, cfg := range s.topics.All() {
		if n, ok := m.topics[cfg.Name]; !s.topics.IsSystem(cfg.Name) && (!ok || n != cfg.WriteQueueNums) {
			t.Fatalf("topic %s has %d queues, acknowledged were %d", cfg.Name, cfg.WriteQueueNums, n)
		}
	}
	for name := range m.topics {
		if _, ok := s.topics.Lookup(name); !ok {
			t.Fatalf("topic %s is gone", name)
		}
	}
	if len(s.journal.pending) > 0 {
		return
	}
	for key, want := range m.offsets {
		if got, ok := s.offsets.Query(key[0], key[1], 0); !ok || got != want {
			t.Fatalf("offset of %v is %d, %v; want %d", key, got, ok, want)
		}
	}
	s.offsets.All(func(group, topic string, offsets map[int32]message.QueueOffset) bool {
		if _, ok := m.offsets[[2]string{group, topic}]; !ok {
			t.Fatalf("%s has offsets %v in %s", group, offsets, topic)
		}
		return true
	})
}
