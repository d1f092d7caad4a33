// SPDX-License-Identifier: Apache-2.0

package index

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/roquetmq/roquet/internal/message"
)

// workload is a fixed log with all kinds of changes.
func workload(ops int) *modelLog {
	l := &modelLog{next: map[string]message.QueueOffset{}}
	next := map[string]message.QueueOffset{}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range ops {
		switch {
		case i == ops/2:
			l.append(op{kind: "deleteTopic", topic: "t1", size: 20})
			delete(next, "t1/0")
		case i%9 == 0:
			s := message.State{
				Space: message.SpaceKV,
				Key:   fmt.Appendf(nil, "s%d", i%4),
				Value: fmt.Appendf(nil, "%d", i),
			}
			l.append(op{kind: "put", state: s, size: 30})
		case i%31 == 0:
			l.append(op{kind: "delete", state: message.State{Space: message.SpaceKV, Key: []byte("s1")}, size: 30})
		default:
			topic := fmt.Sprintf("t%d", min(rng.IntN(6), 2))
			name := topic + "/0"
			l.append(op{
				kind:  "add",
				topic: topic,
				off:   next[name],
				size:  100,
				tags:  rng.Int64(),
				keys:  []string{fmt.Sprint("k", i%17)},
			})
			next[name]++
		}
	}
	return l
}

// script drives an index through l with a restart in between and gives up at the first error.
func script(disk vfs.FS, cfg Config, l *modelLog) error {
	half := len(l.ops) / 2
	for part := range 2 {
		d, err := Open("/data/index", disk, cfg)
		if err != nil {
			return err
		}
		err = scriptPart(d, l, l.ops[part*half:(part+1)*half])
		if err := errors.Join(err, d.Close()); err != nil {
			return err
		}
	}
	return nil
}

func scriptPart(d *DB, l *modelLog, ops []op) error {
	if err := l.replayUntil(d, d.Applied(), ops[0].pos); err != nil {
		return err
	}
	for i, o := range ops {
		if err := errors.Join(apply(d, o), d.Err()); err != nil {
			return err
		}
		if i%50 == 49 {
			if _, err := got(d, 0, l.allKeys(), 32); err != nil {
				return err
			}
		}
	}
	if err := d.Sync(); err != nil {
		return err
	}
	return d.DropBefore(0)
}

func (l *modelLog) replayUntil(d *DB, from, to message.LogOffset) error {
	part := modelLog{}
	for _, o := range l.ops {
		if o.pos >= from && o.pos < to {
			part.ops = append(part.ops, o)
		}
	}
	return part.replay(d, 0)
}

// TestFailNthOperation fails each disk operation once, in turn, and then lets the power go. Whatever the
// index said, it must open again with exactly a prefix, and replay must complete it.
func TestFailNthOperation(t *testing.T) {
	t.Parallel()
	l := workload(150)
	cfg := Config{CheckpointBytes: 2500}
	for n := int32(0); ; n++ {
		disk := newDisk(t)
		failNth := errorfs.OnIndex(n)
		gaveUp := script(errorfs.Wrap(disk, failNth), cfg, l)
		fired := failNth.Index.Load() < 0
		clone := disk.CrashClone(
			vfs.CrashCloneCfg{UnsyncedDataPercent: int(n%3) * 50, RNG: rand.New(rand.NewPCG(uint64(n), 3))},
		)
		d, err := Open("/data/index", clone, cfg)
		var damaged *CorruptError
		if errors.As(err, &damaged) && gaveUp != nil {
			// A failed folder sync and then the power: files that were there may not be. It is told, and the store
			// builds the index again.
			if err = Wipe("/data/index", clone); err == nil {
				d, err = Open("/data/index", clone, cfg)
			}
		}
		if err != nil {
			t.Fatalf("operation %d failed (%v): cannot open again: %v", n, gaveUp, err)
		}
		l.compareQueues(t, d, d.Applied(), 32)
		if err := l.replay(d, d.Applied()); err != nil {
			t.Fatalf("operation %d failed (%v): replay: %v", n, gaveUp, err)
		}
		rewriteMissing(t, d, l)
		l.compare(t, d, l.end, 32)
		mustClose(t, d)
		if !fired {
			if gaveUp != nil {
				t.Fatalf("gave up without a failure: %v", gaveUp)
			}
			t.Logf("failed %d operations", n)
			return
		}
	}
}

// rewriteMissing does what the store does for lost sidecars.
func rewriteMissing(t failer, d *DB, l *modelLog) {
	t.Helper()
	for _, r := range d.MissingKeys(l.first) {
		w := d.RewriteKeys(r)
		for _, o := range l.ops {
			for _, k := range o.keys {
				w.Add(KeyOrdinary, []byte(o.topic), k, o.pos)
			}
			if err := w.Checkpoint(o.end()); err != nil {
				t.Fatalf("rewrite keys: %v", err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatalf("rewrite keys: %v", err)
		}
	}
	if missing := d.MissingKeys(l.first); len(missing) != 0 {
		t.Fatalf("keys are still missing: %v", missing)
	}
}

// switchable fails the operations that match while it is on.
type switchable struct {
	on    atomic.Bool
	match func(errorfs.Op) bool
	err   error // default errDiskFull
}

var errDiskFull = fmt.Errorf("%w (injected)", syscall.ENOSPC)

func (s *switchable) MaybeError(o errorfs.Op) error {
	if s.on.Load() && s.match(o) {
		return cmp.Or(s.err, errDiskFull)
	}
	return nil
}

func (s *switchable) String() string { return "switchable" }

func isWrite(o errorfs.Op) bool { return o.Kind == errorfs.OpCreate || o.Kind == errorfs.OpFileWrite }

func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for !cond() {
		if t.Context().Err() != nil {
			t.Fatalf("waited in vain for %s", what)
		}
		runtime.Gosched()
	}
}

func TestDiskFullHeals(t *testing.T) {
	t.Parallel()
	l := workload(400)
	fault := &switchable{match: isWrite}
	disk := newDisk(t)
	d := mustOpen(t, errorfs.Wrap(disk, fault), Config{CheckpointBytes: 1000})
	if err := l.replayUntil(d, 0, l.ops[100].pos); err != nil {
		t.Fatal(err)
	}
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}

	fault.on.Store(true)
	var behind error
	at := 100
	for ; behind == nil && at < len(l.ops); at++ {
		behind = apply(d, l.ops[at])
	}
	if !errors.Is(behind, errDiskFull) || !strings.Contains(behind.Error(), "behind") {
		t.Fatalf("applied on and on with a full disk: %v", behind)
	}
	if err := d.Err(); !errors.Is(err, errDiskFull) {
		t.Fatalf("Err is %v", err)
	}
	if _, err := got(d, 0, l.allKeys(), 32); err != nil {
		t.Fatalf("reads fail while the disk is full: %v", err)
	}

	fault.on.Store(false)
	waitFor(t, "the index to heal", func() bool { return d.Err() == nil })
	if err := l.replayUntil(d, l.ops[at].pos, l.end); err != nil {
		t.Fatal(err)
	}
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	l.compare(t, d, l.end, 32)
	mustClose(t, d)
}

// TestNoRoomForTheManifest: Pebble gives up when it cannot write its list of files. For want of room it waits instead, reads
// go on, and all is well as soon as there is some.
func TestNoRoomForTheManifest(t *testing.T) {
	t.Parallel()
	for _, kind := range []errorfs.OpKind{errorfs.OpFileWrite, errorfs.OpCreate} {
		l := workload(300)
		fault := &switchable{match: func(o errorfs.Op) bool {
			return o.Kind == kind && strings.Contains(o.Path, "MANIFEST")
		}}
		disk := newDisk(t)
		d := mustOpen(t, errorfs.Wrap(disk, fault), Config{CheckpointBytes: 3000})
		if err := l.replayUntil(d, 0, l.ops[200].pos); err != nil {
			t.Fatal(err)
		}
		mustClose(t, d)
		d = mustOpen(
			t,
			errorfs.Wrap(disk, fault),
			Config{CheckpointBytes: 3000},
		) // whose first flush begins a new list
		if err := l.replayUntil(d, l.ops[200].pos, l.ops[205].pos); err != nil {
			t.Fatal(err)
		}
		fault.on.Store(true)
		synced := make(chan error)
		go func() { synced <- d.Sync() }()
		waitFor(t, "a failure", func() bool { return d.Err() != nil })
		if err := d.Err(); !errors.Is(err, errDiskFull) {
			t.Fatalf("Err is %v", err)
		}
		l.compareQueues(t, d, l.ops[204].end(), 32)
		fault.on.Store(false)
		if err := <-synced; err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the index to heal", func() bool { return d.Err() == nil })
		if err := l.replayUntil(d, l.ops[205].pos, l.end); err != nil {
			t.Fatal(err)
		}
		mustClose(t, d)
		d = mustOpen(t, disk, Config{})
		l.compare(t, d, l.end, 32)
		mustClose(t, d)
	}
}

func TestDiskFullAtClose(t *testing.T) {
	t.Parallel()
	l := workload(300)
	fault := &switchable{match: isWrite}
	disk := newDisk(t)
	d := mustOpen(t, errorfs.Wrap(disk, fault), Config{CheckpointBytes: 3000})
	if err := l.replayUntil(d, 0, l.ops[200].pos); err != nil {
		t.Fatal(err)
	}
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	durable := d.Applied()
	fault.on.Store(true)
	if err := l.replayUntil(d, l.ops[200].pos, l.ops[210].pos); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); !errors.Is(err, errDiskFull) {
		t.Fatalf("Close says %v", err)
	}
	fault.on.Store(false)
	d = mustOpen(t, disk, Config{})
	if d.Applied() != durable {
		t.Fatalf("applied is %d, want %d", d.Applied(), durable)
	}
	if err := l.replay(d, d.Applied()); err != nil {
		t.Fatal(err)
	}
	l.compare(t, d, l.end, 32)
	mustClose(t, d)
}

// TestManifestFails: Pebble cannot go on after a failed write of its manifest. The index says so, serves
// reads, closes in time, and is whole after a restart.
func TestManifestFails(t *testing.T) {
	t.Parallel()
	for _, kind := range []errorfs.OpKind{errorfs.OpFileWrite, errorfs.OpFileSync} {
		l := workload(300)
		fault := &switchable{err: syscall.EIO, match: func(o errorfs.Op) bool {
			return o.Kind == kind && strings.Contains(o.Path, "MANIFEST")
		}}
		disk := newDisk(t)
		d := mustOpen(t, errorfs.Wrap(disk, fault), Config{CheckpointBytes: 3000})
		if err := l.replayUntil(d, 0, l.ops[200].pos); err != nil {
			t.Fatal(err)
		}
		if err := d.Sync(); err != nil {
			t.Fatal(err)
		}
		fault.on.Store(true)
		if err := d.Sync(); err == nil {
			t.Fatal("Sync succeeded without a manifest")
		}
		fault.on.Store(false)
		if d.Err() == nil {
			t.Fatal("Err is nil after Pebble gave up")
		}
		l.compareQueues(t, d, l.ops[199].end(), 32)
		if err := apply(d, l.ops[200]); err != nil {
			t.Fatalf("one entry more: %v", err)
		}
		if err := d.Close(); err == nil {
			t.Fatal("Close of a broken index says nothing")
		}
		d = mustOpen(t, disk, Config{})
		if err := l.replay(d, d.Applied()); err != nil {
			t.Fatal(err)
		}
		l.compare(t, d, l.end, 32)
		mustClose(t, d)
	}
}
