// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"time"

	"github.com/roquetmq/roquet/internal/broker/due"
)

// holdTick is how exact deadlines of held requests are: they end at most so much late, never early, and together.
const holdTick = 100 * time.Millisecond

// deadlines lists requests by the tick of their deadline: ticks are few, whatever the number of requests.
type deadlines map[int64]*held

func (d deadlines) add(h *held) {
	h.prev, h.next = nil, d[h.deadline]
	if h.next != nil {
		h.next.prev = h
	}
	d[h.deadline] = h
}

func (d deadlines) remove(h *held) {
	switch {
	case h.prev != nil:
		h.prev.next = h.next
	case h.next != nil:
		d[h.deadline] = h.next
	default:
		delete(d, h.deadline)
	}
	if h.next != nil {
		h.next.prev = h.prev
	}
	h.next, h.prev = nil, nil
}

// first returns the first tick with a request, due.Never when there is none.
func (d deadlines) first() int64 {
	first := due.Never
	for tick := range d {
		first = min(first, tick)
	}
	return first
}

// expireLocked takes out all whose deadline is not after now, in ticks.
func (t *holds) expireLocked(now int64) (expired []*held) {
	for tick, h := range t.mu.deadlines {
		for ; h != nil && tick <= now; h = t.mu.deadlines[tick] {
			t.mu.deadlines.remove(h)
			h.state, h.reason = stateLeaving, wakeTimeUp
			expired = append(expired, h)
		}
	}
	return expired
}

// now returns the tick that has passed.
func (t *holds) now() int64 { return int64(time.Since(t.epoch) / holdTick) }

// tick returns the first tick at which deadline has passed.
func (t *holds) tick(deadline time.Time) int64 {
	return int64((deadline.Sub(t.epoch) + holdTick - 1) / holdTick)
}

// watchDeadlines ends holds whose time is up, until ctx is done; then it ends all holds.
func (t *holds) watchDeadlines(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		t.mu.Lock()
		next := t.mu.deadlines.first()
		t.mu.sleepUntil = next
		t.mu.Unlock()
		if next == due.Never {
			timer.Stop()
		} else {
			timer.Reset(time.Until(t.epoch.Add(time.Duration(next) * holdTick)))
		}
		select {
		case <-ctx.Done():
			t.stop()
			return
		case <-t.bell.Rung():
		case <-timer.C:
			t.mu.Lock()
			expired := t.expireLocked(t.now())
			t.mu.Unlock()
			t.leave(expired...)
		}
	}
}

// stop ends all holds and refuses new ones.
func (t *holds) stop() {
	t.mu.Lock()
	t.mu.stopped = true
	all := t.expireLocked(due.Never - 1)
	t.mu.wake.Broadcast()
	t.mu.Unlock()
	t.leave(all...)
}
