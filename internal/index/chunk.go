// SPDX-License-Identifier: Apache-2.0

package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/roquetmq/roquet/internal/message"
)

// A queue is cut into chunks at multiples of chunkEntries: chunk n holds offsets [n*chunkEntries,
// (n+1)*chunkEntries). So the same log gives the same chunks, however often it was replayed. A chunk that is
// full is written once under its own key; the last, growing one is part of the queue's tail, which is
// rewritten by every checkpoint that saw it grow.
//
//	chunk  format u8 = 1
//	       uvarint  index of its first entry within the chunk (0, unless the queue began or was cut inside it)
//	       uvarint  number of entries
//	       then for each entry, relative to the entry before (the first one relative to zeros):
//	       uvarint  log position, zigzag size, zigzag tagsCode
//
//	tail   format u8 = 1
//	       uvarint  next queue offset
//	       uvarint  min queue offset (next, if the queue is empty) and uvarint its log position
//	       chunk    the entries of the chunk that holds next-1, none when that chunk is full
const (
	chunkShift   = 7
	chunkEntries = 1 << chunkShift
	chunkMask    = chunkEntries - 1
	chunkFormat  = 1
)

// slot is an entry in memory; its queue offset follows from its place.
type slot struct {
	pos  message.LogOffset
	tags int64
	size int32
}

// chunk is the part of one chunk of a queue that is in memory: the entries from offset base on. Its slots are
// only appended to, under the queue's lock, and never changed, so that a slice of them taken under the lock
// stays valid.
type chunk struct {
	base  message.QueueOffset
	slots []slot
}

func chunkNumber(off message.QueueOffset) int64 { return int64(off) >> chunkShift }

// end returns the queue offset behind the chunk's last entry in memory.
func (c *chunk) end() message.QueueOffset { return c.base + message.QueueOffset(len(c.slots)) }

// add appends s, growing by doubling: most queues of a broker with many are nearly idle.
func (c *chunk) add(s slot) {
	if len(c.slots) == cap(c.slots) {
		grown := make([]slot, len(c.slots), min(max(4, 2*cap(c.slots)), chunkEntries))
		copy(grown, c.slots)
		c.slots = grown
	}
	c.slots = append(c.slots, s)
}

// appendChunk encodes the entries of parts, which lie in one chunk and follow each other, beginning with
// offset base.
func appendChunk(dst []byte, base message.QueueOffset, parts ...[]slot) []byte {
	count := 0
	for _, p := range parts {
		count += len(p)
	}
	dst = append(dst, chunkFormat)
	dst = binary.AppendUvarint(dst, uint64(base&chunkMask))
	dst = binary.AppendUvarint(dst, uint64(count))
	var last slot
	for _, p := range parts {
		for i := range p {
			dst = binary.AppendUvarint(dst, uint64(p[i].pos-last.pos))
			dst = binary.AppendVarint(dst, int64(p[i].size)-int64(last.size))
			dst = binary.AppendVarint(dst, p[i].tags-last.tags)
			last = p[i]
		}
	}
	return dst
}

var (
	errShortChunk = errors.New("queue chunk ends too early")
	errLongChunk  = errors.New("queue chunk has bytes behind its last entry")
)

// decodeChunk reads chunk number n, into the memory of slots if that is enough.
func decodeChunk(n int64, b []byte, slots []slot) (*chunk, error) {
	if len(b) == 0 || b[0] != chunkFormat {
		return nil, fmt.Errorf("queue chunk of unknown format % x", b[:min(1, len(b))])
	}
	first, i := uvarint(b, 1)
	count, i := uvarint(b, i)
	if i > len(b) || first > chunkMask || count > chunkEntries || first+count > chunkEntries {
		return nil, fmt.Errorf("queue chunk claims %d entries from index %d", count, first)
	}
	c := &chunk{base: message.QueueOffset(n<<chunkShift) + message.QueueOffset(first)}
	if count > 0 {
		c.slots = slices.Grow(slots[:0], int(count))[:count]
	}
	var last slot
	var v uint64
	for k := range c.slots {
		v, i = uvarint(b, i)
		last.pos += message.LogOffset(v)
		v, i = uvarint(b, i)
		last.size = int32(int64(last.size) + unzigzag(v))
		v, i = uvarint(b, i)
		last.tags += unzigzag(v)
		c.slots[k] = last
	}
	if i > len(b) {
		return nil, errShortChunk
	}
	if i < len(b) {
		return nil, errLongChunk
	}
	return c, nil
}

// tail is the decoded head of a queue's tail; chunk holds the encoded chunk.
type tail struct {
	next   message.QueueOffset
	min    message.QueueOffset
	minPos message.LogOffset
	chunk  []byte
}

// number returns which chunk the tail's entries belong to.
func (t *tail) number() int64 { return chunkNumber(max(t.next-1, 0)) }

func appendTailHead(dst []byte, next, low message.QueueOffset, lowPos message.LogOffset) []byte {
	dst = append(dst, chunkFormat)
	dst = binary.AppendUvarint(dst, uint64(next))
	dst = binary.AppendUvarint(dst, uint64(low))
	return binary.AppendUvarint(dst, uint64(lowPos))
}

func decodeTail(b []byte) (tail, error) {
	if len(b) == 0 || b[0] != chunkFormat {
		return tail{}, fmt.Errorf("queue tail of unknown format % x", b[:min(1, len(b))])
	}
	next, i := uvarint(b, 1)
	low, i := uvarint(b, i)
	lowPos, i := uvarint(b, i)
	t := tail{next: message.QueueOffset(next), min: message.QueueOffset(low), minPos: message.LogOffset(lowPos)}
	if i > len(b) || t.min < 0 || t.next < t.min || t.minPos < 0 {
		return tail{}, fmt.Errorf("queue tail claims offsets %d to %d at position %d", t.min, t.next, t.minPos)
	}
	t.chunk = b[i:]
	return t, nil
}

// uvarint reads the number at b[i:] and returns it and the index behind it. If there is none, or i was behind
// b already, it returns an index behind len(b): so a caller may read on and look once, at the end.
func uvarint(b []byte, i int) (uint64, int) {
	if uint(i) < uint(len(b)) && b[i] < 0x80 {
		return uint64(b[i]), i + 1
	}
	return longUvarint(b, i)
}

func longUvarint(b []byte, i int) (uint64, int) {
	if i+1 < len(b) && b[i+1] < 0x80 {
		return uint64(b[i]&0x7f) | uint64(b[i+1])<<7, i + 2
	}
	if i < len(b) {
		if v, n := binary.Uvarint(b[i:]); n > 0 {
			return v, i + n
		}
	}
	return 0, len(b) + 1
}

func unzigzag(v uint64) int64 { return int64(v>>1) ^ -int64(v&1) }
