// SPDX-License-Identifier: Apache-2.0

package store

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/roquetmq/roquet/internal/index"
	"github.com/roquetmq/roquet/internal/message"
)

// queueKey names a queue of a topic.
type queueKey struct {
	topic string
	id    int32
}

// queue is what the store keeps of one queue beside its index: the counter that gives queue offsets, and
// who waits for it to grow. A queue stays in the table until its topic is deleted and nothing was appended since,
// so whoever holds one needs no look-up, but has to look at gone, or at waiterList.closed.
type queue struct {
	key queueKey
	// idx is the queue's index, nil before its first message and after its topic was deleted. Set when the
	// queue is put into the table; later by the applier alone.
	idx atomic.Pointer[index.Queue]

	// assigned is the offset the next message gets, if assignedEpoch is the assigner's. Both are guarded by
	// the log's append lock.
	assigned      message.QueueOffset
	assignedEpoch uint64
	// gone says that the queue is out of the table. Guarded by the append lock too.
	gone bool

	waiters waiterList
	// touched is the mark by which the applier lists a queue once a batch. Applier only.
	touched bool
}

// next returns the queue's visible maximum: the offset its next message will have once it is applied.
func (q *queue) next() message.QueueOffset {
	if idx := q.idx.Load(); idx != nil {
		return idx.Next()
	}
	return 0
}

// queueTable finds queues. Those of the index appear in it when they are first asked for.
type queueTable struct {
	db *index.DB
	mu struct {
		sync.RWMutex
		queues map[queueKey]*queue
	}
}

func newQueueTable(db *index.DB) *queueTable {
	t := &queueTable{db: db}
	t.mu.queues = make(map[queueKey]*queue)
	return t
}

// lookup returns the queue if it is in the table, without allocating.
func (t *queueTable) lookup(topic []byte, id int32) *queue {
	t.mu.RLock()
	q := t.mu.queues[queueKey{string(topic), id}]
	t.mu.RUnlock()
	return q
}

// index returns the queue's index, nil when nothing was ever stored in it.
func (t *queueTable) index(topic string, id int32) *index.Queue {
	t.mu.RLock()
	q := t.mu.queues[queueKey{topic, id}]
	t.mu.RUnlock()
	if q == nil {
		return t.db.LookupQueue(topic, id)
	}
	return q.idx.Load()
}

// obtain returns the queue and makes it when it is not in the table.
func (t *queueTable) obtain(topic string, id int32) *queue {
	t.mu.RLock()
	q := t.mu.queues[queueKey{topic, id}]
	t.mu.RUnlock()
	if q != nil {
		return q
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.obtainLocked(queueKey{topic, id})
}

func (t *queueTable) obtainLocked(key queueKey) *queue {
	if q := t.mu.queues[key]; q != nil {
		return q
	}
	key.topic = strings.Clone(key.topic)
	q := &queue{key: key}
	if idx := t.db.LookupQueue(key.topic, key.id); idx != nil {
		q.idx.Store(idx)
	}
	t.mu.queues[key] = q
	return q
}

// load puts every queue of the topic that the index knows into the table.
func (t *queueTable) load(topic string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, idx := range t.db.Queues(topic) {
		t.obtainLocked(queueKey{topic, idx.ID()})
	}
}

// remove takes the queues of the topic out that goes says, which is called under the table's lock.
func (t *queueTable) remove(topic string, goes func(q *queue) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.mu.queues, func(key queueKey, q *queue) bool { return key.topic == topic && goes(q) })
}

// each calls fn with every queue of the topic that is in the table.
func (t *queueTable) each(topic string, fn func(q *queue)) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for key, q := range t.mu.queues {
		if key.topic == topic {
			fn(q)
		}
	}
}
