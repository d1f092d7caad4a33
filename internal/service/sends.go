// SPDX-License-Identifier: Apache-2.0

package service

import (
	"github.com/roquetmq/roquet/internal/auth"
	"github.com/roquetmq/roquet/internal/broker"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
)

// sendRequests answers SEND_MESSAGE 10, SEND_MESSAGE_V2 310, SEND_BATCH_MESSAGE 320 and
// CONSUMER_SEND_MSG_BACK 36. The answer comes when the message is durable (or written, with ASYNC_FLUSH).
// Source: SendMessageProcessor.java, AbstractSendMessageProcessor.java.
type sendRequests struct{ *node }

// sendCall is a send under way: one allocation holds all that it needs until the answer.
type sendCall struct {
	broker.SendRequest
	call   *call
	answer protocol.SendMessageResponseHeader
	from   sendRequests
}

func (s sendRequests) send(c *call, h *protocol.SendMessageRequestHeader) {
	r := &sendCall{call: c, from: s}
	r.fill(c, h, h.Batch.Or(false) || c.Code == protocol.SendBatchMessage)
	r.Owner, r.Done = r, sendDone
	s.sender.Send(&r.SendRequest)
}

// fill takes the request over from the header. Its strings alias the frame, which lives until the answer.
func (r *sendCall) fill(c *call, h *protocol.SendMessageRequestHeader, batch bool) {
	r.Topic, r.QueueID, r.Flag, r.SysFlag = h.Topic, h.QueueID, h.Flag, h.SysFlag
	r.BornTimestamp, r.BornHost = h.BornTimestamp, c.Peer.RemoteAddr()
	r.Properties, r.Body, r.Batch = h.Properties, c.Body, batch
	r.ReconsumeTimes = h.ReconsumeTimes.Or(0)
	r.MaxReconsumeTimes = h.MaxReconsumeTimes.Or(broker.GroupMaxReconsumeTimes)
	r.Create = broker.Creation{
		DefaultTopic: h.DefaultTopic, QueueNums: h.DefaultTopicQueueNums, UnitMode: h.UnitMode.Or(false),
	}
}

// offsetMsgIDBytes is room for one message id of an IPv6 broker.
const offsetMsgIDBytes = 56

// sendDone answers a send; it runs on the store's applier, or at once for what is refused.
func sendDone(req *broker.SendRequest, err error) {
	r, _ := req.Owner.(*sendCall) // put there with the function
	if err != nil {
		r.call.FailLater(err)
		return
	}
	result := req.Result()
	var id [offsetMsgIDBytes]byte
	r.answer = protocol.SendMessageResponseHeader{
		MsgID: string(result.AppendMsgID(id[:0])), QueueID: result.QueueID,
		QueueOffset: int64(result.QueueOffset), TransactionID: result.UniqueKey,
		RecallHandle: result.RecallHandle, MsgRegion: r.from.region,
		TraceOn: protocol.Some(r.from.traceOn),
	}
	r.call.ReplyLater(answer{Header: &r.answer})
}

func (s sendRequests) sendBack(c *call, h *protocol.ConsumerSendMsgBackRequestHeader) {
	s.sender.SendBack(&broker.SendBackRequest{
		Group: h.Group, Offset: message.LogOffset(h.Offset), DelayLevel: h.DelayLevel,
		MaxReconsumeTimes: maxReconsume(c.Version, h), UnitMode: h.UnitMode, May: s.mayOn(c, auth.Sub),
		Done: func(_ *broker.SendBackRequest, err error) { replyTo(c)(err) },
	})
}

// version349 is the ordinal of the first release whose consumers name their own maximum of attempts.
// Source: MQVersion.java V3_4_9, AbstractSendMessageProcessor.java consumerSendMsgBack.
const version349 = 121

func maxReconsume(version int32, h *protocol.ConsumerSendMsgBackRequestHeader) int32 {
	if version < version349 {
		return broker.GroupMaxReconsumeTimes
	}
	return h.MaxReconsumeTimes.Or(broker.GroupMaxReconsumeTimes)
}
