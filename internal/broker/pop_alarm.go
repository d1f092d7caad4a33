// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"sync"

	"github.com/roquetmq/roquet/internal/broker/due"
	"github.com/roquetmq/roquet/internal/broker/pop"
)

// popAlarm knows when which share has to be looked at: a message becomes visible again, or a failed write is
// over.
type popAlarm struct {
	bell *due.Bell // an earlier time than the one slept for
	mu   struct {
		sync.Mutex
		heap due.Heap[*popShare]
	}
}

// sooner makes the share be looked at at a time, in ms, at the latest.
func (a *popAlarm) sooner(s *popShare, at int64) {
	a.mu.Lock()
	first := at < a.mu.heap.Due()
	if at < s.Due() {
		a.mu.heap.Set(s, at, 0)
	}
	a.mu.Unlock()
	if first {
		a.bell.Ring()
	}
}

// set makes the share be looked at at a time, and not before; never: not at all. By who looks at shares, or
// about one that is no more.
func (a *popAlarm) set(s *popShare, at int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.heap.Set(s, at, 0)
}

// take takes a share out that is due at now; nil when none is, and when the next one will be.
func (a *popAlarm) take(now int64) (s *popShare, next int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if next = a.mu.heap.Due(); next > now {
		return nil, next
	}
	s = a.mu.heap[0]
	a.mu.heap.Set(s, never, 0)
	return s, 0
}

// watch looks at shares when they are due, until ctx is done.
func (p *Popper) watch(ctx context.Context) {
	for {
		now := nowMillis()
		s, next := p.alarm.take(now)
		for ; s != nil; s, next = p.alarm.take(now) {
			p.tick(s)
		}
		if !p.alarm.bell.Sleep(ctx, max(next, now+popTick.Milliseconds())) {
			return
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
