// SPDX-License-Identifier: Apache-2.0

package pop

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/roquetmq/roquet/internal/message"
)

// held is what the model knows of a message that was handed out and is not finished.
type held struct {
	ref     Ref
	times   int32
	attempt uint64
	visible int64
	kept    bool // suspended
	dying   bool
	forward bool // dying because its holder said so
}

// model is the plain truth about a queue: what is finished, and who has what.
type model struct {
	*queueOfMessages
	finished map[message.QueueOffset]bool
	held     map[message.QueueOffset]*held
	old      []Ref // handles that were good once
}

// check compares the Queue with the model, and with what is stored.
func (m *model) check(t *rapid.T) {
	t.Helper()
	want := slices.Sorted(maps.Keys(m.held))
	if got := m.q.Unfinished(nil); !slices.Equal(got, want) {
		t.Fatalf("unfinished %v, want %v", got, want)
	}
	committed := m.q.Next()
	if len(want) > 0 {
		committed = want[0]
	}
	if m.q.Committed() != committed || m.q.InFlight() != len(want) {
		t.Fatalf("committed %d, in flight %d; want %d, %d", m.q.Committed(), m.q.InFlight(), committed,
			len(want))
	}
	stored, err := m.reopened()
	if err != nil {
		t.Fatal(err)
	}
	if got := stored.Unfinished(nil); !slices.Equal(got, want) || stored.Next() > m.q.Next() {
		t.Fatalf("stored: unfinished %v, want %v; next %d of %d", got, want, stored.Next(), m.q.Next())
	}
	for off := range m.q.Next() { // nothing that somebody wants was passed over without being handed out
		if m.wanted[off] && !m.finished[off] && m.held[off] == nil {
			t.Fatalf("message %d is lost", off)
		}
	}
	least := int64(never)
	for _, h := range m.held {
		if !h.dying && h.visible > m.now {
			least = min(least, h.visible)
		}
	}
	if !m.q.Due(m.now) && m.q.Deadline() != least {
		t.Fatalf("deadline %d, want %d", m.q.Deadline(), least)
	}
}

// take is a receive.
func (m *model) take(t *rapid.T, ask Ask, invisible int64) (got int) {
	this := map[message.QueueOffset]bool{}
	for _, a := range m.receive(ask, invisible) {
		switch a.Kind {
		case Finished:
			if m.wanted[a.Offset] {
				t.Fatalf("%d was dropped", a.Offset)
			}
			m.done(a.Offset)
		case Deliver:
			m.deliver(t, a, ask, invisible, this)
			this[a.Offset] = true
			got++
		case DeadLetter, Renewed, Refused, Delete, Put, Commit, Wake:
		}
	}
	if got > ask.MaxCount {
		t.Fatalf("%d messages, asked for %d", got, ask.MaxCount)
	}
	return got
}

func (m *model) deliver(t *rapid.T, a Action, ask Ask, invisible int64, this map[message.QueueOffset]bool) {
	h := m.held[a.Offset]
	repeated := h != nil && h.attempt == ask.Attempt && ask.Attempt != 0 && m.key(a.Offset) != 0
	switch {
	case m.finished[a.Offset], !m.wanted[a.Offset]:
		t.Fatalf("%d comes although it is finished or unwanted", a.Offset)
	case h != nil && (h.dying || h.visible > m.now && !repeated):
		t.Fatalf("%d comes although someone has it", a.Offset)
	}
	want := int32(0)
	if h != nil {
		want = h.times
		if !h.kept && !repeated {
			want++
		}
		m.old = append(m.old, h.ref)
	}
	if a.Times != want || want > m.maxTimes {
		t.Fatalf("%d comes with reconsumeTimes %d, want %d, at most %d", a.Offset, a.Times, want, m.maxTimes)
	}
	for off := range m.keys { // of its order key, all before it are finished or come first
		o := message.QueueOffset(off)
		if ask.Free || m.key(o) == 0 || m.key(o) != m.key(a.Offset) || this[o] {
			continue
		}
		if o < a.Offset && m.wanted[o] && !m.finished[o] {
			t.Fatalf("%d of key %d comes before %d", a.Offset, m.key(o), o)
		}
		other := m.held[o]
		if o > a.Offset && other != nil && other.visible > m.now && other.attempt != ask.Attempt {
			t.Fatalf("%d of key %d comes while someone has %d", a.Offset, m.key(o), o)
		}
	}
	m.held[a.Offset] = &held{
		ref: Ref{a.Offset, m.now, invisible}, times: a.Times, attempt: ask.Attempt,
		visible: m.now + max(invisible, 1),
	}
}

func (m *model) done(off message.QueueOffset) {
	m.old = append(m.old, m.held[off].ref)
	delete(m.held, off)
	m.finished[off] = true
}

// some draws a handle, good or stale, and tells whether it is good.
func (m *model) some(t *rapid.T) (ref Ref, good bool) {
	refs := slices.Clone(m.old)
	for _, off := range slices.Sorted(maps.Keys(m.held)) {
		refs = append(refs, m.held[off].ref)
	}
	if len(refs) == 0 {
		t.Skip("no handle yet")
	}
	ref = rapid.SampledFrom(refs).Draw(t, "handle")
	h := m.held[ref.Offset]
	return ref, h != nil && h.ref == ref && !h.forward
}

func (m *model) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"": m.check,
		"send": func(t *rapid.T) {
			m.keys = append(m.keys, rapid.SampledFrom([]uint32{0, 0, 7, 8}).Draw(t, "key"))
			m.wanted = append(m.wanted, rapid.IntRange(0, 4).Draw(t, "unwanted") > 0)
		},
		"receive": func(t *rapid.T) {
			ask := Ask{
				MaxCount: rapid.IntRange(1, 4).Draw(t, "max"),
				Free:     rapid.IntRange(0, 3).Draw(t, "free") == 0,
			}
			if !ask.Free {
				ask.Attempt = rapid.SampledFrom([]uint64{0, 1, 2}).Draw(t, "attempt")
			}
			m.take(t, ask, rapid.SampledFrom([]int64{0, 5, 10}).Draw(t, "invisible"))
		},
		"ack":     m.ack,
		"renew":   m.renew,
		"forward": m.forward,
		"bury": func(t *rapid.T) {
			dying := slices.DeleteFunc(
				m.q.Unfinished(nil),
				func(off message.QueueOffset) bool { return !m.held[off].dying },
			)
			if len(dying) == 0 {
				t.Skip("nothing dies")
			}
			m.bury(t, rapid.SampledFrom(dying).Draw(t, "dead"))
		},
		"advance": func(t *rapid.T) { m.now += rapid.Int64Range(1, 8).Draw(t, "by") },
		"tick":    func(t *rapid.T) { m.tick(t) },
		"reopen": func(t *rapid.T) {
			q, err := m.reopened()
			if err != nil {
				t.Fatal(err)
			}
			m.q = q
			for _, h := range m.held {
				h.dying, h.forward, h.visible = false, false, h.ref.PopTime+max(h.ref.Invisible, 1)
			}
		},
	}
}

func (m *model) ack(t *rapid.T) {
	ref, good := m.some(t)
	actions := m.step(&Ack{Refs: []Ref{ref}})
	if (actions == nil) || (actions[0].Kind == Finished) != good {
		t.Fatalf("ack of %+v, good %v: %+v", ref, good, actions)
	}
	if good {
		m.done(ref.Offset)
	}
}

func (m *model) renew(t *rapid.T) {
	ref, good := m.some(t)
	ev := &Renew{
		Refs: []Ref{ref}, Invisible: rapid.SampledFrom([]int64{0, 5, 10}).Draw(t, "invisible"),
		Suspend: rapid.Bool().Draw(t, "suspend"), Orderly: m.orderly,
	}
	actions := m.step(ev)
	if (actions[0].Kind == Renewed) != good {
		t.Fatalf("renewal of %+v, good %v: %+v", ref, good, actions)
	}
	if good {
		h, a := m.held[ref.Offset], actions[0]
		m.old = append(m.old, ref)
		h.ref, h.kept = Ref{ref.Offset, a.PopTime, a.Invisible}, ev.Suspend
		h.visible = a.PopTime + max(a.Invisible, 1)
		if h.visible < m.now+ev.Invisible || h.visible > m.now+ev.Invisible+1 {
			t.Fatalf("visible at %d", h.visible)
		}
		m.old = slices.DeleteFunc(m.old, func(r Ref) bool { return r == h.ref })
	}
}

func (m *model) forward(t *rapid.T) {
	ref, good := m.some(t)
	if actions := m.step(&Forward{Refs: []Ref{ref}}); (actions[0].Kind == DeadLetter) != good {
		t.Fatalf("forward of %+v, good %v: %+v", ref, good, actions)
	}
	if good {
		m.held[ref.Offset].dying, m.held[ref.Offset].forward = true, true
	}
}

// bury stores a dead letter, or fails to.
func (m *model) bury(t *rapid.T, off message.QueueOffset) {
	if rapid.Bool().Draw(t, "fails") {
		m.step(&Spare{Offset: off, Wait: 3})
		h := m.held[off]
		if h.dying, h.forward = false, false; h.visible <= m.now { // its claim has ended: the next look is later
			s, i := m.q.find(off)
			h.visible = s.entries[i].visibleAt()
		}
		return
	}
	m.step(&Bury{Offset: off})
	m.done(off)
}

func (m *model) tick(t *rapid.T) {
	for _, a := range m.step(&Tick{MaxTimes: m.maxTimes}) {
		if a.Kind == DeadLetter {
			h := m.held[a.Offset]
			if h.dying || h.kept || h.visible > m.now || h.times < m.maxTimes || a.Times != h.times {
				t.Fatalf("%d becomes a dead letter: %+v", a.Offset, h)
			}
			h.dying = true
		}
	}
}

// settle receives and acknowledges until nothing is left: everything that somebody wants is handed out at
// last.
func (m *model) settle(t *rapid.T) {
	for range 3*len(m.keys) + 10 {
		m.now += 20
		for _, a := range m.step(&Tick{MaxTimes: m.maxTimes}) {
			if a.Kind == DeadLetter {
				m.held[a.Offset].dying = true
			}
		}
		for _, off := range m.q.Unfinished(nil) {
			if m.held[off].dying {
				m.step(&Bury{Offset: off})
				m.done(off)
			}
		}
		m.take(t, Ask{MaxCount: 3}, 5)
		for _, off := range m.q.Unfinished(nil) {
			if h := m.held[off]; h.visible > m.now {
				m.step(&Ack{Refs: []Ref{h.ref}})
				m.done(off)
			}
		}
	}
	m.check(t)
	for off, wanted := range m.wanted {
		if wanted && !m.finished[message.QueueOffset(off)] {
			t.Fatalf("%d is never handed out", off)
		}
	}
}

// TestQueueAgainstModel: whatever happens, no message is with two at a time, none that is finished comes
// again, every other one does, in the order of its key, and what is stored says the same at any moment.
func TestQueueAgainstModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := &model{
			queueOfMessages: newQueueOfMessages(0), finished: map[message.QueueOffset]bool{},
			held: map[message.QueueOffset]*held{},
		}
		m.orderly = rapid.Bool().Draw(t, "orderly")
		m.maxTimes = rapid.SampledFrom([]int32{0, 2, NoMaxTimes}).Draw(t, "max times")
		m.step(&Tick{MaxTimes: m.maxTimes})
		t.Repeat(m.actions())
		m.settle(t)
	})
}

func TestHandleText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"100 1700000000000 60000 0 0 broker-a 3 105",
		"100 1700000000000 60000 999 0 broker-a 3 105 123456789",
		"0 0 0 0 2 b 0 0",
	} {
		h, err := ParseHandle(text)
		if err != nil {
			t.Fatal(err)
		}
		if h.String() != text || h.Orderly() != (h.ReviveQueueID == 999) {
			t.Errorf("%q comes back as %q", text, h.String())
		}
	}
	h := Handle{
		StartOffset: 1,
		PopTime:     2,
		Invisible:   3,
		RetryFlag:   1,
		BrokerName:  "b",
		QueueID:     4,
		Offset:      5,
		LogOffset:   6,
	}
	if h.String() != "1 2 3 0 1 b 4 5 6" || h.VisibleAt() != 5 || (h.Ref() != Ref{5, 2, 3}) {
		t.Errorf("%q", h.String())
	}
}

func TestHandleRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", " ", "1 2 3 4 5 b 6", "1 2 3 4 5 b 6 7 8 9", "1 2 3 4 5  6 7", "1 2 3 4 5 b 6 7 ", " 1 2 3 4 5 b 6 7",
		"1 2 3 4 5 b 6 x", "-1 2 3 4 5 b 6 7", "+1 2 3 4 5 b 6 7", "1 2 3 4 5 b 99999999999 7",
		"1 99999999999999999999 3 4 5 b 6 7", "1 2 3 4 5 b 6 7 ", string(bytes.Repeat([]byte("1"), 600)),
	} {
		if _, err := ParseHandle(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

func FuzzParseHandle(f *testing.F) {
	f.Add("100 1700000000000 60000 999 0 broker-a 3 105 123456789")
	f.Add("1 2 3 4 5 b 6 7")
	f.Fuzz(func(t *testing.T, text string) {
		h, err := ParseHandle(text)
		if err != nil {
			return
		}
		again, err := ParseHandle(h.String())
		if err != nil || again != h {
			t.Fatalf("%q means %+v, then %+v, %v", text, h, again, err)
		}
	})
}

func FuzzDecodeSpan(f *testing.F) {
	f.Add(int64(5), []byte("\x01\x03\x01\x00\x90\x4e\x00\x00\x00\x03\x00\x01\x01"))
	f.Add(
		int64(0),
		[]byte(
			"\x02\x02\x01\x00\x90\x4e\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x01\x01\x00\x00\x00\x01",
		),
	)
	f.Fuzz(func(t *testing.T, from int64, value []byte) {
		s, err := decodeSpan(message.QueueOffset(from), value)
		if err != nil {
			return
		}
		again, err := decodeSpan(s.from, s.appendValue(nil))
		if err != nil || !bytes.Equal(again.appendValue(nil), s.appendValue(nil)) {
			t.Fatalf("%x means %+v, then %+v, %v", value, s, again, err)
		}
	})
}

// BenchmarkReceiveAck is 32 messages: the core's part of a receive and their acknowledgement, with the
// records.
func BenchmarkReceiveAck(b *testing.B) {
	q := NewQueue(0, new(Scratch))
	ev := &Receive{Ask: Ask{MaxCount: 32, MaxTimes: 16}, Invisible: 60_000, Fresh: make([]Fresh, 32)}
	ack := &Ack{Refs: make([]Ref, 32)}
	var value []byte
	var again []message.QueueOffset
	now := int64(1_700_000_000_000)
	b.ReportAllocs()
	for b.Loop() {
		now++
		q.Plan(now, ev.Ask, again[:0])
		ev.From, ev.To = q.Next(), q.Next()+32
		for i := range ev.Fresh {
			ev.Fresh[i].Offset = ev.From + message.QueueOffset(i)
			ack.Refs[i] = Ref{ev.Fresh[i].Offset, now, 60_000}
		}
		for _, step := range []Event{ev, ack} {
			actions := q.Step(now, step)
			for i := range actions {
				if actions[i].Kind == Put {
					value = actions[i].AppendValue(value[:0])
				}
			}
		}
	}
}
