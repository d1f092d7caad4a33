// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net/netip"
	"time"

	"github.com/roquetmq/roquet/internal/auth"
	"github.com/roquetmq/roquet/internal/broker"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// transactionRequests answers END_TRANSACTION 37 and RESUME_CHECK_HALF_MESSAGE 323, and sends
// CHECK_TRANSACTION_STATE 39.
// Source: EndTransactionProcessor.java, AdminBrokerProcessor.java resumeCheckHalfMessage.
type transactionRequests struct{ *node }

func (s transactionRequests) end(c *call, h *protocol.EndTransactionRequestHeader) {
	s.transactions.End(&broker.EndRequest{
		LogOffset: message.LogOffset(h.CommitLogOffset), QueueOffset: message.QueueOffset(h.TranStateTableOffset),
		Topic: h.Topic, TransactionID: h.TransactionID, Group: h.ProducerGroup,
		Decision: decisionOf(h.CommitOrRollback), FromCheck: h.FromTransactionCheck.Or(false),
		May: s.mayOn(c, auth.Pub), Done: func(_ *broker.EndRequest, err error) { replyTo(c)(err) },
	})
}

// decisionOf reads commitOrRollback: the transaction bits of a sysFlag.
func decisionOf(bits int32) broker.Decision {
	switch bits {
	case message.TransactionCommit:
		return broker.Commit
	case message.TransactionRollback:
		return broker.Rollback
	default:
		return broker.Undecided
	}
}

func (s transactionRequests) resume(c *call, h *protocol.ResumeCheckHalfMessageRequestHeader) {
	_, at, err := message.ParseOffsetMsgID(h.MsgID)
	if err != nil {
		c.Fail(&protocol.Error{Code: protocol.InvalidParameter, Remark: "msgId " + h.MsgID + ": " + err.Error()})
		return
	}
	s.transactions.Resume(at, s.mayOn(c, auth.Update), replyTo(c))
}

// sendCheck asks a producer what became of its transaction.
func (n *node) sendCheck(to broker.Channel, check *broker.TransactionCheck) error {
	caller, ok := to.(remoting.Caller)
	if !ok {
		return remoting.ErrConnClosed
	}
	return caller.OneWay(protocol.CheckTransactionState, &protocol.CheckTransactionStateRequestHeader{
		Topic: check.Topic, TranStateTableOffset: int64(check.QueueOffset), CommitLogOffset: int64(check.LogOffset),
		MsgID: check.UniqueKey, TransactionID: check.UniqueKey, OffsetMsgID: check.OffsetMsgID,
		BrokerName: n.self.brokerName,
	}, check.Record)
}

// recallRequests answers RECALL_MESSAGE 370. Source: RecallMessageProcessor.java.
type recallRequests struct{ *node }

func (s recallRequests) recall(c *call, h *protocol.RecallMessageRequestHeader) {
	s.recalls.Recall(h.Topic, h.RecallHandle, func(uniqueKey string, err error) {
		header := &protocol.RecallMessageResponseHeader{MsgID: uniqueKey, MsgRegion: s.region}
		c.AnswerLater(answer{Header: header}, err)
	})
}

// replyRequests answers SEND_REPLY_MESSAGE 324 and SEND_REPLY_MESSAGE_V2 325: the reply is pushed to who asked
// (PUSH_REPLY_MESSAGE_TO_CLIENT 326) and stored. Source: ReplyMessageProcessor.java.
type replyRequests struct{ *node }

func (s replyRequests) reply(c *call, h *protocol.SendMessageRequestHeader) {
	r := &sendCall{call: c}
	r.fill(c, h, false)
	r.Owner = pushing{h.ProducerGroup, h.DefaultTopic}
	s.replies.Reply(&r.SendRequest, func(req *broker.SendRequest, stored bool, err error) {
		answer := &protocol.SendMessageResponseHeader{
			MsgID: "0", MsgRegion: s.region, TraceOn: protocol.Some(s.traceOn),
		}
		if stored {
			result := req.Result()
			answer.MsgID, answer.QueueID = string(result.AppendMsgID(nil)), result.QueueID
			answer.QueueOffset, answer.TransactionID = int64(result.QueueOffset), result.UniqueKey
		}
		c.AnswerLater(remoting.Response{Header: answer}, err)
	})
}

// pushing is what of a reply's header the one who asked is told besides.
type pushing struct{ producerGroup, defaultTopic string }

// pushTimeout is how long the client that asked may take. Source: Broker2Client.java callClient.
const pushTimeout = 10 * time.Second

// pushReply gives a reply to the client that asked.
func pushReply(storeHost netip.AddrPort) func(broker.Channel, *broker.SendRequest, string, func(error)) {
	return func(to broker.Channel, req *broker.SendRequest, properties string, done func(error)) {
		caller, ok := to.(remoting.Caller)
		if !ok {
			done(remoting.ErrConnClosed)
			return
		}
		said, _ := req.Owner.(pushing)
		header := &protocol.ReplyMessageRequestHeader{
			ProducerGroup: said.producerGroup, Topic: req.Topic, DefaultTopic: said.defaultTopic,
			DefaultTopicQueueNums: req.Create.QueueNums, QueueID: req.QueueID, SysFlag: req.SysFlag,
			BornTimestamp: req.BornTimestamp, Flag: req.Flag, Properties: properties,
			ReconsumeTimes: protocol.Some(req.ReconsumeTimes), UnitMode: req.Create.UnitMode,
			BornHost: req.BornHost.String(), StoreHost: storeHost.String(), StoreTimestamp: time.Now().UnixMilli(),
		}
		caller.Request(protocol.PushReplyMessageToClient, header, req.Body, pushTimeout,
			func(answer *protocol.Command, err error) {
				if err == nil && answer.Code != int32(protocol.Success) {
					err = &protocol.Error{Code: protocol.ResponseCode(answer.Code), Remark: answer.Remark}
				}
				done(err)
			})
	}
}
