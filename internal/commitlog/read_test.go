// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/tidwall/wal"

	"github.com/roquetmq/roquet/internal/message"
)

func TestReplayFrom(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	r := start(t, cfg)
	var at []message.LogOffset
	for i := range 20 {
		at = append(at, r.mustStore("g", stateRecord(fmt.Sprintf("g%02d", i), 7000)))
	}
	r.mustHalt()
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for i, pos := range at {
		var entries []Entry
		if err := l.Replay(pos, func(e Entry) error { entries = append(entries, e); return nil }); err != nil {
			t.Fatal(err)
		}
		if len(entries) != len(at)-i+1 || entries[0].First != pos || entries[0].Index != uint64(i+1) {
			t.Fatalf("replay from %d: %d entries, first %+v", pos, len(entries), entries[0].First)
		}
		for k := 1; k < len(entries); k++ {
			if entries[k].Position != entries[k-1].End {
				t.Fatalf("entry %d begins at %d, the one before ends at %d", k, entries[k].Position, entries[k-1].End)
			}
		}
		if last := entries[len(entries)-1]; last.Count != 0 || last.End != l.End() {
			t.Fatalf("the last entry is no mark: %+v", last)
		}
	}
	stop := errors.New("stop")
	if err := l.Replay(0, func(Entry) error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
	if err := l.Replay(l.End(), func(Entry) error { return stop }); err != nil {
		t.Error("replay from the end:", err)
	}
}

// TestBlocks reads through blocks of several entries, of one large entry, and through the growing last one.
func TestBlocks(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.SegmentBytes = 1 << 20
	cfg.RingBytes = 1 // the newest chunk only
	cfg.CacheBytes = 300 << 10
	r := start(t, cfg)
	stored := map[message.LogOffset][]byte{}
	for i := range 700 {
		rec := stateRecord(fmt.Sprintf("g%03d", i), 1000+i)
		if i%100 == 50 {
			rec = stateRecord("large", 300_000)
		}
		stored[r.mustStore("g", rec)] = rec
	}
	checkReads(t, r.Log, stored)
	if n := r.cache.bytes; n == 0 || n > cfg.CacheBytes+400_000 {
		t.Errorf("the cache holds %d bytes, limit %d", n, cfg.CacheBytes)
	}
	r.mustHalt()
}

// TestAllocations pins the allocations of the hot path.
func TestAllocations(t *testing.T) {
	cfg := testConfig(t)
	cfg.FlushDiskType, cfg.SegmentBytes = Async, 16<<20
	r := start(t, cfg)
	record := messageRecord("m", 200)
	pos := r.mustStore("m", record)
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := r.Read(pos, len(record)); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("a read from memory allocates %v times", n)
	}
	settled := make(chan struct{}, 1)
	g := &signalGroup{record: record, settled: settled}
	if n := testing.AllocsPerRun(1000, func() {
		if err := r.Append(g, len(record), false); err != nil {
			t.Error(err)
		}
		<-settled
	}); n >= 1 {
		t.Errorf("an append allocates %v times", n)
	}
	r.mustHalt()
}

// signalGroup can be appended again and again.
type signalGroup struct {
	record  []byte
	settled chan struct{}
}

func (g *signalGroup) Encode(dst []byte) []byte      { return append(dst, g.record...) }
func (g *signalGroup) Done(message.LogOffset, error) { g.settled <- struct{}{} }

// TestCacheLoadsOnce lets many readers miss the same block at once.
func TestCacheLoadsOnce(t *testing.T) {
	t.Parallel()
	c := newBlockCache(100)
	var loads atomic.Int32
	begin := make(chan struct{})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			<-begin
			b, err := c.get(blockKey{1, 1}, 10, func() (*block, error) {
				loads.Add(1)
				return &block{base: 7}, nil
			})
			if err != nil || b.base != 7 {
				t.Error(b, err)
			}
		})
	}
	close(begin)
	wg.Wait()
	if n := loads.Load(); n != 1 {
		t.Errorf("loaded %d times", n)
	}
	failed := errors.New("failed")
	fail := func() (*block, error) { return nil, failed }
	for range 2 {
		if _, err := c.get(blockKey{2, 1}, 90, fail); !errors.Is(err, failed) {
			t.Error(err)
		}
	}
	if c.bytes != 10 {
		t.Errorf("a failed load is kept: %d bytes", c.bytes)
	}
	for i := range 30 {
		_, _ = c.get(blockKey{3, i}, 30, func() (*block, error) { return &block{}, nil })
	}
	listed := 0
	for e := c.order.next; e != &c.order; e = e.next {
		listed++
	}
	if c.bytes > 100 || len(c.byKey) != listed {
		t.Errorf("%d bytes, %d keys, %d in order", c.bytes, len(c.byKey), listed)
	}
}

// TestReadFails wants the disk's error, once it heals the record, and no cached failure.
func TestReadFails(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	disk := newFaultyDisk(-1)
	disk.install(&cfg)
	cfg.RingBytes = 1
	r := start(t, cfg)
	var at []message.LogOffset
	for i := range 30 {
		at = append(at, r.mustStore("g", stateRecord(fmt.Sprintf("g%02d", i), 9000)))
	}
	for _, pos := range []message.LogOffset{at[0], at[20]} {
		disk.breakFrom(errInjected, "op")
		if _, err := r.Read(pos, 0); !errors.Is(err, errInjected) {
			t.Errorf("read on a failing disk: %v", err)
		}
		disk.heal()
		if _, err := r.Read(pos, 0); err != nil {
			t.Error(err)
		}
	}
	// A file that was removed behind the log's back looks like a dropped one.
	if err := os.Remove(r.Segments()[1].Path); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(r.Segments()[1].First+70, 0); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	r.mustHalt()
}

// TestReadersAndDrop reads while the segments go away: each record is whole or not found.
func TestReadersAndDrop(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.RingBytes, cfg.CacheBytes = 1, 1
	r := start(t, cfg)
	stored := map[message.LogOffset][]byte{}
	for i := range 60 {
		rec := stateRecord(fmt.Sprintf("g%02d", i), 9000)
		stored[r.mustStore("g", rec)] = rec
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for pos, want := range stored {
				got, err := r.Read(pos, len(want))
				if errors.Is(err, ErrNotFound) && pos < r.First() {
					continue
				}
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("read %d: %d bytes, %v", pos, len(got), err)
				}
			}
		})
	}
	for len(r.Segments()) > 1 {
		if err := r.Drop(1); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	if n, err := r.DropBefore(r.End()); n != 0 || err != nil {
		t.Errorf("dropped the last segment: %d, %v", n, err)
	}
	r.mustHalt()
}

func TestRing(t *testing.T) {
	t.Parallel()
	r := newRing(256 << 10)
	pos := message.LogOffset(1000)
	var at []message.LogOffset
	for i := range 400 {
		entry := bytes.Repeat([]byte{byte(i)}, 500+i)
		if got := r.add(pos, entry); !bytes.Equal(got, entry) {
			t.Fatal("the copy differs")
		}
		at = append(at, pos)
		pos += message.LogOffset(len(entry))
	}
	found := 0
	for i, p := range at {
		c, ok := r.find(p)
		if !ok {
			continue
		}
		found++
		if got := c.buf[p-c.base:][:500+i]; !bytes.Equal(got, bytes.Repeat([]byte{byte(i)}, 500+i)) {
			t.Fatalf("entry %d differs", i)
		}
	}
	if found < 100 || r.bytes > r.limit+int64(r.chunkBytes) {
		t.Errorf("%d entries found, %d bytes of %d", found, r.bytes, r.limit)
	}
	for _, p := range []message.LogOffset{0, 999, pos, pos + 1} {
		if _, ok := r.find(p); ok {
			t.Errorf("%d is found", p)
		}
	}
	r.add(pos+50, make([]byte, 10)) // a gap, as after a failed write: another chunk
	if c, ok := r.find(pos + 55); !ok || c.base != pos+50 {
		t.Error("behind a gap", c.base, ok)
	}
	if _, ok := r.find(pos + 5); ok {
		t.Error("inside a gap")
	}
}

func TestVerifyStops(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	r := start(t, cfg)
	r.mustStore("a", stateRecord("a", 10), messageRecord("m", 100))
	r.mustHalt()
	if report, err := Verify(t.Context(), vfs.Default, t.TempDir(), nil); err != nil || report.Entries != 0 {
		t.Errorf("verify of an empty folder: %+v, %v", report, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Verify(ctx, vfs.Default, cfg.Dir, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	stop := errors.New("stop")
	if _, err := Verify(t.Context(), vfs.Default, cfg.Dir, func(Entry) error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
	if _, err := Verify(t.Context(), vfs.Default, "/does/not/exist", nil); err == nil {
		t.Error("verify of nothing")
	}
}

// TestTailBufferIsGiven notices when tidwall/wal's types change, and wants its memory for the last segment to
// be ours.
func TestTailBufferIsGiven(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const size = 64 << 10
	w, err := OpenWAL(dir, size)
	if err != nil {
		t.Fatal(err)
	}
	tw := w.(*tidwallLog)
	var all [][]byte
	for i := range uint64(100) {
		data := bytes.Repeat([]byte{byte(i)}, 3000)
		all = append(all, data)
		if err := w.Write(i+1, data); err != nil {
			t.Fatal(err)
		}
		if i%23 == 21 { // 22 × 3002 > 64 KiB, then again
			w.Rolled()
		}
		if i%23 == 22 && !usesBuffer(tw.log, tw.tail) {
			t.Fatal("the library does not use the buffer")
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := wal.Open(dir, &wal.Options{SegmentSize: size})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for i, want := range all {
		if got, err := l.Read(uint64(i + 1)); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("entry %d: %v", i+1, err)
		}
	}
	for _, other := range []any{
		&struct{ x int }{}, &struct{ segments []int }{}, &struct{ segments []*int }{},
		&struct{ segments []*struct{ ebuf string } }{},
	} {
		if b := newTailBuffer(other, size); b.give(other) {
			t.Errorf("given to a %T", other)
		}
	}
}

func usesBuffer(log *wal.Log, tail *tailBuffer) bool {
	segments := reflect.ValueOf(log).Elem().FieldByName("segments")
	ebuf := segments.Index(segments.Len() - 1).Elem().FieldByName("ebuf")
	return ebuf.Pointer() == reflect.ValueOf(tail.buf).Pointer()
}

func TestEntryEach(t *testing.T) {
	t.Parallel()
	records := slices.Concat(stateRecord("a", 5), stateRecord("b", 6))
	e := Entry{First: 100, Records: records}
	var at []message.LogOffset
	if err := e.Each(func(pos message.LogOffset, rec []byte) error { at = append(at, pos); return nil }); err != nil {
		t.Fatal(err)
	}
	if want := message.LogOffset(100 + len(stateRecord("a", 5))); len(at) != 2 || at[1] != want {
		t.Errorf("records at %v", at)
	}
	e.Records = records[:len(records)-1]
	if err := e.Each(func(message.LogOffset, []byte) error { return nil }); err == nil {
		t.Error("a cut record is passed over")
	}
}

// FuzzScan scans arbitrary files: no panic, every entry inside the file, and what is found again is the same.
func FuzzScan(f *testing.F) {
	entry := func(position int, records []byte) []byte {
		b := make([]byte, headBytes, headBytes+len(records))
		b = append(b, records...)
		(&head{kind: kindRecords, count: 1, logID: 7, position: message.LogOffset(position), index: 1}).put(b)
		return append([]byte{byte(len(b))}, b...)
	}
	f.Add(entry(1, stateRecord("a", 10)))
	f.Add([]byte{})
	f.Add(append(make([]byte, 100), entry(101, stateRecord("a", 10))...))
	f.Add([]byte("\xff\xff\xff\xff\x7fRQE1"))
	f.Fuzz(func(t *testing.T, content []byte) {
		fs := vfs.NewMem()
		file, err := fs.Create("x", vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.Write(slices.Clone(content)); err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		s, err := openScanner(fs, Segment{FirstIndex: 1, Path: "x"}, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		end := int64(0)
		faults, err := s.faults(func(e scanned) error {
			if e.start < end || e.end() > int64(len(content)) {
				t.Fatalf("entry %d..%d behind %d in %d bytes", e.start, e.end(), end, len(content))
			}
			end = e.end()
			return e.public(0).Each(func(message.LogOffset, []byte) error { return nil })
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, fault := range faults {
			if fault.from >= fault.to || fault.to > message.LogOffset(len(content)) {
				t.Fatalf("fault %+v", fault)
			}
		}
		findRecord(content, len(content)/2)
		if starts, err := s.blockStarts(); err != nil || len(starts) == 0 {
			t.Fatal(starts, err)
		}
	})
}
