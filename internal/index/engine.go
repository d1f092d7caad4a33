// SPDX-License-Identifier: Apache-2.0

package index

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Pebble's limits that matter here. Writes must not stall behind a slow flush or compaction, for it is the
// applier that writes state; memory is bounded by checkpoints, read amplification by a single compaction
// keeping up.
const (
	memTablesBeforeStall = 16
	l0BeforeStall        = 1000
	maxOpenTables        = 500
	blockBytes           = 8 << 10
	bloomBitsPerKey      = 10
)

// openPebble opens the database of d in dir, for which d has the lock. Failures in its background go to
// d.health.
func openPebble(dir string, fs vfs.FS, d *DB) (*pebble.DB, error) {
	cfg, h := &d.cfg, d.health
	opts := &pebble.Options{
		FS:                          guardedFS{FS: fs, health: h},
		DisableWAL:                  true,
		FormatMajorVersion:          pebble.FormatTableFormatV6,
		CacheSize:                   cacheBytes,
		MemTableSize:                uint64(cfg.MemTableBytes),
		MemTableStopWritesThreshold: memTablesBeforeStall,
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       l0BeforeStall,
		MaxOpenFiles:                maxOpenTables,
		CompactionConcurrencyRange:  func() (int, int) { return 1, 1 },
		Logger:                      pebbleLogger{health: h, log: cfg.Logger},
		EventListener:               pebbleEvents(d.dir, h),
		Lock:                        d.lock,
	}
	for i := range opts.Levels {
		opts.Levels[i].BlockSize = blockBytes
		opts.Levels[i].FilterPolicy = bloom.FilterPolicy(bloomBitsPerKey)
	}
	// Entries are packed already; compressing them costs more time than it saves space.
	opts.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionNone })
	opts.Experimental.FileCacheShards = 1
	return pebble.Open(dir, opts)
}

func pebbleEvents(indexDir string, h *health) *pebble.EventListener {
	ended := func(err error) {
		if err == nil {
			h.succeed()
		}
	}
	return &pebble.EventListener{
		BackgroundError: h.fail,
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			h.breakDown(&CorruptError{Dir: indexDir, Cause: fmt.Errorf("%s: %w", info.Path, info.Details)})
		},
		FlushEnd:      func(info pebble.FlushInfo) { ended(info.Err) },
		CompactionEnd: func(info pebble.CompactionInfo) { ended(info.Err) },
	}
}

// pebbleLogger passes on what Pebble logs. Pebble calls Fatalf where it expects the process to end; here only
// the index ends: it is marked broken, and what follows in Pebble returns errors.
type pebbleLogger struct {
	health *health
	log    *slog.Logger
}

// Infof implements pebble.Logger.
func (l pebbleLogger) Infof(format string, args ...any) {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		l.log.Debug("pebble", "text", fmt.Sprintf(format, args...))
	}
}

// Errorf implements pebble.Logger.
func (l pebbleLogger) Errorf(format string, args ...any) {
	l.log.Warn("pebble reports an error", "error", fmt.Sprintf(format, args...))
}

// Fatalf implements pebble.Logger.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	l.health.breakDown(fmt.Errorf("pebble: "+format, args...))
}

// guardedFS is the disk as Pebble sees it.
//
// After a failure it pauses before a file is created, for Pebble itself tries again at once, for ever. Of its list of
// files it does not: it gives up when there is no room for that. So what is written to the list waits here for room.
//
// When a folder cannot be synced, Pebble would panic, sometimes in a goroutine of its own. So the error goes
// to health instead of Pebble, which breaks the index; and a broken index changes nothing on the disk any
// more, so that nothing is built on what may not be there.
type guardedFS struct {
	vfs.FS
	health *health
}

func (f guardedFS) guard() error {
	if err := f.health.brokenErr(); err != nil {
		return fmt.Errorf("index is broken: %w", err)
	}
	return nil
}

// inMemory tells the files that Pebble writes when it opens and nobody needs: a log of its own, which is not used,
// and its options. They never reach the disk, so an index opens on a full one, too.
func inMemory(name string) bool {
	return strings.HasSuffix(name, ".log") || strings.HasSuffix(name, ".dbtmp")
}

// noRoom tells that a write to the list of files, or to what points to it, failed for want of room, after a pause,
// and is to be made again. While the index opens or closes nothing waits.
func (f guardedFS) noRoom(name string, err error) bool {
	if !strings.Contains(filepath.Base(name), "MANIFEST") ||
		!errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return false
	}
	f.health.fail(err)
	return f.health.pause()
}

// Create implements vfs.FS.
func (f guardedFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if inMemory(name) {
		return vfs.NewMem().Create("file", category)
	}
	f.health.pause()
	if err := f.guard(); err != nil {
		return nil, err
	}
	file, err := f.FS.Create(name, category)
	for err != nil && f.noRoom(name, err) {
		file, err = f.FS.Create(name, category)
	}
	if err != nil {
		return nil, err
	}
	return guardedFile{File: file, fs: f, name: name}, nil
}

// OpenDir implements vfs.FS.
func (f guardedFS) OpenDir(name string) (vfs.File, error) {
	dir, err := f.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return guardedDir{File: dir, name: name, health: f.health}, nil
}

// Remove implements vfs.FS.
func (f guardedFS) Remove(name string) error {
	if err := f.guard(); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

// Rename implements vfs.FS.
func (f guardedFS) Rename(oldName, newName string) error {
	if err := f.guard(); err != nil {
		return err
	}
	if inMemory(oldName) {
		return nil
	}
	return f.FS.Rename(oldName, newName)
}

// Unwrap implements vfs.FS.
func (f guardedFS) Unwrap() vfs.FS { return f.FS }

type guardedFile struct {
	vfs.File
	fs   guardedFS
	name string
}

// Write implements vfs.File.
func (f guardedFile) Write(p []byte) (int, error) {
	if err := f.fs.guard(); err != nil {
		return 0, err
	}
	n, err := f.File.Write(p)
	for err != nil && f.fs.noRoom(f.name, err) {
		var more int
		more, err = f.File.Write(p[n:])
		n += more
	}
	return n, err
}

// Sync implements vfs.File.
func (f guardedFile) Sync() error {
	if err := f.fs.guard(); err != nil {
		return err
	}
	return f.File.Sync()
}

// SyncData implements vfs.File.
func (f guardedFile) SyncData() error {
	if err := f.fs.guard(); err != nil {
		return err
	}
	return f.File.SyncData()
}

type guardedDir struct {
	vfs.File
	name   string
	health *health
}

// Sync implements vfs.File.
func (f guardedDir) Sync() error {
	if err := f.File.Sync(); err != nil {
		f.health.breakDown(fmt.Errorf("sync folder %s: %w", f.name, err))
	}
	return nil
}
