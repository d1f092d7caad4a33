// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/roquetmq/roquet/internal/message"
)

// gatedWAL lets a write pass only when the gate is open.
type gatedWAL struct {
	WAL
	gate chan struct{}
}

func (w *gatedWAL) Write(index uint64, data []byte) error {
	<-w.gate
	return w.WAL.Write(index, data)
}

// TestBusy stores on a disk that stands still: memory is bounded, the refusal says what waits, and what was
// refused was not stored (C214, C216).
func TestBusy(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.MaxPendingBytes = 1 << 20
	gate := make(chan struct{})
	cfg.OpenWAL = func(dir string, n int64) (WAL, error) {
		w, err := OpenWAL(dir, n)
		return &gatedWAL{WAL: w, gate: gate}, err
	}
	r := start(t, cfg)
	var accepted []*testGroup
	var busy *BusyError
	for i := 0; ; i++ {
		g := newGroup(fmt.Sprintf("g%03d", i), stateRecord(fmt.Sprintf("g%03d", i), 10_000))
		err := r.Append(g, g.size(), false)
		if errors.As(err, &busy) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		accepted = append(accepted, g)
	}
	if busy.LimitBytes != 1<<20 || busy.PendingBytes+10_020 < busy.LimitBytes || busy.OldestWait <= 0 {
		t.Errorf("%+v", busy)
	}
	if s := r.Stats(); s.PendingBytes != busy.PendingBytes {
		t.Errorf("stats %+v", s)
	}
	if ok, cause := r.Health(); !ok {
		t.Errorf("busy is no reason to be unhealthy: %v", cause)
	}
	close(gate)
	var want []string
	for _, g := range accepted {
		if _, err := g.wait(); err != nil {
			t.Error(err)
		}
		want = append(want, g.name)
	}
	if got := names(t, r.Log); !slices.Equal(got, want) {
		t.Errorf("stored %d groups, accepted %d", len(got), len(want))
	}
	r.mustStore("again", stateRecord("again", 10))
	r.mustHalt()
}

func TestAppendRefuses(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	r := start(t, cfg)
	g := newGroup("g", stateRecord("g", 10))
	for _, size := range []int{0, -1, cfg.MaxGroupBytes + 1} {
		if err := r.Append(g, size, false); !errors.Is(err, ErrTooLarge) {
			t.Errorf("size %d: %v", size, err)
		}
	}
	func() {
		defer func() {
			if p := fmt.Sprint(recover()); !strings.Contains(p, "promised at most 5 bytes") {
				t.Errorf("a group that encodes more than it promised: %v", p)
			}
		}()
		_ = r.Append(g, 5, false)
	}()
	r.mustStore("h", stateRecord("h", 10))
	big := newGroup("big", stateRecord("big", cfg.MaxGroupBytes-100)) // larger than a batch
	if _, err := r.store(big); err != nil {
		t.Error(err)
	}
	r.stop()
	if err := <-r.result; err != nil {
		t.Error(err)
	}
	if err := r.Append(g, 100, false); !errors.Is(err, ErrClosed) {
		t.Errorf("append after the end: %v", err)
	}
	if err := r.Roll(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("roll after the end: %v", err)
	}
	if rec, err := r.Read(big.first, 0); err != nil || len(rec) != big.size() {
		t.Errorf("read after the end, before close: %v", err)
	}
	if err := r.Run(t.Context(), Handler{}); err == nil {
		t.Error("a log ran twice")
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// TestCloseWithoutRun refuses what was accepted and never committed.
func TestCloseWithoutRun(t *testing.T) {
	t.Parallel()
	l, err := Open(testConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	g := newGroup("g", stateRecord("g", 10))
	if err := l.Append(g, g.size(), false); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := g.wait(); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error("closing twice:", err)
	}
}

func TestSecondProcessIsKeptOut(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := Open(cfg); err == nil || !strings.Contains(err.Error(), "another broker") {
		t.Errorf("second open: %v", err)
	}
}

// TestDiskMarks watches a disk fill up and get room again, in virtual time: writes resume within 10 s,
// without a restart (C170), while deletes hang (C173).
func TestDiskMarks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t)
		usage := &usageFS{FS: vfs.Default}
		cfg.FS = usage
		cfg.Disk = DiskMarks{FullPercent: 90, ReserveBytes: 1 << 20}
		r := start(t, cfg)
		r.mustStore("a", stateRecord("a", 10))
		r.dropping.Lock() // a delete that does not end
		usage.percent.Store(95)
		<-time.After(10 * time.Second)
		g := newGroup("b", stateRecord("b", 10))
		var full *DiskFullError
		if err := r.Append(
			g,
			g.size(),
			false,
		); !errors.As(err, &full) || full.UsedPercent != 95 ||
			full.LimitPercent != 90 {
			t.Errorf("append on a full disk: %v", err)
		}
		if err := r.Append(g, g.size(), true); err != nil {
			t.Errorf("what frees space is refused: %v", err)
		}
		if _, err := g.wait(); err != nil {
			t.Error(err)
		}
		usage.percent.Store(50)
		<-time.After(10 * time.Second)
		r.mustStore("c", stateRecord("c", 10))
		r.dropping.Unlock()
		r.mustHalt()
	})
}

// TestOnlyDurableIsVisible holds the sync back: until it is done neither readers nor Apply see the entry
// (C160).
func TestOnlyDurableIsVisible(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	syncing, goOn := make(chan struct{}), make(chan struct{})
	cfg.FS = &slowSyncFS{FS: vfs.Default, syncing: syncing, goOn: goOn}
	r := start(t, cfg)
	g := newGroup("g", stateRecord("g", 10))
	if err := r.Append(g, g.size(), false); err != nil {
		t.Fatal(err)
	}
	<-syncing
	if end := r.End(); end != 0 {
		t.Errorf("end is %d before the sync", end)
	}
	if _, err := r.Read(1+headBytes, 0); !errors.Is(err, ErrNotFound) {
		t.Errorf("read before the sync: %v", err)
	}
	r.mu.Lock()
	if len(r.applied) != 0 {
		t.Error("applied before the sync")
	}
	r.mu.Unlock()
	close(goOn)
	if _, err := g.wait(); err != nil {
		t.Error(err)
	}
	go func() { // for the mark at the end
		for range syncing {
		}
	}()
	r.mustHalt()
	close(syncing)
}

type slowSyncFS struct {
	vfs.FS
	syncing, goOn chan struct{}
}

func (f *slowSyncFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.OpenReadWrite(name, c, o...)
	return &slowSyncFile{File: file, fs: f}, err
}

type slowSyncFile struct {
	vfs.File
	fs *slowSyncFS
}

func (f *slowSyncFile) SyncData() error {
	f.fs.syncing <- struct{}{}
	<-f.fs.goOn
	return f.File.SyncData()
}

// TestConcurrent appends from many goroutines, reads back what is done, drops old segments, rolls, and wants
// every group once, in the order of its producer, applied before it is done.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	for _, flush := range []FlushDiskType{Sync, Async} {
		t.Run(fmt.Sprint("flush ", flush), func(t *testing.T) {
			t.Parallel()
			cfg := testConfig(t)
			cfg.FlushDiskType, cfg.FlushInterval, cfg.RingBytes = flush, time.Millisecond, 64<<10
			l, err := Open(cfg)
			if err != nil {
				t.Fatal(err)
			}
			var order []string
			r := runWith(t, l, Handler{})
			concurrently(t, r, &order)
			r.mustHalt()
			last := map[string]string{}
			for _, name := range order {
				producer, _, _ := strings.Cut(name, "-")
				if last[producer] >= name {
					t.Fatalf("%s came after %s", name, last[producer])
				}
				last[producer] = name
			}
		})
	}
}

const producers, perProducer = 16, 60

func concurrently(t *testing.T, r *running, order *[]string) {
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			for i := range perProducer {
				name := fmt.Sprintf("p%02d-%04d", p, i)
				msg := messageRecord(name, 100+i)
				pos, err := r.store(newGroup(name, stateRecord(name, 50*i), msg))
				if err != nil {
					t.Error(err)
					return
				}
				rec, err := r.Read(pos, 0)
				if errors.Is(err, ErrNotFound) && pos < r.First() {
					continue // dropped meanwhile
				}
				if err != nil || recordName(rec) != name {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	done := make(chan struct{})
	var back sync.WaitGroup
	back.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if len(r.Segments()) > 4 {
				if err := r.Drop(2); err != nil {
					t.Error(err)
				}
			}
			if err := r.Roll(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	close(done)
	back.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	var end message.LogOffset
	for _, e := range r.applied {
		if e.Position < end {
			t.Fatalf("entry at %d applied behind %d", e.Position, end)
		}
		end = e.End
		err := e.Each(func(pos message.LogOffset, rec []byte) error {
			if m := message.Record(rec); m.IsMessage() {
				if m.LogOffset() != pos {
					t.Errorf("message at %d states %d", pos, m.LogOffset())
				}
				return m.Check()
			}
			*order = append(*order, recordName(rec))
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	if len(*order) != producers*perProducer {
		t.Errorf("%d groups applied", len(*order))
	}
}
