// SPDX-License-Identifier: Apache-2.0

package offset

import (
	"slices"

	"github.com/roquetmq/roquet/internal/message"
)

// Offsets returns what group has committed in topic, by queue id; nil when nothing.
func (t *Table) Offsets(group, topic string) map[int32]message.QueueOffset {
	p, ok := t.live.Load(key{topic, group})
	if !ok {
		return nil
	}
	return p.offsets()
}

func (p *progress) offsets() map[int32]message.QueueOffset {
	var found map[int32]message.QueueOffset
	for id, q := range *p.queues.Load() {
		if q == nil || q.committed.Load() == none {
			continue
		}
		if found == nil {
			found = map[int32]message.QueueOffset{}
		}
		found[int32(id)] = message.QueueOffset(q.committed.Load())
	}
	return found
}

// All calls yield with what every group has committed in every topic, in no order, until it returns false.
func (t *Table) All(yield func(group, topic string, offsets map[int32]message.QueueOffset) bool) {
	for k, p := range t.live.All() {
		if offsets := p.offsets(); offsets != nil && !yield(k.group, k.topic, offsets) {
			return
		}
	}
}

// Point is how far a group has come in a queue: -1 where nothing is known.
type Point struct{ Committed, Pulled message.QueueOffset }

// Each calls fn with how far every group has come in every topic, in no order. The points, by queue id, are
// valid during the call.
func (t *Table) Each(fn func(group, topic string, queues []Point)) {
	var points []Point
	for k, p := range t.live.All() {
		points = points[:0]
		for _, q := range *p.queues.Load() {
			at := Point{none, none}
			if q != nil {
				at = Point{message.QueueOffset(q.committed.Load()), message.QueueOffset(q.pulled.Load())}
			}
			points = append(points, at)
		}
		fn(k.group, k.topic, points)
	}
}

// TopicsOf returns the topics in which group has offsets, in order.
func (t *Table) TopicsOf(group string) []string {
	var topics []string
	for k, p := range t.live.All() {
		if k.group == group && p.offsets() != nil {
			topics = append(topics, k.topic)
		}
	}
	slices.Sort(topics)
	return topics
}

// GroupsOf returns the groups that have offsets in topic, in order.
func (t *Table) GroupsOf(topic string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var groups []string
	for p := range t.mu.byTopic[topic] {
		if p.offsets() != nil {
			groups = append(groups, p.key.group)
		}
	}
	slices.Sort(groups)
	return groups
}

// Len returns the number of pairs of topic and group.
func (t *Table) Len() int { return t.live.Size() }

// Clone gives dest the committed offsets that src has in topic. The next flush stores them.
// Source: ConsumerOffsetManager.java cloneOffset.
func (t *Table) Clone(src, dest, topic string) {
	for id, off := range t.Offsets(src, topic) {
		t.Commit(dest, topic, id, off)
	}
}

// MinOffsets returns for each queue of topic the least offset that any group but the excluded ones has
// committed and that is not below the queue's minimum. Source: ConsumerOffsetManager.java
// queryMinOffsetInAllGroup. Known difference: the excluded groups keep their offsets.
func (t *Table) MinOffsets(topic string, excluded []string, minimum func(queueID int32) message.QueueOffset,
) map[int32]message.QueueOffset {
	least := map[int32]message.QueueOffset{}
	for _, group := range t.GroupsOf(topic) {
		if slices.Contains(excluded, group) {
			continue
		}
		for id, off := range t.Offsets(group, topic) {
			if known, ok := least[id]; off >= minimum(id) && (!ok || off < known) {
				least[id] = off
			}
		}
	}
	return least
}
