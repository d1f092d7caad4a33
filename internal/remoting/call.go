// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/roquetmq/roquet/internal/protocol"
)

// A Call is one request on its way, from whichever door. Its exported fields are set before Dispatch and
// read-only after, but for Header, which Handle fills in, and User.
//
// A call ends exactly once. Reply, ReplyLater, Fail and FailLater may be called from any goroutine; a second
// one is a bug of the processor: it is logged and otherwise without effect.
//
//lint:wide a call is what hooks, wrappers and processors of every door read
type Call struct {
	Code     protocol.Code
	Opaque   int32 // native calls: what the answer repeats
	Version  int32 // ordinal of the client's release, 0 unknown
	Language protocol.LanguageCode
	Protocol Protocol
	OneWay   bool   // no answer is written, not even an error
	User     string // who makes it: set by doors that know, else by the wrapper that finds out; empty: nobody known
	Method   string // the door's own name of the call, such as a gRPC method; empty: the code's name says it

	Ext      *protocol.Ext   // native calls: the fields as sent; valid until the processor returns
	Header   protocol.Header // the typed fields; nil until decoded
	Body     []byte          // never written to again, so it may be kept until the reply without a copy
	Peer     Peer            // never nil
	Via      *Listener       // the listener it came through; nil for a call made inside the process
	Received time.Time       // when its last byte had been read, give or take the burst it came in
	Deadline time.Time       // when the client stops waiting, as far as known

	conn      *Conn                 // native calls
	answered  func(Response, error) // calls of other doors
	reg       *Registry
	ctx       context.Context // what the hooks made of Dispatch's context; given to their After
	place     place
	scratch   *protocol.Command // calls of pooled lanes: what Ext belongs to
	parked    atomic.Pointer[parking]
	held      atomic.Bool // it has been suspended
	state     atomic.Uint32
	serialize protocol.SerializeType
}

// place is what a call occupies in its lane; lane is nil before it has a place. Call.leave gives it back
// once.
type place struct {
	lane  *Lane
	bytes int64
	left  atomic.Bool
}

// parking is a suspended call's entry in its connection's held calls, guarded by Conn.mu.
type parking struct {
	cancelled func()
	call      *Call
	place     int // in the list, plus 1; 0: not in it
}

// States of a call.
const (
	callOpen      uint32 = iota
	callReplied          // answered
	callCancelled        // ended without an answer
)

// Response is the answer to a call. Everything in it is encoded or copied before Reply returns.
type Response struct {
	Code   protocol.ResponseCode
	Remark string
	Header protocol.Header // nil for none
	Body   []byte
	Bodies [][]byte // written after Body, without being joined first
}

// ErrCancelled is what hooks see for a call that its door gave up without saying why.
var ErrCancelled = errors.New("call cancelled")

var errNoReason = errors.New("the request failed and its processor did not say why: a bug of this server, report it")

// NewCall returns a call for Registry.Dispatch, for doors that have requests as typed values. done is called
// exactly once: with the response (errors are already mapped to a code and a remark), or with the error given
// to Cancel. It runs on the goroutine that replies and must not block. The caller may set the remaining
// exported fields before Dispatch.
func NewCall(code protocol.Code, h protocol.Header, body []byte, peer Peer, done func(Response, error)) *Call {
	return &Call{Code: code, Header: h, Body: body, Peer: peer, Received: time.Now(), answered: done}
}

// Context is what the processor gets besides the call: Dispatch's context and what the hooks made of it.
func (c *Call) Context() context.Context { return c.ctx }

// Done reports whether the call is over: replied to or cancelled. It may be over a moment after Done said
// false.
func (c *Call) Done() bool { return c.state.Load() != callOpen }

// Held reports whether the call has been suspended at some time.
func (c *Call) Held() bool { return c.held.Load() }

// Reply ends the call with r, which is on its way to the client when Reply returns.
func (c *Call) Reply(r Response) { c.end(&r, false) }

// ReplyLater is Reply for a goroutine that answers many calls: the answers are written by the next
// Server.FlushPending, one write a connection.
func (c *Call) ReplyLater(r Response) { c.end(&r, true) }

// Fail ends the call with an error: a *protocol.Error is its answer, anything else goes through the
// registry's MapError. For a nil error, a bug, that is errNoReason: a failure is never told as a success.
func (c *Call) Fail(err error) { c.answer(Response{}, cmp.Or(err, errNoReason), false) }

// FailLater is to Fail what ReplyLater is to Reply.
func (c *Call) FailLater(err error) { c.answer(Response{}, cmp.Or(err, errNoReason), true) }

// Answer ends the call with r, or with err if there is one: it is Reply or Fail.
func (c *Call) Answer(r Response, err error) { c.answer(r, err, false) }

// AnswerLater is to Answer what ReplyLater is to Reply.
func (c *Call) AnswerLater(r Response, err error) { c.answer(r, err, true) }

func (c *Call) answer(r Response, err error, later bool) {
	if err != nil {
		e := c.reg.mapError(err)
		r = Response{Code: e.Code, Remark: e.Remark}
	}
	c.end(&r, later)
}

func (c *Call) end(r *Response, later bool) {
	if !c.tryEnd(r, later) && c.state.Load() != callCancelled {
		c.reg.repliedTwice(c, r)
	}
	// After a cancellation a late answer is expected: whoever held the call did not know yet.
}

// tryEnd ends the call unless it is over.
func (c *Call) tryEnd(r *Response, later bool) bool {
	if !c.state.CompareAndSwap(callOpen, callReplied) {
		return false
	}
	if c.conn == nil {
		c.parked.Store(nil)
		c.reg.hooks.answered(c, r)
		c.leave()
		c.answered(*r, nil)
		return true
	}
	if c.conn.state.ended.Load() {
		c.reg.hooks.after(c, nil, ErrConnClosed)
	} else {
		c.reg.hooks.answered(c, r)
	}
	c.conn.answer(c, r, later)
	c.leave()
	return true
}

// Cancel ends a call that nobody waits for any more, such as one whose gRPC context is done. A call that is
// over is left alone. It may be called from when Dispatch has returned; before that Dispatch minds its
// context itself. Native calls are cancelled by their connection.
func (c *Call) Cancel(err error) {
	if !c.state.CompareAndSwap(callOpen, callCancelled) {
		return
	}
	if err == nil {
		err = ErrCancelled
	}
	c.reg.hooks.after(c, nil, err)
	c.leave()
	var p *parking
	if c.conn != nil {
		p = c.conn.unpark(c)
	} else {
		c.answered(Response{}, err)
		p = c.parked.Swap(nil)
	}
	if p != nil && p.cancelled != nil {
		p.cancelled()
	}
}

// Suspend is for a call that waits until something happens, such as a pull for a message. The call gives its
// lane's place back and lets go of Ext, Header and Body: what the processor needs of them later it clones
// first, for they may keep a whole read chunk in memory. Suspend comes before the call is made known to
// whoever ends it. cancelled is called at most once, on another goroutine and under no lock, if the client
// goes away first; the call is over then and a later Reply is without effect. When Suspend returns false the
// client is gone already; cancelled is not called and the call is over.
func (c *Call) Suspend(cancelled func()) bool {
	p := &parking{call: c, cancelled: cancelled}
	c.held.Store(true)
	c.parked.Store(p)
	c.Ext, c.Header, c.Body = nil, nil, nil
	c.leave()
	c.reg.hooks.suspend(c)
	if c.conn != nil && !c.conn.park(p) {
		if c.parked.CompareAndSwap(p, nil) {
			c.Cancel(ErrConnClosed)
			return false
		}
		return true
	}
	if c.state.Load() == callCancelled && c.parked.CompareAndSwap(p, nil) {
		return false
	}
	return true
}

// leave gives the places in the lane and in the connection back, once.
func (c *Call) leave() {
	if !c.place.left.CompareAndSwap(false, true) {
		return
	}
	if c.place.lane != nil {
		c.place.lane.leave(c.place.bytes)
	}
	if c.conn != nil {
		c.conn.callEnded()
	}
}
