// SPDX-License-Identifier: Apache-2.0

package store

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/roquetmq/roquet/internal/message"
)

func TestAwait(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	var wakes atomic.Int32
	w := &Waiter{Wake: func(*Waiter) { wakes.Add(1) }}
	if r.Cancel(w) {
		t.Fatal("cancelled without a wait")
	}
	if !r.Await("t", 0, 0, w) {
		t.Fatal("an empty queue has nothing")
	}
	r.send(msg("t", 1, "another queue"))
	if wakes.Load() != 0 {
		t.Fatal("woken by another queue")
	}
	r.send(msg("t", 0, "a"), msg("t", 0, "b"), msg("t", 0, "c"))
	if wakes.Load() != 1 {
		t.Fatalf("%d wake-ups by one batch", wakes.Load())
	}
	if r.Cancel(w) {
		t.Fatal("cancelled after the wake-up")
	}
	if r.Await("t", 0, 2, w) {
		t.Fatal("there is a third message")
	}
	if !r.Await("t", 0, 5, w) {
		t.Fatal("there is no sixth message")
	}
	r.send(msg("t", 0, "d"))
	if wakes.Load() != 1 {
		t.Fatal("woken too early")
	}
	if !r.Cancel(w) {
		t.Fatal("still waiting")
	}
	r.send(msg("t", 0, "e"), msg("t", 0, "f"))
	if wakes.Load() != 1 {
		t.Fatal("woken after Cancel")
	}
}

func TestAwaitManyOnOneQueue(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	woken := make(chan *Waiter, 100)
	waiters := make([]Waiter, 100)
	for i := range waiters {
		waiters[i].Wake = func(w *Waiter) { woken <- w }
		if !r.Await("t", 0, 0, &waiters[i]) {
			t.Fatal("nothing there")
		}
	}
	for i := 0; i < len(waiters); i += 3 {
		if !r.Cancel(&waiters[i]) {
			t.Fatal("cancel")
		}
	}
	r.send(msg("t", 0, "a"))
	seen := map[*Waiter]bool{}
	for range 66 {
		seen[<-woken] = true
	}
	if len(seen) != 66 || len(woken) != 0 {
		t.Fatalf("%d woken, %d left", len(seen), len(woken))
	}
}

// No wake-up is lost between the look and the registration, however the two fall.
func TestAwaitLosesNothing(t *testing.T) {
	t.Parallel()
	const rounds = 2000
	r := start(t, testConfig(t))
	var wg sync.WaitGroup
	wg.Go(func() {
		for range rounds {
			if err := r.tryAppend(&Write{Messages: []message.Message{msg("t", 0, "x")}}); err != nil {
				t.Error(err)
			}
		}
	})
	wake := make(chan struct{}, 1)
	w := &Waiter{Wake: func(*Waiter) { wake <- struct{}{} }}
	for from := message.QueueOffset(0); from < rounds; {
		res := r.fetch("t", 0, from)
		from = res.Next
		if res.Status != Found && r.Await("t", 0, from, w) {
			<-wake
		}
	}
	wg.Wait()
}
