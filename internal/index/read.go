// SPDX-License-Identifier: Apache-2.0

package index

import (
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
	n := 0
	for n < len(dst) {
		off := from + message.QueueOffset(n)
		got, stored, err := q.readMemory(off, dst[n:])
		if stored {
			got, err = q.readStored(off, dst[n:])
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
func (q *Queue) readStored(off message.QueueOffset, dst []Entry) (int, error) {
	number := chunkNumber(off)
	c := q.topic.db.cache.find(q, number)
	if c == nil || off < c.base {
		var err error
		if c, err = q.loadStored(off, number); err != nil {
			return 0, err
		}
	}
	return copyEntries(dst, c, off), nil
}

// loadStored reads the chunk that holds off. A chunk that is still growing is in the tail; it may become
// full, and move, while we look.
func (q *Queue) loadStored(off message.QueueOffset, number int64) (*chunk, error) {
	d := q.topic.db
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
	value, closer, err := d.pebble.Get(appendChunkKey(nil, q.topic.id, q.id, number))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, q.lost(off)
	}
	if err != nil {
		return nil, d.readError(err)
	}
	c, err := decodeChunk(number, value)
	if err := errors.Join(err, closer.Close()); err != nil {
		return nil, d.corrupt(fmt.Errorf("topic %s queue %d chunk %d: %w", q.topic.name, q.id, number, err))
	}
	if off < c.base || off >= c.end() {
		return nil, q.lost(off)
	}
	d.cache.put(q, number, c)
	return c, nil
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
		c, err = decodeChunk(t.number(), t.chunk)
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
