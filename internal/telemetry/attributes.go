// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// Attributes that the conventions have no name for.
const (
	queueOffsetKey = attribute.Key("roquet.queue_offset")
	remarkKey      = attribute.Key("roquet.remark")
	oneWayKey      = attribute.Key("roquet.one_way")
)

// requestAttributes returns what is known of a call before it is executed. Texts are cloned: a span that
// waits for its export must not keep the chunk that the request was read into.
func requestAttributes(c *remoting.Call) []attribute.KeyValue {
	attrs := make([]attribute.KeyValue, 0, 12)
	switch c.Protocol {
	case remoting.ProtocolREST:
	case remoting.ProtocolGRPC:
		attrs = append(attrs, semconv.RPCSystemNameKey.String(systemGRPC))
	default:
		attrs = append(attrs, semconv.RPCSystemNameKey.String(systemRemoting))
	}
	attrs = append(attrs, semconv.RPCMethod(methodOf(c)), semconv.MessagingSystemKey.String("rocketmq"))
	if !c.Code.Known() {
		attrs = append(attrs, semconv.RPCMethodOriginal(strconv.Itoa(int(c.Code))))
	}
	if c.OneWay {
		attrs = append(attrs, oneWayKey.Bool(true))
	}
	attrs = network(attrs, c.Peer)
	s := subjectOf(c)
	if s.topic != "" {
		attrs = append(attrs, semconv.MessagingDestinationName(strings.Clone(s.topic)))
	}
	if s.group != "" {
		attrs = append(attrs, semconv.MessagingConsumerGroupName(strings.Clone(s.group)))
	}
	if n := batchCount(c); n > 0 {
		attrs = append(attrs, semconv.MessagingBatchMessageCount(n))
	}
	return attrs
}

// subject is what a call is about.
type subject struct {
	topic string
	group string // of consumers
	props string // of the message that is sent
}

// subjectOf finds the subject in the typed header, which the gRPC and REST doors set, or in the fields of a
// native call.
func subjectOf(c *remoting.Call) subject {
	switch h := c.Header.(type) {
	case *protocol.SendMessageRequestHeader:
		return subject{topic: h.Topic, props: h.Properties}
	case *protocol.PullMessageRequestHeader:
		return subject{topic: h.Topic, group: h.ConsumerGroup}
	case *protocol.PopMessageRequestHeader:
		return subject{topic: h.Topic, group: h.ConsumerGroup}
	case *protocol.AckMessageRequestHeader:
		return subject{topic: h.Topic, group: h.ConsumerGroup}
	case *protocol.ChangeInvisibleTimeRequestHeader:
		return subject{topic: h.Topic, group: h.ConsumerGroup}
	case *protocol.RenewReceiptRequestHeader:
		return subject{topic: h.Topic, group: h.ConsumerGroup}
	case *protocol.AckReceiptsRequestHeader:
		return subject{topic: h.Topic, group: h.ConsumerGroup}
	}
	if c.Ext == nil {
		return subject{}
	}
	if isSend(c.Code) {
		return subject{topic: either(c.Ext, "b", "topic"), props: either(c.Ext, "i", "properties")}
	}
	return subject{topic: c.Ext.Value("topic"), group: either(c.Ext, "consumerGroup", "group")}
}

func either(ext *protocol.Ext, name, other string) string {
	if value, ok := ext.Get(name); ok {
		return value
	}
	return ext.Value(other)
}

func isSend(code protocol.Code) bool {
	return code == protocol.SendMessage || code == protocol.SendMessageV2 || code == protocol.SendBatchMessage
}

// isBatch reports whether the call's body is a list of messages.
func isBatch(c *remoting.Call) bool {
	if c.Code == protocol.SendBatchMessage {
		return true
	}
	if !isSend(c.Code) {
		return false
	}
	if h, ok := c.Header.(*protocol.SendMessageRequestHeader); ok {
		return h.Batch.Value
	}
	return c.Ext != nil && either(c.Ext, "m", "batch") == "true"
}

// responseAttributes returns what the answer tells.
func responseAttributes(r *remoting.Response) []attribute.KeyValue {
	code := r.Code.String()
	attrs := append(make([]attribute.KeyValue, 0, 4), semconv.RPCResponseStatusCode(code))
	if h, ok := r.Header.(*protocol.SendMessageResponseHeader); ok && h != nil {
		attrs = append(attrs, semconv.MessagingMessageID(strings.Clone(h.MsgID)),
			semconv.MessagingDestinationPartitionID(strconv.Itoa(int(h.QueueID))),
			queueOffsetKey.Int64(h.QueueOffset))
	}
	if failed(r.Code) {
		attrs = append(attrs, semconv.ErrorTypeKey.String(code))
		if r.Remark != "" {
			attrs = append(attrs, remarkKey.String(strings.Clone(r.Remark)))
		}
	}
	return attrs
}
