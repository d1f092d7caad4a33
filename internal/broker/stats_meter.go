// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"sync/atomic"
	"time"
)

// MessageKind is the type of a message, as metrics tell it. Source: TopicMessageType.java.
type MessageKind uint8

// The kinds of messages.
const (
	KindNormal MessageKind = iota
	KindFIFO
	KindDelay
	KindTransaction
)

// String returns the kind's name in metrics.
func (k MessageKind) String() string { return [...]string{"normal", "fifo", "delay", "transaction"}[k] }

// Upper bounds of the classes of messages' sizes in bytes, of delays and of the ages of committed transactions
// in seconds; the last class has none. Source: BrokerMetricsManager.java, DefaultStoreMetricsManager.java.
func sizeBounds() [6]int64   { return [...]int64{1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20} }
func waitBounds() [6]int64   { return [...]int64{60, 600, 3600, 12 * 3600, 24 * 3600, 72 * 3600} }
func finishBounds() [6]int64 { return [...]int64{5, 60, 600, 3600, 12 * 3600, 24 * 3600} }

// Distribution counts values in classes, and their sum. It is safe for concurrent use.
type Distribution struct {
	classes [7]atomic.Int64
	sum     atomic.Int64
}

func (d *Distribution) add(bounds [6]int64, value, times, sum int64) {
	class := 0
	for class < len(bounds) && value > bounds[class] {
		class++
	}
	d.classes[class].Add(times)
	d.sum.Add(sum)
}

// Load returns the counts by class, the last of which has no bound, and the sum behind them.
func (d *Distribution) Load() (values [8]int64) {
	for i := range d.classes {
		values[i] = d.classes[i].Load()
	}
	values[7] = d.sum.Load()
	return values
}

// TopicMeter is what is counted of a topic since the start, beyond its statistics.
type TopicMeter struct {
	Sizes                 [4]Distribution // of messages, by kind
	Waits, Finishes       Distribution    // seconds that messages had to wait, and transactions took
	TimersSet, TimersDone atomic.Int64
	Committed, RolledBack atomic.Int64
}

// TimerSet counts a message of topic that waits for a time so far away.
func (s *Stats) TimerSet(topic string, wait time.Duration) {
	m, seconds := &s.topic(topic).meter, max(0, int64(wait.Seconds()))
	m.TimersSet.Add(1)
	m.Waits.add(waitBounds(), seconds, 1, seconds)
}

// Decided counts a transaction of topic that was committed at an age, or rolled back.
func (s *Stats) Decided(topic string, committed bool, age time.Duration) {
	m, seconds := &s.topic(topic).meter, max(0, int64(age.Seconds()))
	if !committed {
		m.RolledBack.Add(1)
		return
	}
	m.Committed.Add(1)
	m.Finishes.add(finishBounds(), seconds, 1, seconds)
}

// EachTopic calls fn with every topic that had messages, in no order.
func (s *Stats) EachTopic(fn func(topic string, m *TopicMeter)) {
	for name, t := range s.topics.All() {
		fn(name, &t.meter)
	}
}

// EachGroup calls fn with what every group has taken of every topic since the start, by pop and in all, and
// with how many of it are dead letters, in no order.
func (s *Stats) EachGroup(fn func(group, topic string, pop, all [2]int64, dead int64)) {
	for key, g := range s.groups.All() {
		pop := &g[groupPop]
		fn(key.group, key.topic, [2]int64{pop.value.Load(), pop.times.Load()},
			[2]int64{g[groupNums].value.Load(), g[groupSize].value.Load()}, g[groupDLQs].value.Load())
	}
}
