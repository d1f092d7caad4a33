// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"sync"
	"time"

	"github.com/roquetmq/roquet/internal/broker/due"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// Awaiter tells when a queue grows. *store.Store is one.
type Awaiter interface {
	Await(topic string, queueID int32, beyond message.QueueOffset, w *store.Waiter) bool
	Cancel(w *store.Waiter) bool
}

// wakeReason is why a held request goes on.
type wakeReason uint8

const (
	wakeArrived wakeReason = iota + 1 // the queue grew, or its topic was deleted
	wakeTimeUp                        // the deadline passed, or the broker stops
	wakeGone                          // the connection ended
	wakeQueued                        // the request was put aside and has its turn now
)

// holdState is where a request is. Whoever takes it out of stateHeld decides why it goes on.
type holdState uint8

const (
	stateRunning holdState = iota // owned by a goroutine
	stateHeld                     // waits; the table owns it
	stateLeaving                  // taken out for reason, but the waiter's Wake is still to come
	stateReady                    // in the list of those that go on
)

// held is a request that can wait for a queue to grow. It is part of the request, so that holding one costs
// nothing.
//
// A hold ends by exactly one of these: the store wakes the waiter, or the waiter is cancelled. Only then may
// the request go on and be used again. When a deadline comes first but the store says that Wake is on its
// way, the request stays in stateLeaving until it is there.
type held struct {
	owner  any
	waiter store.Waiter
	peer   uint64

	// What follows is guarded by holds.mu.
	state    holdState
	reason   wakeReason
	woken    bool  // Wake came before the hold was complete
	gone     bool  // the connection ended
	listed   bool  // among its connection's
	deadline int64 // tick
	next     *held // among those of its deadline, or in the ready list
	prev     *held
	peerNext *held
	peerPrev *held
}

// holds is the table of all held requests: lists by deadline, and a list of those that go on. No request
// has a goroutine or a timer of its own; Run has one goroutine for deadlines and one that lets requests go on.
type holds struct {
	await  Awaiter
	onWake func(w *store.Waiter)         // woken, bound once
	run    func(h *held, why wakeReason) // lets a request go on; called without a lock
	flush  func()
	limit  int
	epoch  time.Time
	bell   *due.Bell // an earlier deadline than the one slept for

	mu struct {
		sync.Mutex
		wake        *sync.Cond
		deadlines   deadlines
		peers       map[uint64]*held
		first, last *held // ready
		waiting     int   // held, leaving or ready
		sleepUntil  int64 // tick
		stopped     bool
	}
}

func newHolds(await Awaiter, limit int, flush func(), run func(h *held, why wakeReason)) *holds {
	t := &holds{await: await, run: run, flush: flush, limit: limit, epoch: time.Now(), bell: due.NewBell()}
	t.onWake = t.woken
	t.mu.wake = sync.NewCond(&t.mu.Mutex)
	t.mu.peers, t.mu.deadlines = map[uint64]*held{}, deadlines{}
	return t
}

// Run lets requests go on until ctx is done; then it ends all that wait, as if their time were up, and
// returns. What is held before Run waits for it.
func (t *holds) Run(ctx context.Context) error {
	var g sync.WaitGroup
	g.Go(func() { t.watchDeadlines(ctx) })
	t.work()
	g.Wait()
	return nil
}

// hold makes h wait until the queue has a message at beyond, or until deadline. It reports false when h must
// be answered now, because too many wait or the table has stopped. When there is such a message already, h
// goes on at once, in its turn. The caller owns h before the call, and not after it unless the result is
// false.
func (t *holds) hold(
	h *held, topic string, queueID int32, beyond message.QueueOffset, deadline time.Time,
) bool {
	t.mu.Lock()
	if t.mu.stopped || t.mu.waiting >= t.limit || h.gone {
		t.mu.Unlock()
		return false
	}
	t.mu.waiting++
	h.woken = false
	t.listLocked(h)
	t.mu.Unlock()

	h.waiter.Owner, h.waiter.Wake = h, t.onWake
	if !t.await.Await(topic, queueID, beyond, &h.waiter) {
		t.mu.Lock()
		t.readyLocked(h, wakeArrived)
		t.mu.Unlock()
		return true
	}
	t.mu.Lock()
	switch {
	case h.woken:
		t.readyLocked(h, wakeArrived)
		t.mu.Unlock()
	case h.gone || t.mu.stopped:
		h.state, h.reason = stateLeaving, wakeGone
		if !h.gone {
			h.reason = wakeTimeUp
		}
		t.mu.Unlock()
		t.leave(h)
	default:
		h.state = stateHeld
		h.deadline = t.tick(deadline)
		t.mu.deadlines.add(h)
		earlier := h.deadline < t.mu.sleepUntil
		t.mu.Unlock()
		if earlier {
			t.bell.Ring()
		}
	}
	return true
}

// queue lets h go on in its turn, on one of Run's goroutines. It reports false when the table has stopped.
func (t *holds) queue(h *held, why wakeReason) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.stopped {
		return false
	}
	t.mu.waiting++
	t.readyLocked(h, why)
	return true
}

// woken is the Wake of every waiter. Applier only: it takes note and returns.
func (t *holds) woken(w *store.Waiter) {
	h, _ := w.Owner.(*held)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch h.state {
	case stateRunning: // hold has not come that far yet
		h.woken = true
	case stateHeld:
		t.mu.deadlines.remove(h)
		t.readyLocked(h, wakeArrived)
	case stateLeaving:
		t.readyLocked(h, h.reason)
	case stateReady:
	}
}

// leave ends holds that something else than Wake ended. They are in stateLeaving.
func (t *holds) leave(all ...*held) {
	for _, h := range all {
		if !t.await.Cancel(&h.waiter) {
			continue // Wake was called or is about to be: it lets h go on
		}
		t.mu.Lock()
		t.readyLocked(h, h.reason)
		t.mu.Unlock()
	}
}

// readyLocked puts h at the end of the list of those that go on.
func (t *holds) readyLocked(h *held, why wakeReason) {
	h.state, h.reason, h.next = stateReady, why, nil
	if t.mu.last == nil {
		t.mu.first = h
	} else {
		t.mu.last.next = h
	}
	t.mu.last = h
	t.mu.wake.Signal()
}

// end is called once for every request that was held or queued, when it has been answered.
func (t *holds) end(h *held) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h.listed {
		t.unlistLocked(h)
	}
	h.gone = false
}

// disconnected ends all holds of a connection.
func (t *holds) disconnected(peer uint64) {
	var leaving []*held
	t.mu.Lock()
	for h := t.mu.peers[peer]; h != nil; h = h.peerNext {
		h.gone = true
		if h.state == stateHeld {
			t.mu.deadlines.remove(h)
			h.state, h.reason = stateLeaving, wakeGone
			leaving = append(leaving, h)
		}
	}
	t.mu.Unlock()
	t.leave(leaving...)
}

// moved lets those held requests go on that match.
func (t *holds) moved(match func(owner any) bool) {
	var leaving []*held
	t.mu.Lock()
	for _, h := range t.mu.deadlines {
		var next *held
		for ; h != nil; h = next {
			if next = h.next; match(h.owner) {
				t.mu.deadlines.remove(h)
				h.state, h.reason = stateLeaving, wakeArrived
				leaving = append(leaving, h)
			}
		}
	}
	t.mu.Unlock()
	t.leave(leaving...)
}

// work lets requests go on until Run stops and none waits.
func (t *holds) work() {
	const batch = 32
	var turn [batch]*held
	for {
		n := t.take(turn[:])
		if n == 0 {
			return
		}
		for i, h := range turn[:n] {
			turn[i] = nil
			t.run(h, h.reason)
		}
		t.flush()
	}
}

// take waits for requests that go on and takes some; none when all is over.
func (t *holds) take(turn []*held) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.mu.first == nil {
		if t.mu.stopped && t.mu.waiting == 0 {
			t.mu.wake.Broadcast()
			return 0
		}
		t.mu.wake.Wait()
	}
	for n < len(turn) && t.mu.first != nil {
		h := t.mu.first
		if t.mu.first = h.next; t.mu.first == nil {
			t.mu.last = nil
		}
		h.next, h.state = nil, stateRunning
		if h.gone {
			h.reason = wakeGone
		}
		t.mu.waiting--
		turn[n] = h
		n++
	}
	return n
}

func (t *holds) listLocked(h *held) {
	if h.listed {
		return
	}
	h.listed = true
	h.peerPrev, h.peerNext = nil, t.mu.peers[h.peer]
	if h.peerNext != nil {
		h.peerNext.peerPrev = h
	}
	t.mu.peers[h.peer] = h
}

func (t *holds) unlistLocked(h *held) {
	switch {
	case h.peerPrev != nil:
		h.peerPrev.peerNext = h.peerNext
	case h.peerNext != nil:
		t.mu.peers[h.peer] = h.peerNext
	default:
		delete(t.mu.peers, h.peer)
	}
	if h.peerNext != nil {
		h.peerNext.peerPrev = h.peerPrev
	}
	h.peerNext, h.peerPrev, h.listed = nil, nil, false
}

// count returns how many requests wait or are about to go on.
func (t *holds) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.waiting
}
