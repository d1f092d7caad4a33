// SPDX-License-Identifier: Apache-2.0

package service

import (
	"errors"
	"time"

	"github.com/roquetmq/roquet/internal/broker"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// pullRequests answers PULL_MESSAGE 11 and LITE_PULL_MESSAGE 361, at once or when a message arrives or time
// is up.
// Source: PullMessageProcessor.java, PullRequestHoldService.java.
type pullRequests struct{ *node }

// pullCall is a pull under way: one allocation holds all that it needs until the answer.
type pullCall struct {
	broker.PullRequest
	call   *remoting.Call
	answer protocol.PullMessageResponseHeader
}

// pullLitePull is the sysFlag bit of lite pulls that come with code 11. Source: PullSysFlag.java.
const pullLitePull = 0x10

func (s pullRequests) pull(c *call, h *protocol.PullMessageRequestHeader) {
	r := &pullCall{call: c}
	r.Group, r.Topic, r.QueueID = h.ConsumerGroup, h.Topic, h.QueueID
	r.Offset, r.MaxCount, r.SysFlag = message.QueueOffset(h.QueueOffset), int(h.MaxMsgNums), h.SysFlag
	r.MaxBytes = int(h.MaxMsgBytes.Or(0))
	r.CommitOffset = message.QueueOffset(h.CommitOffset)
	r.Suspend = time.Duration(min(max(h.SuspendTimeoutMillis, 0), maxSuspendMillis)) * time.Millisecond
	r.Subscription = broker.PullExpression{Text: h.Subscription, Type: h.ExpressionType, Version: h.SubVersion}
	r.LitePull, r.Peer = h.SysFlag&pullLitePull != 0 || c.Code == protocol.LitePullMessage, c.Peer.ID()
	r.Owner, r.Done, r.Holding = r, pullDone, holdPull
	s.puller.Pull(&r.PullRequest)
}

// maxSuspendMillis bounds how long a client may ask to be held.
const maxSuspendMillis = 10 * 60 * 1000

// holdPull lets go of what the call occupies while it waits.
func holdPull(req *broker.PullRequest) bool {
	r, _ := req.Owner.(*pullCall)
	return r.call.Suspend(nil)
}

// pullDone answers a pull; it runs on the connection's reader, or on the goroutine that lets held pulls go
// on.
func pullDone(req *broker.PullRequest, err error) {
	r, _ := req.Owner.(*pullCall) // put there with the function
	if err != nil {
		r.fail(err)
		return
	}
	result := req.Result()
	r.answer = protocol.PullMessageResponseHeader{
		NextBeginOffset: int64(result.Next), MinOffset: int64(result.Min), MaxOffset: int64(result.Max),
		OffsetDelta: protocol.Some(int64(0)), TopicSysFlag: protocol.Some(result.TopicSysFlag),
		GroupSysFlag: protocol.Some(result.GroupSysFlag),
	}
	remark := result.Status
	if result.Damage != nil {
		remark += ": " + result.Damage.Error()
	}
	r.call.ReplyLater(remoting.Response{
		Code: pullCode(result.Outcome), Remark: remark, Header: &r.answer, Bodies: result.Records,
	})
}

func pullCode(outcome broker.PullOutcome) protocol.ResponseCode {
	return [...]protocol.ResponseCode{
		broker.PullFound: protocol.Success, broker.PullNotFound: protocol.PullNotFound,
		broker.PullRetryImmediately: protocol.PullRetryImmediately, broker.PullOffsetMoved: protocol.PullOffsetMoved,
	}[outcome]
}

// fail answers with the error; a refusal for lack of permission says in the header what is forbidden.
func (r *pullCall) fail(err error) {
	if errors.Is(err, broker.ErrCanceled) {
		r.call.Cancel(remoting.ErrConnClosed)
		return
	}
	if denied, ok := errors.AsType[*broker.Refusal](err); ok && denied.ForbiddenType != 0 {
		r.answer = protocol.PullMessageResponseHeader{ForbiddenType: protocol.Some(denied.ForbiddenType)}
		r.call.ReplyLater(remoting.Response{Code: protocol.NoPermission, Remark: err.Error(), Header: &r.answer})
		return
	}
	r.call.FailLater(err)
}
