// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"cmp"
	"log/slog"
	"os"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// FlushDiskType says when an append counts as stored.
type FlushDiskType uint8

const (
	// Sync settles a group after it is on the disk. This is the default.
	Sync FlushDiskType = iota
	// Async settles a group after it is written to the operating system; a sync follows every FlushInterval.
	// A crash of the process loses nothing, a power cut loses what was not synced yet.
	Async
)

// Bounds that Config does not set.
const (
	maxEntryBytes = 1 << 30   // no entry is larger, whoever wrote it
	mappedBytes   = 512 << 20 // of segments, for walks that look at every record; where a walk is comes on top
)

// Config is what a log is made with. The zero value of each field but Dir means its default.
type Config struct {
	// Dir is the log's folder. It is created when missing.
	Dir string
	// SegmentBytes is the size at which a new segment file begins; a file is larger by at most one entry.
	// 64 KiB to 1 GiB, default 16 MiB. tidwall/wal keeps the last segment in memory.
	SegmentBytes int64
	// FlushDiskType says whether Done comes after the sync or after the write. Default Sync.
	FlushDiskType FlushDiskType
	// FlushInterval is the time between syncs when FlushDiskType is Async. Default 500 ms.
	FlushInterval time.Duration
	// RingBytes bounds the recent entries kept in memory for readers. Default 32 MiB.
	RingBytes int64
	// CacheBytes bounds the verified blocks of older segments kept in memory: enough that a group's readers of eight
	// queues, who are never quite side by side, share most of them. Default 48 MiB.
	CacheBytes int64
	// MaxPendingBytes bounds what was accepted and has not been settled; beyond it Append returns *BusyError.
	// Default 64 MiB.
	MaxPendingBytes int64
	// MaxBatchBytes is the size at which an entry is closed even if more waits. Default 2 MiB.
	MaxBatchBytes int
	// MaxGroupBytes bounds the size of one group. Default 32 MiB.
	MaxGroupBytes int
	// Disk says when the disk counts as full.
	Disk DiskMarks
	// Logger gets state changes that an operator cares about. Default: none are reported.
	Logger *slog.Logger
	// FS is the file system for everything but tidwall/wal's own files. Default vfs.Default.
	FS vfs.FS
	// OpenWAL opens the writer of the segment files. Default OpenWAL; tests put failing ones around it.
	OpenWAL func(dir string, segmentBytes int64) (WAL, error)

	// truncate cuts a file to size bytes; os.Truncate, as vfs has no such call.
	truncate func(path string, size int64) error
}

// DiskMarks says when the log stops to accept writes because of its disk, and when it looks.
type DiskMarks struct {
	// FullPercent is the used share of the disk at which writes are refused, 1 to 100. Default 90 (RocketMQ's
	// diskSpaceWarningLevelRatio). They resume when the share is below it again.
	FullPercent int
	// ReserveBytes is the free space below which writes are refused whatever the share is. Default 64 MiB.
	ReserveBytes int64
	// Interval is the time between two looks. Default 1 s. The committer also looks whenever a segment
	// begins.
	Interval time.Duration
}

func (c *Config) setDefaults() {
	c.SegmentBytes = cmp.Or(c.SegmentBytes, 16<<20)
	c.FlushInterval = cmp.Or(c.FlushInterval, 500*time.Millisecond)
	c.RingBytes = cmp.Or(c.RingBytes, 32<<20)
	c.CacheBytes = cmp.Or(c.CacheBytes, 48<<20)
	c.MaxPendingBytes = cmp.Or(c.MaxPendingBytes, 64<<20)
	c.MaxBatchBytes = cmp.Or(c.MaxBatchBytes, 2<<20)
	c.MaxGroupBytes = cmp.Or(c.MaxGroupBytes, 32<<20)
	c.Disk.FullPercent = cmp.Or(c.Disk.FullPercent, 90)
	c.Disk.ReserveBytes = cmp.Or(c.Disk.ReserveBytes, 64<<20)
	c.Disk.Interval = cmp.Or(c.Disk.Interval, time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.FS = cmp.Or(c.FS, vfs.Default)
	if c.OpenWAL == nil {
		c.OpenWAL = OpenWAL
	}
	if c.truncate == nil {
		c.truncate = os.Truncate
	}
}
