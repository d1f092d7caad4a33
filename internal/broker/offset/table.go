// SPDX-License-Identifier: Apache-2.0

package offset

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v4"

	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/nested"
	"github.com/roquetmq/roquet/internal/store"
)

// none is the value of an offset that is not there.
const none = -1

// warnInterval is the least time between two warnings about commits that go backwards.
const warnInterval = time.Second

// Table holds the offsets of all groups. All methods are safe for concurrent use; none waits. Strings that
// are given in may alias a buffer: what is kept is cloned. A done function is called exactly once, on the
// caller's goroutine when there was nothing to store or the store refused, else by the store's applier; it
// must not block.
type Table struct {
	journal  store.Journal
	log      *slog.Logger
	live     *xsync.Map[key, *progress]
	resets   atomic.Int64 // queues with a pending reset
	flushes  atomic.Int64
	flushed  atomic.Int64 // ms, of the last flush that stored something
	backward atomic.Int64 // unix ns of the last warning

	// mu is held across Append, so that the log has changes of one key in the order of memory.
	mu struct {
		sync.Mutex
		byTopic nested.Map[string, *progress, struct{}]
		dirty   []*progress
	}
}

type key struct{ topic, group string }

// progress is one group's way through one topic.
type progress struct {
	key    key
	queues atomic.Pointer[[]*queue] // by queue id; entries may be nil; replaced to grow, under mu
	dirty  atomic.Bool              // set after a value changed, cleared before values are read for the log
	gone   bool                     // dropped; under mu
}

// queue is one group's way through one queue; every value may be none.
type queue struct {
	committed atomic.Int64
	pulled    atomic.Int64 // memory only
	reset     atomic.Int64
}

func newQueue(committed, reset int64) *queue {
	q := &queue{}
	q.committed.Store(committed)
	q.pulled.Store(none)
	q.reset.Store(reset)
	return q
}

// New loads what is stored in the journal.
func New(journal store.Journal, log *slog.Logger) (*Table, error) {
	t := &Table{journal: journal, log: log, live: xsync.NewMap[key, *progress]()}
	t.mu.byTopic = nested.Map[string, *progress, struct{}]{}
	for st, err := range journal.States(message.SpaceOffset, nil) {
		var p *progress
		if err == nil {
			p, err = t.loadOne(st.Key, st.Value)
		}
		if err != nil {
			return nil, fmt.Errorf("load consumer offsets: %w", err)
		}
		t.live.Store(p.key, p)
		t.mu.byTopic.Put(p.key.topic, p, struct{}{})
	}
	return t, nil
}

func (t *Table) loadOne(k, value []byte) (*progress, error) {
	name, err := decodeKey(k)
	if err != nil {
		return nil, err
	}
	var queues []*queue
	err = decode(string(k), value, func(r record) {
		for int(r.queueID) >= len(queues) {
			queues = append(queues, nil)
		}
		queues[r.queueID] = newQueue(r.committed, r.reset)
		if r.reset != none {
			t.resets.Add(1)
		}
	})
	p := newProgress(name)
	p.queues.Store(&queues)
	return p, err
}

func newProgress(k key) *progress {
	p := &progress{key: k}
	p.queues.Store(&[]*queue{})
	return p
}

// Commit notes that group will go on at offset in the queue, also when that is behind what was committed
// before. It reports whether it did: not while a reset is pending, and not for a negative offset or queue id.
func (t *Table) Commit(group, topic string, queueID int32, offset message.QueueOffset) bool {
	q, p := t.obtain(group, topic, queueID)
	if q == nil || offset < 0 || q.reset.Load() != none {
		return false
	}
	if before := q.committed.Swap(int64(offset)); before > int64(offset) {
		t.warnBackward(p, queueID, before, int64(offset))
	}
	t.touch(p)
	return true
}

// CommitPull notes how far group has pulled the queue, in memory alone, for tools to show.
func (t *Table) CommitPull(group, topic string, queueID int32, offset message.QueueOffset) {
	if q, _ := t.obtain(group, topic, queueID); q != nil && offset >= 0 {
		q.pulled.Store(int64(offset))
	}
}

// Query returns where group goes on in the queue: at a pending reset, else at what was committed.
func (t *Table) Query(group, topic string, queueID int32) (message.QueueOffset, bool) {
	q, _ := t.find(group, topic, queueID)
	if q == nil {
		return none, false
	}
	if reset := q.reset.Load(); reset != none {
		return message.QueueOffset(reset), true
	}
	committed := q.committed.Load()
	return message.QueueOffset(committed), committed != none
}

// QueryPull returns how far group has pulled the queue; when that is not known, what Query returns.
func (t *Table) QueryPull(group, topic string, queueID int32) (message.QueueOffset, bool) {
	if q, _ := t.find(group, topic, queueID); q != nil {
		if pulled := q.pulled.Load(); pulled != none {
			return message.QueueOffset(pulled), true
		}
	}
	return t.Query(group, topic, queueID)
}

// HasReset tells whether a reset of the queue waits for the group's next pull.
func (t *Table) HasReset(group, topic string, queueID int32) bool {
	if t.resets.Load() == 0 {
		return false
	}
	q, _ := t.find(group, topic, queueID)
	return q != nil && q.reset.Load() != none
}

// TakeReset ends a pending reset and returns where to: the pull that asked has to be answered with it. With
// no reset anywhere it costs one atomic load.
func (t *Table) TakeReset(group, topic string, queueID int32) (message.QueueOffset, bool) {
	if t.resets.Load() == 0 {
		return none, false
	}
	q, p := t.find(group, topic, queueID)
	if q == nil {
		return none, false
	}
	reset := q.reset.Load()
	if reset == none || !q.reset.CompareAndSwap(reset, none) {
		return none, false
	}
	t.resets.Add(-1)
	q.committed.Store(reset) // over a commit that slipped in while the reset was made
	t.touch(p)
	return message.QueueOffset(reset), true
}

// find returns the queue, nil if there is none.
func (t *Table) find(group, topic string, queueID int32) (*queue, *progress) {
	p, ok := t.live.Load(key{topic, group})
	if !ok {
		return nil, nil
	}
	return p.queue(queueID), p
}

// obtain returns the queue, created if need be; nil for an impossible queue id.
func (t *Table) obtain(group, topic string, queueID int32) (*queue, *progress) {
	if queueID < 0 || queueID > maxQueueID {
		return nil, nil
	}
	if q, p := t.find(group, topic, queueID); q != nil {
		return q, p
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.progressLocked(group, topic)
	return p.obtainLocked(queueID), p
}

func (t *Table) progressLocked(group, topic string) *progress {
	p, found := t.live.Load(key{topic, group})
	if !found {
		p = newProgress(key{strings.Clone(topic), strings.Clone(group)})
		t.live.Store(p.key, p)
		t.mu.byTopic.Put(p.key.topic, p, struct{}{})
	}
	return p
}

func (p *progress) queue(queueID int32) *queue {
	queues := *p.queues.Load()
	if queueID < 0 || int(queueID) >= len(queues) {
		return nil
	}
	return queues[queueID]
}

// obtainLocked returns the queue, created if need be.
func (p *progress) obtainLocked(queueID int32) *queue {
	if q := p.queue(queueID); q != nil {
		return q
	}
	q, old := newQueue(none, none), *p.queues.Load()
	// A copy: readers have no lock, so theirs is never written to.
	next := make([]*queue, max(int(queueID)+1, len(old)))
	copy(next, old)
	next[queueID] = q
	p.queues.Store(&next)
	return q
}

// touch lists p for the next flush.
func (t *Table) touch(p *progress) {
	if p.dirty.CompareAndSwap(false, true) {
		t.mu.Lock()
		t.mu.dirty = append(t.mu.dirty, p)
		t.mu.Unlock()
	}
}

func (t *Table) warnBackward(p *progress, queueID int32, before, after int64) {
	now, last := time.Now().UnixNano(), t.backward.Load()
	if now-last < int64(warnInterval) || !t.backward.CompareAndSwap(last, now) {
		return
	}
	t.log.Warn("consumer offset went backwards", "group", p.key.group, "topic", p.key.topic,
		"queue_id", queueID, "before", before, "after", after)
}
