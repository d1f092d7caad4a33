// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/roquetmq/roquet/internal/message"
)

// A Group is what one Append stores atomically, in one entry.
type Group interface {
	// Encode lays the group's records down behind dst and returns the extended slice. It is called once, in
	// log order, under the append lock (queue offsets are chosen here); it must neither block nor fail nor
	// call the log.
	Encode(dst []byte) []byte
	// Done is called once, in log order, by one goroutine at a time: with the position of the group's first
	// record when the group is durable and applied, or with an error when nothing of it is in the log. It
	// must not block.
	Done(first message.LogOffset, err error)
}

// maxSpareBatches bounds the batches kept for reuse: one gathers, one is written, some wait to be applied.
const maxSpareBatches = 4

// batch is what becomes one entry: room for a length prefix, the head, the records of all members.
type batch struct {
	buf     []byte
	members []member
	count   int       // records
	since   time.Time // when the first member came

	entry Entry // set when durable; Records is the ring's copy
}

// member is a group and where its records begin, counted from the entry's first record.
type member struct {
	group Group
	at    int
}

const batchHeadBytes = maxPrefixBytes + headBytes

func (b *batch) reset(maxBytes int) {
	if cap(b.buf) > 2*maxBytes {
		b.buf = nil // a single huge group must not be paid for ever
	}
	b.buf = append(b.buf[:0], make([]byte, batchHeadBytes)...)
	clear(b.members)
	b.members = b.members[:0]
	b.count, b.since, b.entry = 0, time.Time{}, Entry{}
}

// recordBytes is the size of the records alone.
func (b *batch) recordBytes() int64 { return int64(len(b.buf) - batchHeadBytes) }

// pending is where callers and committer meet. Its lock is the append lock; it orders the log.
type pending struct {
	mu      sync.Mutex
	open    *batch      // gathers
	full    []*batch    // closed because they reached their size, oldest first; MaxPendingBytes bounds them
	taken   []time.Time // when the batches gathered that the committer took and nobody settled yet
	spare   []*batch    // for reuse
	bytes   int64       // accepted and not settled
	idle    bool        // the committer waits for a wake-up
	refusal error       // why nothing is accepted; nil when something is
	closed  bool
	broken  error // *BrokenError, or the *DiskFullError that a write met
	marks   error // *DiskFullError by the disk marks
	// marksOnly says that nothing but the disk marks is in the way.
	marksOnly bool
	rolls     []chan error
}

// change has fn change the causes for which nothing is accepted, and sets what Append answers: the gravest.
func (p *pending) change(fn func(p *pending)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fn(p)
	p.marksOnly = !p.closed && p.broken == nil
	switch {
	case p.closed:
		p.refusal = ErrClosed
	case p.broken != nil:
		p.refusal = p.broken
	default:
		p.refusal = p.marks
	}
}

// Append accepts a group for the log. size is an upper bound of the bytes its Encode will append. Append does
// not wait for the disk: the group's Done tells the outcome. Safe for concurrent use; groups are stored in
// the order in which Append accepted them. reserve is for what must be written to free space: it is not refused when
// the disk is over its marks (Config.Disk), only when there is really no room.
//
// An error means that neither Encode nor Done was or will be called: ErrClosed, ErrTooLarge, *BusyError (too
// much waits), *BrokenError, *DiskFullError.
func (l *Log) Append(g Group, size int, reserve bool) error {
	if size <= 0 || size > l.cfg.MaxGroupBytes {
		return fmt.Errorf("%w: %d bytes, limit %d", ErrTooLarge, size, l.cfg.MaxGroupBytes)
	}
	wake, err := l.appendLocking(g, size, reserve)
	if wake {
		l.wakeCommitter()
	}
	return err
}

func (l *Log) appendLocking(g Group, size int, reserve bool) (wake bool, err error) {
	p := &l.pend
	p.mu.Lock()
	defer p.mu.Unlock() // deferred: a panic in Encode must not lock the log for ever
	if p.refusal != nil && (!reserve || !p.marksOnly) {
		return false, p.refusal
	}
	if p.bytes > 0 && p.bytes+int64(size) > l.cfg.MaxPendingBytes {
		return false, l.busyLocked()
	}
	b := p.open
	if b == nil || (b.count > 0 && len(b.buf)+size > l.cfg.MaxBatchBytes) {
		b = l.openBatchLocked()
	}
	start := len(b.buf)
	buf := g.Encode(slices.Grow(b.buf, size))
	count := countRecords(buf[start:])
	if len(buf)-start > size || count == 0 {
		panic(fmt.Sprintf("commitlog: a group encoded %d bytes of whole records: %v; promised at most %d bytes",
			len(buf)-start, count > 0, size))
	}
	b.buf = buf
	b.members = append(b.members, member{group: g, at: start - batchHeadBytes})
	b.count += count
	p.bytes += int64(len(buf) - start)
	wake, p.idle = p.idle, false
	return wake, nil
}

// WithAppendLock calls fn while no group is encoded. fn must be short, and must not call the log.
func (l *Log) WithAppendLock(fn func()) {
	l.pend.mu.Lock()
	defer l.pend.mu.Unlock()
	fn()
}

// countRecords returns how many whole records fill b, 0 when they do not fill it.
func countRecords(b []byte) int {
	n := 0
	for ; len(b) > 0; n++ {
		size := recordSize(b)
		if size == 0 {
			return 0
		}
		b = b[size:]
	}
	return n
}

func (l *Log) openBatchLocked() *batch {
	p := &l.pend
	if p.open != nil {
		p.full = append(p.full, p.open)
	}
	if n := len(p.spare); n > 0 {
		p.open, p.spare = p.spare[n-1], p.spare[:n-1]
	} else {
		p.open = new(batch)
	}
	p.open.reset(l.cfg.MaxBatchBytes)
	p.open.since = time.Now()
	return p.open
}

func (l *Log) busyLocked() error {
	e := &BusyError{
		PendingBytes: l.pend.bytes,
		LimitBytes:   l.cfg.MaxPendingBytes,
		LastSync:     time.Duration(l.stats.lastSync.Load()),
	}
	if oldest := l.pend.oldestLocked(); !oldest.IsZero() {
		e.OldestWait = time.Since(oldest)
	}
	return e
}

// oldestLocked returns when the oldest batch that is not settled began to gather.
func (p *pending) oldestLocked() time.Time {
	switch {
	case len(p.taken) > 0:
		return p.taken[0]
	case len(p.full) > 0:
		return p.full[0].since
	case p.open != nil:
		return p.open.since
	}
	return time.Time{}
}

// takeLocked removes and returns the next batch to commit, nil if there is none.
func (p *pending) takeLocked() *batch {
	var b *batch
	switch {
	case len(p.full) > 0:
		b = p.full[0]
		p.full = slices.Delete(p.full, 0, 1)
	case p.open != nil:
		b, p.open = p.open, nil
	default:
		return nil
	}
	p.taken = append(p.taken, b.since)
	return b
}

// takeAllLocked is takeLocked for all that wait.
func (p *pending) takeAllLocked() (all []*batch) {
	for b := p.takeLocked(); b != nil; b = p.takeLocked() {
		all = append(all, b)
	}
	return all
}

// wakeCommitter makes the committer look again. It never blocks: one wake-up in the channel is enough.
func (l *Log) wakeCommitter() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}
