// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"iter"
	"math/bits"
)

// MessageRequestMode is how a group's members get a topic's messages.
type MessageRequestMode string

// The request modes.
const (
	ModePull MessageRequestMode = "PULL"
	ModePop  MessageRequestMode = "POP"
)

// requestModes is in the order of Java's ordinals.
var requestModes = [...]string{string(ModePull), string(ModePop)}

func (m *MessageRequestMode) field(c *bodyCodec) { c.enum("mode", (*string)(m), requestModes[:]) }

// QueryAssignmentRequestBody is QUERY_ASSIGNMENT's body. StrategyName is AVG, AVG_BY_CIRCLE or another that
// the client knows.
type QueryAssignmentRequestBody struct {
	ClientID      string
	ConsumerGroup string
	MessageModel  MessageModel
	StrategyName  string
	Topic         string
}

func (b *QueryAssignmentRequestBody) fields(c *bodyCodec) {
	c.optText("clientId", &b.ClientID)
	c.optText("consumerGroup", &b.ConsumerGroup)
	b.MessageModel.field(c)
	c.optText("strategyName", &b.StrategyName)
	c.optText("topic", &b.Topic)
}

// QueryAssignmentResponseBody answers QUERY_ASSIGNMENT. Nil assignments are not written: the client then
// keeps what it has.
type QueryAssignmentResponseBody struct {
	MessageQueueAssignments []MessageQueueAssignment
}

func (b *QueryAssignmentResponseBody) fields(c *bodyCodec) {
	optList(c, "messageQueueAssignments", &b.MessageQueueAssignments, objectValue[MessageQueueAssignment])
}

// MessageQueueAssignment is a queue for a client to consume. A queue id of -1 stands for all queues of the
// broker (POP).
type MessageQueueAssignment struct {
	Attachments  map[string]string // nil is not written
	MessageQueue MessageQueue
	Mode         MessageRequestMode
}

func (a *MessageQueueAssignment) setDefaults() { *a = MessageQueueAssignment{Mode: ModePull} }

func (a *MessageQueueAssignment) fields(c *bodyCodec) {
	optTable(c, "attachments", &a.Attachments, textKey{}, textValue)
	if c.field("messageQueue") {
		c.object(&a.MessageQueue)
	}
	a.Mode.field(c)
}

// SetMessageRequestModeRequestBody is SET_MESSAGE_REQUEST_MODE's body.
type SetMessageRequestModeRequestBody struct {
	ConsumerGroup    string
	Mode             MessageRequestMode
	PopShareQueueNum int32 // how many members share a queue; 0: all
	Topic            string
}

func (b *SetMessageRequestModeRequestBody) setDefaults() {
	*b = SetMessageRequestModeRequestBody{Mode: ModePull}
}

func (b *SetMessageRequestModeRequestBody) fields(c *bodyCodec) {
	c.optText("consumerGroup", &b.ConsumerGroup)
	b.Mode.field(c)
	c.int32("popShareQueueNum", &b.PopShareQueueNum)
	c.optText("topic", &b.Topic)
}

// MessageRequestModeSerializeWrapper answers GET_ALL_MESSAGE_REQUEST_MODE: modes by group by topic.
type MessageRequestModeSerializeWrapper struct {
	MessageRequestModeMap map[string]map[string]SetMessageRequestModeRequestBody
}

func (w *MessageRequestModeSerializeWrapper) fields(c *bodyCodec) {
	table(c, "messageRequestModeMap", &w.MessageRequestModeMap, textKey{},
		tableValue(textKey{}, objectValue[SetMessageRequestModeRequestBody]))
}

// BatchAckMessageRequestBody is BATCH_ACK_MESSAGE's body.
type BatchAckMessageRequestBody struct {
	Acks       []BatchAck
	BrokerName string
}

func (b *BatchAckMessageRequestBody) fields(c *bodyCodec) {
	optList(c, "acks", &b.Acks, objectValue[BatchAck])
	c.optText("brokerName", &b.BrokerName)
}

// BatchAck acknowledges messages of one receive from one queue: those at StartOffset + i for each bit i of
// BitSet.
type BatchAck struct {
	BitSet              BitSet
	ConsumerGroup       string
	InvisibleTimeMillis int64
	PopTimeMillis       int64
	QueueID             int32
	Retry               string // "0" the topic, "1" and "2" its retry topic in either naming
	ReviveQueueID       int32
	StartOffset         int64
	Topic               string
}

func (a *BatchAck) fields(c *bodyCodec) {
	c.renameBatchAck()
	c.bytes("b", (*[]byte)(&a.BitSet))
	c.optText("c", &a.ConsumerGroup)
	c.int64("it", &a.InvisibleTimeMillis)
	c.int64("pt", &a.PopTimeMillis)
	c.int32("q", &a.QueueID)
	c.optText("r", &a.Retry)
	c.int32("rq", &a.ReviveQueueID)
	c.int64("so", &a.StartOffset)
	c.optText("t", &a.Topic)
}

// renameBatchAck maps the long names that Apache reads besides to the short ones.
func (c *bodyCodec) renameBatchAck() {
	c.rename("bitSet", "b")
	c.rename("consumerGroup", "c")
	c.rename("invisibleTime", "it")
	c.rename("popTime", "pt")
	c.rename("queueId", "q")
	c.rename("retry", "r")
	c.rename("reviveQueueId", "rq")
	c.rename("startOffset", "so")
	c.rename("topic", "t")
}

// BitSet is a set of small numbers, laid out as Java's BitSet.toByteArray: bit i is bit i%8 of byte i/8, no
// zero byte at the end.
type BitSet []byte

// Add puts i, at least 0, into the set.
func (s *BitSet) Add(i int) {
	for len(*s) <= i/8 {
		*s = append(*s, 0)
	}
	(*s)[i/8] |= 1 << (i % 8)
}

// All yields the set's numbers in ascending order.
func (s BitSet) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for at, b := range s {
			for ; b != 0; b &= b - 1 {
				if !yield(at*8 + bits.TrailingZeros8(b)) {
					return
				}
			}
		}
	}
}
