// SPDX-License-Identifier: Apache-2.0

package nameserver

import (
	"maps"
	"slices"
)

// Bits of a topic's SysFlag. Source: TopicSysFlag.java.
const (
	flagUnit    int32 = 1
	flagUnitSub int32 = 2
)

// RegisterTopic sets the queues of a topic on brokers that are all known; else it does nothing.
func (r *Routes) RegisterTopic(topic string, queues []QueueData) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range queues {
		if r.mu.brokers[q.BrokerName] == nil {
			r.log.Warn("topic not registered: unknown broker", "topic", topic, "broker", q.BrokerName)
			return
		}
	}
	for _, q := range queues {
		r.mu.topics.Put(topic, q.BrokerName, q)
	}
}

// DeleteTopic forgets a topic on all brokers.
func (r *Routes) DeleteTopic(topic string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mu.topics, topic)
}

// DeleteTopicIn forgets a topic on the brokers of a cluster.
func (r *Routes) DeleteTopicIn(topic, cluster string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.mu.clusters[cluster] {
		r.mu.topics.Delete(topic, name)
	}
}

// Topics returns all topics, in order.
func (r *Routes) Topics() []string {
	return r.selectTopics(func(map[string]QueueData) bool { return true })
}

// TopicsIn returns the topics on brokers of a cluster, in order, each once.
func (r *Routes) TopicsIn(cluster string) []string {
	return r.selectTopics(func(queues map[string]QueueData) bool {
		for name := range r.mu.clusters[cluster] {
			if _, ok := queues[name]; ok {
				return true
			}
		}
		return false
	})
}

// UnitTopics returns the topics with the unit flag, in order.
func (r *Routes) UnitTopics() []string {
	return r.selectTopics(func(queues map[string]QueueData) bool { return flags(queues)&flagUnit != 0 })
}

// UnitSubTopics returns the topics with the unit subscription flag, in order.
func (r *Routes) UnitSubTopics() []string {
	return r.selectTopics(func(queues map[string]QueueData) bool { return flags(queues)&flagUnitSub != 0 })
}

// UnitSubOnlyTopics returns the topics with the unit subscription flag and without the unit flag, in order.
func (r *Routes) UnitSubOnlyTopics() []string {
	return r.selectTopics(func(queues map[string]QueueData) bool {
		return flags(queues)&(flagUnit|flagUnitSub) == flagUnitSub
	})
}

// flags returns the flags of the topic on its first broker; every topic has one.
func flags(queues map[string]QueueData) int32 {
	return queues[slices.Min(slices.Collect(maps.Keys(queues)))].TopicSysFlag
}

// selectTopics calls want under the read lock.
func (r *Routes) selectTopics(want func(map[string]QueueData) bool) []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	topics := []string{}
	for topic, queues := range r.mu.topics {
		if want(queues) {
			topics = append(topics, topic)
		}
	}
	slices.Sort(topics)
	return topics
}

// SystemTopics returns the names of clusters and brokers, which are topics too, in order, and the address of
// some broker. Source: RouteInfoManager.java getSystemTopicList.
func (r *Routes) SystemTopics() (topics []string, addr string) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	names := map[string]struct{}{}
	for cluster, brokers := range r.mu.clusters {
		names[cluster] = struct{}{}
		maps.Copy(names, brokers)
	}
	for _, name := range slices.Sorted(maps.Keys(r.mu.brokers)) {
		if addrs := r.mu.brokers[name].BrokerAddrs; len(addrs) > 0 {
			addr = addrs[slices.Min(slices.Collect(maps.Keys(addrs)))]
			break
		}
	}
	return slices.Sorted(maps.Keys(names)), addr
}
