// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"errors"
	"fmt"
	"time"

	"github.com/roquetmq/roquet/internal/message"
)

var (
	// ErrClosed is returned once the log is stopping or closed.
	ErrClosed = errors.New("commit log is closed")
	// ErrTooLarge is returned for a group that no entry can hold: see Config.MaxGroupBytes.
	ErrTooLarge = errors.New("group is larger than an entry of the commit log may be")
	// ErrNotFound is returned for a position that is not in the log: dropped by retention, not yet durable,
	// or not the beginning of a record.
	ErrNotFound = errors.New("no record at this position of the commit log")
)

// BrokenError refuses a write because an earlier write or sync failed and the log has not been read again
// from the disk yet. Reads go on.
type BrokenError struct {
	Path  string // the log's folder
	Op    string // what failed: "write", "sync", "roll", "restart"
	Cause error
	Since time.Time
	// Uncertain says that the group was part of the failed write, and that the disk did not even let it be
	// cut off again. Should the process end before the log has restarted, the group may be found in it at the
	// next start.
	Uncertain bool
}

// Error names the folder, what failed, and since when writes are refused.
func (e *BrokenError) Error() string {
	text := fmt.Sprintf("commit log %s refuses writes since %s: %s failed: %v",
		e.Path, e.Since.UTC().Format(time.RFC3339), e.Op, e.Cause)
	if e.Uncertain {
		text += "; this write may yet turn out to be stored"
	}
	return text
}

// Unwrap returns the cause.
func (e *BrokenError) Unwrap() error { return e.Cause }

// DiskFullError refuses a write because the disk is over its mark, or because a write met a full disk. The
// log resumes by itself when there is room again.
type DiskFullError struct {
	Path         string // the log's folder
	UsedPercent  float64
	LimitPercent int
	FreeBytes    int64
	ReserveBytes int64 // free bytes below which writes are refused
	Cause        error // the failed write, nil when a mark was passed before any write failed
}

// Error names the path, what is used, the limits and the cure.
func (e *DiskFullError) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("no space left for %s: %v (disk %.1f%% used, %d MiB free; a quota may be lower); "+
			"free some space or add disk, writes resume by themselves", e.Path, e.Cause, e.UsedPercent, e.FreeBytes>>20)
	}
	return fmt.Sprintf("disk of %s is full: %.1f%% used, limit %d%%; %d MiB free, reserve %d MiB; "+
		"free some space or add disk, writes resume by themselves",
		e.Path, e.UsedPercent, e.LimitPercent, e.FreeBytes>>20, e.ReserveBytes>>20)
}

// Unwrap returns the failed write, if there was one.
func (e *DiskFullError) Unwrap() error { return e.Cause }

// BusyError refuses a write because too much waits to become durable. Nothing of the write was stored.
type BusyError struct {
	PendingBytes int64
	LimitBytes   int64
	OldestWait   time.Duration // how long the oldest accepted group has waited
	LastSync     time.Duration // how long the last sync took
}

// Error states the numbers.
func (e *BusyError) Error() string {
	return fmt.Sprintf("commit log is busy: %d bytes wait for the disk, limit %d; oldest waits %v, last sync took %v",
		e.PendingBytes, e.LimitBytes, e.OldestWait.Round(time.Microsecond), e.LastSync.Round(time.Microsecond))
}

// CorruptError reports bytes of the log that are not what was written. They are neither served nor cut off.
type CorruptError struct {
	File     string            // path of the segment file
	Offset   int64             // where in the file
	Position message.LogOffset // the same place as a log position, -1 when it is not known
	Reason   string            // what does not fit
	Cure     string            // what an operator can do, may be empty
}

// Error names file, offset and position, what does not fit and the cure.
func (e *CorruptError) Error() string {
	text := fmt.Sprintf("commit log is corrupt: %s at byte %d (log position %d): %s",
		e.File, e.Offset, e.Position, e.Reason)
	if e.Cure != "" {
		text += "; " + e.Cure
	}
	return text
}
