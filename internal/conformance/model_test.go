// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"math"
	"slices"
)

// model is what the broker promises about one topic and its groups, in memory. It knows what was asked and what was
// answered; where an answer was lost it knows what may be. Times are in ms of the clock that tests and server share:
// what the server did, it did between the time of the question and the time of the answer.
type model struct {
	topic    string
	typ      string          // of its messages
	messages []*modelMessage // in the order in which they were sent
	byBody   map[string]*modelMessage
	groups   map[string]*modelGroup
	queues   map[int32][]string         // bodies by offset, as far as they were read
	offsets  map[int32]map[int64]bool   // what the offset of a pulling group may be; -1 is none
	latest   map[int32]int64            // what was committed last
	stale    map[string][]modelReceipt  // by group: handles that are good for nothing
	killed   map[int32]bool             // the offset of that queue may have gone back
	dead     map[string]map[string]bool // by group: bodies of messages that are or will be dead letters
	faults   []string
}

// fate is what may have become of something.
type fate uint8

const (
	no fate = iota
	maybe
	yes
)

// modelMessage is a message that was sent.
type modelMessage struct {
	*outgoing

	id       string // "" when it was not answered
	number   int    // of the messages with its group
	stored   fate
	seen     bool  // somebody got or read it
	offset   int64 // as answered; -1: not known
	due      int64 // of delayed ones
	back     int64 // when the server was there again after its last restart
	recalled fate
	half     bool // it waits for a decision
	ended    fate // of transactions: maybe, when the answer to the decision was lost
	commits  bool // which decision that is
	sent     sent
	by       string           // which door sent it
	with     *[]*modelMessage // those of its batch: all are stored or none
}

// timerLate is how late a delayed message may be on a machine under load.
const timerLate = 10_000

// visible tells whether the message is, or may be, there for consumers at a time.
func (x *modelMessage) visible(now int64) fate {
	switch {
	case x.stored == no, x.half, x.recalled == yes:
		return no
	case x.ended != no && !x.commits:
		return no
	case x.typ == delayed && now < x.due:
		return no
	case x.seen:
		return yes
	case x.stored == maybe,
		x.recalled == maybe,
		x.ended == maybe,
		x.typ == delayed && now < max(x.due, x.back)+timerLate:
		return maybe
	default:
		return yes
	}
}

// modelGroup is a group that receives.
type modelGroup struct {
	name    string
	orderly bool
	tag     string // what it subscribes to; "" is all
	max     int    // how often a message comes again
	holds   map[*modelMessage]*hold
}

// hold is what a group has of a message.
type hold struct {
	done      fate  // maybe: the answer to an acknowledgement was lost
	dying     bool  // it had its last delivery, which ended without an acknowledgement: it must not come again
	least     int   // deliveries, at least
	most      int   // deliveries, at most
	early     int64 // it cannot come again before
	late      int64 // after that it can, for sure; a claim lasts 1 ms at least
	receipt   modelReceipt
	delivered bool
}

// modelReceipt is a handle and which door gave it out; the handle is "" when it is not known.
type modelReceipt struct {
	body, handle, door string
	m                  received
}

func newModel(topic, typ string) *model {
	return &model{
		topic:   topic,
		typ:     typ,
		killed:  map[int32]bool{},
		byBody:  map[string]*modelMessage{},
		groups:  map[string]*modelGroup{},
		queues:  map[int32][]string{},
		offsets: map[int32]map[int64]bool{},
		latest:  map[int32]int64{},
		stale:   map[string][]modelReceipt{},
		dead:    map[string]map[string]bool{},
	}
}

func (m *model) fault(format string, args ...any) {
	m.faults = append(m.faults, fmt.Sprintf(format, args...))
}

func (m *model) group(name string, orderly bool, tag string, maxTimes int) *modelGroup {
	g := &modelGroup{name: name, orderly: orderly, tag: tag, max: maxTimes, holds: map[*modelMessage]*hold{}}
	m.groups[name], m.dead[name] = g, map[string]bool{}
	return g
}

func (g *modelGroup) hold(x *modelMessage) *hold {
	h := g.holds[x]
	if h == nil {
		h = &hold{}
		g.holds[x] = h
	}
	return h
}

// over tells whether the message had its last delivery.
func (g *modelGroup) over(h *hold) bool { return h.most > g.max }

// out tells whether somebody has, or may have, the message.
func (h *hold) out(now int64) bool { return h.delivered && h.done != yes && h.late >= now }

// send takes a message that was sent; stored is maybe when the answer was lost.
func (m *model) send(x *modelMessage, stored fate, s sent, by string) {
	x.stored, x.offset, x.by, x.sent, x.id = stored, -1, by, s, s.id
	if stored == yes && x.typ != delayed && !x.half {
		x.offset = s.offset
	}
	for _, other := range m.messages {
		if other.group == x.group {
			x.number++
		}
	}
	m.messages = append(m.messages, x)
	m.byBody[x.body] = x
}

// see takes that a message was got or read at a time, and tells which it is.
func (m *model) see(what string, r *received, now int64) *modelMessage {
	x := m.byBody[r.body]
	switch {
	case x == nil:
		m.fault("%s: %q, which nobody sent", what, r.body)
		return nil
	case x.visible(now) == no:
		m.fault(
			"%s: %q, which is not there: stored %d half %t ended %d commits %t recalled %d due in %d ms",
			what,
			r.body,
			x.stored,
			x.half,
			x.ended,
			x.commits,
			x.recalled,
			x.due-now,
		)
	case x.id != "" && x.id != r.id:
		m.fault("%s: %q has the id %s, and was sent with %s", what, r.body, r.id, x.id)
	case x.tag != r.tag || x.group != r.group || !slices.Equal(x.keys, r.keys):
		m.fault(
			"%s: %q has tag %q keys %q group %q, not %q %q %q",
			what,
			r.body,
			r.tag,
			r.keys,
			r.group,
			x.tag,
			x.keys,
			x.group,
		)
	}
	x.seen = true
	return x
}

// receive takes the answer to a receive that was asked for at asked and answered at now.
func (m *model) receive(g *modelGroup, all []received, invisible, asked, now int64, by string) {
	if len(all) == 0 {
		if x := m.available(g, asked); x != nil {
			m.fault("%s received nothing, and %q was there", g.name, x.body)
		}
		return
	}
	with := map[*modelMessage]bool{}
	for i := range all {
		r := &all[i]
		x := m.see(g.name+" received", r, now)
		if x == nil {
			continue
		}
		h := g.hold(x)
		switch {
		case with[x]:
			m.fault("%s received %q twice at once", g.name, r.body)
		case h.done == yes:
			m.fault("%s received %q, which it has acknowledged", g.name, r.body)
		case h.dying:
			m.fault("%s received %q, which is a dead letter", g.name, r.body)
		case h.delivered && h.early > now:
			m.fault("%s received %q, which somebody has for %d ms more", g.name, r.body, h.early-now)
		case r.attempt <= h.least || r.attempt > h.most+1:
			m.fault("%s received %q as attempt %d after %d to %d", g.name, r.body, r.attempt, h.least, h.most)
		case g.tag != "" && g.tag != x.tag:
			m.fault("%s received %q with the tag %q", g.name, r.body, x.tag)
		}
		if g.orderly && x.group != "" {
			m.inOrder(g, x, with, now)
		}
		with[x] = true
	}
	for i := range all {
		r := &all[i]
		if x := m.byBody[r.body]; x != nil {
			m.retire(g, x)
			*g.hold(x) = hold{
				delivered: true, least: r.attempt, most: r.attempt, early: asked + invisible, late: now + invisible,
				receipt: modelReceipt{r.body, r.handle, by, *r},
			}
		}
	}
}

// retire makes the handle of a message one that is good for nothing.
func (m *model) retire(g *modelGroup, x *modelMessage) {
	if h := g.hold(x); h.receipt.handle != "" {
		m.stale[g.name] = append(m.stale[g.name], h.receipt)
		h.receipt.handle = ""
	}
}

// inOrder checks a message of a message group: all before it are done or came with it, and nobody has any.
func (m *model) inOrder(g *modelGroup, x *modelMessage, with map[*modelMessage]bool, now int64) {
	for _, e := range m.messages {
		if e.group != x.group || e == x || with[e] || g.tag != "" && g.tag != e.tag {
			continue
		}
		h := g.hold(e)
		if h.out(now) && h.done == no && !h.dying && h.early > now {
			m.fault(
				"%s received %q while somebody has %q of its group for %d ms more",
				g.name,
				x.body,
				e.body,
				h.early-now,
			)
		}
		if e.number > x.number || h.done == yes || h.dying || e.visible(now) == no {
			continue
		}
		switch {
		case h.done == maybe:
			h.done = yes // or it would have come
		case e.visible(now) == maybe:
			e.stored = no // or it would have come
		case h.delivered && g.over(h):
			m.dies(g, e)
		default:
			m.fault("%s received %q before %q, which is of its group too", g.name, x.body, e.body)
		}
	}
}

// available returns a message that the group could have received at a time for sure; nil when there may be none.
func (m *model) available(g *modelGroup, now int64) *modelMessage {
	var found *modelMessage
	for _, x := range m.messages {
		h := g.hold(x)
		if g.orderly && (h.out(now) || h.done == maybe || h.delivered && h.done == no && g.over(h) && !h.dying) {
			return nil // it may hold others up
		}
		if x.visible(now) != yes || h.done != no || h.dying || g.tag != "" && g.tag != x.tag ||
			h.delivered && h.late >= now {
			continue
		}
		if h.delivered && g.over(h) {
			continue // it becomes a dead letter
		}
		found = x
	}
	return found
}

// receiveLost takes that the answer to a receive was lost.
func (m *model) receiveLost(g *modelGroup, invisible, now int64) {
	for _, x := range m.messages {
		h := g.hold(x)
		if x.visible(now) == no || h.done == yes || h.dying || h.delivered && h.early > now ||
			g.tag != "" && g.tag != x.tag {
			continue
		}
		h.receipt.handle = "" // good or not
		h.delivered, h.early, h.late = true, 0, max(h.late, now+invisible)
		h.most++
	}
}

// dies takes that a message is a dead letter, or will be one.
func (m *model) dies(g *modelGroup, x *modelMessage) {
	m.retire(g, x)
	g.hold(x).dying = true
	m.dead[g.name][x.body] = true
}

// expire takes what time has done: what had its last delivery dies when nobody has it any more.
func (m *model) expire(now int64) {
	for _, g := range m.groups {
		for x, h := range g.holds {
			if h.delivered && h.done == no && !h.dying && g.over(h) && h.early < now {
				m.dies(g, x)
			}
		}
	}
}

// ack takes the answer to an acknowledgement; err is nil, a refusal, or something that tells nothing.
func (m *model) ack(g *modelGroup, x *modelMessage, outcome fate) {
	h := g.hold(x)
	switch outcome {
	case yes:
		m.retire(g, x)
		h.done = yes
	case maybe:
		h.receipt.handle, h.done, h.late = "", maybe, math.MaxInt64
	default:
		m.fault("%s could not acknowledge %q", g.name, x.body)
	}
}

// change takes the answer to a change of the invisible time, with the new handle.
func (m *model) change(g *modelGroup, x *modelMessage, handle string, invisible, asked, now int64, outcome fate) {
	h := g.hold(x)
	switch outcome {
	case yes:
		old := h.receipt
		m.retire(g, x)
		// Changed in the millisecond of the receive, to the time it has, it is the same claim by the same handle.
		m.stale[g.name] = slices.DeleteFunc(m.stale[g.name], func(r modelReceipt) bool { return r.handle == handle })
		h.receipt, h.early, h.late = old, asked+invisible, now+invisible
		if h.receipt.handle = handle; invisible == 0 && g.over(h) {
			m.dies(g, x)
		}
	case maybe:
		h.receipt.handle, h.early, h.late = "", min(h.early, asked+invisible), max(h.late, now+invisible)
	default:
		m.fault("%s could not change the time of %q", g.name, x.body)
	}
}

// end takes the answer to a decision.
func (m *model) end(x *modelMessage, commits bool, outcome fate) {
	switch {
	case outcome == no:
		m.fault("the decision on %q was refused: ended %d commits %t, now %t", x.body, x.ended, x.commits, commits)
	case x.ended == yes: // the same once more
	default:
		x.ended, x.commits, x.half = outcome, commits, false
	}
}

// read takes what a pull read from a queue: what stands at an offset stands there for ever.
func (m *model) read(queue int32, from int64, records []received, now int64) {
	for i := range records {
		r := &records[i]
		at := from + int64(i)
		x := m.see(fmt.Sprintf("queue %d at %d", queue, at), r, now)
		known := m.queues[queue]
		switch {
		case r.offset != at || r.queue != queue:
			m.fault("queue %d at %d: a record of queue %d offset %d", queue, at, r.queue, r.offset)
		case at < int64(len(known)) && known[at] != r.body:
			m.fault("queue %d at %d: %q, where %q stood", queue, at, r.body, known[at])
		case at == int64(len(known)):
			m.queues[queue] = append(known, r.body)
		}
		if x != nil && x.offset >= 0 && x.offset != at {
			m.fault("%q is at %d, and was said to be at %d", r.body, at, x.offset)
		}
	}
}

// commit takes that the pulling group's offset was set; nothing is written at once.
func (m *model) commit(queue int32, offset int64, outcome fate) {
	m.may(queue)[offset] = true
	m.latest[queue], m.killed[queue] = offset, outcome != yes
}

func (m *model) may(queue int32) map[int64]bool {
	if m.offsets[queue] == nil {
		m.offsets[queue], m.latest[queue] = map[int64]bool{-1: true}, -1
	}
	return m.offsets[queue]
}

// query takes the pulling group's offset. After a crash it may be any that was committed since it was known what is
// written.
func (m *model) query(queue int32, offset int64) {
	candidates := m.may(queue)
	switch {
	case !m.killed[queue] && m.latest[queue] != offset:
		m.fault("the offset of queue %d is %d, wanted %d", queue, offset, m.latest[queue])
	case m.killed[queue] && !candidates[offset]:
		m.fault("the offset of queue %d after a crash is %d, wanted one of %v", queue, offset, candidates)
	case m.killed[queue]:
		m.killed[queue], m.latest[queue], m.offsets[queue] = false, offset, map[int64]bool{offset: true}
	}
}

// restart takes that the server was killed, or stopped, which writes all that there is to write.
func (m *model) restart(crash bool, now int64) {
	for _, x := range m.messages {
		x.back = now
	}
	for queue := range m.offsets {
		switch {
		case crash:
			m.killed[queue] = true
		case !m.killed[queue]:
			m.offsets[queue] = map[int64]bool{m.latest[queue]: true}
		}
	}
}
