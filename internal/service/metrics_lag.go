// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/roquetmq/roquet/internal/broker"
	"github.com/roquetmq/roquet/internal/broker/offset"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/telemetry"
)

// lagReader tells how far groups are behind, in messages and in time: every group that has a committed
// offset, whether or not a member of it is online. Source: ConsumerLagCalculator.java, which tells only those
// that are online.
type lagReader struct {
	node *node

	mu     sync.Mutex
	bounds map[string][]span // of this reading
	times  map[place]int64   // ms; of the messages that this reading and the one before asked about
	before map[place]int64
	until  time.Time // when this reading stops to read messages
}

// lagPatience bounds how long one reading reads messages for their time. What it does not get to, the next
// one does: messages that have been read once are remembered.
const lagPatience = 200 * time.Millisecond

type span struct{ low, high message.QueueOffset }

// place names one message.
type place struct {
	topic  string
	queue  int32
	offset message.QueueOffset
}

// lag is a group's in one topic.
type lag struct {
	behind, inflight, ready int64
	oldest, next            int64 // ms: of what is not consumed, and not given
}

func (l *lagReader) read(rows *telemetry.Rows) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.bounds, l.before, l.times = map[string][]span{}, l.times, map[place]int64{}
	l.until = now.Add(lagPatience)
	r := l.node
	r.offsets.Each(func(group, topic string, queues []offset.Point) {
		if strings.HasPrefix(topic, broker.RetryPrefix) {
			return
		}
		cfg, ok := r.topics.Lookup(topic)
		if !ok || cfg.Perm&(broker.PermRead|broker.PermWrite) == 0 {
			return
		}
		sum := l.sum(group, cfg, queues)
		system := strconv.FormatBool(r.topics.IsSystem(topic) || broker.IsSystemGroup(group))
		rows.Add([]string{group, topic, "false", system}, sum.behind, age(now, sum.oldest), sum.inflight,
			age(now, sum.next), sum.ready)
	})
}

func age(now time.Time, millis int64) int64 {
	return max(0, now.UnixMilli()-cmp.Or(millis, math.MaxInt64))
}

// sum adds a group's queues of a topic up.
func (l *lagReader) sum(group string, cfg *broker.TopicConfig, queues []offset.Point) (sum lag) {
	for id, b := range l.boundsOf(cfg) {
		at := offset.Point{Committed: b.high, Pulled: b.high}
		if id < len(queues) && queues[id].Committed >= 0 {
			at.Committed = queues[id].Committed
			at.Pulled = max(at.Committed, queues[id].Pulled)
		}
		at.Committed, at.Pulled = max(at.Committed, b.low), max(at.Pulled, b.low)
		inflight := int64(at.Pulled - at.Committed)
		if inflight > 0 {
			if p, ok := l.node.popper.Progress(group, cfg.Name, int32(id)); ok {
				inflight = int64(p.InFlight) // what is finished behind it is not
			}
		}
		ready := max(0, int64(b.high-at.Pulled))
		sum.inflight += inflight
		sum.ready += ready
		sum.behind += inflight + ready
		if inflight > 0 || ready > 0 {
			sum.oldest = earlier(sum.oldest, l.time(cfg.Name, int32(id), at.Committed))
		}
		if ready > 0 {
			sum.next = earlier(sum.next, l.time(cfg.Name, int32(id), at.Pulled))
		}
	}
	return sum
}

func earlier(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// boundsOf returns the bounds of a topic's queues, looked up once in a reading.
func (l *lagReader) boundsOf(cfg *broker.TopicConfig) []span {
	spans, ok := l.bounds[cfg.Name]
	if !ok {
		spans = make([]span, cfg.WriteQueueNums)
		for id := range spans {
			spans[id].low, spans[id].high, _ = l.node.store.Bounds(cfg.Name, int32(id))
		}
		l.bounds[cfg.Name] = spans
	}
	return spans
}

// time returns when a message was stored, 0 when that is not known.
func (l *lagReader) time(topic string, queue int32, at message.QueueOffset) int64 {
	key := place{topic, queue, at}
	millis, ok := l.times[key]
	if ok {
		return millis
	}
	if millis, ok = l.before[key]; !ok {
		if time.Now().After(l.until) {
			return 0
		}
		millis = max(0, storeTime(l.node.store, topic, queue, at))
	}
	l.times[key] = millis
	return millis
}
