// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/roquetmq/roquet/internal/disk"
	"github.com/roquetmq/roquet/internal/message"
)

// lockName is the file that keeps a second process out of the log.
const lockName = "LOCK"

var errRunning = errors.New("it is running or has run already")

// Handler is told what becomes durable. Nil functions are not called. All are called by one goroutine at a
// time.
type Handler struct {
	// Apply gets every durable entry in order, before the Done of its groups; but for the mark at the end of Run.
	Apply func(Entry)
	// Settled is called after the Done calls of a batch: the moment to flush replies to sockets.
	Settled func()
	// Reset is called after a failure, when everything that was not applied is gone from the log. It runs
	// under the append lock before the next Encode, so that what Encode counts (queue offsets) can be set
	// back.
	Reset func()
}

// Log is an open commit log. Its methods are safe for concurrent use unless they say otherwise.
type Log struct {
	cfg  Config
	log  *slog.Logger
	lock io.Closer
	id   uint64 // logID of every head

	pend pending
	segs segmentList
	ring *ring

	cache  *blockCache
	mapped *blockCache // whole segments
	stats  counters
	state
	signals
	committer *committer
}

// state is what goroutines of a log read of each other.
type state struct {
	first   atomic.Int64 // position of the first retained byte
	end     atomic.Int64 // behind the last entry that readers may see
	durable atomic.Int64 // behind the last entry that is known to be on the disk

	opened   atomic.Uint64 // how often the files were opened for writing
	running  atomic.Bool
	closed   atomic.Bool
	applying atomic.Int32 // batches that wait for the applier
	learning sync.Mutex   // held while the table of a segment is made
	dropping sync.Mutex   // held by DropBefore
}

// signals connect the goroutines of a running log.
type signals struct {
	wake         chan struct{}                // to the committer: look again
	flush        chan struct{}                // to the flusher: do not wait for the interval
	jobs         chan *batch                  // from committer to applier
	flushFailure atomic.Pointer[flushFailure] // from flusher to committer
}

// Open opens the log in cfg.Dir, or begins one. It cuts an unfinished write off the end and says so in the
// log, and fails with *CorruptError when anything else does not fit. It starts no goroutine: Replay may
// follow, then Run. On a full disk it opens for reading, and writes are refused until there is room.
func Open(cfg Config) (*Log, error) {
	cfg.setDefaults()
	if err := cfg.FS.MkdirAll(cfg.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("make commit log folder: %w", err)
	}
	if err := disk.SyncDir(cfg.FS, cfg.FS.PathDir(cfg.Dir)); err != nil {
		return nil, err
	}
	lock, err := cfg.FS.Lock(cfg.FS.PathJoin(cfg.Dir, lockName))
	if err != nil {
		return nil, fmt.Errorf("lock commit log %s, is another broker using it: %w", cfg.Dir, err)
	}
	l := &Log{
		cfg: cfg, log: cfg.Logger, lock: lock,
		ring: newRing(cfg.RingBytes), cache: newBlockCache(cfg.CacheBytes), mapped: newBlockCache(mappedBytes),
		signals: signals{
			wake: make(chan struct{}, 1), flush: make(chan struct{}, 1), jobs: make(chan *batch, maxApplying),
		},
	}
	l.committer = &committer{l: l, tail: tail{
		fs: cfg.FS, dir: cfg.Dir, bytes: cfg.SegmentBytes, truncate: cfg.truncate, openWAL: cfg.OpenWAL,
	}}
	if err := l.load(); err != nil {
		return nil, errors.Join(err, l.committer.tail.abandon(), lock.Close())
	}
	return l, nil
}

func (l *Log) repairer() *repairer {
	return &repairer{fs: l.cfg.FS, dir: l.cfg.Dir, log: l.log, truncate: l.cfg.truncate, logID: l.id}
}

// load repairs the files and opens them for writing.
func (l *Log) load() error {
	r := l.repairer()
	found, err := r.run()
	if err != nil {
		return err
	}
	l.id = r.logID
	if l.id == 0 {
		l.id = rand.Uint64() | 1 // not 0
	}
	c := l.committer
	c.pos, c.index = found.end, found.index
	if n := len(found.list); n > 0 {
		last := &found.list[n-1]
		c.millis = last.LastMillis
		if size := last.Bytes(); size > 0 {
			// What follows begins a block of its own, so that the one before is whole.
			last.starts = append(last.starts, uint32(size))
		}
		if found.marked {
			c.marked = c.pos
		}
		l.first.Store(int64(found.list[0].First))
	}
	l.segs.list = found.list
	l.end.Store(int64(c.pos))
	l.durable.Store(int64(c.pos))
	l.lookAtDisk()
	return l.openTail()
}

// openTail opens the files for writing. A full disk is no reason not to serve readers.
func (l *Log) openTail() error {
	c := l.committer
	err := c.reopen(false)
	if err == nil || !isDiskFull(err) {
		return err
	}
	l.log.Error("the disk is full: the commit log is open for reading only", "error", err)
	c.down = true
	l.pend.change(func(p *pending) { p.broken = l.diskFull(err) })
	return c.tail.abandon()
}

// First returns the position of the first retained byte.
func (l *Log) First() message.LogOffset { return message.LogOffset(l.first.Load()) }

// End returns the position behind the last entry that readers see: with Sync, behind the last durable one.
func (l *Log) End() message.LogOffset { return message.LogOffset(l.end.Load()) }

// Health reports whether Append accepts groups, and if not why: what Append returns.
func (l *Log) Health() (writable bool, cause error) {
	l.pend.mu.Lock()
	defer l.pend.mu.Unlock()
	return l.pend.refusal == nil, l.pend.refusal
}

// Replay calls fn for every entry that ends behind from, in order, until fn returns an error, which Replay
// returns. It must be called before Run. An entry's Records are valid until fn returns. Errors:
// *CorruptError, or the disk's.
func (l *Log) Replay(from message.LogOffset, fn func(Entry) error) error {
	for _, seg := range l.segs.snapshot() {
		if seg.End <= from || seg.Bytes() == 0 {
			continue
		}
		if err := l.replaySegment(seg.Segment, from, fn); err != nil {
			return err
		}
	}
	return nil
}

func (l *Log) replaySegment(seg Segment, from message.LogOffset, fn func(Entry) error) error {
	s, err := openScanner(l.cfg.FS, seg, l.id)
	if err != nil {
		return err
	}
	s.size = min(s.size, seg.Bytes())
	for err == nil {
		var e scanned
		if e, err = s.next(false); err != nil || seg.First+message.LogOffset(e.end()) <= from {
			continue
		}
		s.off, s.index = e.start, e.index
		if e, err = s.next(true); err == nil {
			err = fn(e.public(seg.First))
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	} else if corrupt, ok := errors.AsType[*CorruptError](err); ok && corrupt.Cure == "" {
		corrupt.Cure = cureRestore
	}
	return errors.Join(err, s.close())
}

// Close closes the files. It must be called once Run has returned, or instead of Run; groups that were
// accepted and never committed get ErrClosed. Reads fail with ErrClosed from then on.
func (l *Log) Close() error {
	if l.closed.Swap(true) {
		return nil
	}
	l.refuseAll()
	c := l.committer
	l.pend.mu.Lock()
	waiting := l.pend.takeAllLocked()
	l.pend.mu.Unlock()
	c.refuse(waiting, ErrClosed)
	for _, s := range l.Segments() {
		l.mapped.forget(blockKey{segment: s.FirstIndex})
	}
	var err error
	if !c.down {
		err = c.tail.close()
	}
	return errors.Join(err, l.lock.Close())
}
