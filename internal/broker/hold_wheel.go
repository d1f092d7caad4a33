// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"math"
	"time"
)

const (
	// holdTick is how exact deadlines of held requests are: they end at most so much late, never early.
	holdTick = 100 * time.Millisecond
	// wheelSlots times holdTick is how far the wheel looks ahead; a deadline beyond that goes round more than
	// once.
	wheelSlots = 512
)

// wheel finds requests whose deadline passed. Time is counted in ticks. Inserting and removing cost the same
// however many there are.
type wheel struct {
	slots [wheelSlots]*held
	done  int64 // the last tick that was looked at
	count int
}

// insert puts h where its deadline will be found and returns the tick at which it is looked at.
func (w *wheel) insert(h *held, now int64) int64 {
	if w.count == 0 {
		w.done = max(w.done, now)
	}
	at := min(max(h.deadline, w.done+1), w.done+wheelSlots-1)
	h.slot = int(at % wheelSlots)
	h.prev, h.next = nil, w.slots[h.slot]
	if h.next != nil {
		h.next.prev = h
	}
	w.slots[h.slot] = h
	w.count++
	return at
}

func (w *wheel) remove(h *held) {
	if h.prev != nil {
		h.prev.next = h.next
	} else {
		w.slots[h.slot] = h.next
	}
	if h.next != nil {
		h.next.prev = h.prev
	}
	h.next, h.prev = nil, nil
	w.count--
}

// expire takes out all whose deadline is not after now and appends them to expired. Those that were put short
// of their deadline, because the wheel does not reach that far, get their next place.
func (w *wheel) expire(now int64, expired []*held) []*held {
	for w.count > 0 && w.done < now {
		w.done++
		h := w.slots[w.done%wheelSlots]
		for h != nil {
			next := h.next
			w.remove(h)
			if h.deadline <= now {
				expired = append(expired, h)
			} else {
				w.insert(h, w.done)
			}
			h = next
		}
	}
	w.done = max(w.done, now)
	return expired
}

// next returns the first tick at which there is something to look at; math.MaxInt64 when the wheel is empty.
func (w *wheel) next() int64 {
	if w.count == 0 {
		return math.MaxInt64
	}
	for at := w.done + 1; at < w.done+wheelSlots; at++ {
		if w.slots[at%wheelSlots] != nil {
			return at
		}
	}
	return w.done + wheelSlots
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
		next := t.mu.wheel.next()
		t.mu.sleepUntil = next
		t.mu.Unlock()
		if next == math.MaxInt64 {
			timer.Stop()
		} else {
			timer.Reset(time.Until(t.epoch.Add(time.Duration(next) * holdTick)))
		}
		select {
		case <-ctx.Done():
			t.stop()
			return
		case <-t.kick:
		case <-timer.C:
			t.mu.Lock()
			expired := t.mu.wheel.expire(t.now(), nil)
			t.leavingLocked(expired)
			t.mu.Unlock()
			for _, h := range expired {
				t.leave(h)
			}
		}
	}
}

func (t *holds) leavingLocked(expired []*held) {
	for _, h := range expired {
		h.state, h.reason = stateLeaving, wakeTimeUp
	}
}

func (t *holds) kickDeadlines() {
	select {
	case t.kick <- struct{}{}:
	default:
	}
}

// stop ends all holds and refuses new ones.
func (t *holds) stop() {
	var all []*held
	t.mu.Lock()
	t.mu.stopped = true
	for i := range t.mu.wheel.slots {
		for h := t.mu.wheel.slots[i]; h != nil; h = t.mu.wheel.slots[i] {
			t.mu.wheel.remove(h)
			all = append(all, h)
		}
	}
	t.leavingLocked(all)
	t.mu.wake.Broadcast()
	t.mu.Unlock()
	for _, h := range all {
		t.leave(h)
	}
}
