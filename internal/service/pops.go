// SPDX-License-Identifier: Apache-2.0

package service

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/roquetmq/roquet/internal/broker"
	"github.com/roquetmq/roquet/internal/broker/pop"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
	"github.com/roquetmq/roquet/internal/store"
)

// popRequests answers POP_MESSAGE 200050, ACK_MESSAGE 200051, BATCH_ACK_MESSAGE 200151, PEEK_MESSAGE 200052,
// CHANGE_MESSAGE_INVISIBLETIME 200053, NOTIFICATION 200054, POLLING_INFO 200055, and CONSUMER_SEND_MSG_BACK 36
// of a receipt handle. Claims and acknowledgements are answered when they are durable.
// Source: PopMessageProcessor.java, AckMessageProcessor.java, ChangeInvisibleTimeProcessor.java,
// NotificationProcessor.java, PollingInfoProcessor.java.
// Known differences: a receipt handle that is no good is refused with NO_MESSAGE, never ignored; in a batch it
// is passed over.
type popRequests struct{ *node }

// popLate is how much later than it may wait a native receive is still looked at. Source:
// PopMessageRequestHeader.java isTimeoutTooMuch.
const popLate = 500 * time.Millisecond

// popCall is a receive under way: one allocation holds all that it needs until the answer.
type popCall struct {
	broker.PopRequest
	popper *broker.Popper
	call   *remoting.Call
	answer protocol.PopMessageResponseHeader
	notice *protocol.NotificationResponseHeader // of a NOTIFICATION; nil for a receive
}

func (s popRequests) pop(c *call, h *protocol.PopMessageRequestHeader) {
	r := &popCall{popper: s.popper, call: c}
	r.Group, r.Topic, r.QueueID, r.MaxCount = h.ConsumerGroup, h.Topic, h.QueueID, int(h.MaxMsgNums)
	r.Invisible = time.Duration(h.InvisibleTime) * time.Millisecond
	r.InitMode, r.AttemptID = broker.PopInitMode(h.InitMode), h.AttemptID
	r.Filter = broker.PullExpression{Text: h.Exp, Type: h.ExpType}
	r.Order = orderOf(c, h.Order)
	r.Peer, r.Owner, r.Done, r.Holding = c.Peer.ID(), r, popDone, holdPop
	wait, late := waitOf(h.PollTime, h.BornTime)
	if late {
		r.reply(protocol.PollingTimeout, "the broker received the request later than the client waits for it")
		return
	}
	r.Wait = wait
	s.popper.Pop(&r.PopRequest)
}

// orderOf is by what messages are kept in order: native consumers say that they want a queue to themselves; for those
// of gRPC and REST it is configured.
func orderOf(c *remoting.Call, asked protocol.Optional[bool]) broker.PopOrder {
	switch {
	case c.Protocol != remoting.ProtocolRemoting:
		return broker.OrderConfigured
	case asked.Or(false):
		return broker.OrderQueue
	}
	return broker.Unordered
}

// waitOf is how long a receive may wait, and whether its client has given up.
func waitOf(pollMillis, bornMillis int64) (wait time.Duration, late bool) {
	wait = time.Duration(min(max(pollMillis, 0), maxSuspendMillis)) * time.Millisecond
	if bornMillis <= 0 || pollMillis <= 0 {
		return wait, false
	}
	gone := time.Since(time.UnixMilli(bornMillis))
	return wait, gone > wait+popLate
}

func holdPop(req *broker.PopRequest) bool {
	r, _ := req.Owner.(*popCall)
	return r.call.Suspend(nil)
}

// popDone answers a receive; it runs on the store's applier, on a goroutine of the Popper, or at once.
func popDone(req *broker.PopRequest, err error) {
	r, _ := req.Owner.(*popCall) // put there with the function
	switch {
	case errors.Is(err, broker.ErrCanceled):
		r.call.Cancel(remoting.ErrConnClosed)
		return
	case err != nil:
		r.call.FailLater(err)
		return
	}
	switch result := req.Result(); {
	case r.notice != nil:
		r.notice.HasMsg = result.Outcome == broker.PopFound
		r.notice.PollingFull = result.Outcome == broker.PopPollingFull
		r.call.ReplyLater(answer{Header: r.notice})
	case result.Outcome == broker.PopFound:
		if r.call.Done() { // its client left while it waited, or while the claim was stored
			r.popper.Release(req)
			return
		}
		r.found(result)
	case result.Outcome == broker.PopPollingFull:
		r.reply(protocol.PollingFull, "")
	default:
		r.reply(protocol.PollingTimeout, "")
	}
}

// found answers with messages. Native clients make handles of the texts in the header, the other doors get them.
func (r *popCall) found(result *broker.PopResult) {
	bodies := make([][]byte, len(result.Messages))
	for i := range result.Messages {
		bodies[i] = result.Messages[i].Record
	}
	answer := remoting.Response{Header: &r.answer, Bodies: bodies}
	if r.call.Protocol == remoting.ProtocolRemoting {
		r.answer = protocol.PopMessageResponseHeader{
			PopTime: result.PopTime, InvisibleTime: result.Invisible,
			ReviveQID: result.ReviveQueueID(), RestNum: result.Rest,
			StartOffsetInfo: string(result.AppendStartOffsetInfo(nil)),
			MsgOffsetInfo:   string(result.AppendMsgOffsetInfo(nil)),
		}
		if result.Order != broker.Unordered {
			r.answer.OrderCountInfo = string(result.AppendOrderCountInfo(nil))
		}
	} else {
		answer.Header = receiptsOf(result)
	}
	r.call.ReplyLater(answer)
}

// handleBytes is about what the text of a handle takes.
const handleBytes = 96

func receiptsOf(result *broker.PopResult) *protocol.ReceiptsResponseHeader {
	receipts := &protocol.ReceiptsResponseHeader{
		Handles: make([]string, len(result.Messages)), VisibleAt: result.PopTime + result.Invisible,
	}
	text, ends := make([]byte, 0, handleBytes*len(result.Messages)), make([]int, len(result.Messages))
	for i := range result.Messages {
		h := result.Handle(i)
		text = h.AppendTo(text)
		ends[i] = len(text)
	}
	all, start := string(text), 0
	for i, end := range ends {
		receipts.Handles[i], start = all[start:end], end
	}
	return receipts
}

// reply answers without messages. The header is there all the same: clients insist on its fields.
func (r *popCall) reply(code protocol.ResponseCode, remark string) {
	r.call.ReplyLater(remoting.Response{Code: code, Remark: remark, Header: &r.answer})
}

// settleCall is an acknowledgement of one message, or a change of its invisible time, under way.
type settleCall struct {
	broker.SettleRequest
	call   *remoting.Call
	handle [1]pop.Handle
	answer protocol.ChangeInvisibleTimeResponseHeader
}

// settle has do settle the message of a handle, if that could be read.
func settle(
	c *call, group, topic string, handle pop.Handle, err error,
	do func(*broker.SettleRequest), done func(*broker.SettleRequest, error),
) {
	if err != nil {
		c.Fail(err)
		return
	}
	r := &settleCall{call: c, handle: [1]pop.Handle{handle}}
	r.Group, r.Topic, r.Handles, r.Owner, r.Done = group, topic, r.handle[:], r, done
	do(&r.SettleRequest)
}

// settled is what came of the one message of a request.
func settled(req *broker.SettleRequest, err error) error {
	if err == nil {
		err = req.Results[0]
	}
	return err
}

func (s popRequests) ack(c *call, h *protocol.AckMessageRequestHeader) {
	handle, err := handleOf(h.ExtraInfo, h.QueueID, h.Offset)
	settle(c, h.ConsumerGroup, h.Topic, handle, err, s.popper.Ack, ackDone)
}

// ackDone answers without a header; it is for what forwards a message as well.
func ackDone(req *broker.SettleRequest, err error) {
	r, _ := req.Owner.(*settleCall) // put there with the function
	r.call.AnswerLater(answer{}, settled(req, err))
}

// handleOf reads a receipt handle and checks that the header says the same.
func handleOf(text string, queueID int32, offset int64) (pop.Handle, error) {
	h, err := pop.ParseHandle(text)
	if err == nil && (h.QueueID != queueID || int64(h.Offset) != offset) {
		err = protocol.Errorf(protocol.MessageIllegal,
			"extraInfo [%s] is not of queueId %d offset %d", text, queueID, offset)
	}
	return h, err
}

// ackBatch acknowledges the messages of a native client's body.
func (s popRequests) ackBatch(c *call, body *protocol.BatchAckMessageRequestBody) {
	requests := ackRequests(body)
	end := newCountdown(len(requests), replyTo(c))
	for _, req := range requests {
		req.Done = func(_ *broker.SettleRequest, err error) { end.done(err) }
		s.popper.Ack(req)
	}
	end.done(nil)
}

// maxBatchAcks bounds the messages that one request acknowledges.
const maxBatchAcks = 65_536

// ackRequests are the acknowledgements of a native client's body, one request a group and topic.
func ackRequests(body *protocol.BatchAckMessageRequestBody) []*broker.SettleRequest {
	var requests []*broker.SettleRequest
	count := 0
	for i := range body.Acks {
		ack := &body.Acks[i]
		at := slices.IndexFunc(requests, func(r *broker.SettleRequest) bool {
			return r.Group == ack.ConsumerGroup && r.Topic == ack.Topic
		})
		if at < 0 {
			at = len(requests)
			requests = append(requests, &broker.SettleRequest{Group: ack.ConsumerGroup, Topic: ack.Topic})
		}
		req := requests[at]
		retry, _ := strconv.ParseInt(ack.Retry, 10, 32) // 0 when there is none
		for bit := range ack.BitSet.All() {
			if count++; count > maxBatchAcks {
				return requests
			}
			req.Handles = append(req.Handles, pop.Handle{
				StartOffset: message.QueueOffset(ack.StartOffset), PopTime: ack.PopTimeMillis,
				Invisible: ack.InvisibleTimeMillis, ReviveQueueID: ack.ReviveQueueID,
				RetryFlag: int32(retry), BrokerName: body.BrokerName, QueueID: ack.QueueID,
				Offset:    message.QueueOffset(ack.StartOffset + int64(bit)),
				LogOffset: pop.NoLogOffset,
			})
		}
	}
	return requests
}

// ackReceipts acknowledges the messages of a door's handles and says of each what came of it.
func (s popRequests) ackReceipts(c *remoting.Call, h *protocol.AckReceiptsRequestHeader) {
	said := &protocol.AckReceiptsResponseHeader{Refused: make([]*protocol.Error, len(h.Handles))}
	req := &broker.SettleRequest{
		Group: h.ConsumerGroup, Topic: h.Topic, Handles: make([]pop.Handle, 0, len(h.Handles)),
	}
	at := make([]int, 0, len(h.Handles))
	for i, text := range h.Handles {
		handle, err := pop.ParseHandle(text)
		if err != nil {
			said.Refused[i] = refusedHandle(err)
			continue
		}
		req.Handles, at = append(req.Handles, handle), append(at, i)
	}
	req.Done = func(req *broker.SettleRequest, err error) {
		for j, refused := range req.Results {
			if refused != nil {
				said.Refused[at[j]] = refusedHandle(refused)
			}
		}
		c.AnswerLater(answer{Header: said}, err)
	}
	s.popper.Ack(req)
}

func refusedHandle(err error) *protocol.Error {
	return &protocol.Error{Code: protocol.NoMessage, Remark: err.Error()}
}

// changeInvisible sets when a message is seen again; a negative time leaves that to the group's retry policy.
func (s popRequests) changeInvisible(c *call, h *protocol.ChangeInvisibleTimeRequestHeader) {
	handle, err := handleOf(h.ExtraInfo, h.QueueID, h.Offset)
	settle(c, h.ConsumerGroup, h.Topic, handle, err, s.renew(h.InvisibleTime, h.Suspend), renewDone)
}

// renewReceipt is changeInvisible for a door's handle.
func (s popRequests) renewReceipt(c *call, h *protocol.RenewReceiptRequestHeader) {
	handle, err := pop.ParseHandle(h.Handle)
	settle(c, h.ConsumerGroup, h.Topic, handle, err, s.renew(h.InvisibleTime, h.Suspend), renewDone)
}

func (s popRequests) renew(invisibleMillis int64, suspend bool) func(*broker.SettleRequest) {
	return func(r *broker.SettleRequest) {
		r.Invisible, r.Suspend = millis(invisibleMillis), suspend
		if invisibleMillis < 0 {
			r.Invisible = broker.RetryPolicyDelay
		}
		s.popper.ChangeInvisible(r)
	}
}

func renewDone(req *broker.SettleRequest, err error) {
	r, _ := req.Owner.(*settleCall) // put there with the function
	h := &req.Handles[0]
	r.answer = protocol.ChangeInvisibleTimeResponseHeader{
		PopTime: h.PopTime, InvisibleTime: h.Invisible, ReviveQID: h.ReviveQueueID,
	}
	var header protocol.Header = &r.answer
	if r.call.Protocol != remoting.ProtocolRemoting {
		header = &protocol.ReceiptsResponseHeader{Handles: []string{h.String()}, VisibleAt: h.VisibleAt()}
	}
	r.call.AnswerLater(answer{Header: header}, settled(req, err))
}

// sendBack answers CONSUMER_SEND_MSG_BACK of a door's handle.
func (s popRequests) sendBack(c *call, h *protocol.ForwardReceiptRequestHeader) {
	handle, err := pop.ParseHandle(h.Handle)
	settle(c, h.ConsumerGroup, h.Topic, handle, err, s.popper.ForwardToDLQ, ackDone)
}

// notification is answered when there is something to receive, or when the client's time is up.
func (s popRequests) notification(c *call, h *protocol.NotificationRequestHeader) {
	r := &popCall{call: c, notice: new(protocol.NotificationResponseHeader)}
	r.Group, r.Topic, r.QueueID, r.AttemptID = h.ConsumerGroup, h.Topic, h.QueueID, h.AttemptID
	r.Filter = broker.PullExpression{Text: h.Exp, Type: h.ExpType}
	r.Order = orderOf(c, h.Order)
	r.Wait, _ = waitOf(h.PollTime, h.BornTime)
	r.Peer, r.Owner, r.Done, r.Holding = c.Peer.ID(), r, popDone, holdPop
	s.popper.Notify(&r.PopRequest)
}

// peek answers with what a receive would get, and receives nothing: PEEK_MESSAGE 200052.
// Source: PeekMessageProcessor.java.
func (s popRequests) peek(_ *call, h *protocol.PeekMessageRequestHeader) (answer, error) {
	found, rest, err := s.popper.Peek(&broker.PeekRequest{
		Group: h.ConsumerGroup, Topic: h.Topic, QueueID: max(h.QueueID, broker.AllQueues),
		MaxCount: int(h.MaxMsgNums),
	})
	if err != nil {
		return answer{}, err
	}
	answer := remoting.Response{
		Header: &protocol.PopMessageResponseHeader{RestNum: rest}, Remark: store.Found.String(),
		Bodies: make([][]byte, len(found)),
	}
	for i, rec := range found {
		answer.Bodies[i] = rec
	}
	if len(found) == 0 {
		answer.Code, answer.Remark = protocol.PullNotFound, store.NoMessageInQueue.String()
	}
	return answer, nil
}

// pollingInfo answers how many receives wait.
func (s popRequests) pollingInfo(_ *call, h *protocol.PollingInfoRequestHeader) (answer, error) {
	if _, ok := s.topics.Lookup(h.Topic); !ok {
		return answer{}, broker.NoTopic(h.Topic)
	}
	n := s.popper.PollingCount(h.ConsumerGroup, h.Topic, h.QueueID)
	return remoting.Response{Header: &protocol.PollingInfoResponseHeader{PollingNum: int32(n)}}, nil
}
