// SPDX-License-Identifier: Apache-2.0

package index

import (
	"context"
	"fmt"
	"log/slog"

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
