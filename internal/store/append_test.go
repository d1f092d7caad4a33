// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/roquetmq/roquet/internal/message"
)

func TestAppendAndFetch(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	w := r.write(&Write{
		Messages: []message.Message{
			msg("orders", 0, "a", message.PropertyTags, "x"), msg("orders", 1, "b"), msg("orders", 0, "c"),
		},
		State: []message.State{put(message.SpaceKV, "k", "v")},
	})
	for i, want := range []message.QueueOffset{0, 0, 1} {
		m := &w.Messages[i]
		if m.QueueOffset != want || m.StoreTimestamp == 0 || m.StoreHost != r.cfg.StoreHost {
			t.Errorf("message %d: %+v", i, m)
		}
		rec, err := r.Record(m.LogOffset)
		if err != nil {
			t.Fatal(err)
		}
		if rec.LogOffset() != m.LogOffset || string(rec.Body()) != string(m.Body) {
			t.Errorf("record %d: position %d body %q", i, rec.LogOffset(), rec.Body())
		}
	}
	wantBodies(t, r.bodies("orders", 0, 0), "a", "c")
	wantBodies(t, r.bodies("orders", 1, 0), "b")
	if got := r.state(message.SpaceKV, "k"); got != "v" {
		t.Errorf("state %q", got)
	}
	r = r.restart()
	wantBodies(t, r.bodies("orders", 0, 0), "a", "c")
	if got := r.state(message.SpaceKV, "k"); got != "v" {
		t.Errorf("state %q after restart", got)
	}
	r.stop()
	rep := wantSound(t, r.cfg)
	if rep.Messages != 3 || rep.QueueEntries != 3 || rep.LiveStates != 1 {
		t.Errorf("report %+v", rep)
	}
}

func TestAppendSingle(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	done := make(chan error, 1)
	w := &Write{Done: func(w *Write, err error) { w.Owner.(chan error) <- err }, Owner: done}
	for i := range 3 {
		*w.Single() = msg("t", 2, fmt.Sprint(i))
		if err := r.Append(w); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if got := w.Messages[0].QueueOffset; got != message.QueueOffset(i) {
			t.Fatalf("queue offset %d, want %d", got, i)
		}
	}
	wantBodies(t, r.bodies("t", 2, 0), "0", "1", "2")
}

func TestAppendAssignedPatchesState(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	r.send(msg("t", 0, "first"))
	w := &Write{
		Messages: []message.Message{msg("t", 0, "second")},
		State:    []message.State{{Space: message.SpaceTimer, Key: make([]byte, 8), Value: make([]byte, 8)}},
		Assigned: func(w *Write) {
			binary.BigEndian.PutUint64(w.State[0].Key, uint64(w.Messages[0].QueueOffset))
			binary.BigEndian.PutUint64(w.State[0].Value, uint64(w.Messages[0].StoreTimestamp))
		},
	}
	r.write(w)
	value, ok, err := r.State(message.SpaceTimer, binary.BigEndian.AppendUint64(nil, 1))
	if err != nil || !ok || int64(binary.BigEndian.Uint64(value)) != w.Messages[0].StoreTimestamp {
		t.Fatalf("state %x %v %v", value, ok, err)
	}
}

func TestAppendErrors(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	if err := r.Append(&Write{}); !errors.Is(err, ErrEmptyWrite) {
		t.Errorf("empty write: %v", err)
	}
	large := msg("t", 0, "x")
	large.Properties = string(make([]byte, message.MaxPropertiesBytes+1))
	var size *message.SizeError
	if err := r.Append(&Write{Messages: []message.Message{large}}); !errors.As(err, &size) {
		t.Errorf("too large: %v", err)
	}
}

// C161: a refused message leaves no hole in the queue offsets.
func TestC161RefusedMessageLeavesNoHole(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	good := r.send(msg("t", 0, "good"))
	bad := msg("t", 0, string(make([]byte, 64<<20)))
	if err := r.tryAppend(&Write{Messages: []message.Message{bad}}); err == nil {
		t.Fatal("a message of 64 MiB was accepted")
	}
	again := r.send(msg("t", 0, "good"))
	if good[0].QueueOffset != 0 || again[0].QueueOffset != 1 {
		t.Fatalf("queue offsets %d, %d", good[0].QueueOffset, again[0].QueueOffset)
	}
}

// C027: queue offsets of concurrent batches are unique and contiguous, in log order.
func TestC027ConcurrentBatches(t *testing.T) {
	t.Parallel()
	const producers, batches, size = 16, 20, 32
	cfg := testConfig(t)
	cfg.Log.SegmentBytes = 1 << 20
	r := start(t, cfg)
	var mu sync.Mutex
	var offsets []message.QueueOffset
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			for b := range batches {
				batch := make([]message.Message, size)
				for i := range batch {
					batch[i] = msg("t", 0, fmt.Sprint(p, b, i))
				}
				if err := r.tryAppend(&Write{Messages: batch}); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for i := range batch {
					if batch[i].QueueOffset != batch[0].QueueOffset+message.QueueOffset(i) {
						t.Errorf("batch is not contiguous")
					}
					offsets = append(offsets, batch[i].QueueOffset)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.Sort(offsets)
	for i, off := range offsets {
		if off != message.QueueOffset(i) {
			t.Fatalf("offset %d at place %d", off, i)
		}
	}
	if got := len(r.bodies("t", 0, 0)); got != producers*batches*size {
		t.Fatalf("%d messages", got)
	}
}

func TestStoreTimestampNeverGoesBack(t *testing.T) {
	t.Parallel()
	c := newClock()
	cfg := testConfig(t)
	cfg.Now = c.now
	r := start(t, cfg)
	first := r.send(msg("t", 0, "a"))[0].StoreTimestamp
	c.advance(-time.Hour)
	if got := r.send(msg("t", 0, "b"))[0].StoreTimestamp; got < first {
		t.Fatalf("%d after %d", got, first)
	}
	r = r.restart()
	if got := r.send(msg("t", 0, "c"))[0].StoreTimestamp; got < first {
		t.Fatalf("%d after %d, after a restart", got, first)
	}
}

func TestPreparedMessagesHaveNoQueueEntry(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	half := msg("t", 0, "half", message.PropertyUniqueKey, "u1")
	half.SysFlag = message.TransactionPrepared
	rolled := msg("t", 0, "rolled", message.PropertyUniqueKey, "u2")
	rolled.SysFlag = message.TransactionRollback
	committed := msg("t", 0, "committed")
	committed.SysFlag = message.TransactionCommit
	r.send(half, rolled, committed)
	wantBodies(t, r.bodies("t", 0, 0), "committed")
	for key, want := range map[string]int{"u1": 1, "u2": 0} {
		got, err := r.ByKey("t", key, true, 10, 0, forever)
		if err != nil || len(got) != want {
			t.Errorf("%s: %d records, err %v, want %d", key, len(got), err, want)
		}
	}
}

func TestDeleteTopic(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	r.send(msg("t", 0, "a"), msg("t", 1, "b"), msg("other", 0, "o"))
	woken := make(chan *Waiter, 1)
	waiter := &Waiter{Wake: func(w *Waiter) { woken <- w }}
	if !r.Await("t", 0, 1, waiter) {
		t.Fatal("there is no message yet")
	}
	// In one entry: a message before the deletion belongs to the old topic, one behind it to the new.
	r.write(&Write{
		Messages: []message.Message{msg("t", 0, "last of the old")},
		State:    []message.State{TopicDeletion("t")},
	})
	if <-woken != waiter {
		t.Fatal("not woken")
	}
	wantStatus(t, r.fetch("t", 0, 0), NoMatchedLogicQueue, 0)
	wantStatus(t, r.fetch("t", 1, 7), NoMatchedLogicQueue, 0)
	if n := len(r.queues.mu.queues); n != 1 {
		t.Fatalf("%d queues in memory, one is left", n)
	}
	wantBodies(t, r.bodies("other", 0, 0), "o")
	if got := r.send(msg("t", 0, "new"))[0].QueueOffset; got != 0 {
		t.Fatalf("the new topic begins at %d", got)
	}
	r = r.restart()
	wantBodies(t, r.bodies("t", 0, 0), "new")
	wantStatus(t, r.fetch("t", 1, 0), NoMatchedLogicQueue, 0)
	r.stop()
	wantSound(t, r.cfg)
}

// Deleting and sending at the same time: offsets begin at 0 exactly behind the deletion, in log order.
func TestDeleteTopicUnderLoad(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				if err := r.tryAppend(
					&Write{Messages: []message.Message{msg("t", 0, "x"), msg("t", 3, "y")}},
				); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 10 {
		r.write(&Write{State: []message.State{TopicDeletion("t")}})
	}
	wg.Wait()
	r.stop()
	wantSound(t, r.cfg)
}

func TestStateHooks(t *testing.T) {
	t.Parallel()
	s, err := Open(testConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	s.OnState(message.SpaceGroup, func(st message.State) {
		seen = append(seen, fmt.Sprintf("%s=%s %v", st.Key, st.Value, st.Delete))
	})
	r := run(t, s, s.cfg)
	r.write(&Write{State: []message.State{put(message.SpaceGroup, "g", "1"), put(message.SpaceTopic, "t", "1")}})
	r.write(&Write{State: []message.State{put(message.SpaceGroup, "g", "1")}})
	r.write(&Write{State: []message.State{{Space: message.SpaceGroup, Key: []byte("g"), Delete: true}}})
	if got := fmt.Sprint(seen); got != "[g=1 false g=1 false g= true]" {
		t.Fatal(got)
	}
	if got := r.state(message.SpaceGroup, "g"); got != "<none>" {
		t.Fatal(got)
	}
	r.write(
		&Write{
			State: []message.State{
				put(message.SpaceGroup, "a/1", "x"),
				put(message.SpaceGroup, "a/2", "y"),
				put(message.SpaceGroup, "b", "z"),
			},
		},
	)
	var scanned []string
	for st, err := range r.States(message.SpaceGroup, []byte("a/")) {
		if err != nil {
			t.Fatal(err)
		}
		scanned = append(scanned, string(st.Key)+string(st.Value))
	}
	wantBodies(t, scanned, "a/1x", "a/2y")
}

func TestSettledComesAfterDone(t *testing.T) {
	t.Parallel()
	s, err := Open(testConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	settled := make(chan struct{}, 16)
	done := make(chan struct{}, 1)
	s.OnSettled(func() { settled <- struct{}{} })
	r := run(t, s, s.cfg)
	w := &Write{Messages: []message.Message{msg("t", 0, "a")}, Done: func(*Write, error) { done <- struct{}{} }}
	if err := r.Append(w); err != nil {
		t.Fatal(err)
	}
	<-settled
	select {
	case <-done:
	default:
		t.Fatal("settled before done")
	}
}

// State returns a copy of the value of a key. Errors: *index.CorruptError.
func (s *Store) State(space message.Space, key []byte) (value []byte, ok bool, err error) {
	if isOwn(space, key) {
		return nil, false, nil
	}
	value, _, ok, err = s.db.Get(space, key)
	return value, ok, err
}
