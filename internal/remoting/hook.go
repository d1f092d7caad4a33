// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"context"
	"sync"
)

// A Hook observes every call, whatever its door and its outcome; it can change neither. Both methods are
// called exactly once a call, on the call's path: they must not block, and do not allocate when they have
// nothing to do.
//
// Before runs before the call has its lane's place; the context it returns is the one the processor gets.
// Call.Ext is readable in Before only. After runs when the call is over, before the answer is written, on the
// goroutine that replied: r is the answer and err nil, or r is nil and err says why there is none
// (ErrConnClosed, a context's error). The answer to a one-way call is observed though it is never sent. r is
// valid until After returns. After a cancellation (r is nil) the processor may still be at work, so After
// leaves Call.Header and Call.Body alone then.
type Hook interface {
	Before(ctx context.Context, c *Call) context.Context
	After(ctx context.Context, c *Call, r *Response, err error)
}

// A SuspendHook is a Hook that also wants to know when a call is held until a message arrives.
type SuspendHook interface {
	Suspended(ctx context.Context, c *Call)
}

// A Wrapper decides: it may refuse a call, change what the processor sees, or act around it. Wrappers are
// applied once, when the table is built. Call.Header is not decoded yet when a native call passes a wrapper;
// Call.Ext is there.
type Wrapper func(next Processor) Processor

// hooks runs a list of hooks: Before in order, After in reverse.
type hooks struct {
	all       []Hook
	suspended []SuspendHook
	seen      sync.Pool // *Response
}

func (h *hooks) add(list []Hook) {
	h.seen.New = func() any { return new(Response) }
	for _, hook := range list {
		if hook == nil {
			continue
		}
		h.all = append(h.all, hook)
		if s, ok := hook.(SuspendHook); ok {
			h.suspended = append(h.suspended, s)
		}
	}
}

func (h *hooks) before(ctx context.Context, c *Call) context.Context {
	for _, hook := range h.all {
		ctx = hook.Before(ctx, c) //nolint:fatcontext // each hook may add to it, once a call
	}
	return ctx
}

func (h *hooks) after(c *Call, r *Response, err error) {
	for i := len(h.all) - 1; i >= 0; i-- {
		h.all[i].After(c.ctx, c, r, err)
	}
}

// answered shows the answer to the hooks. They see a pooled copy, so that the answer itself need not live on
// the heap.
func (h *hooks) answered(c *Call, r *Response) {
	if len(h.all) == 0 {
		return
	}
	seen, _ := h.seen.Get().(*Response)
	*seen = *r
	h.after(c, seen, nil)
	*seen = Response{}
	h.seen.Put(seen)
}

func (h *hooks) suspend(c *Call) {
	for _, hook := range h.suspended {
		hook.Suspended(c.ctx, c)
	}
}
