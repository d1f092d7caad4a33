// SPDX-License-Identifier: Apache-2.0

package index

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/roquetmq/roquet/internal/message"
)

// topic is one life of a topic: after DeleteTopic a topic of the same name is another one with another id, so
// that nothing of the old one can be mistaken for the new one's.
type topic struct {
	db     *DB
	name   string
	id     uint32
	died   atomic.Uint32            // epoch of its deletion; 0 = alive
	queues atomic.Pointer[[]*Queue] // ascending queueId; replaced, never changed
}

// topicTable holds the living topics. Only the applier changes it.
type topicTable struct {
	sync.RWMutex
	byName map[string]*topic
	nextID uint32 // applier only
}

// Queue returns the queue, creating it (and the topic) if need be. Applier only. An empty queue does not
// survive a restart.
func (d *DB) Queue(topicName string, queueID int32) *Queue {
	t := d.topicNamed(topicName)
	if t == nil {
		t = d.createTopic(topicName)
	}
	if q := t.queue(queueID); q != nil {
		return q
	}
	return t.createQueue(queueID)
}

// LookupQueue returns the queue or nil. It does not allocate. Any goroutine.
func (d *DB) LookupQueue(topicName string, queueID int32) *Queue {
	t := d.topicNamed(topicName)
	if t == nil {
		return nil
	}
	return t.queue(queueID)
}

// Queues returns the topic's queues by ascending queueId; nil if there is no such topic. The slice must not
// be changed. Any goroutine.
func (d *DB) Queues(topicName string) []*Queue {
	t := d.topicNamed(topicName)
	if t == nil {
		return nil
	}
	return t.all()
}

// Topics returns the names of all topics that have queues, sorted. Any goroutine.
func (d *DB) Topics() []string {
	d.topics.RLock()
	defer d.topics.RUnlock()
	return slices.Sorted(maps.Keys(d.topics.byName))
}

// DeleteTopic forgets the topic's queues, as said by the record at pos. A topic of that name created later
// starts at offset 0. Applier only. Queues that someone still holds answer reads with ErrDropped, sooner or
// later.
func (d *DB) DeleteTopic(topicName string, pos message.LogOffset) {
	t := d.topicNamed(topicName)
	if t == nil {
		return
	}
	d.topics.Lock()
	delete(d.topics.byName, topicName)
	d.topics.Unlock()
	t.died.Store(d.applier.epoch)
	d.applier.deleted = append(d.applier.deleted, t)
	d.cfg.Logger.Debug("topic removed from the index", "topic", topicName, "log_offset", int64(pos))
}

func (d *DB) topicNamed(name string) *topic {
	d.topics.RLock()
	defer d.topics.RUnlock()
	return d.topics.byName[name]
}

func (d *DB) allTopics() []*topic {
	d.topics.RLock()
	defer d.topics.RUnlock()
	return slices.Collect(maps.Values(d.topics.byName))
}

func (d *DB) createTopic(name string) *topic {
	t := &topic{db: d, name: name, id: d.topics.nextID}
	t.queues.Store(new([]*Queue))
	d.topics.Lock()
	d.topics.nextID++
	d.topics.byName[name] = t
	d.topics.Unlock()
	d.applier.created = append(d.applier.created, t)
	return t
}

// diedBy tells whether a checkpoint of epoch is one without the topic.
func (t *topic) diedBy(epoch uint32) bool {
	died := t.died.Load()
	return died != 0 && died <= epoch
}

func (t *topic) all() []*Queue { return *t.queues.Load() }

// queue finds a queue: queueIds are mostly 0, 1, 2 …, so it looks there first.
func (t *topic) queue(id int32) *Queue {
	all := t.all()
	if uint(id) < uint(len(all)) && all[id].id == id {
		return all[id]
	}
	if i, found := searchQueue(all, id); found {
		return all[i]
	}
	return nil
}

// createQueue adds an empty queue to the topic.
func (t *topic) createQueue(id int32) *Queue {
	q := &Queue{topic: t, id: id, minPos: noPosition}
	all := t.all()
	i, _ := searchQueue(all, id)
	grown := slices.Insert(slices.Clone(all), i, q)
	t.queues.Store(&grown)
	return q
}

func searchQueue(all []*Queue, id int32) (int, bool) {
	return slices.BinarySearchFunc(all, id, func(q *Queue, id int32) int { return int(q.id) - int(id) })
}
