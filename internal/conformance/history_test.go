// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// history is what consumers of one orderly group did and saw, in the order in which they began and got to know it.
// Its methods are safe for concurrent use.
type history struct {
	mu     sync.Mutex
	steps  []step
	begins int
	finish map[string]bool // messages that are done
	grown  *sync.Cond
}

func newHistory() *history {
	h := &history{finish: map[string]bool{}}
	h.grown = sync.NewCond(&h.mu)
	return h
}

// stepKind is what kind a step is of.
type stepKind uint8

const (
	got   stepKind = iota // a receive came back with a message
	begun                 // an acknowledgement, or giving back, was sent
	acked                 // an acknowledgement was answered: the message is done
)

// step is one thing that happened to a message.
type step struct {
	kind    stepKind
	key     string // what is kept in order: message group or queue
	seq     int    // of the message in its key, from 0
	receive int    // of got: which receive; those that began later have higher numbers
	at      int    // of acked: how many steps there were; of got: when the receive began
	pop     int64  // of got, ms: when the answer was there; the server claimed the message before that
	until   int64  // of got, ms: the claim lasts at least until then
	attempt int
}

// receiving notes that a receive begins.
func (h *history) receiving() (receive, at int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.begins++
	return h.begins, len(h.steps)
}

func (h *history) note(steps ...step) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range steps {
		if s.kind == acked {
			s.at = len(h.steps)
			h.finish[s.key+"/"+strconv.Itoa(s.seq)] = true
		}
		h.steps = append(h.steps, s)
	}
	h.grown.Broadcast()
}

// reach returns when n messages are done.
func (h *history) reach(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.finish) < n {
		h.grown.Wait()
	}
}

// of is the history of one key.
func (h *history) of(key string) []step {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(h.steps), func(s step) bool { return s.key != key })
}

// keys are those of the history.
func (h *history) keys() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []string
	for i := range h.steps {
		if !slices.Contains(all, h.steps[i].key) {
			all = append(all, h.steps[i].key)
		}
	}
	return all
}

// claim is the newest delivery of a message that the checker knows.
type claim struct {
	receive  int
	pop      int64 // ms
	until    int64 // ms
	released bool  // its consumer has begun to acknowledge it or to give it back
	attempt  int
}

// checkOrder tells what is wrong with the history of one key that has n messages; all of them must be done. It
// knows nothing of the broker's rules but what consumers are promised:
//
//   - a message comes when all before it in its key are done, or come with it;
//   - one receive gives the messages of a key out in order;
//   - while somebody has a message of the key and its time is not over, nobody else gets any of the key;
//   - what is done does not come again;
//   - each delivery counts as one attempt more, at most.
func checkOrder(steps []step, n int) []string {
	c := &orderCheck{n: n, claims: map[int]*claim{}, begun: map[int]bool{}, done: map[int]int{}}
	for i := 0; i < len(steps); i++ {
		s := &steps[i]
		switch s.kind {
		case begun:
			c.begun[s.seq] = true
			if l := c.claims[s.seq]; l != nil {
				l.released = true
			}
		case acked:
			if _, ok := c.done[s.seq]; !ok {
				c.done[s.seq] = s.at
			}
		case got:
			end := i + 1
			for end < len(steps) && steps[end].kind == got && steps[end].receive == s.receive {
				end++
			}
			c.receive(steps[i:end])
			i = end - 1
		}
	}
	for seq := range n {
		if _, ok := c.done[seq]; !ok {
			c.fault("%d was never done", seq)
		}
	}
	return c.faults
}

type orderCheck struct {
	n      int
	claims map[int]*claim
	begun  map[int]bool
	done   map[int]int // and after how many steps that was known
	faults []string
}

func (c *orderCheck) fault(format string, args ...any) {
	c.faults = append(c.faults, fmt.Sprintf(format, args...))
}

// receive checks the messages of one receive.
func (c *orderCheck) receive(batch []step) {
	first := &batch[0]
	for seq, l := range c.claims {
		if l.pop <= first.pop && first.pop < l.until && !l.released {
			c.fault(
				"%d came in receive %d while receive %d had %d for %d ms more",
				first.seq,
				first.receive,
				l.receive,
				seq,
				l.until-first.pop,
			)
		}
	}
	with := map[int]bool{}
	last := -1
	for i := range batch {
		s := &batch[i]
		if s.seq <= last {
			c.fault("receive %d has %d after %d", s.receive, s.seq, last)
		}
		last = s.seq
		for before := range s.seq {
			if !with[before] && !c.begun[before] {
				c.fault("%d came before %d was done", s.seq, before)
				break
			}
		}
		with[s.seq] = true
		if known, ok := c.done[s.seq]; ok && known < s.at {
			c.fault("%d came again after it was done", s.seq)
		}
		if l := c.claims[s.seq]; l != nil && s.attempt > l.attempt+maxLost {
			c.fault("%d came as attempt %d after %d", s.seq, s.attempt, l.attempt)
		}
	}
	for i := range batch {
		s := &batch[i]
		if l := c.claims[s.seq]; l != nil && l.pop > s.pop {
			continue // a consumer that was slow to tell
		}
		c.claims[s.seq] = &claim{receive: s.receive, pop: s.pop, until: s.until, attempt: s.attempt}
		delete(c.begun, s.seq) // what was begun before was not an acknowledgement that counted
	}
}

// maxLost bounds how many attempts nobody saw: a receive whose answer was lost counts too.
const maxLost = 3

// TestCheckOrder: the checker finds what is planted, and nothing in what is right.
func TestCheckOrder(t *testing.T) {
	t.Parallel()
	// A line is: receive "r", its number, its time, and the messages; or "b" begun, "a" acked and the message.
	parse := func(text string) []step {
		var steps []step
		for line := range strings.SplitSeq(text, "; ") {
			f := strings.Fields(line)
			n := func(i int) int { v, _ := strconv.Atoi(f[i]); return v }
			switch f[0] {
			case "b":
				steps = append(steps, step{kind: begun, seq: n(1)})
			case "a":
				steps = append(steps, step{kind: begun, seq: n(1)}, step{kind: acked, seq: n(1), at: len(steps) + 1})
			case "r":
				at := len(steps)
				for i := 3; i < len(f); i++ {
					steps = append(steps, step{
						kind:    got,
						seq:     n(i),
						receive: n(1),
						at:      at,
						pop:     int64(n(2)),
						until:   int64(n(2)) + 100,
						attempt: 1,
					})
				}
			}
		}
		return steps
	}
	for _, tc := range []struct{ name, steps, want string }{
		{"in order", "r 1 0 0 1 2; a 0; a 1; a 2; r 2 10 3; a 3", ""},
		{"given back", "r 1 0 0 1; a 0; b 1; r 2 10 1 2 3; a 1; a 2; a 3", ""},
		{"time is over", "r 1 0 0 1; r 2 100 0 1; a 0; a 1; r 3 150 2 3; a 2; a 3", ""},
		{"overtaken", "r 1 0 0; a 0; r 2 10 2; a 2; r 3 20 1; a 1; r 4 30 3; a 3", "2 came before 1 was done"},
		{"not in order", "r 1 0 1 0 2 3; a 0; a 1; a 2; a 3", "1 came before 0 was done"},
		{"two at a time", "r 1 0 0; r 2 10 1 2 3; a 0; a 1; a 2; a 3", "1 came in receive 2 while receive 1 had 0 for 90 ms more"},
		{"again after it was done", "r 1 0 0 1 2 3; a 0; a 1; a 2; a 3; r 2 10 2", "2 came again after it was done"},
		{"lost", "r 1 0 0 1 3; a 0; a 1; a 3", "2 was never done"},
		{"given back and overtaken", "r 1 0 0; b 0; r 2 5 0; r 3 200 1 2 3; a 0; a 1; a 2; a 3", "1 came before 0 was done"},
	} {
		faults := checkOrder(parse(tc.steps), 4)
		if found := slices.Contains(faults, tc.want); tc.want == "" && len(faults) > 0 || tc.want != "" && !found {
			t.Errorf("%s: %q, want %q", tc.name, faults, tc.want)
		}
	}
}
