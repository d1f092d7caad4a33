// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/roquetmq/roquet/internal/broker/pop"
)

// popAlarm knows when which share has to be looked at: a message becomes visible again, or a failed write is
// over.
type popAlarm struct {
	kick chan struct{} // an earlier time than the one slept for
	mu   struct {
		sync.Mutex
		heap popDueHeap
	}
}

// sooner makes the share be looked at at due, in ms, at the latest.
func (a *popAlarm) sooner(s *popShare, due int64) {
	if due == never {
		return
	}
	a.mu.Lock()
	first := false
	switch {
	case s.place < 0:
		s.due = due
		heap.Push(&a.mu.heap, s)
		first = s.place == 0
	case due < s.due:
		s.due = due
		heap.Fix(&a.mu.heap, s.place)
		first = s.place == 0
	}
	a.mu.Unlock()
	if first {
		select {
		case a.kick <- struct{}{}:
		default:
		}
	}
}

// set makes the share be looked at at due, and not before; never: not at all. By who looks at shares, or
// about one that is no more.
func (a *popAlarm) set(s *popShare, due int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.place >= 0 {
		heap.Remove(&a.mu.heap, s.place)
	}
	if due != never {
		s.due = due
		heap.Push(&a.mu.heap, s)
	}
}

// take takes a share out that is due at now; nil when none is, and when the next one will be.
func (a *popAlarm) take(now int64) (s *popShare, next int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	h := a.mu.heap
	if len(h) == 0 {
		return nil, never
	}
	if h[0].due > now {
		return nil, h[0].due
	}
	s, _ = heap.Pop(&a.mu.heap).(*popShare)
	return s, 0
}

// watch looks at shares when they are due, until ctx is done.
func (p *Popper) watch(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := nowMillis()
		s, next := p.alarm.take(now)
		for ; s != nil; s, next = p.alarm.take(now) {
			p.tick(s)
		}
		if next == never {
			timer.Stop()
		} else {
			timer.Reset(max(popTick, time.Duration(next-nowMillis())*time.Millisecond))
		}
		select {
		case <-ctx.Done():
			return
		case <-p.alarm.kick:
		case <-timer.C:
		}
	}
}

// tick looks at a share: what became visible may be received, what had its last delivery becomes a dead
// letter.
func (p *Popper) tick(s *popShare) {
	var c popChange
	s.mu.Lock()
	broken := s.mu.broken != nil
	err := p.usableLocked(s)
	if err == nil {
		err = p.tickLocked(s, &c)
	}
	s.mu.Unlock()
	for _, d := range c.dead {
		p.bury(s, d, func(error) {})
	}
	s.mu.Lock()
	p.alarm.set(s, s.nextLookLocked(err))
	s.mu.Unlock()
	if c.wake || broken {
		p.signal(s, AllQueues)
	}
}

// nextLookLocked is when to look again after a look that ended with err.
func (s *popShare) nextLookLocked(err error) int64 {
	switch {
	case s.mu.closed != nil:
		return never
	case err != nil || s.mu.broken != nil:
		return nowMillis() + popRetry.Milliseconds()
	case s.overdue.Load():
		return nowMillis()
	}
	return s.deadlineLocked()
}

func (p *Popper) tickLocked(s *popShare, c *popChange) error {
	now := nowMillis()
	ev := pop.Tick{MaxTimes: p.maxTimes(s.key.group), Everything: s.overdue.Swap(false)}
	s.mu.batch.begin()
	for id, q := range s.mu.queues {
		if q != nil && (ev.Everything || q.Due(now)) {
			s.takeLocked(c, int32(id), q, q.Step(now, &ev))
		}
	}
	_, err := p.appendLocked(s, p.aside(s), c)
	return err
}

// popDueHeap is a heap of shares, for container/heap.
type popDueHeap []*popShare

// Len implements heap.Interface.
func (h popDueHeap) Len() int { return len(h) }

// Less implements heap.Interface.
func (h popDueHeap) Less(i, j int) bool { return h[i].due < h[j].due }

// Swap implements heap.Interface.
func (h popDueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push implements heap.Interface.
func (h *popDueHeap) Push(x any) {
	s, _ := x.(*popShare)
	s.place = len(*h)
	*h = append(*h, s)
}

// Pop implements heap.Interface.
func (h *popDueHeap) Pop() any {
	old := *h
	s := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	s.place, s.due = -1, never
	return s
}
