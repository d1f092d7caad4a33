// SPDX-License-Identifier: Apache-2.0

package service

import (
	"sync/atomic"
	"time"

	"github.com/roquetmq/roquet/internal/broker"
	"github.com/roquetmq/roquet/internal/broker/filter"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// clientRequests answers what clients say of themselves: HEART_BEAT 34, UNREGISTER_CLIENT 35,
// CHECK_CLIENT_CONFIG 46, GET_CONSUMER_LIST_BY_GROUP 38, LOCK_BATCH_MQ 41, UNLOCK_BATCH_MQ 42.
// Source: ClientManageProcessor.java, ConsumerManageProcessor.java, AdminBrokerProcessor.java (locks).
// Known difference: a heartbeat is answered when the retry topics of its groups are durable.
type clientRequests struct{ *node }

func (s clientRequests) heartBeat(c *call, body *protocol.HeartbeatData) {
	if body.ClientID == "" {
		c.Fail(&protocol.Error{Code: protocol.InvalidParameter, Remark: "heartbeat without clientID"})
		return
	}
	hb := heartbeatOf(c, body)
	s.heartbeats.Handle(c.Peer, hb, time.Now(), func(result broker.HeartbeatResult, err error) {
		c.AnswerLater(answer{Header: &protocol.HeartbeatResponseHeader{
			SupportHeartbeatV2: protocol.Some(true), SubChange: protocol.Some(result.SubscriptionsChanged),
		}}, err)
	})
}

func heartbeatOf(c *call, body *protocol.HeartbeatData) *broker.Heartbeat {
	hb := &broker.Heartbeat{
		ClientID: body.ClientID, Language: c.Language.String(),
		Version: c.Version, Fingerprint: body.HeartbeatFingerprint,
		WithoutSubscriptions: body.WithoutSub,
	}
	hb.Producers = mapped(body.ProducerDataSet, func(p protocol.ProducerData) string { return p.GroupName })
	for i := range body.ConsumerDataSet {
		data := &body.ConsumerDataSet[i]
		consumer := broker.ConsumerData{
			Group: data.GroupName, Type: broker.ConsumeType(data.ConsumeType),
			Model:     broker.MessageModel(data.MessageModel),
			FromWhere: broker.ConsumeFromWhere(data.ConsumeFromWhere), UnitMode: data.UnitMode,
		}
		for j := range data.SubscriptionDataSet {
			consumer.Subscriptions = append(consumer.Subscriptions,
				broker.SubscriptionData(data.SubscriptionDataSet[j]))
		}
		hb.Consumers = append(hb.Consumers, consumer)
	}
	return hb
}

func (s clientRequests) unregister(c *call, h *protocol.UnregisterClientRequestHeader) (answer, error) {
	s.clients.Unregister(c.Peer, h.ProducerGroup, h.ConsumerGroup, time.Now())
	return answer{}, nil
}

// checkConfig is what a push consumer asks at its start for each subscription that is not by tag.
func (s clientRequests) checkConfig(c *call, body *protocol.CheckClientRequestBody) (answer, error) {
	sub := body.SubscriptionData
	if sub == nil || !filter.IsSQL(sub.ExpressionType) {
		return answer{}, nil
	}
	_, err := s.filters.Parse(sub.SubString, sub.ExpressionType)
	return answer{}, err
}

func (s clientRequests) consumerList(_ *call, h *protocol.GetConsumerListByGroupRequestHeader) (answer, error) {
	group, ok := s.clients.Group(h.ConsumerGroup)
	if !ok || len(group.ClientIDs()) == 0 {
		return answer{}, protocol.Errorf(protocol.SystemError, "no consumer for this group, %s", h.ConsumerGroup)
	}
	return withBody(&protocol.GetConsumerListByGroupResponseBody{ConsumerIDList: group.ClientIDs()})
}

func (s clientRequests) lock(c *call, body *protocol.LockBatchRequestBody) (answer, error) {
	locked := s.locks.Lock(body.ConsumerGroup, body.ClientID, c.Peer, queuesOf(body.MQSet), time.Now())
	return withBody(&protocol.LockBatchResponseBody{LockOKMQSet: queueBodies(locked)})
}

func (s clientRequests) unlock(c *call, body *protocol.LockBatchRequestBody) (answer, error) {
	s.locks.Unlock(body.ConsumerGroup, body.ClientID, queuesOf(body.MQSet))
	return answer{}, nil
}

// mapped is a list of what fn makes of each of another; never nil.
func mapped[F, T any](from []F, fn func(F) T) []T {
	to := make([]T, len(from))
	for i, one := range from {
		to[i] = fn(one)
	}
	return to
}

func queuesOf(bodies []protocol.MessageQueue) []broker.MessageQueue {
	return mapped(bodies, func(q protocol.MessageQueue) broker.MessageQueue { return broker.MessageQueue(q) })
}

func queueBodies(queues []broker.MessageQueue) []protocol.MessageQueue {
	return mapped(queues, func(q broker.MessageQueue) protocol.MessageQueue { return protocol.MessageQueue(q) })
}

// notifyChanged tells the members of a group to rebalance (NOTIFY_CONSUMER_IDS_CHANGED).
func notifyChanged(group string, members []broker.Channel) {
	for _, m := range members {
		if caller, ok := m.(remoting.Caller); ok {
			// A member whose connection ends now needs no notice; it learns of the group when it connects
			// again.
			_ = caller.OneWay(protocol.NotifyConsumerIDsChanged, &protocol.NotifyConsumerIdsChangedRequestHeader{
				ConsumerGroup: group,
			}, nil)
		}
	}
}

// countdown calls end once, after done was called n+1 times, with the first error it was given.
type countdown struct {
	left  atomic.Int32
	first atomic.Pointer[error]
	end   func(error)
}

func newCountdown(n int, end func(error)) *countdown {
	c := &countdown{end: end}
	c.left.Store(int32(n) + 1)
	return c
}

func (c *countdown) done(err error) {
	if err != nil {
		c.first.CompareAndSwap(nil, &err)
	}
	if c.left.Add(-1) > 0 {
		return
	}
	if first := c.first.Load(); first != nil {
		c.end(*first)
		return
	}
	c.end(nil)
}
