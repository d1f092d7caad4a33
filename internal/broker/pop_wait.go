// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"container/list"
	"slices"
	"sync"

	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// popWaits is who waits for messages of a share, and what the share waits for itself: it awaits each of its
// queues once, however many receives wait. When there is something, one receive of each bench goes on; if it
// leaves anything behind, it sends the next.
type popWaits struct {
	mu struct {
		sync.Mutex
		benches []*popBench
		arms    []*popArm // by queue id
	}
}

// popBench is receives that wait for the same thing, in the order in which they came.
type popBench struct {
	key   popBenchKey
	seats list.List // of *PopRequest
}

// popSeat is a receive's place on a bench; bench is nil when it does not wait.
type popSeat struct {
	bench *popBench
	at    *list.Element
}

type popBenchKey struct {
	queueID  int32
	order    PopOrder
	notify   bool
	filter   string
	exprType string
}

// popArm awaits the growth of one queue.
type popArm struct {
	waiter store.Waiter
	share  *popShare
	id     int32
	armed  bool // guarded by popWaits.mu
}

func (req *PopRequest) benchKey() popBenchKey {
	return popBenchKey{req.QueueID, req.Order, req.notify, req.sub.Expression(), req.sub.Type()}
}

// arm makes the share await those queues that a receive has come to the end of, if there is anyone to wait.
// It reports whether there is more to receive already.
func (p *Popper) arm(req *PopRequest, s *popShare, found bool) (more bool) {
	if (found || req.until.IsZero()) && !s.waits.any() {
		return false
	}
	for i := range s.turn.takes {
		t := &s.turn.takes[i]
		s.mu.Lock()
		q := s.queueLocked(t.queueID)
		if q == nil || s.mu.broken != nil {
			s.mu.Unlock()
			continue
		}
		next, ripe := q.Next(), q.Ripe()
		s.mu.Unlock()
		stuck := !req.notify && next < t.ev.To // behind a message whose key someone has
		more = more || ripe && (found || len(t.ev.Gone) > 0)
		if !t.plan.Blocked && !stuck && !p.await(s, t.queueID, next) {
			more = true
		}
	}
	return more && !(found && req.notify)
}

// await awaits a message at beyond. It reports false when there is one.
func (p *Popper) await(s *popShare, id int32, beyond message.QueueOffset) bool {
	w := &s.waits
	w.mu.Lock()
	for int(id) >= len(w.mu.arms) {
		a := &popArm{share: s, id: int32(len(w.mu.arms))}
		a.waiter.Owner, a.waiter.Wake = a, p.arrived
		w.mu.arms = append(w.mu.arms, a)
	}
	a := w.mu.arms[id]
	armed := a.armed
	a.armed = true
	w.mu.Unlock()
	if armed || p.store.Await(s.key.topic, id, beyond, &a.waiter) {
		return true
	}
	w.mu.Lock()
	a.armed = false
	w.mu.Unlock()
	return false
}

// arrived is the Wake of every arm. Applier only.
func (p *Popper) arrived(w *store.Waiter) {
	a, _ := w.Owner.(*popArm)
	a.share.waits.mu.Lock()
	a.armed = false
	a.share.waits.mu.Unlock()
	p.signal(a.share, a.id)
}

// signal lets one receive of each bench go on that looks into the queue; AllQueues: into any.
func (p *Popper) signal(s *popShare, id int32) { p.wakeUp(s, id, 1) }

// signalAll lets all receives go on.
func (p *Popper) signalAll(s *popShare) { p.wakeUp(s, AllQueues, p.cfg.MaxPollingSize) }

func (p *Popper) wakeUp(s *popShare, id int32, limit int) {
	s.signals.Add(1)
	var room [4]*PopRequest
	turn := room[:0]
	w := &s.waits
	w.mu.Lock()
	for _, b := range w.mu.benches {
		if id != AllQueues && b.key.queueID != AllQueues && b.key.queueID != id {
			continue
		}
		for i := 0; i < limit && b.seats.Len() > 0; i++ {
			req, _ := b.seats.Front().Value.(*PopRequest)
			b.unlink(req)
			turn = append(turn, req)
		}
	}
	w.mu.Unlock()
	slices.SortFunc(turn, func(a, b *PopRequest) int { return a.started.Compare(b.started) })
	for _, req := range turn {
		req.held.waiter.Wake(&req.held.waiter) // gives the request away
	}
}

// any tells whether anyone waits.
func (w *popWaits) any() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.mu.benches, func(b *popBench) bool { return b.seats.Len() > 0 })
}

// benchLocked returns the bench of a key; nil when there is none and it is not to be made.
func (w *popWaits) benchLocked(key popBenchKey, create bool) *popBench {
	free := -1
	for i, b := range w.mu.benches {
		if b.key == key {
			return b
		}
		if b.seats.Len() == 0 {
			free = i
		}
	}
	if !create {
		return nil
	}
	if free >= 0 { // nobody sits on it
		w.mu.benches[free].key = key
		return w.mu.benches[free]
	}
	b := &popBench{key: key}
	w.mu.benches = append(w.mu.benches, b)
	return b
}

// link seats a receive before those that came later, for it may have waited before.
func (b *popBench) link(req *PopRequest) {
	later := func(at *list.Element) bool {
		other, _ := at.Value.(*PopRequest)
		return other.started.After(req.started)
	}
	req.seat.bench = b
	if last := b.seats.Back(); last == nil || !later(last) {
		req.seat.at = b.seats.PushBack(req)
		return
	}
	at := b.seats.Front()
	for !later(at) {
		at = at.Next()
	}
	req.seat.at = b.seats.InsertBefore(req, at)
}

func (b *popBench) unlink(req *PopRequest) {
	b.seats.Remove(req.seat.at)
	req.seat = popSeat{}
}

// Moved lets the waiting receives of a group go on: its offsets were reset.
func (p *Popper) Moved(group, topic string) {
	if s, ok := p.shares.Load(popKey{topic, group}); ok {
		p.signalAll(s)
	}
}

// popAwaiter is what holds sees of the benches.
type popAwaiter struct{ popper *Popper }

// Await implements Awaiter: it seats the receive that w is part of, unless something happened since it
// looked.
func (a popAwaiter) Await(_ string, _ int32, _ message.QueueOffset, w *store.Waiter) bool {
	req := popOf(w)
	s := req.share
	s.waits.mu.Lock()
	defer s.waits.mu.Unlock()
	if s.signals.Load() != req.seen || s.gone.Load() {
		return false
	}
	s.waits.benchLocked(req.benchKey(), true).link(req)
	return true
}

// Cancel implements Awaiter.
func (a popAwaiter) Cancel(w *store.Waiter) bool {
	req := popOf(w)
	req.share.waits.mu.Lock()
	defer req.share.waits.mu.Unlock()
	if req.seat.bench == nil {
		return false
	}
	req.seat.bench.unlink(req)
	return true
}

// popOf returns the receive that a waiter is part of.
func popOf(w *store.Waiter) *PopRequest {
	h, _ := w.Owner.(*held)
	req, _ := h.owner.(*PopRequest)
	return req
}

// hold makes the receive wait. It lets go of the strings the request came with. With held false the receive
// has to be answered with outcome.
func (p *Popper) hold(req *PopRequest) (outcome PopOutcome, held bool) {
	s := req.share
	req.Topic, req.Group, req.AttemptID = s.key.topic, s.key.group, ""
	req.Filter.Text, req.Filter.Type = "", ""
	if p.PollingCount(req.Group, req.Topic, req.QueueID) >= p.cfg.PollingSize {
		return PopPollingFull, false
	}
	if !req.woken && req.Holding != nil && !req.Holding(req) {
		p.finish(req, ErrCanceled)
		return 0, true
	}
	if p.holds.hold(&req.held, req.Topic, req.QueueID, 0, req.until) {
		return 0, true
	}
	if p.holds.count() >= p.cfg.MaxPollingSize {
		return PopPollingFull, false
	}
	return PopPollingTimeout, false
}

// wake lets a receive go on that waited.
func (p *Popper) wake(h *held, why wakeReason) {
	req, _ := h.owner.(*PopRequest)
	req.woken = req.woken || why != wakeQueued
	if why == wakeGone {
		p.end(req, ErrCanceled)
		return
	}
	p.again(req, why == wakeTimeUp)
}

// PollingCount returns how many receives of the group wait for exactly the queue, or for AllQueues.
func (p *Popper) PollingCount(group, topic string, queueID int32) (n int) {
	s, ok := p.shares.Load(popKey{topic, group})
	if !ok {
		return 0
	}
	s.waits.mu.Lock()
	defer s.waits.mu.Unlock()
	for _, b := range s.waits.mu.benches {
		if b.key.queueID == queueID && !b.key.notify {
			n += b.seats.Len()
		}
	}
	return n
}

// PopProgress is how far a group has come in a queue by receiving.
type PopProgress struct {
	Next      message.QueueOffset // the first offset that nobody has received
	Committed message.QueueOffset // the first offset that is not finished
	InFlight  int                 // messages that were received and are not finished
}

// InFlight is how many messages were received and are not finished, of all groups.
func (p *Popper) InFlight() (n int) {
	for _, s := range p.shares.All() {
		s.mu.Lock()
		for _, q := range s.mu.queues {
			if q != nil {
				n += q.InFlight()
			}
		}
		s.mu.Unlock()
	}
	return n
}

// Progress returns how far the group has come; false when it has not received from the queue. The messages
// that it still has to consume are InFlight and those from Next on, which is less than what lies behind
// Committed.
func (p *Popper) Progress(group, topic string, queueID int32) (PopProgress, bool) {
	s, ok := p.shares.Load(popKey{topic, group})
	if !ok {
		return PopProgress{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queueLocked(queueID)
	if q == nil {
		return PopProgress{}, false
	}
	return PopProgress{Next: q.Next(), Committed: q.Committed(), InFlight: q.InFlight()}, true
}
