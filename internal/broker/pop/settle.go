// SPDX-License-Identifier: Apache-2.0

package pop

import (
	"math"
	"slices"

	"github.com/roquetmq/roquet/internal/message"
)

// NoMaxTimes lets messages come back for ever.
const NoMaxTimes int32 = math.MaxInt32

// Ack says that messages were consumed. Each of Refs is Finished or Refused.
type Ack struct{ Refs []Ref }

func (ev *Ack) apply(q *Queue, _ int64) {
	for i, ref := range ev.Refs {
		if s, at := q.claimed(i, ref); at >= 0 {
			q.finish(s, at)
		}
	}
}

// Renew gives messages another invisible time, counted from now. Each of Refs is Renewed or Refused.
type Renew struct {
	Refs      []Ref
	Invisible int64 // ms
	// Policy, when set, gives the invisible time in place of Invisible, by the message's reconsumeTimes.
	Policy  func(times int32) int64
	Suspend bool // the next delivery counts as the same attempt
	// Orderly keeps the popTime, and counts the new invisible time from there.
	// Source: ChangeInvisibleTimeProcessor.java processChangeInvisibleTimeForOrder.
	Orderly bool
}

func (ev *Renew) apply(q *Queue, now int64) {
	for i, ref := range ev.Refs {
		s, at := q.claimed(i, ref)
		if at < 0 {
			continue
		}
		e := &s.entries[at]
		invisible := ev.Invisible
		if ev.Policy != nil {
			invisible = ev.Policy(e.times)
		}
		if ev.Orderly {
			e.invisible = max(now, e.popTime) + max(invisible, 1) - e.popTime
		} else {
			e.popTime, e.firstPop, e.invisible = now, min(e.firstPop, now), invisible
		}
		e.marks, e.after = e.marks&^suspended, 0
		if ev.Suspend {
			e.marks |= suspended
		}
		q.touch(s)
		q.act(Action{Kind: Renewed, Index: i, Offset: e.offset, PopTime: e.popTime, Invisible: e.invisible})
	}
}

// Forward makes dead letters of messages. For each of Refs there is a DeadLetter action, or it is Refused.
type Forward struct{ Refs []Ref }

func (ev *Forward) apply(q *Queue, now int64) {
	for i, ref := range ev.Refs {
		if s, at := q.claimed(i, ref); at >= 0 {
			s.entries[at].marks |= forwarded
			q.die(&s.entries[at])
			q.place(s, now)
		}
	}
}

// die makes a message wait for its burial.
func (q *Queue) die(e *entry) {
	e.marks |= dying
	q.act(Action{Kind: DeadLetter, Offset: e.offset, Times: e.times})
}

// Tick looks which messages came back: those may be received, and those that had their last delivery become
// dead letters.
type Tick struct {
	MaxTimes int32 // reconsumeTimes after which a message becomes a dead letter; NoMaxTimes for none
	// Everything looks at all that is visible, not just at what came back since the last Tick: after Plan
	// said Overdue, because MaxTimes was lowered.
	Everything bool
}

func (ev *Tick) apply(q *Queue, now int64) {
	q.ripen(now)
	ripened := q.ripened
	q.ripened = nil
	if ev.Everything {
		ripened = slices.Clone(q.ripe) // place changes it
	}
	alive := false
	for i, s := range ripened {
		ripened[i] = nil
		alive = ev.sift(q, s, now) || alive
	}
	if q.ripened = ripened[:0]; alive {
		q.wake()
	}
}

// sift reports whether a visible message of s can be received, and lets die those that had their last
// delivery.
func (ev *Tick) sift(q *Queue, s *span, now int64) (alive bool) {
	before := len(q.scratch.actions)
	for i := range s.entries {
		e := &s.entries[i]
		switch {
		case e.marks&dying != 0 || e.visibleAt() > now:
		case e.over(ev.MaxTimes):
			q.die(e)
		default:
			alive = true
		}
	}
	if len(q.scratch.actions) > before {
		q.place(s, now)
	}
	return alive
}

// Bury says that the dead letter of the message at Offset is being stored, together with what this Step asks
// to Put. When there is no Finished action, the message was finished otherwise, and no dead letter must be
// stored.
type Bury struct{ Offset message.QueueOffset }

func (ev *Bury) apply(q *Queue, _ int64) {
	if s, i := q.find(ev.Offset); i >= 0 && s.entries[i].marks&dying != 0 {
		q.finish(s, i)
	}
}

// Spare says that the message at Offset could not become a dead letter. When its claim has ended, that is
// tried again in Wait ms.
type Spare struct {
	Offset message.QueueOffset
	Wait   int64 // ms
}

func (ev *Spare) apply(q *Queue, now int64) {
	s, i := q.find(ev.Offset)
	if i < 0 || s.entries[i].marks&dying == 0 {
		return
	}
	e := &s.entries[i]
	e.marks &^= dying | forwarded
	if e.visibleAt() <= now {
		e.after = now + ev.Wait
	}
	q.place(s, now)
}

// Jump says that everything below To is finished, because someone else said so.
type Jump struct{ To message.QueueOffset }

func (ev *Jump) apply(q *Queue, _ int64) { q.next = max(q.next, ev.To) }

// Reset ends all claims, and moves the frontier to To, forward or back.
type Reset struct{ To message.QueueOffset }

func (ev *Reset) apply(q *Queue, now int64) {
	for i, s := range q.dirty { // of a Queue that had no Step yet
		q.dirty[i], s.dirty = nil, false
	}
	q.dirty, q.ripened = q.dirty[:0], nil
	for _, s := range q.spans {
		for i := range s.entries {
			q.count(s.entries[i].key, -1)
			q.act(Action{Kind: Finished, Offset: s.entries[i].offset})
		}
		s.entries = nil
		q.place(s, now)
		q.act(Action{Kind: Delete, Offset: s.from})
	}
	q.spans = nil
	q.next, q.committed = ev.To, unknown
	q.begin()
	q.wake()
}
