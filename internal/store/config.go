// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"log/slog"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/roquetmq/roquet/internal/commitlog"
	"github.com/roquetmq/roquet/internal/index"
)

// Folders inside Config.Dir.
const (
	logFolder   = "commitlog"
	indexFolder = "index"
)

// Config says where and how a Store keeps its data. The zero value of every field but Dir has a working
// default.
type Config struct {
	// Dir is the store's folder; it is created when missing. The log lives in its folder commitlog, the
	// index in index.
	Dir string
	// StoreHost is written into every message: the broker's advertised address, which clients dial for a
	// message by id.
	StoreHost netip.AddrPort
	// Log configures the commit log. Its Dir is set by Open; its Logger and FS are the Config's when nil.
	Log commitlog.Config
	// Index configures the index. Its Logger is the Config's when nil.
	Index index.Config
	// Retention says what is dropped when.
	Retention Retention
	// Logger gets what an operator wants to know. Default: nothing is reported.
	Logger *slog.Logger
	// FS is the file system of log and index, but for tidwall/wal's own files. Default vfs.Default.
	FS vfs.FS
	// Now is the clock of store timestamps and of retention. Default time.Now.
	Now func() time.Time
}

// Retention bounds what the log keeps. Whole segments go, oldest first, as soon as one of the bounds asks
// for it.
type Retention struct {
	// FileReservedTime is how long messages are kept; they go at most one segment later. Default 72 h.
	FileReservedTime time.Duration
	// MaxBytes bounds the size of the log. 0, the default, is no bound.
	MaxBytes int64
	// CleanForciblyPercent is the used share of the disk, 1 to 100, above which the oldest segment goes
	// whatever its age. Default 85 (RocketMQ's diskSpaceCleanForciblyRatio).
	CleanForciblyPercent int
	// Interval is the time between two looks. Default 10 s.
	Interval time.Duration
}

func (c *Config) setDefaults() {
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.FS = cmp.Or(c.FS, vfs.Default)
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Log.Logger = cmp.Or(c.Log.Logger, c.Logger)
	c.Log.FS = cmp.Or(c.Log.FS, c.FS)
	c.Index.Logger = cmp.Or(c.Index.Logger, c.Logger)
	c.Log.Dir = filepath.Join(c.Dir, logFolder)
	c.Retention.setDefaults()
}

func (r *Retention) setDefaults() {
	r.FileReservedTime = cmp.Or(r.FileReservedTime, 72*time.Hour)
	r.CleanForciblyPercent = cmp.Or(r.CleanForciblyPercent, 85)
	r.Interval = cmp.Or(r.Interval, 10*time.Second)
}

func (c *Config) indexDir() string { return filepath.Join(c.Dir, indexFolder) }
