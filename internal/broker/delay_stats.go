// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/roquetmq/roquet/internal/message"
)

// DelayStats is how deliveries go.
type DelayStats struct {
	Delivered int64 // messages since the start
	InFlight  int   // being delivered
	// Waiting is how many messages wait to be due. It is too low while Counting: for a moment after the
	// start.
	Waiting  int64
	Counting bool
	Late     time.Duration // by how much the last delivery was late, when it was durable
	// Lateness counts deliveries by how late they were; LateSum is the sum.
	Lateness [lateBuckets + 1]int64
	LateSum  time.Duration
}

// lateBuckets is the number of buckets of DelayStats.Lateness that have an upper bound.
const lateBuckets = 10

// LatenessBounds returns the upper bounds of the buckets of DelayStats.Lateness. The last bucket has none.
func LatenessBounds() [lateBuckets]time.Duration {
	return [lateBuckets]time.Duration{
		5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
		100 * time.Millisecond, 250 * time.Millisecond, time.Second, 5 * time.Second, time.Minute, 10 * time.Minute,
	}
}

// note takes note of by how much a delivery was late.
func (s *DelayStats) note(late time.Duration) {
	bounds := LatenessBounds()
	class, _ := slices.BinarySearch(bounds[:], late)
	s.Lateness[class]++
	s.Late = late
	s.LateSum += max(late, 0)
}

// Stats returns how deliveries go.
func (d *Delays) Stats() DelayStats {
	d.mu.Lock()
	defer d.mu.Unlock()
	told := d.mu.told
	told.InFlight, told.Waiting, told.Counting = len(d.mu.due.taken), d.mu.waiting.total, d.mu.waiting.counting
	return told
}

// Waiting returns how many messages wait to be due, by the topic they are going to. Source:
// TimerMetrics.java.
func (d *Delays) Waiting() map[string]int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.mu.waiting.byTopic)
}

// Pending returns, by delay level, the queue offset in the schedule topic of the message that is due first.
// Levels where nothing waits are missing. It reads timers until it has seen every level: it is for an operator's
// question.
func (d *Delays) Pending() (map[int]message.QueueOffset, error) {
	d.mu.Lock()
	levels, counting := len(d.mu.waiting.byLevel), d.mu.waiting.counting
	d.mu.Unlock()
	first := map[int]message.QueueOffset{}
	if levels == 0 && !counting {
		return first, nil
	}
	for st, err := range d.log.StatesIn(message.SpaceTimer, nil, nil) {
		if err != nil {
			return first, err
		}
		k, ok := decodeTimerKey(st.Key)
		if _, seen := first[int(k.level)]; ok && k.level != timerLevel && !seen {
			first[int(k.level)] = k.offset
		}
		if !counting && len(first) >= levels {
			break
		}
	}
	return first, nil
}

// Distribution returns how many messages are due within each of bounds from now, which must ascend; a message
// counts in the first one that it is in, and those beyond the last are not counted. It reads every timer up
// to there: it is for an operator's question. Source: TimerMessageStore.java checkAndReviseMetrics,
// timerDist.
func (d *Delays) Distribution(now time.Time, bounds []time.Duration) ([]int64, error) {
	counts := make([]int64, len(bounds))
	at := 0
	for st, err := range d.log.StatesIn(message.SpaceTimer, nil, nil) {
		if err != nil {
			return counts, err
		}
		k, ok := decodeTimerKey(st.Key)
		for ok && at < len(bounds) && k.due > now.Add(bounds[at]).UnixMilli() {
			at++
		}
		if at == len(bounds) {
			break
		}
		if ok {
			counts[at]++
		}
	}
	return counts, nil
}

// NextDue returns when the first waiting message is due, in ms; ok is false when none waits.
func (d *Delays) NextDue() (millis int64, ok bool, err error) {
	_, _, millis, err = d.look(nil, 0, 0)
	return millis, err == nil && millis != never, err
}

// count counts what waited before the start. A million takes a second: it is done beside everything else.
func (d *Delays) count(ctx context.Context) error {
	for st, err := range d.log.StatesIn(message.SpaceTimer, nil, nil) {
		if err != nil {
			d.logger.Error("waiting messages cannot be counted", "error", err)
		}
		if _, ok := decodeTimerKey(st.Key); ok {
			d.mu.Lock()
			d.mu.waiting.scanned(st.Key, st.Value)
			d.mu.Unlock()
		}
		if ctx.Err() != nil {
			break
		}
	}
	d.mu.Lock()
	d.mu.waiting.finish()
	d.mu.Unlock()
	return nil
}

// pendingCount counts timers, in total and by topic. At first it does not know what was there before: while
// that is being scanned, in the order of keys, a change of a key that the scan has passed is counted at once,
// and one of a key that is still to come is remembered until the end, in place of what the scan finds.
type pendingCount struct {
	total    int64
	byTopic  map[string]int64
	byLevel  map[uint8]int64 // delay levels alone
	counting bool
	cursor   []byte // the last key scanned
	changed  map[string]pendingChange
}

type pendingChange struct {
	topic string
	live  bool
}

func newPendingCount() pendingCount {
	return pendingCount{
		byTopic: map[string]int64{}, byLevel: map[uint8]int64{}, counting: true, changed: map[string]pendingChange{},
	}
}

// note takes note of a timer that was made (live) or ended.
func (p *pendingCount) note(key, topic []byte, live bool) {
	if p.counting {
		if _, again := p.changed[string(key)]; again || bytes.Compare(key, p.cursor) > 0 {
			p.changed[string(key)] = pendingChange{string(topic), live}
			return
		}
	}
	change := int64(1)
	if !live {
		change = -1
	}
	p.add(key, topic, change)
}

// scanned takes note of a timer that was there when the scan began.
func (p *pendingCount) scanned(key, topic []byte) {
	p.cursor = append(p.cursor[:0], key...)
	if _, newer := p.changed[string(key)]; !newer {
		p.add(key, topic, 1)
	}
}

func (p *pendingCount) finish() {
	p.counting = false
	for key, c := range p.changed {
		if c.live {
			p.add([]byte(key), []byte(c.topic), 1)
		}
	}
	p.changed, p.cursor = nil, nil
}

func (p *pendingCount) add(key, topic []byte, change int64) {
	p.total = max(0, p.total+change)
	if k, ok := decodeTimerKey(key); ok && k.level != timerLevel {
		addTo(p.byLevel, k.level, change)
	}
	addTo(p.byTopic, string(topic), change)
}

// addTo changes a counter, and lets go of it at zero.
func addTo[K comparable](counts map[K]int64, key K, change int64) {
	if counts[key] += change; counts[key] <= 0 {
		delete(counts, key)
	}
}
