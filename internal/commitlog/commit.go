// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/roquetmq/roquet/internal/message"
)

const (
	// firstTerm is the term of a log that one broker writes alone.
	firstTerm = 1
	// maxInlineMembers is the largest batch that the committer applies itself when nothing else waits.
	// Passing it to another goroutine costs a wake-up (some 5 µs, and more in latency), which pays off only
	// for larger ones.
	maxInlineMembers = 32
	// maxApplying bounds the durable batches that wait to be applied.
	maxApplying = 2
)

// committer is the only writer of the log. It takes whatever gathered while it was busy, makes one entry of
// it, writes and syncs it, and passes it on. So the batch grows by itself with the load: one caller at a time
// gets a sync of its own, and with many callers each sync carries what came during the one before.
//
// Invariants: applied ≤ durable = end (Sync), applied ≤ end, durable ≤ end (Async). An entry is written only
// when all before it are synced (Sync), so at most the last entry of the files can be incomplete. Batches are
// settled in log order by one goroutine at a time: by the committer itself when nothing else waits and the
// applier is idle, else by the applier, while the next sync runs.
type committer struct {
	l       *Log
	tail    tail
	h       Handler
	pos     message.LogOffset // where the next entry begins: the end of the last one that was written
	index   uint64            // of the next entry
	millis  int64             // wall clock of the last entry; never goes back
	marked  message.LogOffset // the end of the last mark
	down    bool              // the files are closed after a failure
	fresh   bool              // go on in a new segment: a sync of the last one failed
	retryAt time.Time         // when to try to open the files again
	applied sync.WaitGroup    // batches handed to the applier and not settled
	failing string            // the last reported failure to restart
}

// Run commits what Append accepts until ctx is done; then it accepts no more, settles all it accepted, and
// returns when every goroutine it started has ended. It may be called once. The error is that of a final
// write or sync.
func (l *Log) Run(ctx context.Context, h Handler) error {
	c := l.committer
	if !l.running.CompareAndSwap(false, true) {
		return fmt.Errorf("commit log %s: %w", l.cfg.Dir, errRunning)
	}
	c.h = h
	stop := context.AfterFunc(ctx, l.refuseAll)
	defer stop()

	aside, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(c.applyLoop)
	wg.Go(func() { l.watchDisk(aside) })
	if l.cfg.FlushDiskType == Async {
		wg.Go(func() { l.flushLoop(aside) })
	}
	c.loop()
	c.applied.Wait()
	cancel()
	close(l.jobs)
	wg.Wait()
	return c.finish()
}

// refuseAll makes Append return ErrClosed and lets the committer end.
func (l *Log) refuseAll() {
	l.pend.change(func(p *pending) { p.closed = true })
	l.wakeCommitter()
}

// loop commits until the log is closed and nothing waits.
func (c *committer) loop() {
	for {
		runtime.Gosched() // who can run now runs first, and its record comes with the others
		b, roll, closed := c.next()
		switch {
		case b != nil:
			c.commit(b)
		case roll != nil:
			roll <- c.roll()
		case closed:
			return
		case c.down:
			c.waitToRestart()
		default:
			<-c.l.wake
		}
		if err := c.l.flushFailed(); err != nil && !c.down {
			c.fail(nil, "sync", err)
		}
	}
}

// next returns what is to be done now; nothing means: wait. Rolls come after the batches accepted before
// them.
func (c *committer) next() (b *batch, roll chan error, closed bool) {
	p := &c.l.pend
	p.mu.Lock()
	defer p.mu.Unlock()
	if b := p.takeLocked(); b != nil {
		return b, nil, false
	}
	if len(p.rolls) > 0 {
		roll = p.rolls[0]
		p.rolls = p.rolls[1:]
		return nil, roll, false
	}
	p.idle = !p.closed
	return nil, nil, p.closed
}

// commit makes one entry of the batch and settles it, or fails it.
func (c *committer) commit(b *batch) {
	full, op, err := c.store(b)
	if err != nil {
		c.fail(b, op, err)
		return
	}
	c.pass(b)
	if full {
		if err := c.rolled(); err != nil {
			c.fail(nil, "roll", err)
		}
	}
}

// store writes and syncs the batch, and makes it readable. op names what failed.
func (c *committer) store(b *batch) (full bool, op string, err error) {
	kind := uint8(kindRecords)
	if b.count == 0 {
		kind = kindMark
	}
	prefix := c.seal(b, kind)
	entry := b.buf[maxPrefixBytes:]
	full, err = c.tail.write(entry, prefix)
	if err != nil {
		return false, "write", err
	}
	if c.l.cfg.FlushDiskType == Sync && !full {
		started := time.Now()
		if err := c.tail.sync(); err != nil {
			return false, "sync", err
		}
		c.l.stats.synced(time.Since(started))
	}
	c.publish(b, prefix, full)
	return full, "", nil
}

// seal closes the entry: every message record learns its position, then the head and the length prefix are
// laid down before the records. It returns the length of the prefix, which ends at maxPrefixBytes.
func (c *committer) seal(b *batch, kind uint8) (prefix int) {
	entry := b.buf[maxPrefixBytes:]
	prefix = uvarintLen(len(entry))
	first := c.pos + message.LogOffset(prefix+headBytes)
	for at := headBytes; at < len(entry); {
		record := message.Record(entry[at:])
		if record.IsMessage() {
			message.SetLogOffset(record, first+message.LogOffset(at-headBytes))
		}
		at += record.Size()
	}
	c.millis = max(c.millis, time.Now().UnixMilli())
	h := head{
		kind: kind, count: uint32(b.count), logID: c.l.id, position: c.pos + message.LogOffset(prefix),
		durable: message.LogOffset(c.l.durable.Load()), term: firstTerm, millis: c.millis,
		index: c.index,
	}
	h.put(entry)
	binary.PutUvarint(b.buf[maxPrefixBytes-prefix:], uint64(len(entry)))
	// The last byte of the prefix lies just before the head.
	return prefix
}

// publish makes a stored entry readable and fills in what Apply gets.
func (c *committer) publish(b *batch, prefix int, synced bool) {
	l := c.l
	stored := l.ring.add(c.pos, b.buf[maxPrefixBytes-prefix:])
	b.entry = newEntry(c.index, c.pos, b.count, prefix, stored[prefix:])
	c.pos = b.entry.End
	c.index++
	l.segs.extend(c.pos, c.millis)
	l.end.Store(int64(c.pos))
	if l.cfg.FlushDiskType == Sync || synced {
		l.durable.Store(int64(c.pos))
	} else {
		l.noteUnsynced()
	}
}

// rolled follows the writer into the segment that it began.
func (c *committer) rolled() error {
	if err := c.tail.roll(); err != nil {
		return err
	}
	c.l.segs.roll(Segment{FirstIndex: c.index, First: c.pos, End: c.pos, Path: c.tail.path})
	c.l.lookAtDisk()
	return nil
}

// pass settles a stored batch, or has it settled in turn.
func (c *committer) pass(b *batch) {
	if c.l.applying.Load() == 0 && len(b.members) <= maxInlineMembers && !c.l.waits() {
		c.settle(b)
		return
	}
	c.l.applying.Add(1)
	c.applied.Add(1)
	c.l.jobs <- b
}

// waits reports whether a batch can be taken.
func (l *Log) waits() bool {
	l.pend.mu.Lock()
	defer l.pend.mu.Unlock()
	return l.pend.open != nil || len(l.pend.full) > 0
}

// finish writes a mark, so that damage to the last real entry can be told from a torn tail. A mark is durable
// itself in both flush types.
func (c *committer) finish() error {
	if c.down {
		if err := c.cutBack(); err != nil {
			return fmt.Errorf("close commit log: %w", err)
		}
		return nil
	}
	if c.pos == c.marked {
		return nil
	}
	if c.l.cfg.FlushDiskType == Async {
		if err := c.tail.sync(); err != nil {
			return fmt.Errorf("close commit log: sync: %w", err)
		}
		c.l.raiseDurable(c.pos)
	}
	if _, op, err := c.store(c.mark()); err != nil {
		return fmt.Errorf("close commit log: %s: %w", op, err)
	}
	return nil
}
