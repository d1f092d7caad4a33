// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// maxLinks bounds the links of one span: the SDK's own default limit.
const maxLinks = 128

// linkOf returns a link to the context that a message was created in, if it carries one: the property
// traceparent of the OpenTelemetry agents, else TRACE_CONTEXT of the 5.x clients where that is W3C.
func linkOf(props string) (trace.Link, bool) {
	parent, ok := message.Property(props, traceparentField)
	if !ok {
		if parent, ok = message.Property(props, message.PropertyTraceContext); !ok {
			return trace.Link{}, false
		}
	}
	state, _ := message.Property(props, "tracestate")
	carrier := propagation.MapCarrier{traceparentField: parent, "tracestate": state}
	ctx := propagation.TraceContext{}.Extract(context.Background(), carrier)
	sc := trace.SpanContextFromContext(ctx)
	return trace.Link{SpanContext: sc}, sc.IsValid()
}

// sent returns the links of the messages that a call sends, one each, those of a batch from their own properties,
// and how many messages a batch has, 0 when the call sends none or one.
func sent(c *remoting.Call) (links []trace.Link, count int) {
	add := func(_ int32, _ []byte, props string) error {
		if link, ok := linkOf(props); ok && len(links) < maxLinks {
			links = append(links, link)
		}
		count++
		return nil
	}
	switch {
	case !isSend(c.Code):
	case isBatch(c): // one that cannot be read is refused by whoever stores it; here it just has fewer links
		_ = message.DecodeBatch(c.Body, add)
	default:
		_ = add(0, nil, subjectOf(c).props)
		count = 0
	}
	return links, count
}

// receiveLinks returns the links of the messages that an answer delivers.
func receiveLinks(c *remoting.Call, r *remoting.Response) []trace.Link {
	switch c.Code {
	case protocol.PullMessage, protocol.LitePullMessage, protocol.PopMessage, protocol.PeekMessage:
	default:
		return nil
	}
	var links []trace.Link
	_ = message.EachRecord(r.Body, r.Bodies, func(rec message.Record) error { // what is broken just has no links
		if link, ok := linkOf(rec.Properties()); ok && len(links) < maxLinks {
			links = append(links, link)
		}
		return nil
	})
	return links
}
