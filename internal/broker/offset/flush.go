// SPDX-License-Identifier: Apache-2.0

package offset

import (
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// flushBatch bounds the records of one Write, so that a flush of everything does not hold up messages.
const flushBatch = 512

// Flush appends all offsets that changed since the last flush. done, which may be nil, is called when all of
// it is durable or with the reason why not; what was not stored stays to be flushed again.
func (t *Table) Flush(done func(error)) {
	f := &flush{table: t, done: done}
	f.left.Store(1)
	t.mu.Lock()
	dirty := t.mu.dirty
	t.mu.dirty = nil
	var err error
	for len(dirty) > 0 && err == nil {
		n := min(len(dirty), flushBatch)
		if err = f.appendLocked(dirty[:n]); err == nil {
			dirty = dirty[n:]
		}
	}
	t.mu.dirty = append(t.mu.dirty, dirty...)
	t.mu.Unlock()
	f.end(err)
}

// flush is one call of Flush: it ends when its last Write has ended.
type flush struct {
	table *Table
	done  func(error)
	left  atomic.Int64
	err   atomic.Pointer[error]
}

// appendLocked appends one Write. When it fails the batch stays marked dirty.
func (f *flush) appendLocked(batch []*progress) error {
	w := &store.Write{State: make([]message.State, 0, len(batch))}
	for _, p := range batch {
		p.dirty.Store(false)
		if !p.gone {
			w.State = append(w.State, p.state())
		}
	}
	if len(w.State) == 0 {
		return nil
	}
	w.Done = func(_ *store.Write, err error) {
		if err != nil {
			for _, p := range batch { // listed for the next flush
				f.table.touch(p)
			}
		}
		f.end(err)
	}
	f.left.Add(1)
	if err := f.table.journal.Append(w); err != nil {
		f.left.Add(-1)
		for _, p := range batch {
			p.dirty.Store(true) // if a commit listed it meanwhile it is flushed twice, which does no harm
		}
		return err
	}
	f.table.flushes.Add(1)
	f.table.flushed.Store(time.Now().UnixMilli())
	return nil
}

func (f *flush) end(err error) {
	if err != nil {
		f.err.Store(&err)
	}
	if f.left.Add(-1) == 0 && f.done != nil {
		if failed := f.err.Load(); failed != nil {
			f.done(*failed)
			return
		}
		f.done(nil)
	}
}

// Version returns the number of writes that stored offsets since the start, and when the last one was made,
// in ms.
func (t *Table) Version() (counter, timestamp int64) { return t.flushes.Load(), t.flushed.Load() }

// ErrRange refuses a reset that cannot be.
var ErrRange = errors.New("offsets cannot be reset")

// Reset sets group's offsets of topic, and makes a pending reset of each: consumers that are online are told
// by their next pull, and what they commit until then is ignored. done is called when the reset will survive
// a crash. Source: ConsumerOffsetManager.java assignResetOffset.
func (t *Table) Reset(group, topic string, offsets map[int32]message.QueueOffset, done func(error)) {
	if err := t.reset(group, topic, maps.Clone(offsets), done); err != nil {
		done(err)
	}
}

func (t *Table) reset(group, topic string, offsets map[int32]message.QueueOffset, done func(error)) error {
	if len(offsets) == 0 {
		return fmt.Errorf("%w: of no queues", ErrRange)
	}
	for id, off := range offsets {
		if id < 0 || id > maxQueueID || off < 0 {
			return fmt.Errorf("%w: queue %d cannot have offset %d", ErrRange, id, off)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.progressLocked(group, topic)
	before := map[int32][2]int64{}
	for id, off := range offsets {
		q := p.obtainLocked(id)
		old := q.reset.Swap(int64(off))
		if old == none {
			t.resets.Add(1)
		}
		before[id] = [2]int64{q.committed.Swap(int64(off)), old}
	}
	w := &store.Write{State: []message.State{p.state()}}
	w.Done = func(_ *store.Write, err error) {
		if err != nil {
			t.undoReset(p, offsets, before)
		}
		done(err)
	}
	if err := t.journal.Append(w); err != nil {
		t.undoReset(p, offsets, before)
		return err
	}
	return nil
}

func (t *Table) undoReset(p *progress, offsets map[int32]message.QueueOffset, before map[int32][2]int64) {
	for id, old := range before {
		q := p.queue(id)
		if !q.reset.CompareAndSwap(int64(offsets[id]), old[1]) {
			continue // taken or replaced
		}
		if old[1] == none {
			t.resets.Add(-1)
		}
		q.committed.CompareAndSwap(int64(offsets[id]), old[0])
	}
}
