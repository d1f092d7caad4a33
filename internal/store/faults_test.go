// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/roquetmq/roquet/internal/commitlog"
	"github.com/roquetmq/roquet/internal/message"
)

// nthFault fails one disk operation that changes something, counted over log and index.
type nthFault struct {
	mu    sync.Mutex
	left  int // operations to let pass
	cause error
	fired bool
}

func (f *nthFault) String() string { return "nthFault" }

func (f *nthFault) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
		return nil
	}
	return f.step()
}

func (f *nthFault) step() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left--
	if f.left != -1 {
		return nil
	}
	f.fired = true
	return f.cause
}

func (f *nthFault) hasFired() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fired
}

// faultyWAL fails before or after the bytes are in the file.
type faultyWAL struct {
	commitlog.WAL
	fault *nthFault
}

func (w *faultyWAL) Write(index uint64, data []byte) error {
	if err := w.fault.step(); err != nil {
		return err
	}
	if err := w.WAL.Write(index, data); err != nil {
		return err
	}
	return w.fault.step()
}

// faulty puts the fault into every disk operation of cfg.
func faulty(cfg Config, fault *nthFault) Config {
	cfg.FS = errorfs.Wrap(cfg.FS, fault)
	cfg.Log.FS = errorfs.Wrap(cfg.Log.FS, fault)
	cfg.Log.Disk.Interval = time.Millisecond
	cfg.Log.OpenWAL = func(dir string, segmentBytes int64) (commitlog.WAL, error) {
		wal, err := commitlog.OpenWAL(dir, segmentBytes)
		if err != nil {
			return nil, err
		}
		return &faultyWAL{WAL: wal, fault: fault}, nil
	}
	return cfg
}

// acked is what the store has confirmed.
type acked struct {
	bodies []string // by queue offset
	state  string
}

// workload sends messages with state, one after the other, rolls, retains nothing, and notes what was
// confirmed.
func workload(r *runner, a *acked) {
	for i := range 8 {
		body := fmt.Sprint("body ", i, string(make([]byte, 12_000)))
		w := &Write{
			Messages: []message.Message{msg("t", 0, body), msg("t", 0, body+"'")},
			State:    []message.State{put(message.SpaceOffset, "g", fmt.Sprint(i))},
		}
		if err := r.tryAppend(w); err != nil {
			continue
		}
		for j := range w.Messages {
			if want := message.QueueOffset(len(a.bodies)); w.Messages[j].QueueOffset != want {
				r.tb.Fatalf("queue offset %d, want %d", w.Messages[j].QueueOffset, want)
			}
			a.bodies = append(a.bodies, string(w.Messages[j].Body))
		}
		a.state = fmt.Sprint(i)
	}
}

// wantAcked compares the store with what was confirmed: no more, no less.
func wantAcked(r *runner, a *acked) {
	r.tb.Helper()
	if got := r.bodies("t", 0, 0); !slices.Equal(got, a.bodies) {
		r.tb.Fatalf("%d messages, %d were confirmed", len(got), len(a.bodies))
	}
	if got := r.state(message.SpaceOffset, "g"); a.state != "" && got != a.state {
		r.tb.Fatalf("state %s, confirmed was %s", got, a.state)
	}
}

// Every disk operation has its turn to fail, for the log and the index. Whatever it is: what was confirmed
// is there, what was refused is not, in the running store as after a crash.
func TestFailNthOperation(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{errorfs.ErrInjected, syscall.ENOSPC} {
		t.Run(cause.Error(), func(t *testing.T) {
			t.Parallel()
			for n := 0; ; n++ {
				if !failOperation(t, n, cause) {
					t.Logf("%d operations", n)
					break
				}
			}
		})
	}
}

func failOperation(t *testing.T, n int, cause error) (fired bool) {
	t.Helper()
	cfg := crashConfig(t)
	cfg.Index.CheckpointBytes = 64 << 10
	fault := &nthFault{left: n, cause: cause}
	var a acked
	r, err := startOrDie(t, faulty(cfg, fault))
	if err != nil {
		if !fault.hasFired() {
			t.Fatalf("operation %d: open: %v", n, err)
		}
		if err := os.MkdirAll(filepath.Join(cfg.Dir, logFolder), 0o750); err != nil {
			t.Fatal(err)
		}
		cfg = crashImage(t, cfg, 0)
		r = start(t, cfg) // the same disk, which works now
		workload(r, &a)
		wantAcked(r, &a)
		r.stop()
		wantSound(t, cfg)
		return true
	}
	r.cfg = cfg
	workload(r, &a)
	wantAcked(r, &a)
	crashed := r.crashed()
	stopErr := r.tryStop()
	if stopErr != nil && !fault.hasFired() {
		t.Fatalf("operation %d: stop: %v", n, stopErr)
	}
	r = start(t, cfg)
	wantAcked(r, &a)
	r.stop()
	r = start(t, crashed)
	wantAcked(r, &a)
	workload(r, &a)
	wantAcked(r, &a)
	r.stop()
	wantSound(t, crashed)
	return fault.hasFired()
}

// startOrDie is tryStart for a disk on which Pebble may panic: it does when the folder can not be synced
// while it opens.
func startOrDie(t *testing.T, cfg Config) (r *runner, err error) {
	t.Helper()
	defer func() {
		if died := recover(); died != nil {
			err = fmt.Errorf("died: %v", died)
		}
	}()
	return tryStart(t, cfg)
}

// C161: a batch that failed leaves no hole: the next message gets the offset.
func TestC161FailedBatchLeavesNoHole(t *testing.T) {
	t.Parallel()
	cfg := crashConfig(t)
	fault := &nthFault{left: 1 << 30, cause: errorfs.ErrInjected}
	r := start(t, faulty(cfg, fault))
	r.send(msg("t", 0, "a"))
	for range 3 {
		fault.mu.Lock()
		fault.left = 0
		fault.mu.Unlock()
		if err := r.tryAppend(
			&Write{Messages: []message.Message{msg("t", 0, "lost"), msg("t", 1, "lost")}},
		); err == nil {
			t.Fatal("the write did not fail")
		}
		r.sendUntilAccepted(msg("t", 0, "b"))
	}
	wantBodies(t, r.bodies("t", 0, 0), "a", "b", "b", "b")
	wantStatus(t, r.fetch("t", 1, 0), NoMatchedLogicQueue, 0)
}

// sendUntilAccepted sends again as long as the log is being read back from the disk.
func (r *runner) sendUntilAccepted(m message.Message) {
	r.tb.Helper()
	for {
		err := r.tryAppend(&Write{Messages: []message.Message{m}})
		var broken *commitlog.BrokenError
		var full *commitlog.DiskFullError
		if err == nil {
			return
		}
		if !errors.As(err, &broken) && !errors.As(err, &full) {
			r.tb.Fatalf("send: %v", err)
		}
	}
}

// A failed deletion of a topic leaves its counters as they were.
func TestFailedDeletionChangesNothing(t *testing.T) {
	t.Parallel()
	cfg := crashConfig(t)
	fault := &nthFault{left: 1 << 30, cause: errorfs.ErrInjected}
	r := start(t, faulty(cfg, fault))
	r.send(msg("t", 0, "a"), msg("t", 0, "b"))
	fault.mu.Lock()
	fault.left = 0
	fault.mu.Unlock()
	w := &Write{Messages: []message.Message{msg("t", 0, "lost")}, State: []message.State{TopicDeletion("t")}}
	if err := r.tryAppend(w); err == nil {
		t.Fatal("the write did not fail")
	}
	r.sendUntilAccepted(msg("t", 0, "c"))
	wantBodies(t, r.bodies("t", 0, 0), "a", "b", "c")
	r.stop()
	wantSound(t, cfg)
}
