// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"cmp"
	"context"
	"errors"

	"google.golang.org/grpc"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
)

// pullStream is grpc-go's side of a pull.
type pullStream = grpc.ServerStreamingServer[v2.PullMessageResponse]

// Bits of a pull's sysFlag. Source: PullSysFlag.java.
const (
	pullSuspend      = 0x2
	pullSubscription = 0x4
)

// PullMessage reads a queue from an offset on, as native consumers do: a status, the messages, the next offset.
// No client uses it, and the original does not implement it.
func (a *api) PullMessage(req *v2.PullMessageRequest, stream pullStream) error {
	ctx := stream.Context()
	a.meter.arrived(ctx, req)
	c, err := a.caller(ctx)
	var found []*v2.Message
	var next int64
	if err == nil {
		found, next, err = a.pull(ctx, &c, req)
	}
	if gone := ctx.Err(); gone != nil {
		return gone
	}
	head := ok()
	if err != nil {
		head = emptyStatus(err)
	}
	err = stream.Send(&v2.PullMessageResponse{Content: &v2.PullMessageResponse_Status{Status: head}})
	for i := 0; i < len(found) && err == nil; i++ {
		err = stream.Send(&v2.PullMessageResponse{Content: &v2.PullMessageResponse_Message{Message: found[i]}})
	}
	if next >= 0 && err == nil {
		err = stream.Send(&v2.PullMessageResponse{Content: &v2.PullMessageResponse_NextOffset{NextOffset: next}})
	}
	return err
}

// pull returns messages and the offset to go on at, -1 when that is not known.
func (a *api) pull(ctx context.Context, c *caller, req *v2.PullMessageRequest) ([]*v2.Message, int64, error) {
	queue := req.GetMessageQueue()
	if err := a.checkTopicAndGroup(queue.GetTopic(), req.GetGroup()); err != nil {
		return nil, -1, err
	}
	filter, err := expressionOf(req.GetFilterExpression())
	if err != nil {
		return nil, -1, err
	}
	h := &protocol.PullMessageRequestHeader{
		ConsumerGroup: req.GetGroup().GetName(), Topic: queue.GetTopic().GetName(),
		QueueID: queue.GetId(), QueueOffset: req.GetOffset(),
		MaxMsgNums: min(max(req.GetBatchSize(), 1), maxReceive), SysFlag: pullSubscription,
		Subscription: filter.text, ExpressionType: filter.typ,
	}
	if poll := req.GetLongPollingTimeout().AsDuration(); poll > 0 {
		h.SysFlag |= pullSuspend
		h.SuspendTimeoutMillis = min(poll, longestPoll).Milliseconds()
	}
	answer, err := a.callUntil(ctx, a.stopping, c, protocol.PullMessage, h, nil)
	next := int64(-1)
	if header, ok := answer.Header.(*protocol.PullMessageResponseHeader); ok {
		next = header.NextBeginOffset
	}
	if err != nil {
		return nil, next, err
	}
	var found []*v2.Message
	err = message.EachRecord(answer.Body, answer.Bodies, func(rec message.Record) error {
		m, err := delivered(rec, &delivery{topic: queue.GetTopic()})
		if err == nil {
			found = append(found, m)
		}
		return err
	})
	return found, next, err
}

// UpdateOffset sets how far a group is in a queue.
func (a *api) UpdateOffset(ctx context.Context, req *v2.UpdateOffsetRequest) (*v2.UpdateOffsetResponse, error) {
	queue := req.GetMessageQueue()
	c, err := a.caller(ctx, a.checkTopicAndGroup(queue.GetTopic(), req.GetGroup()))
	if err == nil && req.GetOffset() < 0 {
		err = refuse(v2.Code_ILLEGAL_OFFSET, "offset is negative")
	}
	if err == nil {
		_, err = a.call(ctx, &c, protocol.UpdateConsumerOffset, &protocol.UpdateConsumerOffsetRequestHeader{
			ConsumerGroup: req.GetGroup().GetName(), Topic: queue.GetTopic().GetName(), QueueID: queue.GetId(),
			CommitOffset: req.GetOffset(),
		}, nil)
	}
	return &v2.UpdateOffsetResponse{Status: ok()}, err
}

// GetOffset answers how far a group is in a queue. Error: OFFSET_NOT_FOUND.
func (a *api) GetOffset(ctx context.Context, req *v2.GetOffsetRequest) (*v2.GetOffsetResponse, error) {
	queue := req.GetMessageQueue()
	c, err := a.caller(ctx, a.checkTopicAndGroup(queue.GetTopic(), req.GetGroup()))
	out := &v2.GetOffsetResponse{Status: ok()}
	if err == nil {
		out.Offset, err = a.offset(ctx, &c, protocol.QueryConsumerOffset, &protocol.QueryConsumerOffsetRequestHeader{
			ConsumerGroup: req.GetGroup().GetName(), Topic: queue.GetTopic().GetName(), QueueID: queue.GetId(),
		})
	}
	if answered, ok := errors.AsType[*protocol.Error](err); ok && answered.Code == protocol.QueryNotFound {
		err = refuse(v2.Code_OFFSET_NOT_FOUND, "%s", answered.Remark)
	}
	return out, err
}

// QueryOffset answers where a queue begins, where it ends, or where it was at a time.
func (a *api) QueryOffset(ctx context.Context, req *v2.QueryOffsetRequest) (*v2.QueryOffsetResponse, error) {
	queue := req.GetMessageQueue()
	topic, id := queue.GetTopic().GetName(), queue.GetId()
	c, err := a.caller(ctx, a.checkTopic(queue.GetTopic()))
	var code protocol.Code
	var h protocol.Header
	switch req.GetQueryOffsetPolicy() {
	case v2.QueryOffsetPolicy_BEGINNING:
		code, h = protocol.GetMinOffset, &protocol.GetMinOffsetRequestHeader{Topic: topic, QueueID: id}
	case v2.QueryOffsetPolicy_END:
		code = protocol.GetMaxOffset
		h = &protocol.GetMaxOffsetRequestHeader{Topic: topic, QueueID: id, Committed: true}
	case v2.QueryOffsetPolicy_TIMESTAMP:
		code, h = protocol.SearchOffsetByTimestamp, &protocol.SearchOffsetRequestHeader{
			Topic: topic, QueueID: id, Timestamp: req.GetTimestamp().AsTime().UnixMilli(),
		}
	default:
		err = cmp.Or(
			err,
			refuse(v2.Code_BAD_REQUEST, "query offset policy %s is unknown", req.GetQueryOffsetPolicy()),
		)
	}
	out := &v2.QueryOffsetResponse{Status: ok()}
	if err == nil {
		out.Offset, err = a.offset(ctx, &c, code, h)
	}
	return out, err
}

// offset asks for one offset.
func (a *api) offset(ctx context.Context, c *caller, code protocol.Code, h protocol.Header) (int64, error) {
	answer, err := a.call(ctx, c, code, h, nil)
	if err != nil {
		return 0, err
	}
	switch h := answer.Header.(type) {
	case *protocol.QueryConsumerOffsetResponseHeader:
		return h.Offset, nil
	case *protocol.GetMinOffsetResponseHeader:
		return h.Offset, nil
	case *protocol.GetMaxOffsetResponseHeader:
		return h.Offset, nil
	case *protocol.SearchOffsetResponseHeader:
		return h.Offset, nil
	}
	return 0, refuse(v2.Code_INTERNAL_SERVER_ERROR, "the broker's answer has no header")
}
