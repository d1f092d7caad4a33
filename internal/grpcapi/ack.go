// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"
	"errors"
	"slices"
	"strings"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// maxAcks bounds the entries of one request.
const maxAcks = 4096

// AckMessage acknowledges messages, each by its receipt handle; there is one result an entry, in order.
// Source: AckMessageActivity.java, ConsumerProcessor.java ackMessage.
func (a *api) AckMessage(ctx context.Context, req *v2.AckMessageRequest) (*v2.AckMessageResponse, error) {
	c, err := a.caller(ctx, a.checkTopicAndGroup(req.GetTopic(), req.GetGroup()))
	entries := req.GetEntries()
	if n := len(entries); err == nil && (n == 0 || n > maxAcks) {
		err = refuse(v2.Code_BAD_REQUEST, "%d entries to acknowledge, wanted 1 to %d", n, maxAcks)
	}
	if err != nil {
		return nil, err
	}
	refused, err := a.ackAll(ctx, &c, req)
	answer := &v2.AckMessageResponse{Entries: make([]*v2.AckMessageResultEntry, len(entries))}
	results, good := make([]v2.AckMessageResultEntry, len(entries)), ok()
	if err != nil {
		good = statusOf(receiptError(err))
	}
	for i, entry := range entries {
		result := good
		if err == nil && refused[i] != nil {
			result = statusOf(receiptError(refused[i]))
		}
		answer.Entries[i] = &results[i]
		results[i].MessageId, results[i].ReceiptHandle = entry.GetMessageId(), entry.GetReceiptHandle()
		results[i].Status = result
	}
	answer.Status = common(answer.GetEntries())
	return answer, nil
}

// common is the status of all entries, or MULTIPLE_RESULTS.
func common(entries []*v2.AckMessageResultEntry) *v2.Status {
	first := entries[0].GetStatus()
	differs := func(e *v2.AckMessageResultEntry) bool { return e.GetStatus().GetCode() != first.GetCode() }
	if slices.ContainsFunc(entries, differs) {
		return status(v2.Code_MULTIPLE_RESULTS, "")
	}
	return status(first.GetCode(), first.GetMessage())
}

// ackAll acknowledges the messages of a request with one call. The result has an entry for each: nil, or why it was
// refused.
func (a *api) ackAll(ctx context.Context, c *caller, req *v2.AckMessageRequest) ([]*protocol.Error, error) {
	h := &protocol.AckReceiptsRequestHeader{
		ConsumerGroup: req.GetGroup().GetName(), Topic: req.GetTopic().GetName(),
		Handles: make([]string, len(req.GetEntries())),
	}
	for i, entry := range req.GetEntries() {
		h.Handles[i] = entry.GetReceiptHandle()
	}
	held, err := a.holdAll(ctx, c, h)
	var refused []*protocol.Error
	if err == nil {
		refused, err = a.ackReceipts(ctx, c, h)
	}
	for _, one := range held {
		one.done(err == nil && refused[one.at] == nil)
	}
	return refused, err
}

// holdAll holds the receipts of an acknowledgement that are renewed, and puts their newest handles in. They are held in
// order, so that two requests with the same ones do not wait for each other.
func (a *api) holdAll(ctx context.Context, c *caller, h *protocol.AckReceiptsRequestHeader) ([]heldReceipt, error) {
	if c.session == nil || c.session.receipts.len() == 0 {
		return nil, nil
	}
	order := make([]int, len(h.Handles))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(x, y int) int { return strings.Compare(h.Handles[x], h.Handles[y]) })
	var held []heldReceipt
	last := ""
	for _, i := range order {
		given := h.Handles[i]
		if given == last {
			continue // the broker refuses the second one
		}
		last = given
		one, err := a.hold(ctx, c, h.ConsumerGroup, h.Topic, given)
		if err != nil {
			return held, err
		}
		one.at, h.Handles[i] = i, one.handle
		held = append(held, one)
	}
	return held, nil
}

func (a *api) ackReceipts(
	ctx context.Context, c *caller, h *protocol.AckReceiptsRequestHeader,
) ([]*protocol.Error, error) {
	answer, err := a.call(ctx, c, protocol.BatchAckMessage, h, nil)
	if err != nil {
		return nil, err
	}
	r, isAck := answer.Header.(*protocol.AckReceiptsResponseHeader)
	if !isAck || len(r.Refused) != len(h.Handles) {
		return nil, refuse(v2.Code_INTERNAL_SERVER_ERROR, "the broker's answer is not complete")
	}
	return r.Refused, nil
}

// receiptError turns what can never succeed into INVALID_RECEIPT_HANDLE: clients repeat everything else for ever.
func receiptError(err error) error {
	var answered *protocol.Error
	if !errors.As(err, &answered) {
		return err
	}
	switch answered.Code {
	case protocol.MessageIllegal, protocol.TopicNotExist, protocol.SubscriptionGroupNotExist,
		protocol.InvalidParameter, protocol.NoMessage, protocol.IllegalOperation, protocol.QueryNotFound,
		protocol.BrokerNotExist:
		return refuse(v2.Code_INVALID_RECEIPT_HANDLE, "%s", answered.Remark)
	}
	return err
}

// heldReceipt is a receipt that is being used: nothing renews it until done is called, with true when the
// message is not the client's any more.
type heldReceipt struct {
	handle string // that is good now
	given  string
	at     int       // where in the request
	in     *receipts // nil when it is not renewed
}

func (r *heldReceipt) done(over bool) {
	if r.in != nil {
		r.in.settle(r.given, over)
	}
}

// hold takes the newest handle in place of the client's when the receipt is renewed.
func (a *api) hold(ctx context.Context, c *caller, group, topic, given string) (heldReceipt, error) {
	r := heldReceipt{handle: given, given: given}
	if c.session == nil {
		return r, nil
	}
	newest, held, err := c.session.receipts.newest(ctx, group, topic, given)
	if held {
		r.handle, r.in = newest, &c.session.receipts
	}
	return r, err
}

// ChangeInvisibleDuration sets when others may see a message: the time counts from now, 0 is at once. The
// answer's handle replaces the one given. Source: ChangeInvisibleDurationActivity.java.
func (a *api) ChangeInvisibleDuration(
	ctx context.Context, req *v2.ChangeInvisibleDurationRequest,
) (*v2.ChangeInvisibleDurationResponse, error) {
	c, err := a.caller(ctx, a.checkTopicAndGroup(req.GetTopic(), req.GetGroup()),
		checkInvisible(req.GetInvisibleDuration().AsDuration(), 0))
	answer := &v2.ChangeInvisibleDurationResponse{Status: ok(), ReceiptHandle: req.GetReceiptHandle()}
	if err == nil {
		h := &protocol.RenewReceiptRequestHeader{
			ConsumerGroup: req.GetGroup().GetName(), Topic: req.GetTopic().GetName(), Handle: req.GetReceiptHandle(),
			InvisibleTime: req.GetInvisibleDuration().AsDuration().Milliseconds(), Suspend: req.GetSuspend(),
		}
		var r *protocol.ReceiptsResponseHeader
		r, err = changed(
			a.callHolding(ctx, &c, protocol.ChangeMessageInvisibleTime, h, h.ConsumerGroup, h.Topic, &h.Handle),
		)
		if err == nil {
			answer.ReceiptHandle = r.Handles[0]
		}
	}
	if err != nil && statusOf(err).GetCode() != v2.Code_TOO_MANY_REQUESTS {
		answer.ReceiptHandle = "" // else it is still good
	}
	return answer, err
}

// changed is the receipt after its invisible time was changed.
func changed(answer remoting.Response, err error) (*protocol.ReceiptsResponseHeader, error) {
	if err != nil {
		return nil, receiptError(err)
	}
	h, ok := answer.Header.(*protocol.ReceiptsResponseHeader)
	if !ok || len(h.Handles) != 1 {
		return nil, refuse(v2.Code_INTERNAL_SERVER_ERROR, "the broker's answer has no receipt handle")
	}
	return h, nil
}

// ForwardMessageToDeadLetterQueue moves a message to its group's dead letters. Source:
// ForwardMessageToDLQActivity.java, ProducerProcessor.java forwardMessageToDeadLetterQueue. Known difference:
// the handle must be good, or nothing is moved.
func (a *api) ForwardMessageToDeadLetterQueue(
	ctx context.Context, req *v2.ForwardMessageToDeadLetterQueueRequest,
) (*v2.ForwardMessageToDeadLetterQueueResponse, error) {
	c, err := a.caller(ctx, a.checkTopicAndGroup(req.GetTopic(), req.GetGroup()))
	if err == nil {
		h := &protocol.ForwardReceiptRequestHeader{
			ConsumerGroup: req.GetGroup().GetName(), Topic: req.GetTopic().GetName(), Handle: req.GetReceiptHandle(),
		}
		_, err = a.callHolding(ctx, &c, protocol.ConsumerSendMsgBack, h, h.ConsumerGroup, h.Topic, &h.Handle)
	}
	return &v2.ForwardMessageToDeadLetterQueueResponse{Status: ok()}, err
}

// callHolding makes a call about a receipt, whose handle in the header becomes the newest one. Nothing renews it
// meanwhile.
func (a *api) callHolding(
	ctx context.Context, c *caller, code protocol.Code, h protocol.Header, group, topic string, handle *string,
) (remoting.Response, error) {
	held, err := a.hold(ctx, c, group, topic, *handle)
	if err != nil {
		return remoting.Response{}, err
	}
	*handle = held.handle
	answer, err := a.call(ctx, c, code, h, nil)
	held.done(err == nil)
	return answer, receiptError(err)
}
