// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/roquetmq/roquet/internal/broker/due"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// TestDeadlines checks against a list that every deadline is found in its tick, and not before.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		table := newHolds(nil, 1, nil, nil)
		now := rapid.Int64Range(0, 10_000).Draw(t, "start")
		inside := map[*held]int64{}
		t.Repeat(map[string]func(*rapid.T){
			"insert": func(t *rapid.T) {
				h, at := &held{}, now+rapid.Int64Range(-5, 1500).Draw(t, "deadline")
				h.deadline = at
				table.mu.deadlines.add(h)
				inside[h] = at
			},
			"remove": func(*rapid.T) {
				for h := range inside {
					table.mu.deadlines.remove(h)
					delete(inside, h)
					break
				}
			},
			"expire": func(t *rapid.T) {
				now += rapid.Int64Range(0, 1000).Draw(t, "ticks")
				for _, h := range table.expireLocked(now) {
					if at, ok := inside[h]; !ok || at > now || h.state != stateLeaving {
						t.Fatalf("deadline %d expired at %d, inside %v", at, now, ok)
					}
					delete(inside, h)
				}
			},
			"": func(t *rapid.T) {
				next := due.Never
				for _, at := range inside {
					next = min(next, at)
				}
				listed := 0
				for _, h := range table.mu.deadlines {
					for ; h != nil; h = h.next {
						listed++
					}
				}
				if got := table.mu.deadlines.first(); got != next || listed != len(inside) {
					t.Fatalf("%d inside, looks at %d; want %d, %d", listed, got, len(inside), next)
				}
			},
		})
	})
}

// lateAwaiter is a store that sometimes has a waiter's Wake on its way when the waiter is cancelled.
type lateAwaiter struct {
	mu      sync.Mutex
	waiters map[*store.Waiter]bool
	late    func() bool
}

func (a *lateAwaiter) Await(_ string, _ int32, _ message.QueueOffset, w *store.Waiter) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiters[w] {
		panic("awaits twice")
	}
	a.waiters[w] = true
	return true
}

func (a *lateAwaiter) Cancel(w *store.Waiter) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.waiters[w] || a.late() {
		if a.waiters[w] {
			delete(a.waiters, w)
			go func() {
				<-time.After(time.Millisecond)
				w.Wake(w)
			}()
		}
		return false
	}
	delete(a.waiters, w)
	return true
}

// wakeSome wakes about half of the waiters.
func (a *lateAwaiter) wakeSome() {
	var woken []*store.Waiter
	a.mu.Lock()
	for w := range a.waiters {
		if rand.IntN(2) == 0 {
			woken = append(woken, w)
			delete(a.waiters, w)
		}
	}
	a.mu.Unlock()
	for _, w := range woken {
		w.Wake(w)
	}
}

// TestHoldsEndOnce holds many requests while queues grow, deadlines pass and connections end, all at once:
// each hold ends exactly once, and its request can be held again at once.
func TestHoldsEndOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const requests, rounds = 200, 50
		a := &lateAwaiter{waiters: map[*store.Waiter]bool{}, late: func() bool { return rand.IntN(2) == 0 }}
		var mu sync.Mutex
		reasons := map[wakeReason]int{}
		left := map[*held]int{}
		var table *holds
		again := func(h *held) {
			if left[h]--; left[h] > 0 && table.hold(h, "T", 0, 0, time.Now().Add(rand.N(time.Second))) {
				return
			}
			table.end(h)
			left[h] = 0
		}
		table = newHolds(a, requests, func() {}, func(h *held, why wakeReason) {
			mu.Lock()
			defer mu.Unlock()
			reasons[why]++
			again(h)
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- table.Run(ctx) }()
		synctest.Wait()
		for i := range requests {
			h := &held{peer: uint64(i % 10)}
			mu.Lock()
			left[h] = rounds
			again(h)
			mu.Unlock()
		}
		for range 300 {
			pass(rand.N(100 * time.Millisecond))
			a.wakeSome()
			table.disconnected(rand.Uint64N(10))
		}
		pass(2 * time.Minute)
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if n := table.count(); n != 0 || len(a.waiters) != 0 || len(table.mu.peers) != 0 {
			t.Errorf("%d wait, %d waiters, %d connections are left", n, len(a.waiters), len(table.mu.peers))
		}
		for _, why := range []wakeReason{wakeArrived, wakeTimeUp, wakeGone} {
			if reasons[why] == 0 {
				t.Errorf("no hold ended for reason %d: %v", why, reasons)
			}
		}
	})
}

func TestHoldRefusesOverTheLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &lateAwaiter{waiters: map[*store.Waiter]bool{}, late: func() bool { return false }}
		ended := 0
		table := newHolds(a, 2, func() {}, func(*held, wakeReason) { ended++ })
		if !table.hold(&held{}, "T", 0, 0, time.Now().Add(time.Hour)) {
			t.Fatal("not held before Run")
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- table.Run(ctx) }()
		synctest.Wait()
		for i, want := range []bool{true, false, false} {
			if got := table.hold(&held{}, "T", 0, 0, time.Now().Add(time.Hour)); got != want {
				t.Errorf("request %d held: %v", i, got)
			}
		}
		cancel()
		if err := <-done; err != nil || ended != 2 {
			t.Errorf("Run: %v, %d ended", err, ended)
		}
		if table.hold(&held{}, "T", 0, 0, time.Now().Add(time.Hour)) {
			t.Error("held although stopped")
		}
	})
}

func BenchmarkHold(b *testing.B) {
	st := newMemStore()
	var table *holds
	ended := make(chan struct{}, 1)
	table = newHolds(st, 1<<30, func() {}, func(h *held, _ wakeReason) {
		table.end(h)
		ended <- struct{}{}
	})
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- table.Run(ctx) }()
	h := &held{peer: 1}
	b.ReportAllocs()
	for b.Loop() {
		for !table.hold(h, "T", 0, 0, time.Now().Add(time.Hour)) {
			runtime.Gosched()
		}
		st.mu.Lock()
		woken := st.queueLocked(memQueueKey{"T", 0})
		waiter := woken.waiters[0]
		woken.waiters = woken.waiters[:0]
		st.mu.Unlock()
		waiter.w.Wake(waiter.w)
		<-ended
	}
	cancel()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

// BenchmarkDeadlines is what the deadlines of 50,000 held pulls cost that arrive within 20 s and are answered in turn.
func BenchmarkDeadlines(b *testing.B) {
	const many = 50_000
	list, all := deadlines{}, make([]held, many)
	for b.Loop() {
		for i := range all {
			all[i].deadline = int64(i / 250)
			list.add(&all[i])
		}
		for i := range all {
			list.remove(&all[i])
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/many, "ns/held")
}
