// SPDX-License-Identifier: Apache-2.0

package index

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/roquetmq/roquet/internal/message"
)

// chunkCacheSlots bounds the cache of decoded full chunks: 1.6 MB when all slots are taken. A consumer that
// works off a backlog reads each chunk several times, a few entries at a time.
const chunkCacheSlots = 512

// chunkCache keeps full chunks, which never change, each in the one slot that its queue and number choose.
type chunkCache [chunkCacheSlots]atomic.Pointer[cachedChunk]

type cachedChunk struct {
	queue  *Queue
	number int64
	*chunk
}

func (c *chunkCache) slot(q *Queue, number int64) *atomic.Pointer[cachedChunk] {
	h := (uint64(q.topic.id)<<32|uint64(uint32(q.id)))*0x9e3779b97f4a7c15>>32 + uint64(number)
	return &c[h%chunkCacheSlots]
}

func (c *chunkCache) find(q *Queue, number int64) *chunk {
	if e := c.slot(q, number).Load(); e != nil && e.queue == q && e.number == number {
		return e.chunk
	}
	return nil
}

func (c *chunkCache) put(q *Queue, number int64, full *chunk) {
	c.slot(q, number).Store(&cachedChunk{queue: q, number: number, chunk: full})
}

// Read copies the entries from offset from on into dst and returns how many; 0 without error at the end of
// the queue. It may return fewer than there are; call again. Any goroutine. Errors: ErrDropped (below what is
// retained, or the topic was deleted), *CorruptError.
func (q *Queue) Read(from message.QueueOffset, dst []Entry) (int, error) {
	r := Reader{Queue: q}
	defer r.Close()
	return r.Read(from, dst)
}

// Reader reads many entries of a queue, from lower to higher offsets: it keeps where it is in Pebble. It is for one
// goroutine; Close must follow the last Read.
type Reader struct {
	Queue *Queue

	loaded bool             // a chunk by Pebble's Get, which costs less than an iterator
	iter   *pebble.Iterator // for all that follow
	chunk  chunk            // the last one that it found
}

// Close ends the reading.
func (r *Reader) Close() {
	if r.iter != nil {
		_ = r.iter.Close() // what it could not read, Get was asked for
		r.iter = nil
	}
}

// Read is like Queue.Read. Of a topic that is deleted meanwhile it may give entries until Close.
func (r *Reader) Read(from message.QueueOffset, dst []Entry) (int, error) {
	n := 0
	for n < len(dst) {
		off := from + message.QueueOffset(n)
		got, stored, err := r.Queue.readMemory(off, dst[n:])
		if stored {
			got, err = r.readStored(off, dst[n:])
		}
		n += got
		if err != nil && n == 0 {
			return 0, err
		}
		if err != nil || got == 0 {
			return n, nil //nolint:nilerr // what was read counts; the next read begins at the fault and tells it
		}
	}
	return n, nil
}

// readMemory copies what is in memory. stored is true when the entry at off exists, but only in Pebble.
func (q *Queue) readMemory(off message.QueueOffset, dst []Entry) (n int, stored bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case off < q.min:
		return 0, false, ErrDropped
	case off >= q.Next():
		return 0, false, nil
	case q.mem == nil || off < q.mem.base():
		return 0, true, nil
	}
	w := q.mem
	for _, c := range w.chunks[chunkNumber(off)-w.first:] {
		n += copyEntries(dst[n:], c, off+message.QueueOffset(n))
		if n == len(dst) {
			break
		}
	}
	return n, false, nil
}

// copyEntries copies entries from offset off on, which is in c.
func copyEntries(dst []Entry, c *chunk, off message.QueueOffset) int {
	from := c.slots[off-c.base:]
	n := min(len(dst), len(from))
	dst, from = dst[:n], from[:n]
	for i := range from {
		dst[i] = Entry{
			Offset:   off + message.QueueOffset(i),
			Pos:      from[i].pos,
			TagsCode: from[i].tags,
			Size:     from[i].size,
		}
	}
	return n
}

// readStored copies entries of one chunk from the cache or Pebble. They may stay below what memory holds by
// now.
func (r *Reader) readStored(off message.QueueOffset, dst []Entry) (int, error) {
	c := &r.chunk
	if off < c.base || off >= c.end() {
		number := chunkNumber(off)
		if c = r.Queue.topic.db.cache.find(r.Queue, number); c == nil || off < c.base {
			var err error
			if c, err = r.load(off, number); err != nil {
				return 0, err
			}
		}
	}
	return copyEntries(dst, c, off), nil
}

// load reads the chunk that holds off. A chunk that is still growing is in the tail; it may become full, and move,
// while we look.
func (r *Reader) load(off message.QueueOffset, number int64) (*chunk, error) {
	q := r.Queue
	q.mu.Lock()
	growing := q.persisted&chunkMask != 0 && chunkNumber(q.persisted) == number
	q.mu.Unlock()
	if growing {
		c, err := q.loadTail()
		if err != nil {
			return nil, err
		}
		if c.base <= off && off < c.end() {
			return c, nil
		}
	}
	d, key := q.topic.db, appendChunkKey(nil, q.topic.id, q.id, number)
	if value, ok := r.seek(key); ok {
		slots := r.chunk.slots
		r.chunk = chunk{} // it is written over, whatever comes of it
		c, err := decodeChunk(number, value, slots)
		if err == nil && c.base <= off && off < c.end() {
			r.chunk = *c
			return &r.chunk, nil
		}
	}
	value, closer, err := d.pebble.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, q.lost(off)
	}
	if err != nil {
		return nil, d.readError(err)
	}
	c, err := decodeChunk(number, value, nil)
	if err := errors.Join(err, closer.Close()); err != nil {
		return nil, d.corrupt(fmt.Errorf("topic %s queue %d chunk %d: %w", q.topic.name, q.id, number, err))
	}
	if off < c.base || off >= c.end() {
		return nil, q.lost(off)
	}
	d.cache.put(q, number, c)
	return c, nil
}

// seek finds a chunk by the iterator. What it does not find may have been written since it was opened, and what is
// wrong is for Get to tell.
func (r *Reader) seek(key []byte) (value []byte, ok bool) {
	if !r.loaded {
		r.loaded = true
		return nil, false
	}
	if r.iter == nil {
		all := appendQueueKey(nil, spaceChunk, r.Queue.topic.id, r.Queue.id)
		it, err := r.Queue.topic.db.pebble.NewIter(&pebble.IterOptions{LowerBound: all, UpperBound: KeyEnd(all)})
		if err != nil {
			return nil, false
		}
		r.iter = it
	}
	if !r.iter.SeekGE(key) || !bytes.Equal(r.iter.Key(), key) {
		return nil, false
	}
	value, err := r.iter.ValueAndErr()
	return value, err == nil
}

// loadTail returns the growing chunk as the last checkpoint wrote it; an empty one if there is none, for the
// queue is new or its topic was deleted. Errors: *CorruptError.
func (q *Queue) loadTail() (*chunk, error) {
	d := q.topic.db
	value, closer, err := d.pebble.Get(appendQueueKey(nil, spaceTail, q.topic.id, q.id))
	if errors.Is(err, pebble.ErrNotFound) {
		return &chunk{}, nil
	}
	if err != nil {
		return nil, d.readError(err)
	}
	var c *chunk
	t, err := decodeTail(value)
	if err == nil {
		c, err = decodeChunk(t.number(), t.chunk, nil)
	}
	if err := errors.Join(err, closer.Close()); err != nil {
		return nil, d.corrupt(fmt.Errorf("topic %s queue %d tail: %w", q.topic.name, q.id, err))
	}
	return c, nil
}

// lost returns the error for an entry that should be in Pebble and is not.
func (q *Queue) lost(off message.QueueOffset) error {
	if q.topic.died.Load() != 0 || q.passed(off) {
		return ErrDropped
	}
	return q.topic.db.corrupt(fmt.Errorf("topic %s queue %d: no entry at queue offset %d", q.topic.name, q.id, off))
}
