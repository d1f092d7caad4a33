// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	v1 "github.com/roquetmq/roquet/api/proto/roquet/v1"
	"github.com/roquetmq/roquet/internal/protocol"
)

const (
	maxHandles    = 1000
	settlesAtOnce = 64
)

// handle is a message that was given out: its topic, and the broker's receipt handle. Clients get both in base64url.
type handle struct{ topic, receipt string }

// String returns the text that clients get.
func (h *handle) String() string { return opaque(h.topic + " " + h.receipt) }

// parseHandle reads a text that String returned. Error: INVALID_RECEIPT_HANDLE.
func parseHandle(text string) (*handle, error) {
	topic, receipt, ok := strings.Cut(transparent(text), " ")
	if h := (&handle{topic, receipt}); ok && h.String() == text {
		return h, nil
	}
	return nil, refuse(v2.Code_INVALID_RECEIPT_HANDLE, "receipt handle is malformed")
}

// hide hides a message for another while and renews the handle. With suspend the next delivery is no attempt.
func (d *door) hide(ctx context.Context, group string, invisible time.Duration, suspend bool) func(*handle) error {
	return func(h *handle) error {
		answer, err := d.call(ctx, protocol.ChangeMessageInvisibleTime, &protocol.RenewReceiptRequestHeader{
			ConsumerGroup: group, Topic: h.topic, Handle: h.receipt,
			InvisibleTime: invisible.Milliseconds(), Suspend: suspend,
		}, nil)
		if r, ok := answer.Header.(*protocol.ReceiptsResponseHeader); ok && err == nil {
			h.receipt = r.Handles[0]
		}
		return err
	}
}

// handleError turns what can never succeed into INVALID_RECEIPT_HANDLE.
func handleError(err error) error {
	if answered, ok := errors.AsType[*protocol.Error](err); ok {
		switch answered.Code {
		case protocol.MessageIllegal, protocol.InvalidParameter, protocol.NoMessage, protocol.QueryNotFound:
			return refuse(v2.Code_INVALID_RECEIPT_HANDLE, "%s", answered.Remark)
		}
	}
	return err
}

// settle does something with each handle, many at once.
func (d *door) settle(texts []string, do func(*handle) error) (*v1.SettleResponse, error) {
	if n := len(texts); n == 0 || n > maxHandles {
		return nil, badRequest("%d receipt handles, wanted 1 to %d", n, maxHandles)
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
	_, _ = d.settle(handlesOf(lost), d.hide(ctx, group, 0, true))
}

func (d *door) Ack(ctx context.Context, in *v1.AckRequest) (*v1.SettleResponse, error) {
	return d.settle(in.GetReceiptHandles(), func(h *handle) error {
		answer, err := d.call(ctx, protocol.BatchAckMessage, &protocol.AckReceiptsRequestHeader{
			ConsumerGroup: in.GetGroup(), Topic: h.topic, Handles: []string{h.receipt},
		}, nil)
		if r, ok := answer.Header.(*protocol.AckReceiptsResponseHeader); ok && err == nil && r.Refused[0] != nil {
			err = r.Refused[0]
		}
		return err
	})
}

func (d *door) Nack(ctx context.Context, in *v1.NackRequest) (*v1.SettleResponse, error) {
	delay, err := duration(v2.Code_ILLEGAL_INVISIBLE_TIME, "delay", in.GetDelay(), 0, 0, mostInvisible)
	if err != nil {
		return nil, err
	}
	return d.settle(in.GetReceiptHandles(), d.hide(ctx, in.GetGroup(), delay, false))
}

func (d *door) Extend(ctx context.Context, in *v1.ExtendRequest) (*v1.SettleResponse, error) {
	invisible, err := invisible(in.GetInvisible())
	if err != nil {
		return nil, err
	}
	return d.settle(in.GetReceiptHandles(), d.hide(ctx, in.GetGroup(), invisible, false))
}

// DeadLetter moves messages to the dead letters of their group. Source: ForwardMessageToDLQActivity.java.
func (d *door) DeadLetter(ctx context.Context, in *v1.DeadLetterRequest) (*v1.SettleResponse, error) {
	return d.settle(in.GetReceiptHandles(), func(h *handle) error {
		_, err := d.call(ctx, protocol.ConsumerSendMsgBack, &protocol.ForwardReceiptRequestHeader{
			ConsumerGroup: in.GetGroup(), Topic: h.topic, Handle: h.receipt,
		}, nil)
		return err
	})
}
