// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"fmt"
	"sync"
	"time"

	"github.com/roquetmq/roquet/internal/protocol"
)

const (
	pooledOutBytes  = 256 << 10 // larger buffers are not kept
	firstOutBytes   = 4 << 10
	writePieceBytes = 256 << 10                       // what a peer must take within the write timeout
	maxAnswerBytes  = protocol.MaxFrameBytes - 64<<10 // of an answer's body: leaves room for the header
)

// outgoing is what a connection owes its peer. Its lock is the package's Conn.mu.
type outgoing struct {
	sync.Mutex
	buf     []byte // encoded, and nobody has begun to write it
	writing int    // bytes a writer is at
	busy    bool   // there is a writer: a flush or a writer goroutine
	listed  bool   // in the engine's flushList, until FlushPending takes it from there
	err     error  // why the connection ended; nil while it lives

	held     []*parking // suspended calls, in no order
	opaque   int32      // of the last request sent
	requests map[int32]*request
	room     chan struct{} // closed when the peer has taken enough; nil when nobody waits
}

// outBufLocked returns the buffer to append to.
func (c *Conn) outBufLocked() []byte {
	if c.out.buf != nil {
		return c.out.buf
	}
	if b, ok := c.eng.pools.outBufs.Get().(*[]byte); ok {
		return (*b)[:0]
	}
	return make([]byte, 0, firstOutBytes)
}

func (e *engine) recycle(b []byte) {
	if cap(b) <= pooledOutBytes {
		e.pools.outBufs.Put(&b)
	}
}

// answer encodes the answer of a call and sees to it that it is written: by the reader after its burst, by
// the writer that is at work, by FlushPending (later), or by this goroutine.
func (c *Conn) answer(call *Call, r *Response, later bool) {
	if call.OneWay && call.parked.Load() == nil {
		return
	}
	now, err := c.encodeAnswer(call, r, later)
	if err != nil {
		c.shut(err)
		return
	}
	if now {
		c.flush()
	}
}

func (c *Conn) encodeAnswer(call *Call, r *Response, later bool) (flushNow bool, err error) {
	c.out.Lock()
	defer c.out.Unlock()
	c.unparkLocked(call)
	if call.OneWay || c.out.err != nil {
		return false, nil
	}
	size := len(r.Body)
	for _, part := range r.Bodies {
		size += len(part)
	}
	if size > maxAnswerBytes {
		r = &Response{
			Code:   protocol.SystemError,
			Remark: fmt.Sprintf("answer of %d bytes, limit %d", size, maxAnswerBytes),
		}
		size = 0
	}
	if owed := len(c.out.buf) + c.out.writing; owed > c.eng.limits.MaxOutBytes {
		limit := c.eng.limits.MaxOutBytes
		return false, fmt.Errorf("%w: %d bytes not taken, limit %d", ErrSlowReader, owed, limit)
	}
	head, _ := c.eng.pools.heads.Get().(*protocol.Command) // pooled: it is large, and escapes where it is encoded
	head.Code, head.Opaque, head.Remark, head.Serialize = int32(r.Code), call.Opaque, r.Remark, call.serialize
	buf := protocol.AppendFrameHead(c.outBufLocked(), head, r.Header, size)
	head.Remark = ""
	c.eng.pools.heads.Put(head)
	buf = append(buf, r.Body...)
	for _, part := range r.Bodies {
		buf = append(buf, part...)
	}
	c.out.buf = buf
	if len(buf)+c.out.writing > c.softOutBytes() {
		c.state.full.Store(true)
	}
	if c.out.busy || c.state.burst.Load() {
		return false, nil
	}
	if !later {
		return true, nil
	}
	if !c.out.listed {
		c.out.listed = true
		c.eng.pending.add(c)
	}
	return false, nil
}

func (c *Conn) softOutBytes() int {
	if c.eng.backlog.Load() > c.eng.limits.OutMemoryBytes {
		return min(squeezedOutBytes, c.eng.limits.SoftOutBytes)
	}
	return c.eng.limits.SoftOutBytes
}

// flush writes what has gathered, without blocking. What the socket does not take is left to a writer
// goroutine.
func (c *Conn) flush() {
	o := &c.out
	o.Lock()
	for len(o.buf) > 0 && !o.busy && o.err == nil {
		b := o.buf
		o.buf, o.busy, o.writing = nil, true, len(b)
		if !c.raw.open() {
			c.startWriter(b, 0)
			break
		}
		o.Unlock()
		n, err := c.raw.write(b)
		o.Lock()
		if err != nil {
			o.busy, o.writing = false, 0
			o.Unlock()
			c.shut(err)
			return
		}
		c.state.wrote.Store(true)
		if n < len(b) {
			o.writing = len(b) - n
			c.startWriter(b, n)
			break
		}
		o.busy, o.writing = false, 0
		c.eng.recycle(b)
	}
	if c.state.full.Load() {
		c.roomLocked()
	}
	o.Unlock()
}

// startWriter leaves b[from:] and what comes after it to a goroutine. The caller has set busy, which the
// goroutine clears.
func (c *Conn) startWriter(b []byte, from int) {
	c.eng.backlog.Add(int64(len(b) - from))
	c.eng.running.Go(func() { c.writeAll(b, from) })
}

// writeAll writes, blocking, until nothing is left or the connection has ended.
func (c *Conn) writeAll(b []byte, from int) {
	for {
		err := c.writeBlocking(b, from)
		c.eng.recycle(b)
		c.out.Lock()
		if err == nil && c.out.err == nil && len(c.out.buf) > 0 {
			b, from = c.out.buf, 0
			c.out.buf, c.out.writing = nil, len(b)
			c.eng.backlog.Add(int64(len(b)))
			c.roomLocked()
			c.out.Unlock()
			continue
		}
		c.out.busy, c.out.writing = false, 0
		c.roomLocked()
		c.out.Unlock()
		if err != nil {
			c.shut(err)
		}
		return
	}
}

func (c *Conn) writeBlocking(b []byte, from int) error {
	defer func() { c.eng.backlog.Add(-int64(len(b) - from)) }()
	for from < len(b) {
		if err := c.sock.SetWriteDeadline(time.Now().Add(c.eng.limits.WriteTimeout)); err != nil {
			return err
		}
		n, err := c.nc.Write(b[from:min(len(b), from+writePieceBytes)])
		from += n
		c.eng.backlog.Add(-int64(n))
		c.state.wrote.Store(true)
		c.out.Lock()
		c.out.writing = len(b) - from
		c.roomLocked()
		c.out.Unlock()
		if err != nil {
			return slowReader(err)
		}
	}
	return c.sock.SetWriteDeadline(time.Time{})
}

// roomLocked lets the reader go on when the peer has taken half of what made it wait.
func (c *Conn) roomLocked() {
	if c.out.err == nil && len(c.out.buf)+c.out.writing > c.softOutBytes()/2 {
		return
	}
	c.state.full.Store(false)
	if c.out.room != nil {
		close(c.out.room)
		c.out.room = nil
	}
}

// waitForPeer holds the reader until the peer has taken enough of its answers or the connection has ended.
// The writer's timeout bounds the wait.
func (c *Conn) waitForPeer() {
	c.aboutToWait()
	c.out.Lock()
	if !c.state.full.Load() || c.out.err != nil {
		c.out.Unlock()
		return
	}
	if c.out.room == nil {
		c.out.room = make(chan struct{})
	}
	room := c.out.room
	c.out.Unlock()
	<-room
}

// shut marks the connection as ended for a reason and closes the socket, which makes the reader end. Only the
// first reason counts.
func (c *Conn) shut(err error) {
	c.out.Lock()
	first := c.out.err == nil
	if first {
		c.out.err = err
		c.out.buf = nil
		c.state.ended.Store(true)
		c.roomLocked()
	}
	c.out.Unlock()
	if !first {
		return
	}
	// The close error of a socket that is given up says nothing anybody could act on.
	_ = c.sock.Close()
	if c.state.gated.Load() {
		c.openGate()
	}
}

func (o *outgoing) cause() error {
	o.Lock()
	defer o.Unlock()
	return o.err
}

// park lists a suspended call, so that the connection's end cancels it. False: the connection has ended.
func (c *Conn) park(p *parking) bool {
	c.out.Lock()
	defer c.out.Unlock()
	if c.out.err != nil {
		return false
	}
	c.out.held = append(c.out.held, p)
	p.place = len(c.out.held)
	return true
}

// unpark takes a cancelled call out of the held ones, if it is one of them.
func (c *Conn) unpark(call *Call) *parking {
	if call.parked.Load() == nil {
		return nil
	}
	c.out.Lock()
	defer c.out.Unlock()
	return c.unparkLocked(call)
}

// unparkLocked takes a call that is over out of the held ones, if it is one of them.
func (c *Conn) unparkLocked(call *Call) *parking {
	p := call.parked.Swap(nil)
	if p == nil || p.place == 0 {
		return p
	}
	last := len(c.out.held) - 1
	moved := c.out.held[last]
	c.out.held[p.place-1], c.out.held[last], moved.place = moved, nil, p.place
	c.out.held, p.place = c.out.held[:last], 0
	return p
}

// takeAll empties what waits for the connection, after its end.
func (o *outgoing) takeAll() (held []*parking, requests map[int32]*request) {
	o.Lock()
	defer o.Unlock()
	held, requests = o.held, o.requests
	for _, p := range held {
		p.place = 0
	}
	o.held, o.requests = nil, nil
	return held, requests
}
