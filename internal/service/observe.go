// SPDX-License-Identifier: Apache-2.0

package service

import (
	"slices"
	"strings"
	"time"

	"github.com/roquetmq/roquet/internal/broker"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
)

// observeRequests shows who is connected and how far everybody is: GET_CONSUMER_CONNECTION_LIST 203,
// GET_PRODUCER_CONNECTION_LIST 204, GET_ALL_PRODUCER_INFO 328, GET_CONSUME_STATS 208,
// GET_BROKER_CONSUME_STATS 317, QUERY_TOPIC_CONSUME_BY_WHO 300, QUERY_TOPICS_BY_CONSUMER 343,
// QUERY_SUBSCRIPTION_BY_CONSUMER 345, QUERY_CONSUME_TIME_SPAN 303, VIEW_BROKER_STATS_DATA 315.
// Source: AdminBrokerProcessor.java.
type observeRequests struct{ *node }

func (s observeRequests) consumerConnections(
	_ *call, h *protocol.GetConsumerConnectionListRequestHeader,
) (answer, error) {
	group, ok := s.clients.Group(h.ConsumerGroup)
	if !ok {
		return answer{}, protocol.Errorf(protocol.ConsumerNotOnline,
			"the consumer group[%s] not online", h.ConsumerGroup)
	}
	body := &protocol.ConsumerConnection{
		ConsumeFromWhere: protocol.ConsumeFromWhere(group.FromWhere), ConsumeType: protocol.ConsumeType(group.Type),
		MessageModel:      protocol.MessageModel(group.Model),
		SubscriptionTable: make(map[string]protocol.SubscriptionData, len(group.Subscriptions)),
		ConnectionSet:     connections(s.clients.Members(h.ConsumerGroup)),
	}
	for topic, sub := range group.Subscriptions {
		body.SubscriptionTable[topic] = protocol.SubscriptionData(*sub)
	}
	for _, conflict := range s.clients.ConflictsOf(h.ConsumerGroup) {
		body.Conflicts = append(body.Conflicts, conflict.String())
	}
	return withBody(body)
}

func connections(members []broker.Member) []protocol.Connection {
	return mapped(members, func(m broker.Member) protocol.Connection {
		return protocol.Connection{
			ClientAddr: m.Channel.RemoteAddr().String(), ClientID: m.ClientID,
			Language: protocol.ParseLanguage(m.Language), Version: m.Version,
		}
	})
}

func (s observeRequests) producerConnections(
	_ *call, h *protocol.GetProducerConnectionListRequestHeader,
) (answer, error) {
	members := s.clients.Producers(h.ProducerGroup)
	if len(members) == 0 {
		return answer{}, protocol.Errorf(protocol.SystemError, "the producer group[%s] not exist", h.ProducerGroup)
	}
	return withBody(&protocol.ProducerConnection{ConnectionSet: connections(members)})
}

func (s observeRequests) producers(*call) (answer, error) {
	body := &protocol.ProducerTableInfo{Data: map[string][]protocol.ProducerInfo{}}
	for group, members := range s.clients.ProducerGroups() {
		for _, m := range members {
			body.Data[group] = append(body.Data[group], protocol.ProducerInfo{
				ClientID: m.ClientID, Language: protocol.ParseLanguage(m.Language), Version: m.Version,
				LastUpdateTimestampMillis: m.LastSeen.UnixMilli(), RemoteIP: m.Channel.RemoteAddr().String(),
			})
		}
	}
	return withBody(body)
}

func (s observeRequests) consumeStats(_ *call, h *protocol.GetConsumeStatsRequestHeader) (answer, error) {
	topics := []string{h.Topic}
	if h.TopicList != "" {
		topics = strings.Split(h.TopicList, ";")
	} else if h.Topic == "" {
		topics = s.topicsOf(h.ConsumerGroup)
	}
	body := &protocol.ConsumeStats{OffsetTable: map[protocol.MessageQueue]protocol.OffsetWrapper{}}
	for _, topic := range topics {
		s.addConsumeStats(body, h.ConsumerGroup, topic)
	}
	return withBody(body)
}

// topicsOf are the topics that a group has offsets in or subscribes to.
func (s observeRequests) topicsOf(group string) []string {
	topics := s.offsets.TopicsOf(group)
	if online, ok := s.clients.Group(group); ok {
		for topic := range online.Subscriptions {
			topics = append(topics, topic)
		}
	}
	slices.Sort(topics)
	return slices.Compact(topics)
}

func (s observeRequests) addConsumeStats(body *protocol.ConsumeStats, group, topic string) {
	cfg, ok := s.topics.Lookup(topic)
	if !ok {
		return
	}
	for id := range cfg.ReadQueueNums {
		body.OffsetTable[s.self.queue(topic, id)] = s.progress(group, topic, id)
	}
	body.ConsumeTPS += s.stats.GroupGetTPS(group, topic)
}

// progress is where a group stands in a queue. LastTimestampMillis is the store time of the last message it
// has consumed.
func (s observeRequests) progress(group, topic string, id int32) protocol.OffsetWrapper {
	low, high, _ := s.store.Bounds(topic, id)
	consumed, _ := s.offsets.Query(group, topic, id)
	pulled, _ := s.offsets.QueryPull(group, topic, id)
	consumed = max(consumed, 0) // where nothing is known
	w := protocol.OffsetWrapper{
		BrokerOffset: int64(high), ConsumerOffset: int64(consumed), PullOffset: int64(max(pulled, consumed)),
	}
	if at := consumed - 1; at >= low && at < high {
		w.LastTimestampMillis = max(storeTime(s.store, topic, id, at), 0)
	}
	return w
}

func (s observeRequests) allConsumeStats(_ *call, h *protocol.GetConsumeStatsInBrokerHeader) (answer, error) {
	body := &protocol.ConsumeStatsList{
		BrokerAddr: s.self.addr, ConsumeStatsList: []map[string][]protocol.ConsumeStats{},
	}
	for _, group := range s.groups.All() {
		var list []protocol.ConsumeStats
		for _, topic := range s.topicsOf(group.Name) {
			cfg, ok := s.topics.Lookup(topic)
			if !ok || cfg.Order != h.IsOrder && h.IsOrder {
				continue
			}
			one := protocol.ConsumeStats{OffsetTable: map[protocol.MessageQueue]protocol.OffsetWrapper{}}
			s.addConsumeStats(&one, group.Name, topic)
			for _, w := range one.OffsetTable {
				body.TotalDiff += w.BrokerOffset - w.ConsumerOffset
				body.TotalInflightDiff += w.PullOffset - w.ConsumerOffset
			}
			list = append(list, one)
		}
		if list != nil {
			body.ConsumeStatsList = append(body.ConsumeStatsList,
				map[string][]protocol.ConsumeStats{group.Name: list})
		}
	}
	return withBody(body)
}

// groupsOfTopic are the groups that subscribe to a topic now or have offsets in it.
func (s observeRequests) groupsOfTopic(_ *call, h *protocol.QueryTopicConsumeByWhoRequestHeader) (answer, error) {
	groups := append([]string{}, s.clients.GroupsOf(h.Topic)...) // never null
	groups = append(groups, s.offsets.GroupsOf(h.Topic)...)
	slices.Sort(groups)
	return withBody(&protocol.GroupList{GroupList: slices.Compact(groups)})
}

func (s observeRequests) topicsOfGroup(_ *call, h *protocol.QueryTopicsByConsumerRequestHeader) (answer, error) {
	return topicList(s.offsets.TopicsOf(h.Group), s.self.addr)
}

func (s observeRequests) subscription(_ *call, h *protocol.QuerySubscriptionByConsumerRequestHeader) (answer, error) {
	body := &protocol.QuerySubscriptionResponseBody{Group: h.Group, Topic: h.Topic}
	if sub, ok := s.clients.Subscription(h.Group, h.Topic); ok {
		body.SubscriptionData = (*protocol.SubscriptionData)(sub)
	}
	return withBody(body)
}

// timeSpan is, for each queue, when its first, its last and the group's next message were stored.
func (s observeRequests) timeSpan(_ *call, h *protocol.QueryConsumeTimeSpanRequestHeader) (answer, error) {
	cfg, ok := s.topics.Lookup(h.Topic)
	if !ok {
		return answer{}, broker.NoTopic(h.Topic)
	}
	body := &protocol.QueryConsumeTimeSpanBody{}
	for id := range cfg.WriteQueueNums {
		span := protocol.QueueTimeSpan{MessageQueue: s.self.queue(cfg.Name, id)}
		low, high, _ := s.store.Bounds(cfg.Name, id)
		if high > low {
			span.MinTimeStampMillis = storeTime(s.store, cfg.Name, id, low)
			span.MaxTimeStampMillis = storeTime(s.store, cfg.Name, id, high-1)
		}
		span.ConsumeTimeStampMillis, span.DelayTimeMillis = s.delay(h.Group, cfg.Name, id, low, high)
		body.ConsumeTimeSpanSet = append(body.ConsumeTimeSpanSet, span)
	}
	return withBody(body)
}

// delay is when the last consumed message was stored, and how long the next one waits already.
func (s observeRequests) delay(group, topic string, id int32, low, high message.QueueOffset) (consumed, delay int64) {
	at, _ := s.offsets.Query(group, topic, id)
	if at > low && at-1 < high {
		consumed = storeTime(s.store, topic, id, at-1)
	} else if high > low {
		consumed = storeTime(s.store, topic, id, low)
	}
	if at < high && at >= low {
		if stored := storeTime(s.store, topic, id, at); stored > 0 {
			delay = time.Now().UnixMilli() - stored
		}
	}
	return consumed, delay
}

func (s observeRequests) statistics(_ *call, h *protocol.ViewBrokerStatsDataRequestHeader) (answer, error) {
	seen, ok := s.stats.View(h.StatsName, h.StatsKey)
	if !ok {
		return answer{}, protocol.Errorf(protocol.SystemError,
			"The stats <%s> <%s> not exist", h.StatsName, h.StatsKey)
	}
	item := func(s broker.Snapshot) protocol.BrokerStatsItem {
		return protocol.BrokerStatsItem{Sum: s.Sum, TPS: s.TPS, AvgPT: s.AvgPT}
	}
	return withBody(&protocol.BrokerStatsData{
		StatsMinute: item(seen.Minute), StatsHour: item(seen.Hour), StatsDay: item(seen.Day),
	})
}
