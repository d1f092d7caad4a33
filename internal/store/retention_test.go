// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/roquetmq/roquet/internal/commitlog"
	"github.com/roquetmq/roquet/internal/message"
)

// retainConfig has a clock that the test moves.
func retainConfig(tb testing.TB) (Config, *clock) {
	tb.Helper()
	c := newClock()
	cfg := crashConfig(tb)
	cfg.Now = c.now
	return cfg, c
}

func (r *runner) retainNow() int {
	r.tb.Helper()
	n, err := r.Retain(r.tb.Context())
	if err != nil {
		r.tb.Fatalf("retain: %v", err)
	}
	return n
}

// withoutIndex returns the configuration of a crashed copy whose index is lost as well.
func (r *runner) withoutIndex() Config {
	r.tb.Helper()
	cfg := r.crashed()
	if err := cfg.FS.RemoveAll(cfg.indexDir()); err != nil {
		r.tb.Fatal(err)
	}
	return cfg
}

// C156, C165: everything expires on an idle broker: the log is empty, the space is free, and offsets go on
// from where they were, also after a crash, and also when the index is lost.
func TestC156C165EverythingExpires(t *testing.T) {
	t.Parallel()
	cfg, c := retainConfig(t)
	r := start(t, cfg)
	fill(r, 100)
	for i := range 10 {
		r.send(msg("t", 3, fmt.Sprint(i)))
	}
	r.write(&Write{State: []message.State{put(message.SpaceTopic, "t", "config of t")}})
	if n := r.retainNow(); n != 0 {
		t.Fatalf("%d segments dropped too early", n)
	}
	end := r.End()
	c.advance(73 * time.Hour)
	if n := r.retainNow(); n == 0 {
		t.Fatal("nothing dropped")
	}
	check := func(r *runner) {
		t.Helper()
		if r.First() < end {
			t.Fatalf("the log begins at %d, messages ended at %d", r.First(), end)
		}
		if minimum, maximum, ok := r.Bounds("t", 3); minimum != 10 || maximum != 10 || !ok {
			t.Fatalf("bounds [%d, %d) %v", minimum, maximum, ok)
		}
		wantStatus(t, r.fetch("t", 3, 0), OffsetTooSmall, 10)
		wantStatus(t, r.fetch("t", 3, 10), OffsetOverflowOne, 10)
		if got := r.state(message.SpaceTopic, "t"); got != "config of t" {
			t.Fatalf("state %q", got)
		}
	}
	check(r)
	var size int64
	for _, seg := range r.Segments() {
		size += seg.Bytes()
	}
	if size > 4<<10 {
		t.Errorf("%d bytes are left", size)
	}
	crashed, bare := r.crashed(), r.withoutIndex()
	if got := r.send(msg("t", 3, "next"))[0].QueueOffset; got != 10 {
		t.Fatalf("queue offset %d", got)
	}
	r.stop()
	for _, cfg := range []Config{crashed, bare} {
		r := start(t, cfg)
		check(r)
		if got := r.send(msg("t", 3, "next"))[0].QueueOffset; got != 10 {
			t.Fatalf("queue offset %d", got)
		}
		wantBodies(t, r.bodies("t", 3, 10), "next")
		c.advance(73 * time.Hour)
		r.retainNow()
		if got := r.send(msg("t", 3, "next"))[0].QueueOffset; got != 11 {
			t.Fatalf("queue offset %d", got)
		}
		r.stop()
		wantSound(t, cfg)
	}
}

// FlushDiskType Async: what was carried forward is durable before its old place goes.
func TestRetentionAsync(t *testing.T) {
	t.Parallel()
	cfg, c := retainConfig(t)
	cfg.Log.FlushDiskType = commitlog.Async
	cfg.Log.FlushInterval = time.Hour
	r := start(t, cfg)
	r.write(&Write{State: []message.State{put(message.SpaceUser, "root", "secret")}})
	fill(r, 100)
	c.advance(73 * time.Hour)
	if r.retainNow() == 0 {
		t.Fatal("nothing dropped")
	}
	segments := r.Segments()
	if len(segments) < 2 || segments[len(segments)-1].Bytes() > 200 {
		t.Fatalf("the segment with what was carried is not closed: %+v", segments)
	}
	_, pos, ok, err := r.db.Get(message.SpaceUser, []byte("root"))
	if err != nil || !ok || pos >= segments[len(segments)-1].First {
		t.Fatalf("root at %d, %v %v", pos, ok, err)
	}
}

func TestRetentionBySize(t *testing.T) {
	t.Parallel()
	cfg, _ := retainConfig(t)
	cfg.Retention.MaxBytes = 256 << 10
	r := start(t, cfg)
	r.write(&Write{State: []message.State{put(message.SpaceUser, "root", "secret")}})
	fill(r, 400)
	before := r.content()
	if n := r.retainNow(); n < 3 {
		t.Fatalf("%d segments dropped", n)
	}
	var size int64
	for _, seg := range r.Segments() {
		size += seg.Bytes()
	}
	if size > cfg.Retention.MaxBytes+128<<10 {
		t.Errorf("%d bytes are left", size)
	}
	low, high, _ := r.Bounds("topic0", 0)
	if low == 0 || low >= high {
		t.Errorf("bounds [%d, %d)", low, high)
	}
	wantStatus(t, r.fetch("topic0", 0, 0), OffsetTooSmall, low)
	if got := len(r.bodies("topic0", 0, low)); got != int(high-low) {
		t.Errorf("%d messages", got)
	}
	if got := r.state(message.SpaceUser, "root"); got != "secret" {
		t.Errorf("state %q", got)
	}
	after := r.content()
	if after == before {
		t.Error("content is as before")
	}
	bare := r.withoutIndex()
	r.stop()
	wantSound(t, cfg)
	r = start(t, bare)
	wantSame(t, "content rebuilt from what is retained", r.content(), after)
	r.stop()
	wantSound(t, bare)
}

// State that is overwritten or deleted while it is being carried forward keeps its new value.
func TestCarryLosesToNewerState(t *testing.T) {
	t.Parallel()
	cfg, c := retainConfig(t)
	r := start(t, cfg)
	const keys = 200
	for i := range keys {
		r.write(&Write{State: []message.State{put(message.SpaceOffset, fmt.Sprint("k", i), "old")}})
	}
	fill(r, 100)
	c.advance(73 * time.Hour)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; i < keys; i += 2 {
			st := put(message.SpaceOffset, fmt.Sprint("k", i), "new")
			st.Delete = i%4 == 0
			if err := r.tryAppend(&Write{State: []message.State{st}}); err != nil {
				t.Error(err)
			}
		}
	})
	r.retainNow()
	wg.Wait()
	check := func(r *runner) {
		t.Helper()
		for i := range keys {
			want := []string{"<none>", "old", "new", "old"}[i%4]
			if got := r.state(message.SpaceOffset, fmt.Sprint("k", i)); got != want {
				t.Errorf("key %d: %s, want %s", i, got, want)
			}
		}
	}
	check(r)
	bare := r.withoutIndex()
	r.stop()
	r = start(t, bare)
	check(r)
}

// Hooks hear of no change when state is only carried forward.
func TestCarryIsNoChange(t *testing.T) {
	t.Parallel()
	cfg, c := retainConfig(t)
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var changes []string
	s.OnState(message.SpaceOffset, func(st message.State) { changes = append(changes, string(st.Value)) })
	r := run(t, s, cfg)
	r.write(&Write{State: []message.State{put(message.SpaceOffset, "k", "1")}})
	fill(r, 50)
	changes = nil
	c.advance(73 * time.Hour)
	if r.retainNow() == 0 {
		t.Fatal("nothing dropped")
	}
	if len(changes) != 0 {
		t.Fatalf("changes %v", changes)
	}
	r.write(&Write{State: []message.State{put(message.SpaceOffset, "k", "2")}})
	wantBodies(t, changes, "2")
}

// A deleted topic's floor is not carried back to life.
func TestFloorOfADeletedTopic(t *testing.T) {
	t.Parallel()
	cfg, c := retainConfig(t)
	r := start(t, cfg)
	for range 5 {
		r.send(msg("t", 0, "x"))
	}
	for round := range 3 {
		c.advance(73 * time.Hour)
		r.retainNow()
		if _, maximum, _ := r.Bounds("t", 0); maximum != 5 {
			t.Fatalf("round %d: maximum %d", round, maximum)
		}
		fill(r, 20)
	}
	r.write(&Write{State: []message.State{TopicDeletion("t")}})
	bare := r.withoutIndex()
	r.stop()
	wantSound(t, cfg)
	r = start(t, bare)
	if got := r.send(msg("t", 0, "new"))[0].QueueOffset; got != 0 {
		t.Fatalf("queue offset %d", got)
	}
}

// Messages that a hook appends again live on; an error of the hook postpones the cut.
func TestRetainHook(t *testing.T) {
	t.Parallel()
	cfg, c := retainConfig(t)
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	fail := errors.New("not now")
	var r *runner
	s.OnRetain(func(_ context.Context, cut message.LogOffset) error {
		if fail != nil {
			return fail
		}
		rec, err := r.At("timers", 0, 0)
		if err != nil || rec.LogOffset() >= cut {
			return err
		}
		m, err := message.Decode(rec)
		if err != nil {
			return err
		}
		return r.tryAppend(&Write{Messages: []message.Message{m}})
	})
	r = run(t, s, cfg)
	r.send(msg("timers", 0, "pending"))
	fill(r, 50)
	c.advance(73 * time.Hour)
	if _, err := r.Retain(t.Context()); !errors.Is(err, fail) {
		t.Fatalf("retain: %v", err)
	}
	if r.First() != 0 {
		t.Fatal("cut in spite of the hook's error")
	}
	fail = nil
	r.retainNow()
	wantBodies(t, r.bodies("timers", 0, 1), "pending")
}

// Retention and readers at the same time: a reader sees only what is there, and is told where to go on.
func TestRetentionUnderReaders(t *testing.T) {
	t.Parallel()
	cfg, _ := retainConfig(t)
	cfg.Retention.MaxBytes = 192 << 10
	r := start(t, cfg)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			var from message.QueueOffset
			for {
				select {
				case <-stop:
					return
				default:
				}
				res := r.fetch("t", 0, from)
				if res.Err != nil {
					t.Errorf("%v: %v", res.Status, res.Err)
					return
				}
				for _, rec := range res.Records {
					if message.Record(rec).Check() != nil {
						t.Error("bad record")
					}
				}
				if res.Status == OffsetOverflowOne {
					from = res.Min
					continue
				}
				from = res.Next
			}
		})
	}
	for range 40 {
		for range 8 {
			r.send(
				msg("t", 0, "x", "pad", strings.Repeat("x", 1000)),
				msg("t", 1, "y", "pad", strings.Repeat("x", 1000)),
			)
		}
		r.retainNow()
	}
	close(stop)
	wg.Wait()
	r.stop()
	wantSound(t, cfg)
}

// The order on disk makes it safe to crash at any moment of a retention: files are taken away one by one
// here.
func TestCrashInTheMiddleOfADrop(t *testing.T) {
	t.Parallel()
	cfg, c := retainConfig(t)
	r := start(t, cfg)
	r.write(&Write{State: []message.State{put(message.SpaceUser, "root", "secret")}})
	fill(r, 200)
	segments := len(r.Segments())
	if err := r.log.Roll(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.advance(73 * time.Hour)
	full := filepath.Join(t.TempDir(), "full")
	copyDir(t, r.Store.cfg.Log.Dir, full)
	r.retainNow()
	image := r.crashed()
	r.stop()
	names, err := os.ReadDir(full)
	if err != nil {
		t.Fatal(err)
	}
	for kept := range segments {
		cfg := image
		cfg.Dir = t.TempDir()
		copyDir(t, filepath.Join(image.Dir, logFolder), filepath.Join(cfg.Dir, logFolder))
		for _, name := range names[kept:] {
			to := filepath.Join(cfg.Dir, logFolder, name.Name())
			if _, err := os.Stat(to); err != nil {
				copyFile(t, filepath.Join(full, name.Name()), to)
			}
		}
		cfg.FS = renamed(t, image.FS.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{}), image.Dir, cfg.Dir)
		r := start(t, cfg)
		if got := r.state(message.SpaceUser, "root"); got != "secret" {
			t.Fatalf("state %q with segments from %d on", got, kept)
		}
		_, maximum, _ := r.Bounds("topic0", 0)
		if got := r.send(msg("topic0", 0, "next"))[0].QueueOffset; got != maximum || got == 0 {
			t.Fatalf("queue offset %d, maximum %d", got, maximum)
		}
		r.stop()
	}
}

// What the index on disk has not seen stays in the log: a crash right after a cut costs no rebuild.
func TestRetentionWaitsForTheIndex(t *testing.T) {
	t.Parallel()
	cfg, c := retainConfig(t)
	log := &strings.Builder{}
	cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	r := start(t, cfg)
	fill(r, 300) // less than a checkpoint
	c.advance(73 * time.Hour)
	if n := r.retainNow(); n < 2 {
		t.Fatalf("%d segments dropped", n)
	}
	if applied, first := r.db.Applied(), r.First(); applied < first {
		t.Errorf("the log begins at %d, the index has applied %d", first, applied)
	}
	image := r.crashed()
	r.stop()
	start(t, image).stop()
	if strings.Contains(log.String(), "rebuild") {
		t.Error(log)
	}
	wantSound(t, image)
}

// The index cannot be written: then the log is cut no further than what the index has.
func TestRetentionCutsNoFurtherThanTheIndex(t *testing.T) {
	t.Parallel()
	cfg, c := retainConfig(t)
	disk := &fullDisk{}
	cfg.FS = errorfs.Wrap(cfg.FS, disk)
	cfg.Index.CheckpointBytes = 64 << 10
	r := start(t, cfg)
	fill(r, 300)
	disk.full.Store(true)
	for {
		if err := r.tryAppend(
			&Write{Messages: []message.Message{msg("t", 0, strings.Repeat("x", 5000))}},
		); err != nil {
			break // the index is not well
		}
	}
	c.advance(73 * time.Hour)
	_, _ = r.Retain(t.Context()) // what is alive may be refused
	if applied, first := r.db.Applied(), r.First(); applied < first {
		t.Errorf("the log begins at %d, the index has applied %d", first, applied)
	}
	disk.full.Store(false)
}
