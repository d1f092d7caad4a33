// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"golang.org/x/sys/unix"

	"github.com/roquetmq/roquet/internal/commitlog"
	"github.com/roquetmq/roquet/internal/message"
)

// fullDisk answers ENOSPC to everything that needs room, as long as it is set.
type fullDisk struct{ full atomic.Bool }

func (d *fullDisk) String() string { return "fullDisk" }

func (d *fullDisk) MaybeError(op errorfs.Op) error {
	switch op.Kind {
	case errorfs.OpCreate,
		errorfs.OpFileWrite,
		errorfs.OpFileWriteAt,
		errorfs.OpFilePreallocate,
		errorfs.OpReuseForWrite:
		return d.step()
	}
	return nil
}

func (d *fullDisk) step() error {
	if d.full.Load() {
		return syscall.ENOSPC
	}
	return nil
}

type fullWAL struct {
	commitlog.WAL
	disk *fullDisk
}

func (w *fullWAL) Write(index uint64, data []byte) error {
	if err := w.disk.step(); err != nil {
		return err
	}
	return w.WAL.Write(index, data)
}

// usedDisk is a disk that says how full it is.
type usedDisk struct {
	vfs.FS
	percent atomic.Uint64
}

func (d *usedDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	used := d.percent.Load() << 30
	return vfs.DiskUsage{TotalBytes: 100 << 30, UsedBytes: used, AvailBytes: 100<<30 - used}, nil
}

// C170, C175: no room at all for the log. Writes are refused with the cause, reads go on, and retention
// makes room without needing any: what is alive in the oldest segment was carried forward before.
func TestC170RetentionOnAFullDisk(t *testing.T) {
	t.Parallel()
	disk := &fullDisk{}
	cfg, c := retainConfig(t)
	used := &usedDisk{FS: errorfs.Wrap(vfs.Default, disk)}
	used.percent.Store(50)
	cfg.Log.FS, cfg.Retention.CleanForciblyPercent = used, 85
	cfg.Log.Disk.Interval = time.Millisecond
	cfg.Log.OpenWAL = func(dir string, segmentBytes int64) (commitlog.WAL, error) {
		wal, err := commitlog.OpenWAL(dir, segmentBytes)
		return &fullWAL{wal, disk}, err
	}
	r := start(t, cfg)
	r.write(&Write{State: []message.State{put(message.SpaceUser, "root", "secret")}})
	fill(r, 100)
	if r.retainNow(); r.retention.carriedTo != 0 {
		t.Fatalf("cleared up to %d, with much room", r.retention.carriedTo)
	}
	used.percent.Store(80)
	r.write(&Write{State: []message.State{put(message.SpaceUser, "later", "secret")}})
	fill(r, 100)
	if n := r.retainNow(); n != 0 {
		t.Fatalf("%d segments dropped too early", n)
	}
	first := r.Segments()[1].First
	disk.full.Store(true)
	var full *commitlog.DiskFullError
	if err := r.tryAppend(&Write{Messages: []message.Message{msg("t", 0, "x")}}); !errors.As(err, &full) {
		t.Fatalf("append: %v", err)
	}
	if writable, cause := r.Health(); writable || !errors.As(cause, &full) {
		t.Fatalf("health %v %v", writable, cause)
	}
	if got := r.fetch("topic0", 0, 0); got.Status != Found {
		t.Fatalf("fetch: %v", got.Status)
	}
	c.advance(73 * time.Hour)
	n, err := r.Retain(t.Context())
	if n != 1 || !errors.As(err, &full) || r.First() != first {
		t.Fatalf("retain: %d segments, %v; the log begins at %d", n, err, r.First())
	}
	disk.full.Store(false)
	r.sendUntilAccepted(msg("t", 0, "y"))
	r.retainNow()
	wantStatus(t, r.fetch("t", 0, 0), OffsetTooSmall, 1) // it has expired with the rest
	for _, key := range []string{"root", "later"} {
		if got := r.state(message.SpaceUser, key); got != "secret" {
			t.Fatalf("state %s %q", key, got)
		}
	}
	r.stop()
	wantSound(t, cfg)
}

// Over the mark: producers are refused, but retention may still write, and gives the oldest segments up
// whatever their age.
func TestRetentionOverTheMark(t *testing.T) {
	t.Parallel()
	cfg, _ := retainConfig(t)
	disk := &usedDisk{FS: vfs.Default}
	cfg.Log.FS = disk
	cfg.Log.Disk = commitlog.DiskMarks{FullPercent: 90, ReserveBytes: 1, Interval: time.Millisecond}
	cfg.Retention.CleanForciblyPercent = 85
	r := start(t, cfg)
	r.write(&Write{State: []message.State{put(message.SpaceUser, "root", "secret")}})
	fill(r, 200)
	if n := r.retainNow(); n != 0 {
		t.Fatalf("%d segments dropped", n)
	}
	disk.percent.Store(95)
	var full *commitlog.DiskFullError
	for {
		if err := r.tryAppend(&Write{Messages: []message.Message{msg("t", 0, "x")}}); errors.As(err, &full) {
			break
		}
	}
	if n := r.retainNow(); n < 3 {
		t.Fatalf("%d segments dropped", n)
	}
	if got := r.state(message.SpaceUser, "root"); got != "secret" {
		t.Fatalf("state %q", got)
	}
	disk.percent.Store(10)
	r.sendUntilAccepted(msg("t", 0, "y"))
}

// The index's disk is full for a while: writes are refused before too much gathers in memory, and resume by
// themselves.
func TestIndexOnAFullDiskResumes(t *testing.T) {
	t.Parallel()
	disk := &fullDisk{}
	cfg := crashConfig(t)
	mem := cfg.FS
	cfg.FS = errorfs.Wrap(mem, disk)
	cfg.Index.CheckpointBytes = 64 << 10
	r := start(t, cfg)
	fill(r, 50)
	disk.full.Store(true)
	sent := 0
	var failed *IndexError
	for {
		err := r.tryAppend(&Write{Messages: []message.Message{msg("t", 0, string(make([]byte, 1000)))}})
		if errors.As(err, &failed) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		sent++
	}
	if writable, cause := r.Health(); writable || !errors.As(cause, &failed) {
		t.Fatalf("health %v %v", writable, cause)
	}
	disk.full.Store(false)
	for {
		err := r.tryAppend(&Write{Messages: []message.Message{msg("t", 0, "after")}})
		if err == nil {
			break
		}
		if !errors.As(err, &failed) {
			t.Fatal(err)
		}
		runtime.Gosched()
	}
	if got := len(r.bodies("t", 0, 0)); got != sent+1 {
		t.Fatalf("%d messages, want %d", got, sent+1)
	}
	r.stop()
	cfg.FS = mem
	wantSound(t, cfg)
}

// C176: a start with no byte free. What is stored can be read, writes are refused with path, share and cure, and
// are taken again as soon as there is room, with nothing lost and nothing rebuilt.
func TestC176StartOnAFullDisk(t *testing.T) {
	t.Parallel()
	disk := &fullDisk{}
	cfg := crashConfig(t)
	mem := cfg.FS
	log := &strings.Builder{}
	cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	cfg.FS, cfg.Log.FS = errorfs.Wrap(mem, disk), errorfs.Wrap(vfs.Default, disk)
	cfg.Log.Disk.Interval = time.Millisecond
	cfg.Log.OpenWAL = func(dir string, segmentBytes int64) (commitlog.WAL, error) {
		wal, err := commitlog.OpenWAL(dir, segmentBytes)
		return &fullWAL{wal, disk}, err
	}
	cfg.Index.CheckpointBytes, cfg.Index.MemTableBytes = 32<<10, 64<<10
	r := start(t, cfg)
	fill(r, 300)
	for i := range 200 { // more state than Pebble keeps in memory
		r.write(&Write{State: []message.State{put(message.SpaceUser, fmt.Sprint(i), strings.Repeat("v", 1000))}})
	}
	before := r.content()
	cfg.FS = mem
	image := crashImage(t, cfg, 0)
	mem = image.FS
	image.FS = errorfs.Wrap(mem, disk)
	disk.full.Store(true)
	r = start(t, image)
	wantSame(t, "content", r.content(), before)
	var full *commitlog.DiskFullError
	if err := r.tryAppend(&Write{Messages: []message.Message{msg("t", 0, "x")}}); !errors.As(err, &full) ||
		!strings.Contains(err.Error(), image.Dir) || !strings.Contains(err.Error(), "% used") ||
		!strings.Contains(err.Error(), "free some space") {
		t.Fatalf("append: %v", err)
	}
	disk.full.Store(false)
	r.sendUntilAccepted(msg("t", 0, "y"))
	r.stop()
	if strings.Contains(log.String(), "rebuild") {
		t.Error(log)
	}
	image.FS = mem
	wantSound(t, image)
}

// C176 on a real volume.
func TestC176StartOnARealFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skip("mounting is not permitted here; TestC176StartOnAFullDisk covers it:", err)
	}
	defer func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}()
	cfg := testConfig(t)
	cfg.Dir = filepath.Join(dir, "store")
	cfg.Log.Disk.Interval = time.Millisecond
	r := start(t, cfg)
	fill(r, 100)
	before := r.content()
	r.stop()
	ballast := filepath.Join(dir, "ballast")
	file, err := os.Create(ballast)
	for err == nil {
		_, err = file.Write(make([]byte, 4096))
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	r = start(t, cfg)
	wantSame(t, "content", r.content(), before)
	var full *commitlog.DiskFullError
	if _, cause := r.Health(); !errors.As(cause, &full) {
		t.Fatalf("health: %v", cause)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	r.sendUntilAccepted(msg("t", 0, "y"))
	r.stop()
	wantSound(t, cfg)
}
