// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"context"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/roquetmq/roquet/internal/message"
)

// flushBytes is how much may be written before a sync is asked for ahead of its time (Async). It keeps the
// sync at the end of a segment, which the writer waits for, short.
const flushBytes = 4 << 20

// flushLoop syncs what was written, every FlushInterval and whenever flushBytes gathered, until ctx is done.
func (l *Log) flushLoop(ctx context.Context) {
	var f flusher
	defer f.close(l)
	tick := time.Tick(l.cfg.FlushInterval)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
		case <-l.flush:
		}
		opened := l.opened.Load()
		if f.failed == opened {
			continue // a sync is not tried again: the committer opens the log anew
		}
		if err := f.sync(l); err != nil {
			f.failed = opened
			l.flushFailure.Store(&flushFailure{opened: opened, err: err})
			l.wakeCommitter()
		}
	}
}

// flushFailure is a failed sync, and how often the log had been opened for writing when it began: what the
// log was opened after is no longer a failure of it.
type flushFailure struct {
	opened uint64
	err    error
}

// flushFailed returns the error of a sync in the background that the committer has to deal with.
func (l *Log) flushFailed() error {
	f := l.flushFailure.Swap(nil)
	if f == nil || f.opened != l.opened.Load() {
		return nil
	}
	return f.err
}

// flusher has a descriptor of its own, so that it never waits for the writer nor the writer for it.
type flusher struct {
	file   vfs.File
	path   string
	failed uint64 // the opening of the log in which a sync failed
}

// sync makes the log durable up to its end as of now.
func (f *flusher) sync(l *Log) error {
	end := message.LogOffset(l.end.Load())
	if end <= message.LogOffset(l.durable.Load()) {
		return nil
	}
	last, ok := l.segs.find(end - 1) // what is before it was synced when it was full
	if !ok {
		return nil
	}
	if f.path != last.Path {
		f.close(l)
		file, err := l.cfg.FS.Open(last.Path)
		if err != nil {
			return err
		}
		f.file, f.path = file, last.Path
	}
	started := time.Now()
	if err := f.file.SyncData(); err != nil {
		f.close(l)
		return err
	}
	l.stats.synced(time.Since(started))
	l.raiseDurable(end)
	return nil
}

func (f *flusher) close(l *Log) {
	if f.file == nil {
		return
	}
	if err := f.file.Close(); err != nil {
		l.log.Debug("closing a synced segment", "error", err)
	}
	f.file, f.path = nil, ""
}

// noteUnsynced asks for a sync when much waits for one.
func (l *Log) noteUnsynced() {
	if l.end.Load()-l.durable.Load() < flushBytes {
		return
	}
	select {
	case l.flush <- struct{}{}:
	default:
	}
}

// raiseDurable notes that everything before end is on the disk.
func (l *Log) raiseDurable(end message.LogOffset) {
	for {
		now := l.durable.Load()
		if now >= int64(end) || l.durable.CompareAndSwap(now, int64(end)) {
			return
		}
	}
}
