// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"
	"fmt"
	"slices"
	"strings"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/protocol"
)

// maxAcks bounds the entries of one request.
const maxAcks = 4096

// AckMessage acknowledges messages, each by its receipt handle; there is one result an entry, in order.
// Source: AckMessageActivity.java, ConsumerProcessor.java ackMessage.
func (a *api) AckMessage(ctx context.Context, req *v2.AckMessageRequest) (*v2.AckMessageResponse, error) {
	c, err := a.caller(ctx)
	if err == nil {
		err = a.checkTopicAndGroup(req.GetTopic(), req.GetGroup())
	}
	if n := len(req.GetEntries()); err == nil && (n == 0 || n > maxAcks) {
		err = refuse(v2.Code_BAD_REQUEST, fmt.Sprintf("%d entries to acknowledge, wanted 1 to %d", n, maxAcks))
	}
	if err != nil {
		return &v2.AckMessageResponse{Status: statusOf(err)}, nil
	}
	entries := req.GetEntries()
	results := make([]error, len(entries))
	a.ackAll(ctx, &c, req, results)
	answer := &v2.AckMessageResponse{Entries: make([]*v2.AckMessageResultEntry, len(entries))}
	good := ok()
	for i, entry := range entries {
		result := good
		if results[i] != nil {
			result = statusOf(results[i])
		}
		answer.Entries[i] = &v2.AckMessageResultEntry{
			MessageId: entry.GetMessageId(), ReceiptHandle: entry.GetReceiptHandle(), Status: result,
		}
	}
	answer.Status = common(answer.GetEntries())
	return answer, nil
}

// common is the status of all entries, or MULTIPLE_RESULTS.
func common(entries []*v2.AckMessageResultEntry) *v2.Status {
	first := entries[0].GetStatus()
	for _, entry := range entries[1:] {
		if entry.GetStatus().GetCode() != first.GetCode() {
			return status(v2.Code_MULTIPLE_RESULTS, "")
		}
	}
	return status(first.GetCode(), first.GetMessage())
}

// ackAll acknowledges the messages of a request with one call, and says in results what came of each.
func (a *api) ackAll(ctx context.Context, c *caller, req *v2.AckMessageRequest, results []error) {
	if c.session != nil && c.session.receipts.len() > 0 {
		a.ackHeld(ctx, c, req, results)
		return
	}
	handles := make([]string, len(results))
	for i, entry := range req.GetEntries() {
		handles[i] = entry.GetReceiptHandle()
	}
	refused, err := a.ackHandles(ctx, c, req.GetGroup().GetName(), req.GetTopic().GetName(), handles)
	for i := range results {
		switch {
		case err != nil:
			results[i] = receiptError(err)
		case refused[i] != nil:
			results[i] = receiptError(refused[i])
		}
	}
}

// ackHeld is ackAll for a client whose receipts are renewed.
func (a *api) ackHeld(ctx context.Context, c *caller, req *v2.AckMessageRequest, results []error) {
	group, topic := req.GetGroup().GetName(), req.GetTopic().GetName()
	held := make([]heldReceipt, len(results))
	handles := make([]string, 0, len(results))
	order := inOrder(req.GetEntries())
	last := ""
	for _, i := range order {
		given := req.GetEntries()[i].GetReceiptHandle()
		if given == last {
			results[i] = refuse(v2.Code_INVALID_RECEIPT_HANDLE, "the receipt handle is in the request twice")
			continue
		}
		last = given
		if held[i], results[i] = a.hold(ctx, c, group, topic, given); results[i] == nil {
			handles = append(handles, held[i].text())
		}
	}
	refused, err := a.ackHandles(ctx, c, group, topic, handles)
	for _, i := range order {
		if results[i] != nil {
			continue
		}
		switch {
		case err != nil:
			results[i] = receiptError(err)
		case refused[0] != nil:
			results[i] = receiptError(refused[0])
		}
		if err == nil {
			refused = refused[1:]
		}
		held[i].done(results[i] == nil)
	}
}

// inOrder is the order in which receipts are held, so that two requests with the same ones do not wait for each
// other.
func inOrder(entries []*v2.AckMessageEntry) []int {
	order := make([]int, len(entries))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(x, y int) int {
		return strings.Compare(entries[x].GetReceiptHandle(), entries[y].GetReceiptHandle())
	})
	return order
}

// ackHandles makes the call. The result has an entry a handle: nil, or why it was refused.
func (a *api) ackHandles(
	ctx context.Context,
	c *caller,
	group, topic string,
	handles []string,
) ([]*protocol.Error, error) {
	if len(handles) == 0 {
		return nil, nil
	}
	answer, err := a.call(ctx, c, protocol.BatchAckMessage, &protocol.AckReceiptsRequestHeader{
		ConsumerGroup: group, Topic: topic, Handles: handles,
	}, nil)
	if err != nil {
		return nil, err
	}
	h, isAck := answer.Header.(*protocol.AckReceiptsResponseHeader)
	if !isAck || len(h.Refused) != len(handles) {
		return nil, refuse(v2.Code_INTERNAL_SERVER_ERROR, "the broker's answer is not complete")
	}
	return h.Refused, nil
}

// heldReceipt is a receipt that is being used: nothing renews it until done is called, with true when the
// message is not the client's any more.
type heldReceipt struct {
	handle receiptHandle
	given  string
	key    receiptKey
	in     *receipts // nil when it is not renewed
}

// text is the handle that is good now.
func (r *heldReceipt) text() string {
	if r.in == nil {
		return r.given
	}
	return r.handle.text()
}

func (r *heldReceipt) done(over bool) {
	if r.in != nil {
		r.in.settle(r.key, r.given, over)
	}
}

// hold reads a client's handle, and takes the newest in its place when the receipt is renewed.
func (a *api) hold(ctx context.Context, c *caller, group, topic, given string) (heldReceipt, error) {
	h, err := parseHandle(given)
	r := heldReceipt{handle: h, given: given}
	if err != nil || c.session == nil {
		return r, err
	}
	r.key = keyOf(group, topic, &h)
	newest, held, err := c.session.receipts.newest(ctx, r.key, given)
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
	c, err := a.caller(ctx)
	if err == nil {
		err = a.checkTopicAndGroup(req.GetTopic(), req.GetGroup())
	}
	if err == nil {
		err = checkInvisible(req.GetInvisibleDuration().AsDuration(), 0)
	}
	var h receiptHandle
	if err == nil {
		h, err = a.change(ctx, &c, req)
	}
	if err != nil {
		answer := &v2.ChangeInvisibleDurationResponse{Status: statusOf(err)}
		if answer.GetStatus().GetCode() == v2.Code_TOO_MANY_REQUESTS {
			answer.ReceiptHandle = req.GetReceiptHandle() // still good
		}
		return answer, nil
	}
	return &v2.ChangeInvisibleDurationResponse{Status: ok(), ReceiptHandle: h.text()}, nil
}

func (a *api) change(ctx context.Context, c *caller, req *v2.ChangeInvisibleDurationRequest) (receiptHandle, error) {
	group, topic := req.GetGroup().GetName(), req.GetTopic().GetName()
	held, err := a.hold(ctx, c, group, topic, req.GetReceiptHandle())
	if err != nil {
		return receiptHandle{}, err
	}
	header := changeHeader(group, topic, held.handle, req.GetInvisibleDuration().AsDuration())
	header.Suspend = req.GetSuspend()
	answer, err := a.call(ctx, c, protocol.ChangeMessageInvisibleTime, header, nil)
	h := held.handle
	if err = receiptError(err); err == nil {
		h, err = changed(h, answer)
	}
	held.done(err == nil)
	return h, err
}

// ForwardMessageToDeadLetterQueue moves a message to its group's dead letters. Source:
// ForwardMessageToDLQActivity.java, ProducerProcessor.java forwardMessageToDeadLetterQueue. Known difference:
// the handle must be good, or nothing is moved.
func (a *api) ForwardMessageToDeadLetterQueue(
	ctx context.Context, req *v2.ForwardMessageToDeadLetterQueueRequest,
) (*v2.ForwardMessageToDeadLetterQueueResponse, error) {
	c, err := a.caller(ctx)
	if err == nil {
		err = a.checkTopicAndGroup(req.GetTopic(), req.GetGroup())
	}
	if err == nil {
		err = a.forward(ctx, &c, req)
	}
	if err != nil {
		return &v2.ForwardMessageToDeadLetterQueueResponse{Status: statusOf(err)}, nil
	}
	return &v2.ForwardMessageToDeadLetterQueueResponse{Status: ok()}, nil
}

func (a *api) forward(ctx context.Context, c *caller, req *v2.ForwardMessageToDeadLetterQueueRequest) error {
	group, topic := req.GetGroup().GetName(), req.GetTopic().GetName()
	held, err := a.hold(ctx, c, group, topic, req.GetReceiptHandle())
	if err != nil {
		return err
	}
	_, err = a.call(ctx, c, protocol.ConsumerSendMsgBack, &protocol.ForwardReceiptRequestHeader{
		ConsumerGroup: group, Topic: topic, Handle: held.handle.text(),
	}, nil)
	err = receiptError(err)
	held.done(err == nil)
	return err
}
