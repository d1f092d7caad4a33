// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"context"
	"sync"
	"time"
)

const (
	wheelTick  = 50 * time.Millisecond // how late an expiry may be noticed
	wheelSlots = 512                   // one turn is 25.6 s; a longer timeout goes round
)

// wheel expires requests sent to clients: one goroutine and one ticker for all of them, none while there are
// none.
type wheel struct {
	mu struct {
		sync.Mutex
		slots [wheelSlots]*request
		count int
	}
	wake chan struct{} // of capacity 1: the first request came
}

func newWheel() *wheel { return &wheel{wake: make(chan struct{}, 1)} }

func wheelSlot(at time.Time) int64 { return at.UnixNano() / int64(wheelTick) }

// add lists a request for its expiry.
func (w *wheel) add(r *request) {
	w.mu.Lock()
	slot := wheelSlot(r.expires) % wheelSlots
	head := w.mu.slots[slot]
	r.next, r.slot, r.listed = head, slot, true
	if head != nil {
		head.prev = r
	}
	w.mu.slots[slot] = r
	w.mu.count++
	first := w.mu.count == 1
	w.mu.Unlock()
	if first {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// remove takes a request out, if it is in.
func (w *wheel) remove(r *request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.removeLocked(r)
}

func (w *wheel) removeLocked(r *request) {
	if !r.listed {
		return
	}
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		w.mu.slots[r.slot] = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	}
	r.prev, r.next, r.listed = nil, nil, false
	w.mu.count--
}

// turn takes out what has expired in the slots after from up to now's.
func (w *wheel) turn(from int64, now time.Time) []*request {
	w.mu.Lock()
	defer w.mu.Unlock()
	var due []*request
	to := wheelSlot(now)
	for slot := max(from, to-wheelSlots+1); slot <= to; slot++ {
		for r := w.mu.slots[slot%wheelSlots]; r != nil; {
			next := r.next
			if !r.expires.After(now) {
				w.removeLocked(r)
				due = append(due, r)
			}
			r = next
		}
	}
	return due
}

func (w *wheel) empty() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.count == 0
}

// run turns the wheel until ctx is done.
func (w *wheel) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		}
		if !w.runWhileBusy(ctx) {
			return
		}
	}
}

func (w *wheel) runWhileBusy(ctx context.Context) bool {
	ticker := time.NewTicker(wheelTick)
	defer ticker.Stop()
	last := wheelSlot(time.Now()) - 1
	for !w.empty() {
		select {
		case <-ctx.Done():
			return false
		case now := <-ticker.C:
			for _, r := range w.turn(last, now) {
				r.conn.expire(r)
			}
			last = wheelSlot(now)
		}
	}
	return true
}
