// SPDX-License-Identifier: Apache-2.0

package index

import (
	"errors"
	"fmt"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/roquetmq/roquet/internal/message"
)

// Entry is one consume-queue entry: which record of the log is at a queue offset.
type Entry struct {
	Offset   message.QueueOffset
	Pos      message.LogOffset
	TagsCode int64
	Size     int32
}

// Queue is the consume queue of one topic and queueId. A broker may have 100,000 of them, nearly all idle: an
// idle one is this struct and nothing else.
type Queue struct {
	topic *topic
	next  atomic.Int64 // queue offset of the next entry; written under mu
	mu    sync.Mutex   // guards what follows; held for the time of copying a few entries
	id    int32

	// The checkpoint that runs covers the entries below cut, if the queue changed again after it began (epoch
	// says so), and otherwise all. See checkpoint.go.
	epoch uint32
	cut   message.QueueOffset

	persisted message.QueueOffset // entries below are in Pebble
	min       message.QueueOffset // lowest retained offset known
	minPos    message.LogOffset   // position of the entry at min, noPosition while min == next
	dropped   int64               // chunks below this number have been deleted from Pebble
	mem       *window             // entries in memory; nil = none
}

const noPosition message.LogOffset = -1

// window is the part of a queue that is in memory: consecutive chunks, the first being number first.
type window struct {
	first  int64
	chunks []*chunk
}

// base returns the lowest offset in memory.
func (w *window) base() message.QueueOffset { return w.chunks[0].base }

func (w *window) last() *chunk { return w.chunks[len(w.chunks)-1] }

// Topic returns the topic's name.
func (q *Queue) Topic() string { return q.topic.name }

// ID returns the queueId.
func (q *Queue) ID() int32 { return q.id }

// Next returns the queue offset that the next entry will get ("max offset"). Any goroutine; it takes no lock.
func (q *Queue) Next() message.QueueOffset { return message.QueueOffset(q.next.Load()) }

// Add appends e. Applier only. Offsets are contiguous, but the first entry of an empty queue may have any
// offset. What is there already (replay) is ignored. A gap is a bug or a damaged index: it breaks the index
// (Err), and e is ignored.
func (q *Queue) Add(e Entry) {
	next := q.Next()
	if e.Offset < next {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if e.Offset > next && q.min < next {
		q.gap(e, next)
		return
	}
	q.touchLocked(next)
	if q.min == next { // empty
		q.min, q.minPos = e.Offset, e.Pos
	}
	q.roomLocked(e.Offset).add(slot{pos: e.Pos, tags: e.TagsCode, size: e.Size})
	q.next.Store(int64(e.Offset) + 1)
}

func (q *Queue) gap(e Entry, next message.QueueOffset) {
	err := fmt.Errorf("topic %s queue %d: entry at queue offset %d, position %d, follows offset %d",
		q.topic.name, q.id, e.Offset, e.Pos, next-1)
	q.topic.db.health.breakDown(&CorruptError{Dir: q.topic.db.dir, Cause: err})
}

// touchLocked makes the queue part of the next checkpoint, and tells the running one where its part ends.
func (q *Queue) touchLocked(next message.QueueOffset) {
	a := &q.topic.db.applier
	if q.epoch == a.epoch {
		return
	}
	q.cut, q.epoch = next, a.epoch
	a.dirty = append(a.dirty, q)
}

// roomLocked returns the chunk that takes the entry at off, which follows the last one or begins the queue.
func (q *Queue) roomLocked(off message.QueueOffset) *chunk {
	n := chunkNumber(off)
	w := q.mem
	if w == nil || w.last().end() != off { // nothing is in memory, or the queue was empty and begins anew
		c := &chunk{base: off}
		q.mem = &window{first: n, chunks: []*chunk{c}}
		return c
	}
	if w.first+int64(len(w.chunks))-1 == n {
		return w.last()
	}
	// The last chunk filled up, so this one will too, soon.
	c := &chunk{base: off, slots: make([]slot, 0, chunkEntries)}
	w.chunks = append(w.chunks, c)
	return c
}

// Start lets an empty queue begin at off, so that offsets which were given out once are not given out again:
// how a rebuilt index learns the next offset of a queue whose messages have all expired. A queue with lower
// entries loses them. Applier only; an off that the queue has passed is ignored (replay).
func (q *Queue) Start(off message.QueueOffset) {
	next := q.Next()
	if off <= next {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.touchLocked(next)
	q.mem = nil
	q.min, q.minPos = off, noPosition
	q.next.Store(int64(off))
}

// Min returns the lowest queue offset whose record is at or after first, the oldest position that the log
// retains, and Next if there is none. Any goroutine. It reads Pebble only when first has passed the lowest
// entry; when that fails, Err tells, and the answer is the last known one.
func (q *Queue) Min(first message.LogOffset) message.QueueOffset {
	for {
		q.mu.Lock()
		low, lowPos, next := q.min, q.minPos, q.Next()
		q.mu.Unlock()
		if low == next || lowPos >= first {
			return low
		}
		found, pos, err := q.search(low, next, first)
		if err != nil {
			if errors.Is(err, ErrDropped) && q.passed(low) {
				continue // expired while we searched
			}
			return low
		}
		if q.raiseMin(found, pos) {
			return found
		}
	}
}

// passed tells whether the queue begins behind low by now.
func (q *Queue) passed(low message.QueueOffset) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.min > low
}

// search returns the lowest offset in [low, next) whose position is first or more, and that position; next if
// none.
func (q *Queue) search(
	low, next message.QueueOffset, first message.LogOffset,
) (found message.QueueOffset, pos message.LogOffset, err error) {
	var one [1]Entry
	i := sort.Search(int(next-low), func(i int) bool {
		if err != nil {
			return true
		}
		_, err = q.Read(low+message.QueueOffset(i), one[:])
		return err != nil || one[0].Pos >= first
	})
	found = low + message.QueueOffset(i)
	if err != nil || found == next {
		return found, noPosition, err
	}
	_, err = q.Read(found, one[:])
	return found, one[0].Pos, err
}

// raiseMin lets the queue begin at off. It returns false when off was the end and is not any more: then the
// position of the entry at off is still to be found.
func (q *Queue) raiseMin(off message.QueueOffset, pos message.LogOffset) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if off <= q.min {
		return true
	}
	if pos == noPosition && off < q.Next() {
		return false
	}
	q.min, q.minPos = off, pos
	return true
}
