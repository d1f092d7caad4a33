// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"reflect"
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
func requestAttributes(c *remoting.Call, batch int) []attribute.KeyValue {
	attrs := append(make([]attribute.KeyValue, 0, 16),
		semconv.RPCMethod(methodOf(c)), semconv.MessagingSystemKey.String("rocketmq"))
	switch c.Protocol {
	case remoting.ProtocolREST:
	case remoting.ProtocolGRPC:
		attrs = append(attrs, semconv.RPCSystemNameKey.String(systemGRPC))
	default:
		attrs = append(attrs, semconv.RPCSystemNameKey.String(systemRemoting))
	}
	if !c.Code.Known() {
		attrs = append(attrs, semconv.RPCMethodOriginal(strconv.Itoa(int(c.Code))))
	}
	if c.OneWay {
		attrs = append(attrs, oneWayKey.Bool(true))
	}
	if addr := c.Peer.RemoteAddr(); addr.IsValid() {
		attrs = append(attrs, semconv.NetworkPeerAddress(addr.Addr().String()),
			semconv.NetworkPeerPort(int(addr.Port())))
	}
	s := subjectOf(c)
	if s.topic != "" {
		attrs = append(attrs, semconv.MessagingDestinationName(strings.Clone(s.topic)))
	}
	if s.group != "" {
		attrs = append(attrs, semconv.MessagingConsumerGroupName(strings.Clone(s.group)))
	}
	if batch > 0 {
		attrs = append(attrs, semconv.MessagingBatchMessageCount(batch))
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
// native call. Only sampled calls pay for the reflection.
func subjectOf(c *remoting.Call) subject {
	if h := reflect.Indirect(reflect.ValueOf(c.Header)); h.Kind() == reflect.Struct {
		text := func(name string) string {
			if f := h.FieldByName(name); f.Kind() == reflect.String {
				return f.String()
			}
			return ""
		}
		return subject{text("Topic"), text("ConsumerGroup"), text("Properties")}
	}
	switch {
	case c.Ext == nil:
		return subject{}
	case isSend(c.Code):
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

// isBatch reports whether the body of a call that sends is a list of messages.
func isBatch(c *remoting.Call) bool {
	if h, ok := c.Header.(*protocol.SendMessageRequestHeader); ok && h.Batch.Value {
		return true
	}
	return c.Code == protocol.SendBatchMessage || c.Ext != nil && either(c.Ext, "m", "batch") == "true"
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
