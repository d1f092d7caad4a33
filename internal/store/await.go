// SPDX-License-Identifier: Apache-2.0

package store

import (
	"sync"
	"sync/atomic"

	"github.com/roquetmq/roquet/internal/message"
)

// Waiter is one wish to be told when a queue grows. It is made by the caller, usually inside the request it
// holds, and may be used again after it was woken or cancelled. It waits for one queue at a time.
type Waiter struct {
	// Wake is called at most once for each Await that returned true: when the queue's maximum is above the
	// awaited offset, or when its topic was deleted. It runs on the applier with no lock held, and must
	// only take note.
	Wake func(w *Waiter)
	// Owner is the caller's.
	Owner any

	queue      atomic.Pointer[queue] // the queue of the last Await
	beyond     message.QueueOffset   // this and what follows: guarded by the queue's waiters
	linked     bool
	next, prev *Waiter
}

// waiterList is who waits for one queue. The applier reads count after it has published a queue's new
// maximum; Await raises count before it reads the maximum. So one of the two always sees the other: no
// wake-up is lost, and a queue nobody waits for costs the applier one load.
type waiterList struct {
	count atomic.Int32
	mu    struct {
		sync.Mutex
		first  *Waiter
		closed bool // the queue is gone: nobody waits here any more
	}
}

// Await registers w to be woken when the queue's maximum (one past its last visible message) is above
// beyond. It returns false, and registers nothing, when that is so already. The queue need not exist yet. w
// must not be waiting.
func (s *Store) Await(topic string, queueID int32, beyond message.QueueOffset, w *Waiter) bool {
	q := s.queues.obtain(topic, queueID)
	q.waiters.mu.Lock()
	for q.waiters.mu.closed { // its topic was deleted just now
		q.waiters.mu.Unlock()
		q = s.queues.obtain(topic, queueID)
		q.waiters.mu.Lock()
	}
	l := &q.waiters
	defer l.mu.Unlock()
	l.count.Add(1)
	if q.next() > beyond {
		l.count.Add(-1)
		return false
	}
	w.queue.Store(q)
	w.beyond, w.linked = beyond, true
	w.prev, w.next = nil, l.mu.first
	if w.next != nil {
		w.next.prev = w
	}
	l.mu.first = w
	return true
}

// Cancel takes w out. It reports whether w was waiting; if not, Wake has been called, or is just about to
// be, or there was no Await.
func (s *Store) Cancel(w *Waiter) bool {
	q := w.queue.Load()
	if q == nil {
		return false
	}
	l := &q.waiters
	l.mu.Lock()
	defer l.mu.Unlock()
	if !w.linked {
		return false
	}
	l.unlinkLocked(w)
	return true
}

// unlinkLocked takes w out of the list.
func (l *waiterList) unlinkLocked(w *Waiter) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		l.mu.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	}
	w.next, w.prev, w.linked = nil, nil, false
	l.count.Add(-1)
}

// close makes sure that nobody waits here from now on.
func (l *waiterList) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.closed = true
}

// take removes every waiter whose awaited offset is below maximum and appends it to woken.
func (l *waiterList) take(maximum message.QueueOffset, woken []*Waiter) []*Waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := l.mu.first; w != nil; {
		next := w.next
		if w.beyond < maximum {
			l.unlinkLocked(w)
			woken = append(woken, w)
		}
		w = next
	}
	return woken
}
