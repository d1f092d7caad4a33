// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/roquetmq/roquet/internal/disk"
	"github.com/roquetmq/roquet/internal/message"
)

// fail ends writing after a failed operation: nothing more is accepted, the files are closed and cut back to
// what was stored before, and only then b and all that waited are refused. The library's memory and the pages
// of a failed sync are not used again; restart begins from what the disk says.
func (c *committer) fail(b *batch, op string, cause error) {
	l := c.l
	refusal := l.failure(op, cause)
	l.stats.failures.Add(1)
	l.log.Error("a write to the commit log failed; writes are refused until it has been read again from the disk",
		"operation", op, "error", cause, "log_offset", int64(c.pos))

	var waiting []*batch
	l.pend.change(func(p *pending) {
		p.broken = refusal
		waiting = p.takeAllLocked()
	})

	c.down = true
	c.fresh = c.fresh || op == "sync"
	c.retryAt = time.Now()
	if _, full := errors.AsType[*DiskFullError](refusal); full {
		c.retryAt = c.retryAt.Add(l.cfg.Disk.Interval)
	}
	if err := c.tail.abandon(); err != nil {
		l.log.Debug("closing the broken commit log", "error", err) // expected: its files are in doubt
	}
	uncut := c.cutBack()
	c.applied.Wait() // Done is called in log order
	if b != nil {
		answer := refusal
		if uncut != nil {
			l.log.Warn("could not cut the failed write off yet", "error", uncut)
			answer = &BrokenError{Path: l.cfg.Dir, Op: op, Cause: cause, Since: time.Now(), Uncertain: true}
		}
		c.refuse([]*batch{b}, answer)
	}
	c.refuse(waiting, refusal)
}

// failure is what callers are told.
func (l *Log) failure(op string, cause error) error {
	if isDiskFull(cause) {
		return l.diskFull(cause)
	}
	return &BrokenError{Path: l.cfg.Dir, Op: op, Cause: cause, Since: time.Now()}
}

// isDiskFull reports whether an operation failed for want of space.
func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// waitToRestart waits until it is time to try, or something else is to be done, and tries.
func (c *committer) waitToRestart() {
	if wait := time.Until(c.retryAt); wait > 0 {
		select {
		case <-time.After(wait):
		case <-c.l.wake:
			return
		}
	}
	if err := c.restart(); err != nil {
		c.retryAt = time.Now().Add(c.l.cfg.Disk.Interval)
		c.reportRestart(err)
		return
	}
	c.failing = ""
	c.l.log.Info("the commit log was read again from the disk and accepts writes", "log_offset", int64(c.pos))
}

// reportRestart tells callers and, when it is news, the operator why the log is still down.
func (c *committer) reportRestart(err error) {
	refusal := c.l.failure("restart", err)
	c.l.pend.change(func(p *pending) { p.broken = refusal })
	if text := err.Error(); text != c.failing {
		c.failing = text
		c.l.log.Warn("the commit log cannot be written yet; trying again", "error", err)
	}
}

// restart opens the log again as if the process had just begun: cut, read back, open. Whoever counts along is
// told to set back before the next group is accepted.
func (c *committer) restart() error {
	if err := c.cutBack(); err != nil {
		return err
	}
	if err := c.readBack(); err != nil {
		return err
	}
	if err := c.reopen(c.fresh); err != nil {
		return errors.Join(err, c.tail.abandon())
	}
	c.l.raiseDurable(c.pos)
	c.down, c.fresh = false, false
	c.l.pend.change(func(p *pending) {
		if c.h.Reset != nil {
			c.h.Reset()
		}
		p.broken = nil
	})
	return nil
}

// reopen opens the tail for writing, in a new segment when fresh says so.
func (c *committer) reopen(fresh bool) error {
	next, err := c.tail.open(c.l.segs.snapshot(), c.pos, c.index, fresh)
	if next != nil {
		c.l.segs.roll(*next)
	}
	if err == nil {
		c.l.opened.Add(1)
	}
	return err
}

// cutBack makes the files end where the stored log ends, and makes that durable.
func (c *committer) cutBack() error {
	files, err := listSegments(c.l.cfg.FS, c.l.cfg.Dir)
	if err != nil {
		return err
	}
	known := c.l.segs.snapshot()
	if len(known) == 0 {
		return nil
	}
	last := known[len(known)-1]
	removed := false
	for _, f := range files {
		switch {
		case f.FirstIndex > last.FirstIndex:
			if err := c.l.cfg.FS.Remove(f.Path); err != nil {
				return fmt.Errorf("remove segment that was not stored: %w", err)
			}
			removed = true
		case f.FirstIndex == last.FirstIndex && f.Bytes() < last.Bytes():
			return &CorruptError{
				File: f.Path, Offset: f.Bytes(), Position: last.First + message.LogOffset(f.Bytes()),
				Reason: fmt.Sprintf("the file ends %d bytes too early", last.Bytes()-f.Bytes()), Cure: cureRestore,
			}
		case f.FirstIndex == last.FirstIndex && f.Bytes() > last.Bytes():
			if err := c.l.repairer().cut(f.Path, last.Bytes()); err != nil {
				return err
			}
		}
	}
	if removed {
		return disk.SyncDir(c.l.cfg.FS, c.l.cfg.Dir)
	}
	return nil
}

// readBack verifies the last segment as the disk holds it, not as the page cache remembers it.
func (c *committer) readBack() error {
	known := c.l.segs.snapshot()
	if len(known) == 0 {
		return nil
	}
	last := known[len(known)-1].Segment
	s, err := openScanner(c.l.cfg.FS, last, c.l.id)
	if err != nil {
		return err
	}
	dropCache(s.file)
	t, err := scanTail(s, last)
	if err := errors.Join(err, s.close()); err != nil {
		return err
	}
	if t.fault != nil {
		t.fault.Cure = cureRestore
		return t.fault
	}
	if t.seg.End != last.End {
		return s.corrupt(t.seg.Bytes(), "the file does not end where the log ends")
	}
	return nil
}

// roll begins a new segment although the last is not full. A mark goes first, so that the segment states its
// position even if nothing else ever comes.
func (c *committer) roll() error {
	if c.down {
		_, cause := c.l.Health()
		return cause
	}
	known := c.l.segs.snapshot()
	if known[len(known)-1].Bytes() == 0 {
		return nil
	}
	err := c.tail.close()
	if err == nil {
		err = c.reopen(true)
	}
	b := c.mark()
	if err == nil {
		_, _, err = c.store(b)
	}
	if err != nil {
		c.fail(nil, "roll", err)
		return err
	}
	c.applied.Wait()
	if c.h.Apply != nil {
		c.h.Apply(b.entry)
	}
	return nil
}

// mark returns a batch without members.
func (c *committer) mark() *batch {
	b := new(batch)
	b.reset(0)
	return b
}
