// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"encoding/binary"
)

const lengthBytes = 4 // the word before every frame

// inbuf holds what was read from a connection and not consumed yet. It belongs to the connection's reader.
//
// len(data) bytes are unread input; the capacity behind them is room to read into. That room is either the
// tail t, or, while a frame larger than a chunk is gathered (t is nil), the frame's own buffer.
type inbuf struct {
	data   []byte
	t      *tail
	last   int   // bytes the last read brought: tells a busy connection from a quiet one
	booked int64 // bytes of the server's read memory that the large frame in data occupies
	turn   bool  // it may grow beyond that
}

// next cuts the next complete frame off, without its length word. If there is none, need is how many bytes
// the input must have before there is one. A *FrameSizeError is for a length over limit (which counts the
// length word) or negative.
func (b *inbuf) next(limit int) (frame []byte, need int, err error) {
	if len(b.data) < lengthBytes {
		return nil, lengthBytes, nil
	}
	total := int64(binary.BigEndian.Uint32(b.data)) + lengthBytes
	if total > int64(limit) {
		return nil, 0, &FrameSizeError{Bytes: total, Limit: limit}
	}
	if int64(len(b.data)) < total {
		return nil, int(total), nil
	}
	frame = b.data[lengthBytes:total:total]
	b.data = b.data[total:]
	return frame, 0, nil
}

// more reports whether another complete frame waits, so that answers may gather.
func (b *inbuf) more() bool {
	if len(b.data) < lengthBytes {
		return false
	}
	return int64(len(b.data)) >= int64(binary.BigEndian.Uint32(b.data))+lengthBytes
}

func (b *inbuf) room() []byte { return b.data[len(b.data):cap(b.data)] }

func (b *inbuf) busy() bool { return b.last >= quietBytes }

// reserve makes room for at least one read, so that need bytes fit when they fit a chunk; larger frames are
// grow's. Unread input moves along.
func (b *inbuf) reserve(p *chunks, need int) {
	room := cap(b.data) - len(b.data)
	missing := need - len(b.data)
	floor := minRoomBytes
	if b.busy() {
		floor = busyRoomBytes
	}
	enough := room >= missing || need > chunkBytes || b.t == nil // to finish the frame, or to go on with it
	if room >= floor || (len(b.data) > 0 && room > 0 && enough) {
		return
	}
	fresh := p.take(min(max(need, len(b.data)+floor), chunkBytes))
	n := copy(fresh.free, b.data)
	b.giveBack(p)
	b.data, b.t = fresh.free[:n], fresh
}

// giveBack returns the room behind the unread input to p.
func (b *inbuf) giveBack(p *chunks) {
	if b.t == nil {
		return
	}
	b.t.free = b.room()
	p.give(b.t)
	b.t = nil
	b.data = b.data[:len(b.data):len(b.data)]
}

// rest is called before the reader waits for bytes: a connection that waits must not hold a chunk. The
// beginning of a small frame stays where it is; that of a larger one moves to a buffer of its own, in which
// it can go on.
func (b *inbuf) rest(p *chunks, need int) {
	switch {
	case b.t == nil:
	case len(b.data) == 0:
		b.giveBack(p)
		b.data = nil
	case need <= quietBytes || len(b.data) > chunkBytes/2:
		b.giveBack(p)
	default:
		fresh := make([]byte, len(b.data), grownBytes(len(b.data), need))
		copy(fresh, b.data)
		b.t.free = b.data[:cap(b.data)] // nothing aliases the input that was copied
		p.give(b.t)
		b.data, b.t = fresh, nil
	}
}

// private makes room of its own for a read that blocks, small while little comes in, so that waiting pins no
// chunk.
func (b *inbuf) private(need int) {
	room := cap(b.data) - len(b.data)
	enough := room >= need-len(b.data) || need > chunkBytes
	if room >= minRoomBytes/4 || (len(b.data) > 0 && room > 0 && enough) {
		return
	}
	size := quietBytes
	if b.busy() {
		size = chunkBytes
	}
	fresh := make([]byte, len(b.data), len(b.data)+min(max(size, need-len(b.data)), chunkBytes))
	copy(fresh, b.data)
	b.data = fresh
}

// mustGrow reports whether the frame that has begun needs a larger buffer of its own.
func (b *inbuf) mustGrow(need int) bool {
	full := len(b.data) > 0 && len(b.data) == cap(b.data)
	return full && need > quietBytes && (b.t == nil || need > chunkBytes)
}

// grow moves the input into a buffer of size bytes of its own.
func (b *inbuf) grow(p *chunks, size int) {
	fresh := make([]byte, len(b.data), size)
	copy(fresh, b.data)
	b.giveBack(p)
	b.data = fresh
}

// grownBytes is how large the buffer of a frame of need bytes becomes when have of them are there: never more
// than twice that, so that a claimed length costs nothing before its bytes come.
func grownBytes(have, need int) int {
	return min(need, max(2*have, quietBytes))
}
