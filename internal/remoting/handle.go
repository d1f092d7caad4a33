// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"context"
	"fmt"

	"github.com/roquetmq/roquet/internal/protocol"
)

// A Processor executes a call. It, or whoever it gives the call to, ends it exactly once with Reply,
// ReplyLater, Fail or FailLater, at once or later. It must not block on an inline lane.
type Processor func(ctx context.Context, c *Call)

// Handle makes a processor of a plain function that returns the answer. The header is decoded, or taken from
// the call when the door set it; fn may keep it as long as it does not keep strings of it past the reply.
func Handle[H any, PH protocol.HeaderOf[H]](fn func(c *Call, h PH) (Response, error)) Processor {
	return HandleAsync[H, PH](func(c *Call, h PH) { c.Answer(fn(c, h)) })
}

// HandleAsync makes a processor of a function that gets the header decoded and ends the call itself, now or
// later.
func HandleAsync[H any, PH protocol.HeaderOf[H]](fn func(c *Call, h PH)) Processor {
	return func(_ context.Context, c *Call) {
		h, err := header[H, PH](c)
		if err != nil {
			c.Fail(err)
			return
		}
		fn(c, h)
	}
}

// HandleBody makes a processor of a plain function for a code without header.
func HandleBody(fn func(c *Call) (Response, error)) Processor {
	return func(_ context.Context, c *Call) { c.Answer(fn(c)) }
}

// header returns the call's typed header and leaves it in the call.
func header[H any, PH protocol.HeaderOf[H]](c *Call) (PH, error) {
	if c.Header != nil {
		h, ok := c.Header.(PH)
		if !ok {
			return nil, fmt.Errorf("call %s has header %T, want %T", c.Code, c.Header, h)
		}
		return h, nil
	}
	h := PH(new(H))
	if c.Ext != nil {
		if err := h.DecodeExt(c.Ext); err != nil {
			return nil, err
		}
	}
	c.Header = h
	return h, nil
}
