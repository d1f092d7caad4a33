// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"cmp"
	"context"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// maxBatchCount bounds the messages of one request.
const maxBatchCount = 4096

// anyQueue lets the broker pick a queue: that of the message group, if there is one.
const anyQueue int32 = -1

// SendMessage stores a message, or several of one topic as one batch: all of them or none. The answer comes
// when they are durable.
// Source: SendMessageActivity.java, ProducerProcessor.java.
// Known differences: the messages of a batch that have a message group have the same one, and go to its queue.
func (a *api) SendMessage(ctx context.Context, req *v2.SendMessageRequest) (*v2.SendMessageResponse, error) {
	c, err := a.caller(ctx)
	if err != nil {
		return nil, err
	}
	messages, err := a.outgoing(req.GetMessages(), &c, time.Now())
	if err != nil {
		return nil, err
	}
	if err := a.taken(messages); err != nil {
		return nil, err
	}
	if messages[0].typ == typeTransaction {
		a.produces(ctx, &c, messages[0].GetTopic().GetName())
	}
	code, body := protocol.SendMessageV2, messages[0].GetBody()
	if len(messages) > 1 {
		code, body = protocol.SendBatchMessage, batchBody(messages)
	}
	answer, err := a.call(ctx, &c, code, sendHeader(messages), body)
	if err != nil && answer.Code != protocol.FlushDiskTimeout && answer.Code != protocol.FlushSlaveTimeout &&
		answer.Code != protocol.SlaveNotAvailable { // with these it is stored all the same
		return nil, err
	}
	return sendResponse(messages, answer, err)
}

// outgoing checks the messages of a request and encodes their properties.
func (a *api) outgoing(sent []*v2.Message, c *caller, now time.Time) ([]outgoing, error) {
	switch n := len(sent); {
	case n == 0:
		return nil, refuse(v2.Code_MESSAGE_CORRUPTED, "no message to send")
	case n > maxBatchCount:
		return nil, refuse(v2.Code_MESSAGE_CORRUPTED, "%d messages in one request, max is %d", n, maxBatchCount)
	}
	topic := sent[0].GetTopic()
	if err := a.checkTopic(topic); err != nil {
		return nil, err
	}
	remote := ""
	messages := make([]outgoing, len(sent))
	for i, m := range sent {
		if m.GetTopic() != topic && !proto.Equal(m.GetTopic(), topic) {
			return nil, refuse(v2.Code_MESSAGE_CORRUPTED, "topic in message is not same")
		}
		messages[i] = outgoing{Message: m, system: m.GetSystemProperties()}
		if err := messages[i].check(a, now); err != nil {
			return nil, err
		}
		if remote == "" && isBlank(messages[i].system.GetBornHost()) {
			remote = c.conn.remote.String()
		}
		if err := messages[i].encode(topic.GetName(), remote); err != nil {
			return nil, err
		}
	}
	return messages, nil
}

// taken checks that the topic takes the messages.
func (a *api) taken(messages []outgoing) error {
	name := messages[0].GetTopic().GetName()
	topic, known := a.cfg.Metadata.Topic(name)
	if !known {
		return refuse(v2.Code_TOPIC_NOT_FOUND,
			"no topic %s on broker %s: create it first, with the message type that it is for", name, a.cfg.BrokerName)
	}
	return takenBy(topic, messages)
}

// takenBy is taken in a topic that is known.
func takenBy(topic Topic, messages []outgoing) error {
	first := &messages[0]
	if err := checkType(first.GetTopic().GetName(), topic.MessageType, first.typ); err != nil {
		return err
	}
	if !topic.Writable || topic.WriteQueueNums <= 0 {
		return refuse(v2.Code_FORBIDDEN,
			"no writable queue: topic %s has %d for writing, topic and broker permit writing: %t",
			first.GetTopic().GetName(), topic.WriteQueueNums, topic.Writable)
	}
	for i := range messages {
		if messages[i].system.GetMessageGroup() != first.system.GetMessageGroup() {
			return refuse(v2.Code_ILLEGAL_MESSAGE_GROUP, "messages of one batch must have the same message group")
		}
	}
	return nil
}

// checkType refuses messages of another type than the topic is for. Source: DefaultTopicMessageTypeValidator.java.
func checkType(topic, want, typ string) error {
	want = cmp.Or(want, typeNormal)
	if want == typ || want == typeMixed || strings.HasPrefix(topic, "%RETRY%") || strings.HasPrefix(topic, "%DLQ%") {
		return nil
	}
	return refuse(v2.Code_MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
		"TopicMessageType validate failed, the expected type is %s, but actual type is %s", want, typ)
}

func batchBody(messages []outgoing) []byte {
	size := 0
	for i := range messages {
		size += len(messages[i].GetBody()) + len(messages[i].encoded) + 32
	}
	body := make([]byte, 0, size)
	for i := range messages {
		body = message.AppendBatchEntry(body, 0, messages[i].GetBody(), string(messages[i].encoded))
	}
	return body
}

func sendHeader(messages []outgoing) *protocol.SendMessageRequestHeader {
	first := &messages[0]
	topic := first.GetTopic().GetName()
	h := &protocol.SendMessageRequestHeader{
		ProducerGroup: topic, Topic: topic, DefaultTopic: "TBW102", DefaultTopicQueueNums: 4, QueueID: anyQueue,
		BornTimestamp: time.Now().UnixMilli(), Batch: protocol.Some(len(messages) > 1),
	}
	if born := first.system.GetBornTimestamp(); born != nil {
		h.BornTimestamp = born.AsTime().UnixMilli()
	}
	if len(messages) == 1 {
		h.Properties = string(first.encoded)
	}
	if first.system.GetBodyEncoding() == v2.Encoding_GZIP {
		h.SysFlag |= message.SysFlagCompressed
	}
	if first.typ == typeTransaction {
		h.SysFlag |= message.TransactionPrepared
	}
	return h
}

// sendResponse has one entry a message once they are stored; clients demand that.
func sendResponse(messages []outgoing, answer remoting.Response, err error) (*v2.SendMessageResponse, error) {
	h, isSend := answer.Header.(*protocol.SendMessageResponseHeader)
	if err == nil && !isSend {
		return nil, refuse(v2.Code_INTERNAL_SERVER_ERROR, "the broker's answer has no header")
	}
	out := &v2.SendMessageResponse{Status: ok(), Entries: make([]*v2.SendResultEntry, len(messages))}
	if err != nil {
		out.Status = statusOf(err)
	}
	for i := range messages {
		out.Entries[i] = &v2.SendResultEntry{Status: out.GetStatus()}
		if err == nil {
			id := messages[i].system.GetMessageId()
			out.Entries[i].MessageId, out.Entries[i].TransactionId = id, id
			out.Entries[i].Offset, out.Entries[i].RecallHandle = h.QueueOffset+int64(i), h.RecallHandle
		}
	}
	return out, nil
}
