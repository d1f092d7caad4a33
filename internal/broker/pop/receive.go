// SPDX-License-Identifier: Apache-2.0

package pop

import (
	"github.com/roquetmq/roquet/internal/message"
)

// Ask is a receive that has not looked at any message yet.
type Ask struct {
	MaxCount int    // how many messages it takes
	MaxTimes int32  // reconsumeTimes after which a message becomes a dead letter
	Attempt  uint64 // hash of the attempt id; 0 for none
	Key      uint32 // the order key of all messages of the queue; 0 when they differ, or have none
	Free     bool   // it minds no order keys, those of its messages are only noted
}

// Plan is what a receive should look at.
type Plan struct {
	Again   []message.QueueOffset // messages that came back, in order
	Blocked bool                  // no new message can be handed out
	Overdue bool                  // messages wait to become dead letters: a Tick is due
}

// Plan tells what a receive at now would get, appending to again. It changes nothing.
func (q *Queue) Plan(now int64, ask Ask, again []message.QueueOffset) Plan {
	p := Plan{Again: again}
	q.ripen(now)
	q.look(now, &ask)
	p.Blocked = ask.Key != 0 && q.held[ask.Key]
	spans := q.ripe
	if ask.Attempt != 0 && len(q.keys) > 0 {
		spans = q.spans // what the same attempt holds comes again
	}
	start := len(again)
	for _, s := range spans {
		for i := range s.entries {
			e := &s.entries[i]
			if e.marks&dying == 0 && e.visibleAt() <= now && e.over(ask.MaxTimes) {
				p.Overdue = true
			}
			if !q.deliverable(e, now, ask.MaxTimes, ask.Attempt) {
				continue
			}
			if len(p.Again)-start == ask.MaxCount {
				p.Blocked = p.Blocked || ask.Key != 0
				return p
			}
			p.Again = append(p.Again, e.offset)
		}
	}
	return p
}

// over tells whether the message had its last delivery.
func (c *claim) over(maxTimes int32) bool { return c.times >= maxTimes && c.marks&suspended == 0 }

// repeated tells whether attempt is the one that holds the message.
func (e *entry) repeated(attempt uint64) bool {
	return e.key != 0 && attempt != 0 && e.attempt == attempt && e.marks&dying == 0
}

// look notes the order keys of which a message is with somebody else, or must go first to the dead letters.
func (q *Queue) look(now int64, ask *Ask) {
	clear(q.held)
	if len(q.keys) == 0 || ask.Free {
		return
	}
	for _, s := range q.spans {
		for i := range s.entries {
			e := &s.entries[i]
			if e.key == 0 || e.repeated(ask.Attempt) {
				continue
			}
			if e.marks&dying != 0 || e.visibleAt() > now || e.over(ask.MaxTimes) {
				if q.held == nil {
					q.held = map[uint32]bool{}
				}
				q.held[e.key] = true
			}
		}
	}
}

// deliverable tells whether a message may be handed out again. look comes before.
func (q *Queue) deliverable(e *entry, now int64, maxTimes int32, attempt uint64) bool {
	switch {
	case e.repeated(attempt):
		return !q.held[e.key]
	case e.marks&dying != 0 || e.visibleAt() > now || e.over(maxTimes):
		return false
	}
	return e.key == 0 || !q.held[e.key]
}

// Fresh is a new message that a receive would like to hand out.
type Fresh struct {
	Offset message.QueueOffset
	Times  int32  // its reconsumeTimes
	Key    uint32 // its order key; 0 for none
}

// Receive is a receive that has looked at what Plan told, and at new messages. It claims what it can still
// have of Again, and of Fresh up to the first message whose order key somebody else holds, and asks to
// Deliver these, in this order. Its time is the popTime.
type Receive struct {
	Ask

	Invisible int64                 // ms
	Again     []message.QueueOffset // of Plan.Again: those that can be handed out, in order
	Gone      []message.QueueOffset // of Plan.Again: those that cannot, for good
	From      message.QueueOffset   // Next when it looked
	To        message.QueueOffset   // how far it has looked
	Fresh     []Fresh               // in [From, To), in order
}

func (ev *Receive) apply(q *Queue, now int64) {
	q.ripen(now)
	q.look(now, &ev.Ask)
	for _, offset := range ev.Gone {
		if s, i := q.find(offset); i >= 0 && q.deliverable(&s.entries[i], now, ev.MaxTimes, ev.Attempt) {
			q.finish(s, i)
		}
	}
	for _, offset := range ev.Again {
		if s, i := q.find(offset); i >= 0 && q.deliverable(&s.entries[i], now, ev.MaxTimes, ev.Attempt) {
			ev.again(q, s, &s.entries[i], now)
		}
	}
	if ev.From == q.next && ev.To > ev.From {
		ev.fresh(q, now)
	}
}

// again claims a message that came back.
func (ev *Receive) again(q *Queue, s *span, e *entry, now int64) {
	if e.marks&suspended == 0 && !e.repeated(ev.Attempt) {
		e.times++
	}
	e.marks, e.after = e.marks&^suspended, 0
	e.popTime, e.invisible, e.attempt, e.round = now, ev.Invisible, ev.Attempt, q.round
	e.firstPop = min(e.firstPop, now) // the clock may have been set back
	q.touch(s)
	q.act(Action{Kind: Deliver, Offset: e.offset, Times: e.times, FirstPop: e.firstPop})
}

// fresh claims new messages, and moves the frontier.
func (ev *Receive) fresh(q *Queue, now int64) {
	to := ev.To
	n := len(ev.Fresh)
	for i := range ev.Fresh {
		if f := &ev.Fresh[i]; !ev.Free && f.Key != 0 && q.keys[f.Key] > 0 && q.waits(f.Key) {
			to, n = f.Offset, i
			break
		}
	}
	q.next = to
	if n == 0 {
		return
	}
	if last := len(q.spans) - 1; last < 0 || len(q.spans[last].entries) > 0 {
		q.spans = append(q.spans, &span{from: ev.From})
	}
	s := q.spans[len(q.spans)-1]
	s.to = to
	s.entries = q.scratch.entries(n)
	c := claim{popTime: now, invisible: ev.Invisible, firstPop: now, attempt: ev.Attempt}
	for i := range ev.Fresh[:n] {
		f := &ev.Fresh[i]
		c.times = f.Times
		s.entries = append(s.entries, entry{offset: f.Offset, claim: c, key: f.Key, round: q.round})
		q.count(f.Key, 1)
		q.act(Action{Kind: Deliver, Offset: f.Offset, Times: f.Times, FirstPop: now})
	}
	q.touch(s)
}

// waits tells whether a message of the key is not finished that this Step has not handed out.
func (q *Queue) waits(key uint32) bool {
	for _, s := range q.spans {
		for i := range s.entries {
			if e := &s.entries[i]; e.key == key && e.round != q.round {
				return true
			}
		}
	}
	return false
}
