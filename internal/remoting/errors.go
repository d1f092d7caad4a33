// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"errors"
	"fmt"
)

// Errors of connections and of requests sent over them.
var (
	// ErrConnClosed says that the connection ended, from either side, before the call was over.
	ErrConnClosed = errors.New("connection closed")
	// ErrTimeout says that the peer did not answer a request in time.
	ErrTimeout = errors.New("no answer in time")
	// ErrServerClosed says that the server does not serve any more, or not yet.
	ErrServerClosed = errors.New("server closed")
	// ErrSlowReader says that the peer did not take its answers in time, so that the connection was closed.
	ErrSlowReader = errors.New("peer reads too slowly")
	// ErrIdle says that nothing was read or written for the idle timeout.
	ErrIdle = errors.New("idle for too long")
	// ErrSilentFrame says that a frame was begun and not continued in time.
	ErrSilentFrame = errors.New("frame was not finished in time")
	// ErrReadMemory says that large frames of all connections together occupy the memory set aside for them.
	ErrReadMemory = errors.New("no memory left for large frames")
	// ErrNotAllowed says that the listener does not serve what the connection speaks.
	ErrNotAllowed = errors.New("protocol not served by this listener")
	// ErrUnknownProtocol says that the first bytes of a connection belong to no protocol served here.
	ErrUnknownProtocol = errors.New("first bytes are no known protocol")
	// ErrProxyHeader says that a PROXY protocol header is broken or too long.
	ErrProxyHeader = errors.New("broken PROXY protocol header")
)

// FrameSizeError says that a frame's length word is over the limit or negative.
type FrameSizeError struct {
	Bytes int64 // of the whole frame, its length word included
	Limit int
}

// Error names both numbers.
func (e *FrameSizeError) Error() string {
	return fmt.Sprintf("frame of %d bytes, limit %d", e.Bytes, e.Limit)
}
