// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/roquetmq/roquet/internal/protocol"
)

// engine is what the connections of a server, or of a client, share. Everything in it is safe for concurrent
// use.
type engine struct {
	reg         *Registry
	limits      Limits
	log         *slog.Logger
	ctx         context.Context // of native calls; ends when calls are no longer waited for
	requestHead protocol.Command

	chunks  chunks
	pools   pools
	pending flushList
	frames  *semaphore.Weighted // bytes of unfinished large frames
	turn    *semaphore.Weighted // 1, of the frame that may grow beyond them
	scarce  atomic.Int64        // unix nanoseconds: when a large frame last waited for memory
	backlog atomic.Int64        // bytes that writer goroutines are at

	draining atomic.Bool
	running  sync.WaitGroup // readers and writers
	tarpit   tarpit
}

// pools holds what is used for a moment and reused by any connection.
type pools struct {
	scratch sync.Pool // *protocol.Command, decoded into
	heads   sync.Pool // *protocol.Command, the fixed part of an answer without ext fields
	outBufs sync.Pool // *[]byte
}

func newEngine(reg *Registry, limits Limits, log *slog.Logger) *engine {
	e := &engine{
		reg: reg, limits: limits, log: cmp.Or(log, slog.New(slog.DiscardHandler)), ctx: context.Background(),
		requestHead: protocol.Command{Language: protocol.LanguageJava, Version: protocol.VersionCurrent},
		frames:      semaphore.NewWeighted(limits.ReadMemoryBytes), turn: semaphore.NewWeighted(1),
	}
	e.pools.scratch.New = func() any { return new(protocol.Command) }
	e.pools.heads.New = func() any {
		return &protocol.Command{
			Flag: protocol.FlagResponse, Version: protocol.VersionCurrent, Language: protocol.LanguageJava,
		}
	}
	return e
}

// fitFrame sees to it that a frame above a chunk has room, booked with the read memory that all connections
// share.
func (e *engine) fitFrame(in *inbuf, need int) error {
	if len(in.data) == 0 {
		e.releaseFrame(in)
		return nil
	}
	if !in.mustGrow(need) {
		return nil
	}
	size := grownBytes(len(in.data), need)
	if size > chunkBytes {
		if err := e.bookFrame(in, int64(size)-in.booked); err != nil {
			return err
		}
	}
	in.grow(&e.chunks, size)
	return nil
}

// bookFrame books more bytes for a frame. When there are none left it waits until others give some back, or until it
// may grow beyond the limit: one frame at a time may, so that those which have begun together do not keep for ever what
// each other needs.
func (e *engine) bookFrame(in *inbuf, bytes int64) error {
	if in.turn {
		return nil
	}
	for deadline := time.Now().Add(e.limits.FrameTimeout); !e.frames.TryAcquire(bytes); {
		e.scarce.Store(time.Now().UnixNano())
		ctx, cancel := context.WithTimeout(e.ctx, min(e.limits.FrameTimeout, lookForMemory))
		err := e.turn.Acquire(ctx, 1)
		cancel()
		switch {
		case err == nil:
			in.turn = true
			return nil
		case e.ctx.Err() != nil || time.Now().After(deadline):
			return fmt.Errorf("%w: limit %d bytes", ErrReadMemory, e.limits.ReadMemoryBytes)
		}
	}
	in.booked += bytes
	return nil
}

// lookForMemory is how often a frame that waits for its turn looks whether memory was given back.
const lookForMemory = 20 * time.Millisecond

// releaseFrame gives the booking back once the frame has been consumed.
func (e *engine) releaseFrame(in *inbuf) {
	if in.booked > 0 {
		e.frames.Release(in.booked)
		in.booked = 0
	}
	if in.turn {
		e.turn.Release(1)
		in.turn = false
	}
}

// flushList is the connections that have answers to be written by FlushPending.
type flushList struct {
	mu    sync.Mutex
	conns []*Conn
	spare []*Conn
}

func (l *flushList) add(c *Conn) {
	l.mu.Lock()
	l.conns = append(l.conns, c)
	l.mu.Unlock()
}

// flush writes what the listed connections owe.
func (l *flushList) flush() {
	l.mu.Lock()
	conns := l.conns
	l.conns, l.spare = l.spare[:0], nil
	l.mu.Unlock()
	for i, c := range conns {
		c.out.Lock()
		c.out.listed = false
		c.out.Unlock()
		c.flush()
		conns[i] = nil
	}
	l.mu.Lock()
	l.spare = conns[:0]
	l.mu.Unlock()
}

// slowReader names a write that ran into its deadline.
func slowReader(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return ErrSlowReader
	}
	return err
}
