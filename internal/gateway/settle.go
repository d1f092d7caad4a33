// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	v1 "github.com/roquetmq/roquet/api/proto/roquet/v1"
	"github.com/roquetmq/roquet/internal/protocol"
)

const (
	maxHandles    = 1000
	settlesAtOnce = 64
	// forwardInvisible is for how long a message that is about to become a dead letter is nobody else's.
	forwardInvisible = time.Minute
)

// handle is a message that was given out. Its text is opaque to clients: the topic, the original's handle of
// nine fields, all in base64url. Source: ExtraInfoUtil.java, ReceiptHandle.java.
type handle struct {
	topic              string
	popTime, invisible int64 // ms
	revive             int32
	broker             string
	queueID            int32
	offset, logOffset  int64
}

// handleFormat is the handle of native clients: startOffset popTime invisibleTime reviveQid retryFlag brokerName
// queueId queueOffset.
const handleFormat = "%d %d %d %d 0 %s %d %d"

// extraInfo is the handle as native clients have it.
func (h *handle) extraInfo() string {
	return fmt.Sprintf(handleFormat, h.offset, h.popTime, h.invisible, h.revive, h.broker, h.queueID, h.offset)
}

// String returns the text that clients get.
func (h *handle) String() string {
	return opaque(fmt.Sprint(h.topic, " ", h.extraInfo(), " ", h.logOffset))
}

// parseHandle reads a text that String returned. Error: INVALID_RECEIPT_HANDLE.
func parseHandle(text string) (*handle, error) {
	h := &handle{}
	_, err := fmt.Sscanf(transparent(text), "%s "+handleFormat+" %d", &h.topic, &h.offset, &h.popTime, &h.invisible,
		&h.revive, &h.broker, &h.queueID, &h.offset, &h.logOffset)
	if err != nil || h.String() != text {
		return nil, refuse(v2.Code_INVALID_RECEIPT_HANDLE, "receipt handle is malformed")
	}
	return h, nil
}

func (h *handle) ack(group string) *protocol.AckMessageRequestHeader {
	return &protocol.AckMessageRequestHeader{
		ConsumerGroup: group, Topic: h.topic, QueueID: h.queueID, ExtraInfo: h.extraInfo(), Offset: h.offset,
	}
}

// hide hides a message for another while and renews the handle. With suspend the next delivery is no attempt.
func (d *door) hide(ctx context.Context, group string, h *handle, invisible time.Duration, suspend bool) error {
	answer, err := d.call(ctx, protocol.ChangeMessageInvisibleTime, &protocol.ChangeInvisibleTimeRequestHeader{
		ConsumerGroup: group, Topic: h.topic, QueueID: h.queueID, ExtraInfo: h.extraInfo(), Offset: h.offset,
		InvisibleTime: invisible.Milliseconds(), Suspend: suspend,
	}, nil)
	if r, ok := answer.Header.(*protocol.ChangeInvisibleTimeResponseHeader); ok && err == nil {
		h.popTime, h.invisible, h.revive = r.PopTime, r.InvisibleTime, r.ReviveQID
	}
	return err
}

// handleError turns what can never succeed into INVALID_RECEIPT_HANDLE.
func handleError(err error) error {
	var answered *protocol.Error
	if errors.As(err, &answered) {
		switch answered.Code {
		case protocol.MessageIllegal, protocol.InvalidParameter, protocol.NoMessage, protocol.QueryNotFound:
			return refuse(v2.Code_INVALID_RECEIPT_HANDLE, answered.Remark)
		}
	}
	return err
}

// settle does something with each handle, many at once.
func (d *door) settle(texts []string, do func(*handle) error) (*v1.SettleResponse, error) {
	if n := len(texts); n == 0 || n > maxHandles {
		return nil, badRequest(fmt.Sprintf("%d receipt handles, wanted 1 to %d", n, maxHandles))
	}
	out := &v1.SettleResponse{Results: make([]*v1.SettleResult, len(texts))}
	var work errgroup.Group
	work.SetLimit(settlesAtOnce)
	for i, text := range texts {
		result := &v1.SettleResult{ReceiptHandle: clean(text)}
		out.Results[i] = result
		work.Go(func() error {
			h, err := parseHandle(text)
			if err == nil {
				err = do(h)
			}
			if err != nil {
				_, result.Error = d.errorOf(handleError(err))
			} else {
				result.ReceiptHandle = h.String()
			}
			return nil
		})
	}
	return out, work.Wait()
}

func handlesOf(list []*v1.Message) (texts []string) {
	for _, m := range list {
		texts = append(texts, m.GetReceiptHandle())
	}
	return texts
}

// giveBack lets others have, at once and as if it had never been given out, what a client did not get. When that
// fails they have it after the invisible time.
func (d *door) giveBack(ctx context.Context, group string, lost []*v1.Message) {
	ctx = context.WithoutCancel(ctx)
	_, _ = d.settle(handlesOf(lost), func(h *handle) error { return d.hide(ctx, group, h, 0, true) })
}

// ackAll acknowledges; what fails is received again.
func (d *door) ackAll(ctx context.Context, group string, written []*v1.Message) {
	ctx = context.WithoutCancel(ctx)
	_, _ = messages{d}.Ack(ctx, &v1.AckRequest{Group: group, ReceiptHandles: handlesOf(written)})
}

func (m messages) Ack(ctx context.Context, in *v1.AckRequest, _ ...opt) (*v1.SettleResponse, error) {
	return m.settle(in.GetReceiptHandles(), func(h *handle) error {
		_, err := m.call(ctx, protocol.AckMessage, h.ack(in.GetGroup()), nil)
		return err
	})
}

func (m messages) Nack(ctx context.Context, in *v1.NackRequest, _ ...opt) (*v1.SettleResponse, error) {
	delay, err := duration("delay", in.GetDelay(), 0, 0, mostInvisible)
	if err != nil {
		return nil, err
	}
	return m.settle(in.GetReceiptHandles(), func(h *handle) error {
		return m.hide(ctx, in.GetGroup(), h, delay, false)
	})
}

func (m messages) Extend(ctx context.Context, in *v1.ExtendRequest, _ ...opt) (*v1.SettleResponse, error) {
	invisible, err := duration("invisible", in.GetInvisible(), defaultInvisible, leastInvisible, mostInvisible)
	if err != nil {
		return nil, err
	}
	return m.settle(in.GetReceiptHandles(), func(h *handle) error {
		return m.hide(ctx, in.GetGroup(), h, invisible, false)
	})
}

// DeadLetter buries messages. Each is claimed anew, which shows that the handle is good, copied and
// acknowledged. Source: ForwardMessageToDLQActivity.java.
func (m messages) DeadLetter(ctx context.Context, in *v1.DeadLetterRequest, _ ...opt) (*v1.SettleResponse, error) {
	return m.settle(in.GetReceiptHandles(), func(h *handle) error {
		if err := m.hide(ctx, in.GetGroup(), h, forwardInvisible, false); err != nil {
			return err
		}
		_, err := m.call(ctx, protocol.ConsumerSendMsgBack, &protocol.ConsumerSendMsgBackRequestHeader{
			Offset: h.logOffset, Group: in.GetGroup(), DelayLevel: -1, OriginTopic: h.topic,
			MaxReconsumeTimes: protocol.Some(int32(0)),
		}, nil)
		if err == nil {
			_, err = m.call(ctx, protocol.AckMessage, h.ack(in.GetGroup()), nil)
		}
		return err
	})
}
