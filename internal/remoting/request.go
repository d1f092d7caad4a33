// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"context"
	"time"

	"github.com/roquetmq/roquet/internal/protocol"
)

// request is a request sent to the peer that waits for its answer. It is over when it has left
// Conn.out.requests; whoever takes it out of there calls done.
type request struct {
	conn    *Conn
	opaque  int32
	done    func(*protocol.Command, error)
	expires time.Time // zero: the waiter minds the time itself

	prev, next *request // in the wheel's slot, guarded by wheel.mu
	slot       int64
	listed     bool
}

// Request sends a request and returns at once; see Caller. The command given to done is done's to keep.
func (c *Conn) Request(
	code protocol.Code, h protocol.Header, body []byte, timeout time.Duration,
	done func(*protocol.Command, error),
) {
	r := &request{conn: c, done: done, expires: time.Now().Add(timeout)}
	if err := c.send(code, h, body, r); err != nil {
		done(nil, err)
		return
	}
	c.eng.wheel.add(r)
	c.out.Lock()
	over := c.out.requests[r.opaque] != r
	c.out.Unlock()
	if over { // answered before it was in the wheel
		c.eng.wheel.remove(r)
	}
}

// Invoke sends a request and waits for its answer; see Caller. ctx is the only limit to the wait.
func (c *Conn) Invoke(
	ctx context.Context, code protocol.Code, h protocol.Header, body []byte,
) (*protocol.Command, error) {
	type outcome struct {
		cmd *protocol.Command
		err error
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	answered := make(chan outcome, 1)
	r := &request{conn: c, done: func(cmd *protocol.Command, err error) { answered <- outcome{cmd, err} }}
	if err := c.send(code, h, body, r); err != nil {
		return nil, err
	}
	select {
	case o := <-answered:
		return o.cmd, o.err
	case <-ctx.Done():
	}
	if c.takeRequest(r.opaque) == nil {
		o := <-answered // it is over already
		return o.cmd, o.err
	}
	return nil, ctx.Err()
}

// OneWay sends a request without an answer; see Caller.
func (c *Conn) OneWay(code protocol.Code, h protocol.Header, body []byte) error {
	return c.send(code, h, body, nil)
}

// send writes a request; r is nil for a one-way one. An error means that nothing was sent and that done is
// not called.
func (c *Conn) send(code protocol.Code, h protocol.Header, body []byte, r *request) error {
	cmd := c.eng.requestHead
	cmd.Code = int32(code)
	if r == nil {
		cmd.Flag |= protocol.FlagOneWay
	}
	now, err := c.enqueue(&cmd, h, body, r)
	if err != nil {
		return err
	}
	if now {
		c.flush()
	}
	return nil
}

func (c *Conn) enqueue(
	cmd *protocol.Command, h protocol.Header, body []byte, r *request,
) (flushNow bool, err error) {
	c.out.Lock()
	defer c.out.Unlock()
	if c.out.err != nil {
		return false, ErrConnClosed
	}
	c.out.opaque++
	cmd.Opaque = c.out.opaque
	c.out.buf = protocol.AppendFrame(c.outBufLocked(), cmd, h, body)
	if r != nil {
		r.opaque = cmd.Opaque
		if c.out.requests == nil {
			c.out.requests = make(map[int32]*request)
		}
		c.out.requests[r.opaque] = r
	}
	return !c.out.busy && !c.state.burst.Load(), nil
}

// takeRequest takes the request out of the table, nil if it is not there.
func (c *Conn) takeRequest(opaque int32) *request {
	c.out.Lock()
	defer c.out.Unlock()
	r := c.out.requests[opaque]
	if r == nil {
		return nil
	}
	delete(c.out.requests, opaque)
	if len(c.out.requests) == 0 {
		c.out.requests = nil
	}
	return r
}

// resolve gives an answer to the request it belongs to. It reports whether there was one.
func (c *Conn) resolve(cmd *protocol.Command) bool {
	r := c.takeRequest(cmd.Opaque)
	if r == nil {
		return false
	}
	c.eng.wheel.remove(r)
	r.done(cmd, nil)
	return true
}

// expire ends a request whose time is up, unless it is over.
func (c *Conn) expire(r *request) {
	c.out.Lock()
	own := c.out.requests[r.opaque] == r
	c.out.Unlock()
	if own && c.takeRequest(r.opaque) == r {
		r.done(nil, ErrTimeout)
	}
}
