// SPDX-License-Identifier: Apache-2.0

package service

import (
	"github.com/roquetmq/roquet/internal/broker"
	"github.com/roquetmq/roquet/internal/protocol"
)

// topicRequests answers what administrators ask of topics: UPDATE_AND_CREATE_TOPIC 17,
// UPDATE_AND_CREATE_TOPIC_LIST 18, DELETE_TOPIC_IN_BROKER 215, GET_TOPIC_CONFIG 351, GET_ALL_TOPIC_CONFIG 21,
// GET_TOPIC_STATS_INFO 202, GET_SYSTEM_TOPIC_LIST_FROM_BROKER 305, CLEAN_UNUSED_TOPIC 316. Changes are
// answered when they are durable.
// Source: AdminBrokerProcessor.java.
type topicRequests struct{ *node }

func (s topicRequests) update(c *call, h *protocol.CreateTopicRequestHeader) {
	attributes, err := broker.ParseAttributes(h.Attributes)
	if err != nil {
		c.Fail(err)
		return
	}
	s.topics.Put(broker.TopicConfig{
		Name: h.Topic, ReadQueueNums: h.ReadQueueNums, WriteQueueNums: h.WriteQueueNums, Perm: h.Perm,
		FilterType: h.TopicFilterType, SysFlag: h.TopicSysFlag.Or(0), Order: h.Order, Attributes: attributes,
	}, replyTo(c))
}

func (s topicRequests) updateList(c *call, body *protocol.CreateTopicListRequestBody) {
	if len(body.TopicConfigList) == 0 {
		c.Fail(&protocol.Error{Code: protocol.InvalidParameter, Remark: "topicConfigList is empty"})
		return
	}
	configs := make([]broker.TopicConfig, len(body.TopicConfigList))
	for i := range body.TopicConfigList {
		t := &body.TopicConfigList[i]
		configs[i] = broker.TopicConfig{
			Name: t.TopicName, ReadQueueNums: t.ReadQueueNums, WriteQueueNums: t.WriteQueueNums, Perm: t.Perm,
			FilterType: t.TopicFilterType, SysFlag: t.TopicSysFlag, Order: t.Order, Attributes: t.Attributes,
		}
	}
	s.topics.PutAll(configs, replyTo(c))
}

func (s topicRequests) remove(c *call, h *protocol.DeleteTopicRequestHeader) {
	s.topics.Delete(h.Topic, replyTo(c))
}

func (s topicRequests) config(_ *call, h *protocol.GetTopicConfigRequestHeader) (answer, error) {
	cfg, ok := s.topics.Lookup(h.Topic)
	if !ok {
		return answer{}, broker.NoTopic(h.Topic)
	}
	return withBody(&protocol.TopicConfigAndQueueMapping{TopicConfig: topicBody(cfg)})
}

// configs answers GET_ALL_TOPIC_CONFIG: everything, or maxTopicNum topics from topicSeq on for a caller that
// pages.
func (s topicRequests) configs(_ *call, h *protocol.GetAllTopicConfigRequestHeader) (answer, error) {
	all := s.topics.All()
	total := int32(len(all))
	if h.MaxTopicNum.Present {
		all = page(all, h.TopicSeq, h.MaxTopicNum.Value)
	}
	body := &protocol.TopicConfigAndMappingSerializeWrapper{
		DataVersion:      protocol.DataVersion(s.topics.Version()),
		TopicConfigTable: make(map[string]protocol.TopicConfig, len(all)),
	}
	for _, cfg := range all {
		body.TopicConfigTable[cfg.Name] = topicBody(cfg)
	}
	return answer{
		Header: &protocol.GetAllTopicConfigResponseHeader{TotalTopicNum: protocol.Some(total)},
		Body:   protocol.EncodeBody(body),
	}, nil
}

// page is the part [from, from+count) of a list, as far as it exists.
func page[T any](all []T, from, count int32) []T {
	first := min(max(int(from), 0), len(all))
	return all[first:min(first+max(int(count), 0), len(all))]
}

func (s topicRequests) statistics(_ *call, h *protocol.GetTopicStatsInfoRequestHeader) (answer, error) {
	cfg, ok := s.topics.Lookup(h.Topic)
	if !ok {
		return answer{}, broker.NoTopic(h.Topic)
	}
	queues := max(cfg.ReadQueueNums, cfg.WriteQueueNums)
	body := &protocol.TopicStatsTable{OffsetTable: make(map[protocol.MessageQueue]protocol.TopicOffset, queues)}
	for id := range queues {
		body.OffsetTable[s.self.queue(cfg.Name, id)] = s.queueRange(cfg.Name, id)
	}
	body.TopicPutTPS = s.stats.TopicPutTPS(cfg.Name)
	return withBody(body)
}

func (s topicRequests) queueRange(topic string, id int32) protocol.TopicOffset {
	low, high, _ := s.store.Bounds(topic, id)
	offset := protocol.TopicOffset{MinOffset: int64(low), MaxOffset: int64(high)}
	if high > low {
		offset.LastUpdateTimestampMillis = storeTime(s.store, topic, id, high-1)
	}
	return offset
}

func (s topicRequests) system(*call) (answer, error) {
	body := &protocol.TopicList{TopicList: []string{}}
	for _, cfg := range s.topics.All() {
		if s.topics.IsSystem(cfg.Name) {
			body.TopicList = append(body.TopicList, cfg.Name)
		}
	}
	return withBody(body)
}

func topicBody(cfg *broker.TopicConfig) protocol.TopicConfig {
	return protocol.TopicConfig{
		Attributes: cfg.Attributes, Order: cfg.Order, Perm: cfg.Perm,
		ReadQueueNums: cfg.ReadQueueNums, TopicFilterType: cfg.FilterType, TopicName: cfg.Name,
		TopicSysFlag: cfg.SysFlag, WriteQueueNums: cfg.WriteQueueNums,
	}
}

// replyTo answers a call whose work ends later, with success or with the error. Many such answers are written
// at once.
func replyTo(c *call) func(error) {
	return func(err error) { c.AnswerLater(answer{}, err) }
}
