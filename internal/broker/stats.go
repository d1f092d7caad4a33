// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v4"
)

// Names of statistics, as tools ask for them. The key of those of topics is the topic, of groups topic@group,
// of the broker the cluster. Source: BrokerStatsManager.java.
const (
	StatTopicPutNums  = "TOPIC_PUT_NUMS"
	StatTopicPutSize  = "TOPIC_PUT_SIZE"
	StatGroupGetNums  = "GROUP_GET_NUMS"
	StatGroupGetSize  = "GROUP_GET_SIZE"
	StatGroupAckNums  = "GROUP_ACK_NUMS"
	StatGroupLatency  = "GROUP_GET_LATENCY"
	StatSendBackNums  = "SNDBCK_PUT_NUMS"
	StatDLQNums       = "DLQ_PUT_NUMS"
	StatBrokerPutNums = "BROKER_PUT_NUMS"
	StatBrokerGetNums = "BROKER_GET_NUMS"
)

// spans are how often samples are taken for the last minute, hour and day, and how many are kept; what is told is
// the difference of the newest and the oldest one. Source: StatsItem.java.
func spans(now time.Time) (s [3]sampler) {
	for i, span := range []sampler{
		{every: 10 * time.Second, kept: 7}, {every: 10 * time.Minute, kept: 7}, {every: time.Hour, kept: 25},
	} {
		span.next = now.Add(span.every)
		s[i] = span
	}
	return s
}

// Snapshot is what a statistic came to in a span of time.
type Snapshot struct {
	Sum   int64
	Times int64
	TPS   float64 // Sum a second
	AvgPT float64 // Sum / Times
}

// Snapshots are a statistic's last minute, hour and day.
type Snapshots struct{ Minute, Hour, Day Snapshot }

// Stats counts what goes through the broker. Adding takes no lock and does not allocate, but the first time
// for a topic or group. All methods are safe for concurrent use. The owner calls Tick every second.
type Stats struct {
	system SystemNames
	topics *xsync.Map[string, *topicStats]
	groups *xsync.Map[groupStatsKey, *groupStats]
	broker brokerStats

	mu struct {
		sync.Mutex
		spans   [3]sampler
		runtime runtimeStats
	}
}

type groupStatsKey struct{ topic, group string }

type topicStats struct {
	nums, size item
	meter      TopicMeter
}

type groupStats [7]item

// The items of groupStats.
const (
	groupNums = iota
	groupSize
	groupAcks
	groupSendBacks
	groupDLQs
	groupLatency
	groupPop // messages of groupNums, and as times bytes of groupSize, that pop took
)

// brokerStats are totals since the start. Times are calls, nums are messages.
type brokerStats struct {
	put, get, timers     item
	putTimes, putFailed  atomic.Int64
	putSize              atomic.Int64
	getFound, getMissed  atomic.Int64
	transferred          atomic.Int64
	putMaxMillis         atomic.Int64
	getMaxMillis         atomic.Int64
	putDistribution      [putBuckets]atomic.Int64
	userPut, userGetNums atomic.Int64 // without system topics
}

// item is one counter and its samples.
type item struct {
	value atomic.Int64
	times atomic.Int64

	samples [3]ring // guarded by Stats.mu
}

func (i *item) add(value, times int64) {
	i.value.Add(value)
	i.times.Add(times)
}

// NewStats returns counters at zero. The clock of its samples starts at now.
func NewStats(system SystemNames, now time.Time) *Stats {
	s := &Stats{
		system: system, topics: xsync.NewMap[string, *topicStats](),
		groups: xsync.NewMap[groupStatsKey, *groupStats](),
	}
	s.mu.spans = spans(now)
	s.mu.runtime.start(now)
	return s
}

// Put counts one send of so many messages and bytes that was stored in topic after took.
func (s *Stats) Put(topic string, kind MessageKind, messages, bytes int, took time.Duration) {
	t := s.topic(topic)
	t.nums.add(int64(messages), 1)
	t.size.add(int64(bytes), 1)
	t.meter.Sizes[kind].add(sizeBounds(), int64(bytes/max(messages, 1)), int64(messages), int64(bytes))
	b := &s.broker
	b.put.add(int64(messages), 1)
	b.putTimes.Add(int64(messages))
	b.putSize.Add(int64(bytes))
	if !s.system.IsTopic(topic) {
		b.userPut.Add(int64(messages))
	}
	millis := took.Milliseconds()
	b.putDistribution[putBucket(millis)].Add(1)
	raise(&b.putMaxMillis, millis)
}

// PutFailed counts a send that was not stored.
func (s *Stats) PutFailed() { s.broker.putFailed.Add(1) }

// Get counts one read by group that found so many messages and bytes in topic, after took.
func (s *Stats) Get(group, topic string, messages, bytes int, took time.Duration) {
	g := s.group(group, topic)
	g[groupNums].add(int64(messages), 1)
	g[groupSize].add(int64(bytes), 1)
	millis := took.Milliseconds()
	g[groupLatency].add(millis, 1)
	b := &s.broker
	b.get.add(int64(messages), 1)
	b.getFound.Add(1)
	b.transferred.Add(int64(messages))
	if !s.system.IsTopic(topic) {
		b.userGetNums.Add(int64(messages))
	}
	raise(&b.getMaxMillis, millis)
}

// Popped counts messages of a Get as received by pop.
func (s *Stats) Popped(group, topic string, messages, bytes int) {
	s.group(group, topic)[groupPop].add(int64(messages), int64(bytes))
}

// GetMissed counts a read that found nothing.
func (s *Stats) GetMissed() { s.broker.getMissed.Add(1) }

// Ack counts messages of topic that group acknowledged.
func (s *Stats) Ack(group, topic string, messages int) {
	s.group(group, topic)[groupAcks].add(int64(messages), 1)
}

// SendBack counts a message of topic that group sent back to try again later.
func (s *Stats) SendBack(group, topic string) { s.group(group, topic)[groupSendBacks].add(1, 1) }

// DLQ counts a message of topic that became a dead letter of group.
func (s *Stats) DLQ(group, topic string) { s.group(group, topic)[groupDLQs].add(1, 1) }

func (s *Stats) topic(topic string) *topicStats {
	t, ok := s.topics.Load(topic)
	if !ok {
		t, _ = s.topics.LoadOrStore(strings.Clone(topic), &topicStats{})
	}
	return t
}

func (s *Stats) group(group, topic string) *groupStats {
	g, ok := s.groups.Load(groupStatsKey{topic, group})
	if !ok {
		g, _ = s.groups.LoadOrStore(groupStatsKey{strings.Clone(topic), strings.Clone(group)}, &groupStats{})
	}
	return g
}

// raise makes v at least n.
func raise(v *atomic.Int64, n int64) {
	for old := v.Load(); n > old && !v.CompareAndSwap(old, n); old = v.Load() {
	}
}

// View returns a statistic by its name and key. Source: AdminBrokerProcessor.java ViewBrokerStatsData.
func (s *Stats) View(name, key string) (Snapshots, bool) {
	it, ok := s.find(name, key)
	if !ok {
		return Snapshots{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	view := func(i int) Snapshot { return it.samples[i].view(&s.mu.spans[i]) }
	return Snapshots{Minute: view(0), Hour: view(1), Day: view(2)}, true
}

// TopicPutTPS returns how many messages a second were sent to topic in the last minute.
func (s *Stats) TopicPutTPS(topic string) float64 {
	v, _ := s.View(StatTopicPutNums, topic)
	return v.Minute.TPS
}

// TimersTPS returns how many messages a second whose time had come were delivered in the last minute.
func (s *Stats) TimersTPS() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broker.timers.samples[0].view(&s.mu.spans[0]).TPS
}

// GroupGetTPS returns how many messages a second group read from topic in the last minute.
func (s *Stats) GroupGetTPS(group, topic string) float64 {
	v, _ := s.View(StatGroupGetNums, topic+"@"+group)
	return v.Minute.TPS
}

func (s *Stats) find(name, key string) (*item, bool) {
	switch name {
	case StatBrokerPutNums:
		return &s.broker.put, key == s.system.Cluster
	case StatBrokerGetNums:
		return &s.broker.get, key == s.system.Cluster
	case StatTopicPutNums, StatTopicPutSize:
		t, ok := s.topics.Load(key)
		if ok && name == StatTopicPutSize {
			return &t.size, true
		} else if ok {
			return &t.nums, true
		}
		return nil, false
	}
	topic, group, _ := strings.Cut(key, "@")
	g, ok := s.groups.Load(groupStatsKey{topic, group})
	i := slices.Index([]string{
		StatGroupGetNums, StatGroupGetSize, StatGroupAckNums, StatSendBackNums, StatDLQNums, StatGroupLatency,
	}, name)
	if !ok || i < 0 || g[i].times.Load() == 0 {
		return nil, false
	}
	return &g[i], true
}

// TopicDeleted forgets the statistics of topic.
func (s *Stats) TopicDeleted(topic string) {
	s.topics.Delete(topic)
	s.groups.DeleteMatching(func(key groupStatsKey, _ *groupStats) (gone, stop bool) {
		return key.topic == topic, false
	})
}

// GroupDeleted forgets the statistics of group.
func (s *Stats) GroupDeleted(group string) {
	s.groups.DeleteMatching(func(key groupStatsKey, _ *groupStats) (gone, stop bool) {
		return key.group == group, false
	})
}
