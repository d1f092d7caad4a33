// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/roquetmq/roquet/internal/disk"
	"github.com/roquetmq/roquet/internal/message"
)

// Segments returns the files of the log, oldest first. Safe for concurrent use.
func (l *Log) Segments() []Segment {
	known := l.segs.snapshot()
	all := make([]Segment, len(known))
	for i := range known {
		all[i] = known[i].Segment
	}
	return all
}

// DropBefore removes the oldest segments that lie wholly before pos, and returns how many. The last segment
// that holds an entry stays, as it says where in the log the next one goes. The first records that remain are
// at First, which moves before any file goes. DropBefore does not disturb writers; readers of what is dropped
// get ErrNotFound. Calls wait for each other.
func (l *Log) DropBefore(pos message.LogOffset) (int, error) {
	l.dropping.Lock()
	defer l.dropping.Unlock()
	known := l.segs.snapshot()
	keep := len(known) - 1
	for keep > 0 && known[keep].Bytes() == 0 {
		keep--
	}
	n := 0
	for n < keep && known[n].End <= pos {
		n++
	}
	if n == 0 {
		return 0, nil
	}
	l.first.Store(int64(known[n].First))
	for i, s := range known[:n] {
		// Oldest first and one by one: a crash leaves a log without gaps.
		if err := l.cfg.FS.Remove(s.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return i, fmt.Errorf("drop segment: %w", err)
		}
		if err := disk.SyncDir(l.cfg.FS, l.cfg.Dir); err != nil {
			return i, err
		}
		l.segs.removeFirst(s.FirstIndex)
		l.mapped.forget(blockKey{segment: s.FirstIndex}) // else its bytes stayed on the disk
	}
	l.log.Info("dropped the oldest segments of the commit log", "segments", n, "log_offset", int64(known[n].First))
	return n, nil
}

// Link links the segment files into dir, which is made, or copies them when that is on another disk. It returns them
// as they are there, up to what is durable now; the last one may go on to grow.
func (l *Log) Link(dir string) ([]Segment, error) {
	if err := l.cfg.FS.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("make a folder for the checkpoint: %w", err)
	}
	l.dropping.Lock()
	defer l.dropping.Unlock()
	end := message.LogOffset(l.durable.Load())
	var linked []Segment
	for _, s := range l.Segments() {
		if s.First >= end {
			break
		}
		path := l.cfg.FS.PathJoin(dir, l.cfg.FS.PathBase(s.Path))
		if err := vfs.LinkOrCopy(l.cfg.FS, s.Path, path); err != nil {
			return nil, fmt.Errorf("link segment: %w", err)
		}
		s.End, s.Path = min(s.End, end), path
		linked = append(linked, s)
	}
	return linked, nil
}

// Roll begins a new segment, so that everything stored before can be dropped. It waits until that is done or
// ctx is; the log must be running. Errors: ErrClosed, *BrokenError, *DiskFullError, ctx's.
func (l *Log) Roll(ctx context.Context) error {
	done := make(chan error, 1)
	p := &l.pend
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return ErrClosed
	}
	p.rolls = append(p.rolls, done)
	p.mu.Unlock()
	l.wakeCommitter()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
