// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"slices"
	"sort"
	"sync"

	"github.com/roquetmq/roquet/internal/message"
)

const (
	ringChunkBytes    = 1 << 20
	ringMinChunkBytes = 16 << 10
)

// ring keeps the newest durable entries in memory, byte for byte as they lie in the files. Bytes are written
// once and never again: readers get slices of them and may keep them; dropped chunks live as long as somebody
// does. One goroutine adds, any number read.
type ring struct {
	limit      int64
	chunkBytes int

	mu     sync.RWMutex
	chunks []chunk // oldest first; positions without gaps inside a chunk
	bytes  int64   // capacity of all chunks
}

// chunk is a run of whole entries.
type chunk struct {
	base message.LogOffset
	buf  []byte
}

func newRing(limit int64) *ring {
	return &ring{limit: limit, chunkBytes: int(max(ringMinChunkBytes, min(ringChunkBytes, limit/16)))}
}

// add copies an entry (its bytes in the file) in and returns the copy. Old chunks go when the limit is
// passed; the newest always stays.
func (r *ring) add(pos message.LogOffset, entry []byte) []byte {
	room := r.tail(pos, len(entry))
	if room == nil {
		room = make([]byte, 0, max(r.chunkBytes, len(entry)))
	}
	start := len(room)
	filled := append(room, entry...) // into the chunk's own spare room: readers know only what is before it

	r.mu.Lock()
	defer r.mu.Unlock()
	if start > 0 {
		r.chunks[len(r.chunks)-1].buf = filled
		return filled[start:]
	}
	r.chunks = append(r.chunks, chunk{base: pos, buf: filled})
	r.bytes += int64(cap(filled))
	drop := 0
	for r.bytes > r.limit && drop < len(r.chunks)-1 {
		r.bytes -= int64(cap(r.chunks[drop].buf))
		drop++
	}
	r.chunks = slices.Delete(r.chunks, 0, drop)
	return filled
}

// tail returns the last chunk's bytes when an entry at pos follows them and fits, nil otherwise. Only the
// goroutine that adds calls it.
func (r *ring) tail(pos message.LogOffset, size int) []byte {
	if len(r.chunks) == 0 {
		return nil
	}
	last := r.chunks[len(r.chunks)-1]
	if last.base+message.LogOffset(len(last.buf)) != pos || cap(last.buf)-len(last.buf) < size {
		return nil
	}
	return last.buf
}

// find returns the chunk that holds pos.
func (r *ring) find(pos message.LogOffset) (chunk, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	i := sort.Search(len(r.chunks), func(i int) bool { return r.chunks[i].base > pos })
	if i == 0 {
		return chunk{}, false
	}
	c := r.chunks[i-1]
	return c, pos < c.base+message.LogOffset(len(c.buf))
}
