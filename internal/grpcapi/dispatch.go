// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"
	"errors"

	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// errStopping is what ends calls that are held when the server stops.
var errStopping = errors.New("server is stopping")

// waiter waits for the answer of one call. It is pooled: a call answers exactly once.
type waiter struct {
	answered chan struct{} // of capacity 1
	done     func(remoting.Response, error)
	answer   remoting.Response
	err      error
}

func newWaiter() *waiter {
	w := &waiter{answered: make(chan struct{}, 1)}
	w.done = func(r remoting.Response, err error) {
		w.answer, w.err = r, err
		w.answered <- struct{}{}
	}
	return w
}

// underWay is a call that was dispatched.
type underWay struct {
	call *remoting.Call
	w    *waiter
}

// call dispatches a request on behalf of c and waits for the answer, or until ctx is done, or, when the call is
// one that may be held, until the server stops. The error is ctx's, errStopping or, for an answer of another
// code than SUCCESS, a *protocol.Error beside the answer.
func (a *api) call(
	ctx context.Context, c *caller, code protocol.Code, h protocol.Header, body []byte,
) (remoting.Response, error) {
	return a.finish(ctx, a.begin(ctx, c, code, h, body))
}

// begin is the first half of call, finish the second; finish must be called once.
func (a *api) begin(
	ctx context.Context, c *caller, code protocol.Code, h protocol.Header, body []byte,
) underWay {
	w, ok := a.waiters.Get().(*waiter)
	if !ok {
		w = newWaiter()
	}
	call := a.newCall(ctx, c, code, h, body, w.done)
	a.registry.Dispatch(ctx, call)
	return underWay{call, w}
}

func (a *api) finish(ctx context.Context, u underWay) (remoting.Response, error) {
	w := u.w
	select {
	case <-w.answered:
	case <-ctx.Done():
		u.call.Cancel(ctx.Err())
		<-w.answered
	case <-a.stopping:
		endHeld(ctx, u)
	}
	answer, err := w.answer, w.err
	w.answer, w.err = remoting.Response{}, nil
	a.waiters.Put(w)
	if err == nil && answer.Code != protocol.Success {
		err = &protocol.Error{Code: answer.Code, Remark: answer.Remark}
	}
	return answer, err
}

// endHeld ends a call while the server stops: one that is held at once, another when it is answered.
func endHeld(ctx context.Context, u underWay) {
	if u.call.Held() {
		u.call.Cancel(errStopping)
		<-u.w.answered
		return
	}
	select {
	case <-u.w.answered:
	case <-ctx.Done():
		u.call.Cancel(ctx.Err())
		<-u.w.answered
	}
}

func (a *api) newCall(
	ctx context.Context, c *caller, code protocol.Code, h protocol.Header, body []byte,
	done func(remoting.Response, error),
) *remoting.Call {
	call := remoting.NewCall(code, h, body, c.peer(), done)
	call.Protocol = remoting.ProtocolGRPC
	call.Version = protocol.VersionCurrent
	call.Language = c.language
	call.Via = c.conn.via
	if deadline, ok := ctx.Deadline(); ok {
		call.Deadline = deadline
	}
	return call
}
