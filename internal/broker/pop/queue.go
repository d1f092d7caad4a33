// SPDX-License-Identifier: Apache-2.0

package pop

import (
	"cmp"
	"slices"

	"github.com/roquetmq/roquet/internal/broker/due"
	"github.com/roquetmq/roquet/internal/message"
)

// Queue is the claims of one consumer group on one queue of a topic. It is not safe for concurrent use.
//
// Invariants: spans are in order of from, do not overlap, and only the last one can be without entries; every
// entry is below next; a span is in ripe if one of its entries was visible at the last look, and in deadlines
// if one will be.
type Queue struct {
	next       message.QueueOffset
	committed  message.QueueOffset // as last told by a Commit action
	spans      []*span
	ripe       []*span // in order of from
	deadlines  due.Heap[*span]
	ripened    []*span // became ripe, or riper, since the last Tick
	dirty      []*span
	unfinished int              // messages that are not finished
	keys       map[uint32]int32 // of these, by order key other than 0

	held  map[uint32]bool // order keys that nothing can be handed out of; as of the last look
	round uint32

	scratch *Scratch
}

// Scratch is memory that the Queues of one owner share, so that idle ones cost little. Only one of them may
// step at a time, and the actions of a Step are gone with the next Step of any. The zero Scratch is ready.
type Scratch struct {
	actions []Action
	spare   [][]entry // of spans that are finished
}

// maxSpare bounds the spare memory of a Scratch.
const maxSpare = 4

// entries returns memory for n entries.
func (s *Scratch) entries(n int) []entry {
	if last := len(s.spare) - 1; last >= 0 && cap(s.spare[last]) >= n {
		spare := s.spare[last]
		s.spare = s.spare[:last]
		return spare
	}
	return make([]entry, 0, n)
}

// release takes memory back.
func (s *Scratch) release(entries []entry) {
	if cap(entries) > 0 && len(s.spare) < maxSpare {
		s.spare = append(s.spare, entries[:0])
	}
}

// unknown is the committed offset that nobody was told yet.
const unknown message.QueueOffset = -1

// NewQueue returns the claims of a group that begins at next. The first Step asks to store where that is.
func NewQueue(next message.QueueOffset, scratch *Scratch) *Queue {
	q := &Queue{next: next, committed: unknown, scratch: scratch}
	q.begin()
	return q
}

// begin makes the span of nothing that keeps the frontier.
func (q *Queue) begin() {
	s := &span{from: q.next, to: q.next}
	q.spans = append(q.spans, s)
	q.touch(s)
}

// Restored returns an empty Queue that Restore fills.
func Restored(scratch *Scratch) *Queue { return &Queue{committed: unknown, scratch: scratch} }

// Restore adds the stored span that begins at from; spans come in order. It keeps nothing of value. Errors:
// *FormatError.
func (q *Queue) Restore(from message.QueueOffset, value []byte) error {
	s, err := decodeSpan(from, value)
	if err != nil {
		return err
	}
	if from < q.next {
		return &FormatError{Reason: "it overlaps the span before it"}
	}
	q.next = s.to
	q.spans = append(q.spans, s)
	for i := range s.entries {
		q.count(s.entries[i].key, 1)
	}
	q.place(s, 0)
	return nil
}

// Next returns the frontier: the lowest offset that no receive has looked at.
func (q *Queue) Next() message.QueueOffset { return q.next }

// Committed returns the lowest offset that is not finished.
func (q *Queue) Committed() message.QueueOffset {
	for _, s := range q.spans {
		if len(s.entries) > 0 {
			return s.entries[0].offset
		}
	}
	return q.next
}

// InFlight returns the number of messages that were handed out and are not finished.
func (q *Queue) InFlight() int { return q.unfinished }

// Deadline returns when, in ms, the next message becomes visible to others; math.MaxInt64 when none will. At
// that time a Tick is due.
func (q *Queue) Deadline() int64 { return q.deadlines.Due() }

// Due tells whether a Tick has something to look at.
func (q *Queue) Due(now int64) bool { return len(q.ripened) > 0 || q.Deadline() <= now }

// Stored tells whether everything was asked to be stored; a Queue that had no Step yet has not.
func (q *Queue) Stored() bool { return len(q.dirty) == 0 }

// Ripe tells whether messages came back that nobody has got yet.
func (q *Queue) Ripe() bool { return len(q.ripe) > 0 }

// Unfinished appends the offsets of all messages that were handed out and are not finished, in order.
func (q *Queue) Unfinished(dst []message.QueueOffset) []message.QueueOffset {
	for _, s := range q.spans {
		for i := range s.entries {
			dst = append(dst, s.entries[i].offset)
		}
	}
	return dst
}

// Holds tells whether the message at offset was handed out and is not finished.
func (q *Queue) Holds(offset message.QueueOffset) bool {
	_, i := q.find(offset)
	return i >= 0
}

// Spans appends the offset at which each span begins: the end of its record's key.
func (q *Queue) Spans(dst []message.QueueOffset) []message.QueueOffset {
	for _, s := range q.spans {
		dst = append(dst, s.from)
	}
	return dst
}

// Event is something that happened: *Receive, *Ack, *Renew, *Forward, *Tick, *Bury, *Spare, *Jump or *Reset.
type Event interface {
	apply(q *Queue, now int64)
}

// ActionKind is what kind an Action is of.
type ActionKind uint8

// The actions.
const (
	// Deliver: hand out the message at Offset, with Times as its reconsumeTimes and FirstPop as the time it
	// was first handed out, once Put is durable.
	Deliver ActionKind = iota + 1
	// Renewed: the claim at Index of the event has been replaced by one with PopTime and Invisible.
	Renewed
	// Refused: the claim at Index of the event is not, or not any more, the message's; Never tells which.
	Refused
	// Finished: the message at Offset is finished.
	Finished
	// DeadLetter: make a dead letter of the message at Offset, with Times as the reconsumeTimes that were
	// told last, and then step Bury, or Spare when that cannot be done.
	DeadLetter
	// Put: store the record of the span that begins at Offset; AppendValue gives the value.
	Put
	// Delete: delete the record of the span that begins at Offset.
	Delete
	// Commit: everything below Offset is finished.
	Commit
	// Wake: a receive that found nothing may find something now.
	Wake
)

// Action is something that must be done. Puts and Deletes of one Step belong into one Write, in this order.
type Action struct {
	Kind      ActionKind
	Never     bool
	Index     int
	Offset    message.QueueOffset
	Times     int32
	FirstPop  int64 // ms
	PopTime   int64 // ms
	Invisible int64 // ms

	span *span
}

// AppendValue appends the value of the record that a Put stores. It is to be called before the next Step.
func (a *Action) AppendValue(dst []byte) []byte { return a.span.appendValue(dst) }

// Step takes what happened at now, in ms, and returns what must be done. The actions are valid until the next
// Step of a Queue with the same Scratch.
func (q *Queue) Step(now int64, ev Event) []Action {
	q.scratch.actions = q.scratch.actions[:0]
	q.round++
	ev.apply(q, now)
	q.flush(now)
	return q.scratch.actions
}

// act adds an action.
func (q *Queue) act(a Action) { q.scratch.actions = append(q.scratch.actions, a) }

// touch notes that the record of s has to be written.
func (q *Queue) touch(s *span) {
	if !s.dirty {
		s.dirty = true
		q.dirty = append(q.dirty, s)
	}
}

// flush asks to store what changed, and tells how far everything is finished.
func (q *Queue) flush(now int64) {
	for i, s := range q.dirty {
		q.dirty[i], s.dirty = nil, false
		q.place(s, now)
		if len(s.entries) == 0 && s != q.spans[len(q.spans)-1] {
			q.remove(s)
			q.act(Action{Kind: Delete, Offset: s.from})
			continue
		}
		q.act(Action{Kind: Put, Offset: s.from, span: s})
	}
	q.dirty = q.dirty[:0]
	if c := q.Committed(); c != q.committed {
		q.committed = c
		q.act(Action{Kind: Commit, Offset: c})
	}
}

// remove takes s out of the spans.
func (q *Queue) remove(s *span) {
	i := q.indexOf(s.from)
	if i == 0 {
		q.spans[0] = nil
		q.spans = q.spans[1:]
		return
	}
	q.spans = slices.Delete(q.spans, i, i+1)
}

// indexOf returns the index of the last span that begins at or in front of offset, -1 when there is none.
func (q *Queue) indexOf(offset message.QueueOffset) int {
	i, found := slices.BinarySearchFunc(q.spans, offset, compareFrom)
	if !found {
		i--
	}
	return i
}

func compareFrom(s *span, offset message.QueueOffset) int { return cmp.Compare(s.from, offset) }

// find returns where the message at offset is; the index is -1 when it is not there.
func (q *Queue) find(offset message.QueueOffset) (*span, int) {
	i := q.indexOf(offset)
	if i < 0 {
		return nil, -1
	}
	return q.spans[i], q.spans[i].find(offset)
}

// claimed returns where the message of ref is, if ref is its newest claim. Else it refuses the claim at index
// i of the event.
func (q *Queue) claimed(i int, ref Ref) (*span, int) {
	s, at := q.find(ref.Offset)
	if at >= 0 && s.entries[at].popTime == ref.PopTime && s.entries[at].invisible == ref.Invisible &&
		s.entries[at].marks&forwarded == 0 {
		return s, at
	}
	q.act(Action{Kind: Refused, Index: i, Offset: ref.Offset, Never: ref.Offset >= q.next})
	return nil, -1
}

// finish ends the message at index i of s.
func (q *Queue) finish(s *span, i int) {
	e := s.entries[i]
	if s.entries = slices.Delete(s.entries, i, i+1); len(s.entries) == 0 {
		q.scratch.release(s.entries)
		s.entries = nil
	}
	q.count(e.key, -1)
	q.touch(s)
	q.act(Action{Kind: Finished, Offset: e.offset})
	if e.key != 0 {
		q.wake()
	}
}

// wake asks to wake those who wait, once a Step.
func (q *Queue) wake() {
	if n := len(q.scratch.actions); n == 0 || q.scratch.actions[n-1].Kind != Wake {
		q.act(Action{Kind: Wake})
	}
}

// count adds n messages of an order key to those not finished.
func (q *Queue) count(key uint32, n int32) {
	q.unfinished += int(n)
	if key == 0 {
		return
	}
	if q.keys == nil {
		q.keys = map[uint32]int32{}
	}
	if q.keys[key] += n; q.keys[key] <= 0 {
		delete(q.keys, key)
	}
}

// place brings s where it belongs among the ripe ones and the deadlines, as it is at now. Every claim lasts
// beyond the Step that makes it, so what becomes visible was due when s was placed before.
func (q *Queue) place(s *span, now int64) {
	if s.Due() <= now {
		q.ripened = append(q.ripened, s)
	}
	next, ripe := due.Never, false
	for i := range s.entries {
		e := &s.entries[i]
		switch at := e.visibleAt(); {
		case e.marks&dying != 0:
		case at <= now:
			ripe = true
		default:
			next = min(next, at)
		}
	}
	if next != s.Due() {
		q.deadlines.Set(s, next, 0)
	}
	if ripe == s.ripe {
		return
	}
	s.ripe = ripe
	i, _ := slices.BinarySearchFunc(q.ripe, s.from, compareFrom)
	if ripe {
		q.ripe = slices.Insert(q.ripe, i, s)
		return
	}
	q.ripe = slices.Delete(q.ripe, i, i+1)
}

// ripen looks which messages have become visible.
func (q *Queue) ripen(now int64) {
	for q.deadlines.Due() <= now {
		q.place(q.deadlines[0], now)
	}
}
