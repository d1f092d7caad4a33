// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"
	"errors"
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
)

// Bounds of a receive. Source: ProxyConfig.java, ProxyUtils.java, ConsumeInitMode.java.
const (
	maxReceive           = 32
	leastInvisible       = 10 * time.Second
	mostInvisible        = 12 * time.Hour
	initFromMax    int32 = 1
	// wayBack is left of an rpc's time for its answer: what is received too late is nobody's for the invisible time.
	wayBack = 500 * time.Millisecond
	// illegalPollingTimeSince is the first client version that knows ILLEGAL_POLLING_TIME, compared as text.
	illegalPollingTimeSince = "5.0.3"
)

// receiveStream is grpc-go's side of a receive.
type receiveStream = grpc.ServerStreamingServer[v2.ReceiveMessageResponse]

// ReceiveMessage answers with messages that nobody else gets for the invisible time, or waits for some: a
// status, the messages, the time. With auto_renew the invisible time is prolonged as long as the client lives
// and has not acknowledged.
// Source: ReceiveMessageActivity.java, ReceiveMessageResponseStreamWriter.java, ConsumerProcessor.java popMessage.
// Known differences: a call without deadline is one that waits for ever; a client without settings is told so.
func (a *api) ReceiveMessage(req *v2.ReceiveMessageRequest, stream receiveStream) error {
	ctx := stream.Context()
	a.meter.arrived(ctx, req)
	c, err := a.caller(ctx)
	var found []popped
	if err == nil {
		found, err = a.receive(ctx, &c, req)
	}
	if gone := ctx.Err(); gone != nil && len(found) == 0 {
		return gone
	}
	r := &receiving{api: a, caller: &c, req: req, stream: stream}
	size := bytesOf(found)
	writing := c.conn.writing.Add(size)
	defer c.conn.writing.Add(-size)
	if writing > size && writing > a.cfg.Limits.MaxUntakenBytes { // others came meanwhile
		r.giveBack(found)
		found, err = nil, untaken(writing)
	}
	return r.write(found, err)
}

// popped is a message that was received.
type popped struct {
	record message.Record
	handle string
}

func untaken(bytes int64) error {
	return refuse(v2.Code_TOO_MANY_REQUESTS,
		"the client has not taken %d bytes of messages, which is over the limit", bytes)
}

func bytesOf(found []popped) (n int64) {
	for i := range found {
		n += int64(len(found[i].record))
	}
	return n
}

// receive asks the broker for messages.
func (a *api) receive(ctx context.Context, c *caller, req *v2.ReceiveMessageRequest) ([]popped, error) {
	if a.isStopping() {
		return nil, errStopping
	}
	p, err := c.profile()
	if err != nil {
		return nil, err
	}
	header, err := a.popHeader(ctx, p, req)
	if err != nil {
		return nil, err
	}
	if n := c.conn.writing.Load(); n > a.cfg.Limits.MaxUntakenBytes {
		return nil, untaken(n)
	}
	renewed := req.GetAutoRenew()
	if n := c.session.receipts.len(); renewed && n+int(header.MaxMsgNums) > a.cfg.Limits.MaxRenewed {
		return nil, refuse(v2.Code_TOO_MANY_REQUESTS,
			"%d messages of this client are not acknowledged, which is the limit", n)
	}
	answer, err := a.callUntil(ctx, a.stopping, c, protocol.PopMessage, header, nil)
	if err != nil {
		return nil, err
	}
	receipts, ok := answer.Header.(*protocol.ReceiptsResponseHeader)
	if !ok || len(receipts.Handles) != len(answer.Bodies) {
		return nil, refuse(v2.Code_INTERNAL_SERVER_ERROR, "the broker's answer has no receipt handles")
	}
	found, now := make([]popped, len(answer.Bodies)), time.Now()
	for i, rec := range answer.Bodies {
		found[i] = popped{record: rec, handle: receipts.Handles[i]}
		if renewed {
			c.session.receipts.add(&receipt{
				group: header.ConsumerGroup, topic: header.Topic, given: found[i].handle, newest: found[i].handle,
				visibleAt: receipts.VisibleAt, begun: now,
			})
		}
	}
	return found, nil
}

// popHeader checks a receive, in the order in which the original looks.
func (a *api) popHeader(
	ctx context.Context, p *profile, req *v2.ReceiveMessageRequest,
) (*protocol.PopMessageRequestHeader, error) {
	poll, err := pollTime(ctx, p, req)
	if err != nil {
		return nil, err
	}
	topic, group := req.GetMessageQueue().GetTopic(), req.GetGroup()
	if err := a.checkTopicAndGroup(topic, group); err != nil {
		return nil, err
	}
	invisible := renewedInvisible
	if !req.GetAutoRenew() {
		invisible = req.GetInvisibleDuration().AsDuration()
		if err := checkInvisible(invisible, leastInvisible); err != nil {
			return nil, err
		}
	}
	filter, err := expressionOf(req.GetFilterExpression())
	if err != nil {
		return nil, err
	}
	return &protocol.PopMessageRequestHeader{
		ConsumerGroup: group.GetName(), Topic: topic.GetName(), QueueID: anyQueue,
		MaxMsgNums:    min(max(req.GetBatchSize(), 1), maxReceive),
		InvisibleTime: invisible.Milliseconds(), PollTime: poll.Milliseconds(), BornTime: time.Now().UnixMilli(),
		InitMode: initFromMax, ExpType: filter.typ, Exp: filter.text, AttemptID: req.GetAttemptId(),
	}, nil
}

func checkInvisible(d, least time.Duration) error {
	switch {
	case d < least:
		return refuse(v2.Code_ILLEGAL_INVISIBLE_TIME,
			"the invisibleTime is too small. min is %d", least.Milliseconds())
	case d > mostInvisible:
		return refuse(v2.Code_ILLEGAL_INVISIBLE_TIME,
			"the invisibleTime is too large. max is %d", mostInvisible.Milliseconds())
	}
	return nil
}

// pollTime is how long a receive may wait: as the client asks, within bounds and within the rpc's deadline. Known
// difference: the original waits until the deadline, and the answer misses it.
func pollTime(ctx context.Context, p *profile, req *v2.ReceiveMessageRequest) (time.Duration, error) {
	remaining := time.Duration(math.MaxInt64)
	if deadline, ok := ctx.Deadline(); ok {
		remaining = time.Until(deadline)
	}
	poll := remaining
	if asked := req.GetLongPollingTimeout(); asked != nil {
		poll = asked.AsDuration()
	} else {
		timeout := defaultRequestTimeout
		if t := p.settings.GetRequestTimeout(); t != nil {
			timeout = t.AsDuration()
		}
		poll -= timeout / 2
	}
	poll = min(max(poll, shortestPoll), longestPoll)
	if remaining >= shortestPoll {
		return max(min(poll, remaining-wayBack), shortestPoll), nil
	}
	code := v2.Code_ILLEGAL_POLLING_TIME
	if oneValue(ctx, keyClientVersion) < illegalPollingTimeSince {
		code = v2.Code_BAD_REQUEST
	}
	return 0, refuse(code, "The deadline time remaining is not enough for polling, please check network condition: "+
		"%d ms remain, the shortest poll is %d ms", remaining.Milliseconds(), shortestPoll.Milliseconds())
}

// receiving is an answer to a receive that is being written.
type receiving struct {
	api    *api
	caller *caller
	req    *v2.ReceiveMessageRequest
	stream receiveStream
}

// How much is gathered before it is written, up to which size a body is copied to the rest, and about what is encoded
// besides the body.
const (
	mostGathered = 32 << 10
	copiedBytes  = 8 << 10
	otherBytes   = 256
)

// write writes status, messages and time, all at once unless they are large. What grpc-go has taken and cannot write is
// soon seen by others, and so is what it does not take.
func (r *receiving) write(found []popped, err error) error {
	size, good := otherBytes*(2+len(found))+int(bytesOf(found)), ok()
	if err != nil || len(found) == 0 {
		good = emptyStatus(err)
	}
	buf, err := appendFrame(make([]byte, 0, min(size, mostGathered+copiedBytes)),
		&v2.ReceiveMessageResponse{Content: &v2.ReceiveMessageResponse_Status{Status: good}})
	d := delivery{topic: r.req.GetMessageQueue().GetTopic(), framed: true}
	written := 0
	for i := 0; i < len(found) && err == nil; i++ {
		var body []byte
		d.handle = found[i].handle
		buf, body, err = appendDelivered(buf, found[i].record, &d)
		if len(body) <= copiedBytes {
			buf, body = append(buf, body...), nil
		}
		if err == nil && len(buf)+len(body) > mostGathered {
			if err = writeFrames(r.stream.Context(), buf, body); err == nil {
				buf, written = nil, i+1
			}
		}
	}
	if err == nil {
		buf, err = appendFrame(buf, &v2.ReceiveMessageResponse{Content: &v2.ReceiveMessageResponse_DeliveryTimestamp{
			DeliveryTimestamp: timestamppb.Now(),
		}})
	}
	if err == nil {
		err = writeFrames(r.stream.Context(), buf)
	}
	if err != nil {
		r.giveBack(found[written:])
	}
	return err
}

// emptyStatus is the status of a receive without messages.
func emptyStatus(err error) *v2.Status {
	var answered *protocol.Error
	switch {
	case err == nil:
		return status(v2.Code_MESSAGE_NOT_FOUND, "no match message")
	case errors.Is(err, errStopping):
		return status(v2.Code_MESSAGE_NOT_FOUND, "no new message: "+errStopping.Error())
	case !errors.As(err, &answered):
		return statusOf(err)
	}
	switch answered.Code {
	case protocol.PollingTimeout, protocol.PullNotFound, protocol.NoMessage, protocol.PullRetryImmediately:
		return status(v2.Code_MESSAGE_NOT_FOUND, "no new message")
	case protocol.PollingFull:
		return status(v2.Code_TOO_MANY_REQUESTS, "polling full")
	}
	return statusOf(err)
}

// giveBack lets others soon see messages that the client did not get.
func (r *receiving) giveBack(lost []popped) {
	ctx := context.WithoutCancel(r.stream.Context())
	for i := range lost {
		r.caller.session.receipts.settle(lost[i].handle, true)
		r.api.changeLater(ctx, r.caller.session, &receipt{
			group: r.req.GetGroup().GetName(), topic: r.req.GetMessageQueue().GetTopic().GetName(),
		}, lost[i].handle, returnedInvisible, nil)
	}
}
