// SPDX-License-Identifier: Apache-2.0

package service

import (
	"errors"
	"fmt"

	"github.com/roquetmq/roquet/internal/auth"
	"github.com/roquetmq/roquet/internal/broker"
	"github.com/roquetmq/roquet/internal/broker/filter"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/store"
)

// queryRequests finds messages: QUERY_MESSAGE 12, VIEW_MESSAGE_BY_ID 33, QUERY_CONSUME_QUEUE 321.
// Source: QueryMessageProcessor.java, AdminBrokerProcessor.java queryConsumeQueue.
type queryRequests struct{ *node }

const (
	indexTypeUnique = "U"
	maxQueryBytes   = 8 << 20 // of one answer
	maxQueueEntries = 1024    // of one QUERY_CONSUME_QUEUE
)

func (s queryRequests) byKey(_ *call, h *protocol.QueryMessageRequestHeader) (answer, error) {
	unique := h.UniqueKeyQuery.Or(false) || h.IndexType == indexTypeUnique
	records, err := s.queries.ByKey(broker.KeyQuery{
		Topic: h.Topic, Key: h.Key, Unique: unique, Begin: h.BeginTimestamp, End: h.EndTimestamp,
		Limit: min(int(h.MaxNum), max(int(s.settings.load().Message.QueryMaxNum), broker.DefaultQueryCount)),
	})
	if err != nil {
		return answer{}, err
	}
	found := answer{
		Header: &protocol.QueryMessageResponseHeader{IndexLastUpdatePhyoffset: int64(s.store.End())},
	}
	size := 0
	for _, rec := range records {
		if size += len(rec); size > maxQueryBytes && len(found.Bodies) > 0 {
			break
		}
		found.Bodies = append(found.Bodies, rec)
	}
	if len(found.Bodies) == 0 {
		return answer{}, protocol.Errorf(protocol.QueryNotFound, "can not find message, maybe time range not correct")
	}
	return found, nil
}

func (s queryRequests) byOffset(c *call, h *protocol.ViewMessageRequestHeader) (answer, error) {
	rec, err := s.store.Record(message.LogOffset(h.Offset))
	if errors.Is(err, store.ErrNotFound) {
		return answer{}, protocol.Errorf(protocol.SystemError, "can not find message by the offset, %d", h.Offset)
	}
	if err == nil {
		err = s.mayOn.record(c, auth.Sub|auth.Get, rec)
	}
	return answer{Body: rec}, err
}

// consumeQueue shows the entries of a queue and which of them a group's subscription lets through.
func (s queryRequests) consumeQueue(_ *call, h *protocol.QueryConsumeQueueRequestHeader) (answer, error) {
	low, high, ok := s.store.Bounds(h.Topic, h.QueueID)
	if !ok {
		if _, exists := s.topics.Lookup(h.Topic); !exists {
			return answer{}, broker.NoTopic(h.Topic)
		}
	}
	body := &protocol.QueryConsumeQueueResponseBody{MinQueueIndex: int64(low), MaxQueueIndex: int64(high)}
	match, err := s.subscription(body, h)
	if err != nil {
		return answer{}, err
	}
	last := min(h.Index+int64(min(max(h.Count, 0), maxQueueEntries)), int64(high))
	for at := max(h.Index, int64(low)); at < last; at++ {
		body.QueueData = append(body.QueueData, s.entry(h.Topic, h.QueueID, message.QueueOffset(at), match))
	}
	if len(body.QueueData) == 0 {
		return answer{}, protocol.Errorf(protocol.SystemError,
			"Index %d of %s/%d has no messages: the queue holds [%d, %d)", h.Index, h.Topic, h.QueueID, low, high)
	}
	return withBody(body)
}

// subscription puts the group's subscription into the answer, if one is asked for, and compiles it.
func (s queryRequests) subscription(
	body *protocol.QueryConsumeQueueResponseBody, h *protocol.QueryConsumeQueueRequestHeader,
) (*filter.Subscription, error) {
	if h.ConsumerGroup == "" {
		return nil, nil //nolint:nilnil // no subscription is no fault
	}
	sub, ok := s.clients.Subscription(h.ConsumerGroup, h.Topic)
	if !ok {
		body.FilterData = fmt.Sprintf("%s@%s is not online!", h.ConsumerGroup, h.Topic)
		return nil, nil //nolint:nilnil // as above
	}
	body.SubscriptionData = (*protocol.SubscriptionData)(sub)
	return s.filters.Parse(sub.SubString, sub.ExpressionType)
}

func (s queryRequests) entry(
	topic string, queueID int32, at message.QueueOffset, match *filter.Subscription,
) protocol.ConsumeQueueData {
	rec, err := s.store.At(topic, queueID, at)
	if err != nil {
		return protocol.ConsumeQueueData{Msg: err.Error()}
	}
	tag, _ := message.Property(rec.Properties(), message.PropertyTags)
	return protocol.ConsumeQueueData{
		PhysicOffset: int64(rec.LogOffset()), PhysicSize: int32(rec.Size()), TagsCode: message.TagsCode(tag),
		Eval: match == nil || match.Match(rec),
	}
}
