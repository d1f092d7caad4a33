// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc"

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

func newWaiter() any {
	w := &waiter{answered: make(chan struct{}, 1)}
	w.done = func(r remoting.Response, err error) {
		w.answer, w.err = r, err
		w.answered <- struct{}{}
	}
	return w
}

// call dispatches a request on behalf of c and waits for the answer, or until ctx is done. The error is ctx's
// or, for an answer of another code than SUCCESS, a *protocol.Error beside the answer.
func (a *api) call(
	ctx context.Context, c *caller, code protocol.Code, h protocol.Header, body []byte,
) (remoting.Response, error) {
	return a.callUntil(ctx, nil, c, code, h, body)
}

// callUntil is call for a request that may be held: it ends with errStopping when stop is closed meanwhile. Thousands
// wait at once, and each would take a shared channel's lock, so calls that are not held have none.
func (a *api) callUntil(
	ctx context.Context, stop <-chan struct{}, c *caller, code protocol.Code, h protocol.Header, body []byte,
) (remoting.Response, error) {
	w, _ := a.waiters.Get().(*waiter) // it is one
	call := a.newCall(ctx, c, code, h, body, w.done)
	a.registry.Dispatch(ctx, call)
	select {
	case <-w.answered:
	case <-ctx.Done():
		call.Cancel(ctx.Err())
		<-w.answered
	case <-stop:
		call.Cancel(errStopping)
		<-w.answered
	}
	answer, err := w.answer, w.err
	w.answer, w.err = remoting.Response{}, nil
	a.waiters.Put(w)
	if err == nil && answer.Code != protocol.Success {
		err = &protocol.Error{Code: answer.Code, Remark: answer.Remark}
	}
	return answer, err
}

func (a *api) newCall(
	ctx context.Context, c *caller, code protocol.Code, h protocol.Header, body []byte,
	done func(remoting.Response, error),
) *remoting.Call {
	call := remoting.NewCall(code, h, body, c.peer(), done)
	call.Protocol = remoting.ProtocolGRPC
	method, _ := grpc.Method(ctx) // none for what this door asks for itself
	call.Method = strings.TrimPrefix(method, "/")
	call.Version = protocol.VersionCurrent
	call.Language, call.User = c.language, c.user
	call.Via = c.conn.via
	call.Deadline, _ = ctx.Deadline()
	return call
}
