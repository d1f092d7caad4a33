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
	opaque  int32
	done    func(*protocol.Command, error)
	timeout time.Duration // 0: the waiter minds the time itself
	timer   *time.Timer   // set before the request is in the table
}

// Request sends a request and returns at once; see Caller. The command given to done is done's to keep.
func (c *Conn) Request(
	code protocol.Code, h protocol.Header, body []byte, timeout time.Duration,
	done func(*protocol.Command, error),
) {
	r := &request{done: done, timeout: max(timeout, 1)}
	if err := c.send(code, h, body, r); err != nil {
		done(nil, err)
	}
}

// Invoke sends a request and waits for its answer. ctx is the only limit to the wait. Errors: ErrConnClosed, ctx.Err().
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
	r := &request{done: func(cmd *protocol.Command, err error) { answered <- outcome{cmd, err} }}
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

func (c *Conn) enqueue(cmd *protocol.Command, h protocol.Header, body []byte, r *request) (flushNow bool, err error) {
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
		if r.timeout > 0 {
			r.timer = time.AfterFunc(r.timeout, func() { c.expire(r) })
		}
	}
	return !c.out.busy && !c.state.burst.Load(), nil
}

// takeRequest takes the request out of the table, nil if it is not there.
func (c *Conn) takeRequest(opaque int32) *request {
	c.out.Lock()
	defer c.out.Unlock()
	return c.takeRequestLocked(c.out.requests[opaque])
}

func (c *Conn) takeRequestLocked(r *request) *request {
	if r == nil {
		return nil
	}
	delete(c.out.requests, r.opaque)
	if len(c.out.requests) == 0 {
		c.out.requests = nil
	}
	if r.timer != nil {
		r.timer.Stop()
	}
	return r
}

// resolve gives an answer to the request it belongs to, if there is one.
func (c *Conn) resolve(cmd *protocol.Command) {
	if r := c.takeRequest(cmd.Opaque); r != nil {
		r.done(cmd, nil)
	}
}

// expire ends a request whose time is up, unless it is over.
func (c *Conn) expire(r *request) {
	c.out.Lock()
	own := c.out.requests[r.opaque] == r
	if own {
		c.takeRequestLocked(r)
	}
	c.out.Unlock()
	if own {
		r.done(nil, ErrTimeout)
	}
}
