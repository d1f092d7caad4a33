// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"io"
	"sync"
)

const (
	corkBytes = 64 << 10 // how much is gathered at most
	// mostCorked is the size of the messages up to which an answer is gathered: grpc-go queues 64 KiB for a
	// stream, what encoding adds included, before it makes a sender wait, and who corks must not wait for the
	// client.
	mostCorked = 32 << 10
)

// corkedWriter gathers what is written while it is corked. grpc-go's writer runs beside the handler that sends
// message after message, finds one or two of them at a time, and makes a system call for those; gathered, an
// answer of 32 messages takes two or three. Whoever corks does not wait for the client before it uncorks. Safe
// for concurrent use; the zero value is for rpcs without a connection.
type corkedWriter struct {
	to io.Writer
	mu struct {
		sync.Mutex
		corks int
		held  *[]byte // nil when nothing is held
		err   error   // of a write that nobody was told of
	}
}

// corkBuffers has buffers of corkBytes. Between answers a connection has none.
var corkBuffers = sync.Pool{New: func() any {
	b := make([]byte, 0, corkBytes)
	return &b
}}

// Write writes p, or keeps a copy of it.
func (w *corkedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.err != nil {
		return 0, w.mu.err
	}
	if w.mu.corks == 0 && w.mu.held == nil {
		return w.to.Write(p)
	}
	if w.mu.held == nil {
		held, ok := corkBuffers.Get().(*[]byte)
		if !ok {
			return w.to.Write(p)
		}
		w.mu.held = held
	}
	if len(*w.mu.held)+len(p) > corkBytes {
		if err := w.flushLocked(); err != nil {
			return 0, err
		}
		return w.to.Write(p)
	}
	*w.mu.held = append(*w.mu.held, p...)
	return len(p), nil
}

// cork begins to gather. Each cork has its uncork.
func (w *corkedWriter) cork() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.corks++
}

// uncork writes what was gathered, if nobody else has corked.
func (w *corkedWriter) uncork() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.corks--; w.mu.corks == 0 {
		w.mu.err = w.flushLocked()
	}
}

func (w *corkedWriter) flushLocked() error {
	if w.mu.held == nil {
		return nil
	}
	held := w.mu.held
	w.mu.held = nil
	_, err := w.to.Write(*held)
	*held = (*held)[:0]
	corkBuffers.Put(held)
	return err
}
