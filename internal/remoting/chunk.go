// SPDX-License-Identifier: Apache-2.0

package remoting

import "sync"

const (
	chunkBytes    = 64 << 10 // one read at most, and so one burst
	minRoomBytes  = 2 << 10  // a chunk with less room is left to the garbage collector
	busyRoomBytes = 16 << 10 // a connection that fills its reads gets at least this much room
	quietBytes    = 4 << 10  // a connection that sends little reads into at most this much
)

// A tail is the part of a chunk that nothing was read into yet. Tails may be shared out among connections one
// after the other, because each byte of a chunk is written once.
type tail struct{ free []byte }

// chunks hands out room to read into. The zero value is ready; it is safe for concurrent use.
type chunks struct {
	small sync.Pool // *tail with at least minRoomBytes
	large sync.Pool // *tail with at least busyRoomBytes
}

// take returns an unwritten tail of at least room bytes (at most chunkBytes).
func (p *chunks) take(room int) *tail {
	if room <= minRoomBytes {
		if t, ok := p.small.Get().(*tail); ok {
			return t
		}
	}
	if t, ok := p.large.Get().(*tail); ok {
		if len(t.free) >= room {
			return t
		}
		p.give(t)
	}
	return &tail{free: make([]byte, chunkBytes)}
}

// give takes a tail back for other connections.
func (p *chunks) give(t *tail) {
	switch n := len(t.free); {
	case n >= busyRoomBytes:
		p.large.Put(t)
	case n >= minRoomBytes:
		p.small.Put(t)
	default:
		t.free = nil
	}
}
