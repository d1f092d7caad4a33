// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/roquetmq/roquet/internal/message"
)

// fate is what must become of a message that waits.
type fate struct {
	due      time.Time // of a timer
	half     bool
	at       message.LogOffset // of a half message, as its send was answered
	offset   message.QueueOffset
	handle   string
	recall   bool     // was asked for
	recalled bool     // acknowledged
	decided  Decision // acknowledged
	asked    map[Decision]bool
}

// waitingModel is messages that wait for their time or for a decision, by body, and a broker that keeps
// dying.
type waitingModel struct {
	*txWorld
	tb    testing.TB
	fates map[string]*fate
}

// TestC075C077WaitingMessagesSurvive: whatever is sent, decided, called back, carried forward, and wherever
// the process dies in between, a message comes once, at its time, if it must, and never if it must not.
func TestC075C077WaitingMessagesSurvive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ testing.TB }{t}, func(rt *rapid.T) { // a bubble has no deadline to ask for
			m := &waitingModel{tb: t, txWorld: newTxWorld(t), fates: map[string]*fate{}}
			m.topic(rt, "T", 1)
			rt.Repeat(m.actions())
			m.finish(rt)
		})
	})
}

func (m *waitingModel) actions() map[string]func(*rapid.T) {
	pick := func(t *rapid.T, want func(*fate) bool) (string, *fate) {
		var names []string
		for _, name := range slices.Sorted(maps.Keys(m.fates)) {
			if want(m.fates[name]) {
				names = append(names, name)
			}
		}
		if len(names) == 0 {
			t.Skip()
		}
		name := rapid.SampledFrom(names).Draw(t, "message")
		return name, m.fates[name]
	}
	return map[string]func(*rapid.T){
		"timer": func(t *rapid.T) {
			delay := time.Duration(rapid.IntRange(0, 5000).Draw(t, "ms")) * time.Millisecond
			m.sendOne(
				t,
				&fate{due: time.Now().Add(delay)},
				"TIMER_DELAY_MS",
				strconv.FormatInt(delay.Milliseconds(), 10),
			)
		},
		"level": func(t *rapid.T) {
			m.sendOne(t, &fate{due: time.Now().Add(time.Second)}, "DELAY", "1")
		},
		"half": func(t *rapid.T) {
			m.sendOne(t, &fate{half: true, asked: map[Decision]bool{}}, "TRAN_MSG", "true", "PGROUP", "p")
		},
		"recall": func(t *rapid.T) {
			_, f := pick(t, func(f *fate) bool { return f.handle != "" })
			f.recall = true
			m.recalls.Recall("T", f.handle, func(_ string, err error) { f.recalled = f.recalled || err == nil })
		},
		"end": func(t *rapid.T) {
			name, f := pick(t, func(f *fate) bool { return f.half })
			decision := rapid.SampledFrom([]Decision{Commit, Rollback}).Draw(t, "decision")
			f.asked[decision] = true
			m.tx.End(&EndRequest{
				LogOffset: f.at, QueueOffset: f.offset, TransactionID: "u-" + name, Group: "p",
				Decision: decision, Done: func(_ *EndRequest, err error) { m.ended(t, name, f, decision, err) },
			})
		},
		"apply": func(*rapid.T) { m.st.apply() },
		"applyOne": func(t *rapid.T) {
			if len(m.st.pending) == 0 {
				t.Skip()
			}
			m.applyOne()
		},
		"lose": func(*rapid.T) {
			m.st.fail = errors.New("broken")
			m.st.apply()
			m.st.fail = nil
		},
		"work": func(*rapid.T) {
			m.delays.deliver(time.Now())
			m.delays.readAheadOf(m.tb.Context(), time.Now())
			m.tx.tick()
		},
		"time": func(t *rapid.T) {
			time.Sleep(time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms")) * time.Millisecond)
		},
		"carry": func(t *rapid.T) {
			cut := m.st.endOfLog()
			done := make(chan error, 2)
			delays, tx := m.delays, m.tx
			go func() { done <- delays.CarryForward(m.tb.Context(), cut) }()
			go func() { done <- tx.CarryForward(m.tb.Context(), cut) }()
			for left := 2; left > 0; {
				m.settle()
				m.delays.runLater(nil) // as Run does when it is woken
				select {
				case err := <-done:
					if err != nil {
						t.Fatal(err)
					}
					left--
				default:
				}
			}
			m.dropWaiting(cut)
		},
		"crash": func(*rapid.T) { m.reopen() },
		"":      func(t *rapid.T) { m.check(t) },
	}
}

// sendOne sends a message; only what is acknowledged is remembered.
func (m *waitingModel) sendOne(t *rapid.T, f *fate, pairs ...string) {
	name := strconv.Itoa(len(m.fates))
	var o outcome
	req := sendRequest("T", name, &o)
	req.Properties = props(append(pairs, "UNIQ_KEY", "u-"+name)...)
	m.sender.Send(req)
	m.st.apply()
	if o.calls != 1 || o.err != nil {
		t.Fatalf("send: %d, %v", o.calls, o.err)
	}
	res := req.Result()
	f.at, f.offset, f.handle = res.Messages[0].LogOffset, res.QueueOffset, res.RecallHandle
	m.fates[name] = f
}

func (m *waitingModel) ended(t *rapid.T, name string, f *fate, decision Decision, err error) {
	switch {
	case err == nil && f.decided != Undecided && f.decided != decision:
		t.Fatalf("%s was decided twice: %v, then %v", name, f.decided, decision)
	case err == nil:
		f.decided = decision
	case refusal(Failed, "Find prepared transaction message failed")(err) && f.decided != Undecided:
		// Retention has dropped all that there was.
	case errors.As(err, new(*Refusal)) && !refusal(IllegalOperation, "was decided before")(err):
		t.Fatalf("%v of %s: %v", decision, name, err)
	}
}

// reopen is a crash: what was not durable is gone, and so are all who waited for it.
func (m *waitingModel) reopen() { m.txWorld = openTxWorld(m.tb, m.st.reopened()) }

// dropWaiting forgets the waiting messages in front of cut.
func (m *waitingModel) dropWaiting(cut message.LogOffset) {
	m.st.mu.Lock()
	defer m.st.mu.Unlock()
	for key, q := range m.st.queues {
		for key.topic != "T" && q.first < q.next() && q.pos[q.first] < cut {
			delete(m.st.records, q.pos[q.first])
			q.first++
		}
	}
}

func (m *waitingModel) check(t *rapid.T) {
	came := map[string]int{}
	for _, msg := range m.messages(t, "T", 0) {
		name := string(msg.Body)
		f := m.fates[name]
		if came[name]++; came[name] > 1 {
			t.Fatalf("message %s came twice", name)
		}
		switch {
		case f == nil:
		case !f.half && msg.StoreTimestamp < f.due.UnixMilli():
			t.Fatalf("message %s came %v early", name, f.due.Sub(time.UnixMilli(msg.StoreTimestamp)))
		case f.recalled:
			t.Fatalf("message %s was called back, and came", name)
		case f.half && f.decided == Rollback, f.half && !f.asked[Commit]:
			t.Fatalf("message %s was not committed, and came", name)
		}
	}
	for name, f := range m.fates {
		if f.decided == Commit && came[name] == 0 {
			t.Fatalf("message %s was committed, and did not come", name)
		}
	}
	if stats := m.delays.Stats(); !stats.Counting && len(m.st.pending) == 0 &&
		stats.Waiting != int64(len(m.timers())) {
		t.Fatalf("%d wait, counted %d", len(m.timers()), stats.Waiting)
	}
}

// finish lets all that waits come.
func (m *waitingModel) finish(t *rapid.T) {
	m.reopen()
	time.Sleep(10 * time.Second)
	m.deliverAll(t, time.Now())
	m.check(t)
	came := map[string]bool{}
	for _, msg := range m.messages(t, "T", 0) {
		came[string(msg.Body)] = true
	}
	for name, f := range m.fates {
		if !f.half && !f.recall && !came[name] {
			t.Fatalf("message %s is lost", name)
		}
	}
	for name, f := range m.fates {
		if f.half && f.decided == Undecided && !f.asked[Commit] && !f.asked[Rollback] {
			var o outcome
			m.tx.End(&EndRequest{
				LogOffset: f.at, QueueOffset: f.offset, TransactionID: "u-" + name, Group: "p",
				Decision: Commit, Done: func(_ *EndRequest, err error) { o.done(err) },
			})
			m.st.apply()
			o.want(t, 1, true)
		}
	}
	if left := m.timers(); len(left) != 0 {
		t.Fatalf("timers are left: %v", left)
	}
}

// TestPendingCount counts with changes that come while what was there is being scanned.
func TestPendingCount(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := newPendingCount()
		live := map[string]bool{}
		keys := rapid.SliceOfDistinct(rapid.StringMatching(`[a-h]{2}`), rapid.ID[string]).Draw(t, "keys")
		change := func() {
			if len(keys) == 0 {
				return
			}
			key := rapid.SampledFrom(keys).Draw(t, "key")
			live[key] = !live[key]
			p.note([]byte(key), []byte(key[:1]), live[key])
		}
		for _, key := range keys { // what was there before the start
			live[key] = rapid.Bool().Draw(t, "live")
		}
		before := maps.Clone(live)
		for range rapid.IntRange(0, 3).Draw(t, "changes before the scan") {
			change()
			before = maps.Clone(live) // a scan sees what it begins with
		}
		for _, key := range slices.Sorted(maps.Keys(before)) {
			if before[key] {
				p.scanned([]byte(key), []byte(key[:1]))
			}
			for range rapid.IntRange(0, 2).Draw(t, "changes meanwhile") {
				change()
			}
		}
		p.finish()
		change()
		total, byTopic := int64(0), map[string]int64{}
		for key, alive := range live {
			if alive {
				total++
				byTopic[key[:1]]++
			}
		}
		if p.total != total || !maps.Equal(p.byTopic, byTopic) {
			t.Fatalf("counted %d %v, want %d %v", p.total, p.byTopic, total, byTopic)
		}
	})
}

func TestRecallHandles(t *testing.T) {
	t.Parallel()
	h := RecallHandle{Topic: "T", BrokerName: "broker-a", DueMillis: 1700000000001, UniqueKey: "u"}
	text := h.String()
	if want := "djEgVCBicm9rZXItYSAxNzAwMDAwMDAwMDAxIHU="; text != want { // RecallMessageHandle.java gives the same
		t.Errorf("handle %s", text)
	}
	for _, form := range []string{text, text[:len(text)-1]} {
		if got, err := ParseRecallHandle(form); err != nil || got != h {
			t.Errorf("%s is read as %+v, %v", form, got, err)
		}
	}
	for _, bad := range []string{"", "=", "!", "djEgVA==", "djIgVCBiIDEgdQ==", "djEgVCBiIHggdQ==", "djEgVCBiIDEg"} {
		if got, err := ParseRecallHandle(bad); !refusal(IllegalOperation, "recall handle is invalid")(err) {
			t.Errorf("%q is read as %+v, %v", bad, got, err)
		}
	}
}

func FuzzParseRecallHandle(f *testing.F) {
	f.Add(RecallHandle{"T", "b", 1, "u"}.String())
	f.Add("djEgVA==")
	f.Fuzz(func(t *testing.T, text string) {
		h, err := ParseRecallHandle(text)
		if err != nil {
			return
		}
		if again, err := ParseRecallHandle(h.String()); err != nil || again != h {
			t.Fatalf("%q is read as %+v, written again as %+v, %v", text, h, again, err)
		}
	})
}

func TestTimerRequest(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_700_000_000_000)
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SampledFrom([]int64{0, 1, 1000}).Draw(t, "unit")
		n := rapid.Int64().Draw(t, "n")
		asked := timerRequest{"by", fmt.Sprint(n), unit}
		due, err := asked.due(now, TimerMaxDelay)
		delay, overflows := n*unit, n > 1<<53
		if unit == 0 {
			delay = n - now.UnixMilli()
		}
		limit := TimerMaxDelay.Milliseconds()
		if want := n >= 0 && !overflows && delay <= limit; want != (err == nil) {
			t.Fatalf("%d ms × %d: %v", unit, n, err)
		}
		if err == nil && due != now.UnixMilli()+delay {
			t.Fatalf("%d ms × %d is due at %d", unit, n, due)
		}
	})
}
