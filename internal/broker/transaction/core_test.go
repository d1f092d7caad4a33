// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/roquetmq/roquet/internal/message"
)

var rewrite = flag.Bool("rewrite", false, "write what the scenarios of testdata print into them")

// TestScenarios runs the scripts of testdata: commands and, behind a line "----", what they print.
func TestScenarios(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scenarios", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			script, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := runScenario(t, string(script))
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			} else if got != string(script) {
				t.Errorf("%s printed\n%s", file, got)
			}
		})
	}
}

func runScenario(t *testing.T, script string) string {
	t.Helper()
	s := &scenario{t: t, core: New(Config{})}
	var out strings.Builder
	for i, block := range strings.Split(strings.TrimRight(script, "\n"), "\n\n") {
		if i > 0 {
			out.WriteString("\n")
		}
		commands, _, isBlock := strings.Cut(block, "\n----")
		out.WriteString(commands + "\n")
		if !isBlock {
			continue // a comment
		}
		out.WriteString("----\n")
		for line := range strings.SplitSeq(commands, "\n") {
			if !strings.HasPrefix(line, "#") {
				s.do(&out, strings.Fields(line))
			}
		}
	}
	return out.String()
}

// scenario is a core and a clock that begins at 0.
type scenario struct {
	t    *testing.T
	core *Core
	now  int64 // ms
}

func (s *scenario) do(out *strings.Builder, words []string) {
	arg := map[string]string{}
	for _, w := range words[1:] {
		name, value, _ := strings.Cut(w, "=")
		arg[name] = value
	}
	ev := Event{Offset: message.QueueOffset(s.number(arg["offset"]))}
	switch words[0] {
	case "config":
		s.core = New(Config{
			Timeout: s.duration(arg["timeout"]), Interval: s.duration(arg["interval"]),
			MaxChecks: int(s.number(arg["max"])), MaxAge: s.duration(arg["age"]), MaxBusy: int(s.number(arg["busy"])),
		})
		return
	case "clock": // of the machine, also backwards
		s.now += s.duration(words[1]).Milliseconds()
		return
	case "next":
		next, ok := s.core.Next()
		if !ok {
			fmt.Fprintln(out, "next: -")
			return
		}
		fmt.Fprintf(out, "next: in %v\n", time.Duration(next-s.now)*time.Millisecond)
		return
	case "stored":
		ev.Kind = Stored
		ev.Half = Half{
			Offset:   ev.Offset,
			Since:    s.now,
			Immunity: NoImmunity,
			Checks:   int(s.number(arg["checks"])),
			Topic:    "T",
		}
		if imm, ok := arg["immunity"]; ok {
			ev.Half.Immunity = int32(s.number(imm))
		}
		if old, ok := arg["age"]; ok {
			ev.Half.Since -= s.duration(old).Milliseconds()
		}
		if ago, ok := arg["checked"]; ok {
			ev.Half.LastCheck = s.now - s.duration(ago).Milliseconds()
		}
	case "deleted":
		ev.Kind = Deleted
	case "claim":
		ev.Kind, ev.Ticket = Claim, arg["ticket"]
	case "finished":
		ev.Kind = Finished
		ev.Outcome = map[string]Outcome{"failed": Failed, "nobody": NoProducer, "unreadable": Unreadable}[words[2]]
	case "tick":
		ev.Kind = Tick
	default:
		s.t.Fatalf("no command %q", words[0])
	}
	for _, a := range s.core.Step(time.UnixMilli(s.now), ev) {
		switch a.Kind {
		case Check:
			fmt.Fprintf(out, "check %d number %d\n", a.Half.Offset, a.Half.Checks)
		case Park:
			fmt.Fprintf(out, "park %d after %d checks, age %v\n", a.Half.Offset, a.Half.Checks,
				time.Duration(s.now-a.Half.Since)*time.Millisecond)
		case Grant:
			fmt.Fprintf(out, "grant %d to %v\n", a.Half.Offset, a.Ticket)
		case Gone:
			fmt.Fprintf(out, "gone %d for %v\n", a.Half.Offset, a.Ticket)
		}
		if a.Kind == Check && words[0] == "tick" && arg["done"] != "" { // the owner stores it, and is done
			s.core.Step(time.UnixMilli(s.now), Event{Kind: Stored, Half: a.Half})
			s.core.Step(time.UnixMilli(s.now), Event{Kind: Finished, Offset: a.Half.Offset})
		}
	}
}

func (s *scenario) number(text string) int64 {
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *scenario) duration(text string) time.Duration {
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

// TestC085EachIsCheckedAtItsTime: 200 messages with an immunity of 1 to 3 s or none, no decision, a clock
// that advances in steps of any size. Each is checked at least once, none before its time, and none more
// often than the interval.
func TestC085EachIsCheckedAtItsTime(t *testing.T) {
	t.Parallel()
	const count = 200
	rng := rand.New(rand.NewPCG(1, 2))
	c := New(Config{})
	now := time.UnixMilli(1_700_000_000_000)
	since := map[message.QueueOffset]time.Time{}
	checked := map[message.QueueOffset][]time.Time{}
	immunity := func(off message.QueueOffset) int32 { return []int32{NoImmunity, 1, 2, 3, 0}[off%5] }
	for step := 0; len(checked) < count || step < 400; step++ {
		if step > 100_000 {
			t.Fatalf("only %d of %d were checked", len(checked), count)
		}
		if len(since) < count {
			off := message.QueueOffset(len(since))
			since[off] = now
			c.Step(now, Event{Kind: Stored, Half: Half{Offset: off, Since: now.UnixMilli(), Immunity: immunity(off)}})
		}
		for _, a := range c.Step(now, Event{Kind: Tick}) {
			if a.Kind != Check {
				continue
			}
			checked[a.Half.Offset] = append(checked[a.Half.Offset], now)
			c.Step(now, Event{Kind: Stored, Half: a.Half})
			c.Step(now, Event{Kind: Finished, Offset: a.Half.Offset})
		}
		now = now.Add(time.Duration(rng.IntN(200)) * time.Millisecond)
	}
	for off, times := range checked {
		wait := DefaultTimeout
		if immunity(off) >= 0 {
			wait = time.Duration(immunity(off)) * time.Second
		}
		if age := times[0].Sub(since[off]); age <= wait || age > wait+500*time.Millisecond {
			t.Errorf("message %d with immunity %v was first checked at the age of %v", off, wait, age)
		}
		for i := 1; i < len(times); i++ {
			if gap := times[i].Sub(times[i-1]); gap < DefaultInterval {
				t.Errorf("message %d was checked again after %v", off, gap)
			}
		}
	}
}

// TestCoreModel drives a core with a random script and holds it to its promises: who holds what, in what
// order, and that everything that is open is looked after.
func TestCoreModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := &coreModel{
			core: New(Config{MaxChecks: 3, MaxBusy: 2}), now: time.UnixMilli(1_000_000),
			holder: map[message.QueueOffset]string{}, waiting: map[message.QueueOffset][]string{},
		}
		known := func(t *rapid.T) message.QueueOffset {
			return rapid.SampledFrom([]message.QueueOffset{0, 1, 2, 3}).Draw(t, "offset")
		}
		tickets := 0
		t.Repeat(map[string]func(*rapid.T){
			"stored": func(t *rapid.T) {
				off := known(t)
				if _, open := m.holder[off]; open {
					t.Skip()
				}
				m.holder[off] = ""
				m.step(t, Event{Kind: Stored, Half: Half{
					Offset: off, Since: m.now.UnixMilli(),
					Immunity: rapid.Int32Range(-1, 3).Draw(t, "immunity"),
				}})
			},
			"deleted": func(t *rapid.T) {
				off := known(t)
				if m.holder[off] == "" && rapid.Bool().Draw(t, "nobody deletes what is held by nobody") {
					t.Skip()
				}
				waiting := m.waiting[off]
				delete(m.holder, off)
				delete(m.waiting, off)
				m.step(t, Event{Kind: Deleted, Offset: off}, waiting...)
			},
			"claim": func(t *rapid.T) {
				off := known(t)
				tickets++
				ticket := strconv.Itoa(tickets)
				switch holder, open := m.holder[off]; {
				case !open:
					m.step(t, Event{Kind: Claim, Offset: off, Ticket: ticket}, ticket)
				case holder == "":
					m.step(t, Event{Kind: Claim, Offset: off, Ticket: ticket})
					if m.holder[off] != ticket {
						t.Fatalf("ticket %s does not hold %d", ticket, off)
					}
				default:
					m.waiting[off] = append(m.waiting[off], ticket)
					m.step(t, Event{Kind: Claim, Offset: off, Ticket: ticket})
				}
			},
			"finished": func(t *rapid.T) {
				off := known(t)
				if m.holder[off] == "" {
					t.Skip()
				}
				m.holder[off] = ""
				outcome := rapid.SampledFrom([]Outcome{Done, Failed, NoProducer}).Draw(t, "outcome")
				m.step(t, Event{Kind: Finished, Offset: off, Outcome: outcome})
				if m.holder[off] == "" && len(m.waiting[off]) > 0 {
					t.Fatalf("%d is free and %v wait for it", off, m.waiting[off])
				}
			},
			"tick": func(t *rapid.T) { m.step(t, Event{Kind: Tick}) },
			"time": func(t *rapid.T) {
				m.now = m.now.Add(time.Duration(rapid.Int64Range(-2000, 40_000).Draw(t, "ms")) * time.Millisecond)
			},
			"": func(t *rapid.T) { m.check(t) },
		})
	})
}

type coreModel struct {
	core    *Core
	now     time.Time
	holder  map[message.QueueOffset]string // of open ones: "" nobody, "action", or a ticket
	waiting map[message.QueueOffset][]string
}

// step makes a step; gone are the tickets that must be told so.
func (m *coreModel) step(t *rapid.T, ev Event, gone ...string) {
	var told []string
	for _, a := range m.core.Step(m.now, ev) {
		off := a.Half.Offset
		holder, open := m.holder[off]
		switch a.Kind {
		case Gone:
			told = append(told, a.Ticket.(string))
			continue
		case Grant:
			ticket := a.Ticket.(string)
			if w := m.waiting[off]; len(w) > 0 {
				if w[0] != ticket {
					t.Fatalf("ticket %s got ahead of %v", ticket, w)
				}
				m.waiting[off] = w[1:]
			}
			m.holder[off] = ticket
		case Check:
			m.holder[off] = "action"
			if a.Half.Checks > 3 {
				t.Fatalf("check number %d", a.Half.Checks)
			}
			m.core.Step(m.now, Event{Kind: Stored, Half: a.Half}) // its count is durable
		case Park:
			m.holder[off] = "action"
		}
		if !open || holder != "" {
			t.Fatalf("action %d on %d, which is open=%v and held by %q", a.Kind, off, open, holder)
		}
	}
	if !slices.Equal(told, gone) {
		t.Fatalf("told %v that it is gone, want %v", told, gone)
	}
}

func (m *coreModel) check(t *rapid.T) {
	if len(m.core.open) != len(m.holder) {
		t.Fatalf("%d are open, want %d", len(m.core.open), len(m.holder))
	}
	busy := 0
	for off, e := range m.core.open {
		holder := m.holder[off]
		if (e.held == heldByNobody) != (holder == "") {
			t.Fatalf("%d is held by %d, want %q", off, e.held, holder)
		}
		if e.held == heldByAction {
			busy++
		}
		if inHeap := slices.Contains(m.core.due, e); inHeap != (e.held == heldByNobody) {
			t.Fatalf("%d is held by %d and in the heap %v", off, e.held, inHeap)
		}
		if e.held == heldByNobody && e.Due() > m.now.Add(41*time.Second).UnixMilli() {
			t.Fatalf("%d is looked at in %d ms", off, e.Due()-m.now.UnixMilli())
		}
	}
	if busy != m.core.busy || busy > 2 {
		t.Fatalf("%d busy, counted %d", busy, m.core.busy)
	}
	for i := 1; i < len(m.core.due); i++ {
		if m.core.due[i].Due() < m.core.due[(i-1)/2].Due() {
			t.Fatal("the heap is in disorder")
		}
	}
}

func TestHalfState(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := Half{
			Offset: message.QueueOffset(
				rapid.Int64Range(0, 1<<60).Draw(t, "offset"),
			),
			Topic:     rapid.String().Draw(t, "topic"),
			Since:     rapid.Int64().Draw(t, "since"),
			LastCheck: rapid.Int64().Draw(t, "last"),
			Checks: rapid.IntRange(
				0,
				65535,
			).Draw(
				t,
				"checks",
			),
			Immunity: rapid.Int32Range(-1, 1<<30).Draw(t, "immunity"),
			Moved:    rapid.Bool().Draw(t, "moved"),
		}
		if h.Moved {
			h.Origin = message.QueueOffset(rapid.Int64().Draw(t, "origin"))
			h.OriginPos = message.LogOffset(rapid.Int64().Draw(t, "pos"))
		}
		key, value := AppendKey(nil, h.Offset), h.AppendValue(nil)
		if got, err := Parse(key, value); err != nil || got != h {
			t.Fatalf("%+v became %+v, %v", h, got, err)
		}
		moved := h
		moved.Offset, moved.Since = 7, 9
		SetKey(key, 7)
		SetSince(value, 9)
		if got, err := Parse(key, value); err != nil || got != moved {
			t.Fatalf("%+v became %+v, %v", moved, got, err)
		}
	})
	good := (&Half{}).AppendValue(nil)
	for _, bad := range []struct{ key, value []byte }{
		{nil, good},
		{make([]byte, 7), good},
		{bytes.Repeat([]byte{255}, 8), good},
		{make([]byte, 8), nil},
		{make([]byte, 8), good[:39]},
		{make([]byte, 8), append([]byte{2}, good[1:]...)},
	} {
		if h, err := Parse(bad.key, bad.value); err == nil {
			t.Errorf("%x = %x is read as %+v", bad.key, bad.value, h)
		}
	}
	long := Half{Checks: 1 << 20}
	if got, err := Parse(AppendKey(nil, 0), long.AppendValue(nil)); err != nil || got.Checks != maxChecks {
		t.Errorf("checks %d, %v", got.Checks, err)
	}
}

func FuzzParse(f *testing.F) {
	half := Half{Topic: "T", Checks: 3}
	f.Add(AppendKey(nil, 5), half.AppendValue(nil))
	f.Add([]byte{}, []byte{1})
	f.Fuzz(func(t *testing.T, key, value []byte) {
		h, err := Parse(key, value)
		if err != nil {
			return
		}
		if again, err := Parse(AppendKey(nil, h.Offset), h.AppendValue(nil)); err != nil || (h.Topic != again.Topic) {
			t.Fatalf("%+v became %+v, %v", h, again, err)
		}
	})
}

func BenchmarkOpenAndDecide(b *testing.B) {
	c := New(Config{})
	now := time.UnixMilli(1)
	for off := range message.QueueOffset(100_000) {
		c.Step(now, Event{Kind: Stored, Half: Half{Offset: off, Immunity: NoImmunity}})
	}
	b.ReportAllocs()
	for i := range b.N {
		off := message.QueueOffset(100_000 + i)
		c.Step(now, Event{Kind: Stored, Half: Half{Offset: off, Immunity: NoImmunity, Since: int64(i)}})
		c.Step(now, Event{Kind: Claim, Offset: off, Ticket: c})
		c.Step(now, Event{Kind: Deleted, Offset: off})
		c.Step(now, Event{Kind: Finished, Offset: off})
	}
}
