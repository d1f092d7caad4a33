// SPDX-License-Identifier: Apache-2.0

package offset

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

var errDisk = errors.New("disk is on fire")

// memJournal is a log in memory: Append keeps writes, apply makes them durable in order.
type memJournal struct {
	mu      sync.Mutex
	refuse  error
	pending []*store.Write
	live    map[string]string
}

func newMemJournal() *memJournal { return &memJournal{live: map[string]string{}} }

func (j *memJournal) Append(w *store.Write) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.refuse != nil {
		return j.refuse
	}
	j.pending = append(j.pending, w)
	return nil
}

// OnState does nothing: the table does not ask.
func (j *memJournal) OnState(message.Space, func(message.State)) {}

func (j *memJournal) States(space message.Space, prefix []byte) iter.Seq2[message.State, error] {
	return func(yield func(message.State, error) bool) {
		for _, key := range slices.Sorted(maps.Keys(j.live)) {
			if strings.HasPrefix(key, string(prefix)) &&
				!yield(message.State{Space: space, Key: []byte(key), Value: []byte(j.live[key])}, nil) {
				return
			}
		}
	}
}

func (j *memJournal) apply(err error) (states int) {
	j.mu.Lock()
	pending := j.pending
	j.pending = nil
	for _, w := range pending {
		for _, st := range w.State {
			states++
			switch {
			case err != nil:
			case st.Delete:
				delete(j.live, string(st.Key))
			default:
				j.live[string(st.Key)] = string(st.Value)
			}
		}
	}
	j.mu.Unlock()
	for _, w := range pending {
		w.Done(w, err)
	}
	return states
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func open(tb testing.TB, j *memJournal) *Table {
	tb.Helper()
	t, err := New(j, quiet())
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

func wantOffset(tb testing.TB, t *Table, group, topic string, queueID int32, want message.QueueOffset) {
	tb.Helper()
	got, ok := t.Query(group, topic, queueID)
	if (want >= 0) != ok || ok && got != want {
		tb.Errorf("%s in %s/%d: %d, %v; want %d", group, topic, queueID, got, ok, want)
	}
}

func TestCommitAndQuery(t *testing.T) {
	t.Parallel()
	table := open(t, newMemJournal())
	wantOffset(t, table, "g", "orders", 0, none)
	for _, c := range []struct {
		queueID int32
		off     message.QueueOffset
		ok      bool
	}{{0, 5, true}, {3, 9, true}, {0, 2, true}, {-1, 1, false}, {0, -1, false}, {65536, 1, false}, {1, 0, true}} {
		if got := table.Commit("g", "orders", c.queueID, c.off); got != c.ok {
			t.Errorf("commit %d in queue %d: %v", c.off, c.queueID, got)
		}
	}
	wantOffset(t, table, "g", "orders", 0, 2) // backwards is allowed
	wantOffset(t, table, "g", "orders", 1, 0)
	wantOffset(t, table, "g", "orders", 2, none)
	wantOffset(t, table, "g", "orders", 3, 9)
	wantOffset(t, table, "h", "orders", 0, none)
	table.CommitPull("g", "orders", 0, 7)
	if off, ok := table.QueryPull("g", "orders", 0); !ok || off != 7 {
		t.Errorf("pulled %d, %v", off, ok)
	}
	if off, ok := table.QueryPull("g", "orders", 3); !ok || off != 9 {
		t.Errorf("pulled %d, %v: not known, so what was committed", off, ok)
	}
	if got := table.Offsets("g", "orders"); !maps.Equal(got, map[int32]message.QueueOffset{0: 2, 1: 0, 3: 9}) {
		t.Errorf("offsets %v", got)
	}
}

func TestFlushCoalesces(t *testing.T) {
	t.Parallel()
	j := newMemJournal()
	table := open(t, j)
	for i := range 1000 {
		table.Commit("g", "orders", int32(i%4), message.QueueOffset(i))
	}
	table.Commit("h", "orders", 0, 1)
	done := 0
	table.Flush(func(err error) { done++ })
	if done != 0 {
		t.Error("done before it is durable")
	}
	if n := j.apply(nil); n != 2 || done != 1 {
		t.Errorf("%d records for 1001 commits, done %d times", n, done)
	}
	table.Flush(func(err error) { done++ })
	if n := j.apply(nil); n != 0 || done != 2 {
		t.Errorf("nothing new: %d records, done %d times", n, done)
	}
	table.Flush(nil)
	again := open(t, j)
	for q, want := range []message.QueueOffset{996, 997, 998, 999} {
		wantOffset(t, again, "g", "orders", int32(q), want)
	}
	wantOffset(t, again, "h", "orders", 0, 1)
	if counter, at := table.Version(); counter != 1 || at == 0 {
		t.Errorf("version %d at %d", counter, at)
	}
}

func TestFlushFailsAndIsTriedAgain(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*memJournal, *Table, func(error)){
		"refused": func(j *memJournal, table *Table, done func(error)) {
			j.refuse = errDisk
			table.Flush(done)
			j.refuse = nil
		},
		"failed": func(j *memJournal, table *Table, done func(error)) {
			table.Flush(done)
			j.apply(errDisk)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newMemJournal()
			table := open(t, j)
			for i := range 3 * flushBatch {
				table.Commit(fmt.Sprint("g", i), "orders", 0, message.QueueOffset(i))
			}
			calls := 0
			fail(j, table, func(err error) {
				if calls++; !errors.Is(err, errDisk) {
					t.Errorf("ended with %v", err)
				}
			})
			if calls != 1 || len(j.live) != 0 {
				t.Errorf("done %d times, %d records", calls, len(j.live))
			}
			table.Flush(nil)
			if n := j.apply(nil); n < 3*flushBatch || len(j.live) != 3*flushBatch {
				t.Errorf("%d records, %d keys", n, len(j.live))
			}
		})
	}
}

// TestC049C053Reset: a reset is durable before it is acknowledged, also for a group that nobody is in; the
// next pull is told; what an old consumer commits until then is ignored; forward as well as backward.
func TestC049C053Reset(t *testing.T) {
	t.Parallel()
	for _, target := range []message.QueueOffset{3, 50} {
		j := newMemJournal()
		table := open(t, j)
		table.Commit("g", "orders", 0, 10)
		table.Flush(nil)
		j.apply(nil)
		var result error
		acknowledged := false
		table.Reset("g", "orders", map[int32]message.QueueOffset{0: target, 1: 0}, func(err error) {
			acknowledged, result = true, err
		})
		if acknowledged {
			t.Error("acknowledged before it is durable")
		}
		if j.apply(nil); !acknowledged || result != nil {
			t.Fatalf("acknowledged %v: %v", acknowledged, result)
		}
		for _, table := range []*Table{table, open(t, j)} { // as it is, and after a crash
			wantOffset(t, table, "g", "orders", 0, target)
			if table.Commit("g", "orders", 0, 11) {
				t.Error("an old consumer's commit was taken")
			}
			if !table.HasReset("g", "orders", 0) || table.HasReset("g", "orders", 2) ||
				table.HasReset("h", "orders", 0) {
				t.Error("the wrong queues are reset")
			}
			if off, ok := table.TakeReset("g", "orders", 0); !ok || off != target {
				t.Errorf("the pull is told %d, %v", off, ok)
			}
			if _, ok := table.TakeReset("g", "orders", 0); ok || table.HasReset("g", "orders", 0) {
				t.Error("told twice")
			}
			wantOffset(t, table, "g", "orders", 0, target)
			if !table.Commit("g", "orders", 0, target+1) {
				t.Error("commits are still ignored")
			}
			if off, ok := table.TakeReset("g", "orders", 1); !ok || off != 0 {
				t.Errorf("the other queue is told %d, %v", off, ok)
			}
			if table.resets.Load() != 0 {
				t.Errorf("%d resets are left", table.resets.Load())
			}
		}
	}
}

func TestResetFails(t *testing.T) {
	t.Parallel()
	j := newMemJournal()
	table := open(t, j)
	table.Commit("g", "orders", 0, 10)
	var last error
	reset := func(offsets map[int32]message.QueueOffset) {
		table.Reset("g", "orders", offsets, func(err error) { last = err })
	}
	if reset(map[int32]message.QueueOffset{0: -1}); !errors.Is(last, ErrRange) {
		t.Error(last)
	}
	if reset(nil); last == nil {
		t.Error("a reset of nothing succeeded")
	}
	j.refuse = errDisk
	reset(map[int32]message.QueueOffset{0: 3, 1: 4})
	j.refuse = nil
	if !errors.Is(last, errDisk) {
		t.Error(last)
	}
	last = nil
	reset(map[int32]message.QueueOffset{0: 3, 1: 4})
	if j.apply(errDisk); !errors.Is(last, errDisk) {
		t.Error(last)
	}
	wantOffset(t, table, "g", "orders", 0, 10)
	wantOffset(t, table, "g", "orders", 1, none)
	if table.HasReset("g", "orders", 0) || table.resets.Load() != 0 {
		t.Error("a reset that failed is pending")
	}
}

func TestDropTopicAndGroup(t *testing.T) {
	t.Parallel()
	j := newMemJournal()
	table := open(t, j)
	for _, group := range []string{"g", "h"} {
		for _, topic := range []string{"a", "b"} {
			table.Commit(group, topic, 0, 1)
		}
	}
	table.Reset("g", "a", map[int32]message.QueueOffset{0: 5}, func(error) {})
	table.Flush(nil)
	j.apply(nil)

	if got := table.GroupsOf("a"); !slices.Equal(got, []string{"g", "h"}) {
		t.Errorf("groups %v", got)
	}
	table.Commit("g", "a", 0, 2) // listed for a flush that comes after the drop
	failed := table.DropTopic("a")
	wantOffset(t, table, "g", "a", 0, none)
	failed.Settle(errDisk)
	wantOffset(t, table, "g", "a", 0, 5)
	if table.resets.Load() != 1 {
		t.Errorf("%d resets", table.resets.Load())
	}

	ended := false
	table.DropTopic("a").Append(func(err error) { ended = err == nil })
	table.Flush(nil)
	j.apply(nil)
	if !ended || table.resets.Load() != 0 || len(table.GroupsOf("a")) != 0 {
		t.Error("the topic is still there")
	}
	table.DropGroup("h").Append(func(error) {})
	j.apply(nil)
	for _, table := range []*Table{table, open(t, j)} {
		if got := table.TopicsOf("g"); !slices.Equal(got, []string{"b"}) || table.Len() != 1 {
			t.Errorf("left: %v of %d", got, table.Len())
		}
	}
	nothing := false
	table.DropGroup("nobody").Append(func(err error) { nothing = err == nil })
	if !nothing {
		t.Error("dropping nothing did not end")
	}
}

func TestCloneAndMinOffsets(t *testing.T) {
	t.Parallel()
	table := open(t, newMemJournal())
	for q, off := range []message.QueueOffset{5, 6} {
		table.Commit("g", "orders", int32(q), off)
		table.Commit("slow", "orders", int32(q), off-4)
	}
	table.Clone("g", "copy", "orders")
	wantOffset(t, table, "copy", "orders", 1, 6)
	minimum := func(queueID int32) message.QueueOffset { return 2 }
	got := table.MinOffsets("orders", nil, minimum)
	if !maps.Equal(got, map[int32]message.QueueOffset{0: 5, 1: 2}) { // slow is behind the minimum in queue 0
		t.Errorf("least %v", got)
	}
	got = table.MinOffsets("orders", []string{"slow"}, minimum)
	if !maps.Equal(got, map[int32]message.QueueOffset{0: 5, 1: 6}) || len(table.GroupsOf("orders")) != 3 {
		t.Errorf("without slow %v", got)
	}
	seen := 0
	table.All(func(group, topic string, offsets map[int32]message.QueueOffset) bool {
		seen++
		return seen < 2
	})
	if seen != 2 {
		t.Errorf("All went on: %d", seen)
	}
}

func TestConcurrentCommits(t *testing.T) {
	t.Parallel()
	j := newMemJournal()
	table := open(t, j)
	const workers, commits = 8, 500
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range commits {
				table.Commit("g", "orders", int32(w), message.QueueOffset(i))
				table.Commit(fmt.Sprint("g", w), fmt.Sprint("t", i%7), int32(i%5), message.QueueOffset(i))
				if i%50 == 0 {
					table.Flush(nil)
					j.apply(nil)
				}
			}
		})
	}
	wg.Wait()
	table.Flush(nil)
	j.apply(nil)
	again := open(t, j)
	for w := range workers {
		wantOffset(t, again, "g", "orders", int32(w), commits-1)
	}
	if again.Len() != table.Len() {
		t.Errorf("%d pairs stored of %d", again.Len(), table.Len())
	}
}

func TestCommitAllocations(t *testing.T) {
	table := open(t, newMemJournal())
	table.Commit("g", "orders", 3, 1)
	off := message.QueueOffset(1)
	if n := testing.AllocsPerRun(1000, func() {
		off++
		if !table.Commit("g", "orders", 3, off) {
			t.Error("refused")
		}
		if _, ok := table.Query("g", "orders", 3); !ok || table.HasReset("g", "orders", 3) {
			t.Error("not found")
		}
		if _, ok := table.TakeReset("g", "orders", 3); ok {
			t.Error("reset")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestDamagedRecordsAreNamed(t *testing.T) {
	t.Parallel()
	for name, record := range map[string][2]string{
		"no group":     {"orders", "\x01\x00"},
		"form":         {"orders@g", "\x02\x00"},
		"empty":        {"orders@g", ""},
		"cut":          {"orders@g", "\x01\x02\x00\x01\x00"},
		"too long":     {"orders@g", "\x01\x00\x00"},
		"big queue id": {"orders@g", "\x01\x01\xff\xff\xff\xff\x0f\x01\x00"},
	} {
		j := newMemJournal()
		j.live[record[0]] = record[1]
		var bad *FormatError
		if _, err := New(j, quiet()); !errors.As(err, &bad) || bad.Key != record[0] {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzDecode: any bytes are refused or mean what they say.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x01\x02\x00\x06\x00\x03\x01\x0a"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, value []byte) {
		j := newMemJournal()
		j.live["orders@g"] = string(value)
		table, err := New(j, quiet())
		if err != nil {
			return
		}
		p, _ := table.live.Load(key{"orders", "g"})
		st := p.state()
		j.live["orders@g"] = string(st.Value)
		again := open(t, j)
		q, _ := again.live.Load(key{"orders", "g"})
		if second := q.state(); !bytes.Equal(second.Value, st.Value) {
			t.Errorf("%x encodes as %x, then as %x", value, st.Value, second.Value)
		}
	})
}

func BenchmarkCommit(b *testing.B) {
	table := open(b, newMemJournal())
	off := message.QueueOffset(0)
	for b.Loop() {
		off++
		table.Commit("g", "orders", 3, off)
	}
}

// Append stores the drop by itself and settles it.
func (d *Drop) Append(done func(error)) {
	w := &store.Write{State: d.States}
	w.Done = func(_ *store.Write, err error) {
		d.Settle(err)
		done(err)
	}
	if len(d.States) == 0 {
		done(nil)
	} else if err := d.table.journal.Append(w); err != nil {
		w.Done(w, err)
	}
}
