// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/roquetmq/roquet/internal/broker/offset"
	"github.com/roquetmq/roquet/internal/broker/transaction"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// waitingDisk is timers and transactions over a real store on disk.
type waitingDisk struct {
	store   *store.Store
	topics  *Topics
	clients *Clients
	sender  *Sender
	delays  *Delays
	recalls *Recalls
	tx      *Transactions
	checked func(check *TransactionCheck)
	mu      sync.Mutex
	stop    func()
}

func openWaitingDisk(tb testing.TB, cfg store.Config) *waitingDisk {
	tb.Helper()
	b := loadWaitingDisk(tb, cfg)
	b.run(tb, b.delays.Run)
	return b
}

// loadWaitingDisk is openWaitingDisk of what nothing runs yet.
func loadWaitingDisk(tb testing.TB, cfg store.Config) *waitingDisk {
	tb.Helper()
	cfg.StoreHost = testStoreHost
	st, err := store.Open(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	b := &waitingDisk{store: st, checked: func(*TransactionCheck) {}}
	names := SystemNames{Cluster: "C", Broker: "b"}
	offsets, err := offset.New(st, quiet())
	if err != nil {
		tb.Fatal(err)
	}
	if b.topics, err = NewTopics(TopicsConfig{System: names, Logger: quiet()}, st, offsets); err != nil {
		tb.Fatal(err)
	}
	groups, err := NewGroups(GroupsConfig{Logger: quiet()}, st)
	if err != nil {
		tb.Fatal(err)
	}
	b.clients = NewClients(ClientsConfig{Logger: quiet()})
	stats := NewStats(names, time.Now())
	b.sender = NewSender(
		SenderConfig{BrokerName: "b", UniqueIDs: message.NewUniqueIDs(netip.IPv4Unspecified(), 1, 2)},
		b.topics,
		groups,
		NewQueueLocks(b.clients.Alive, quiet()),
		stats,
		st,
	)
	b.delays = NewDelays(b.topics, stats, st, quiet())
	b.recalls = NewRecalls("b", b.topics, b.delays, st)
	send := func(_ Channel, check *TransactionCheck) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.checked(check)
		return nil
	}
	b.tx, err = NewTransactions(TransactionsConfig{
		Send: send, Logger: quiet(),
	}, b.topics, b.clients, stats, st)
	if err != nil {
		tb.Fatal(err)
	}
	b.tx.SetTiming(transaction.Config{Interval: 100 * time.Millisecond})
	st.OnState(message.SpaceTimer, b.delays.OnTimer)
	st.OnRetain(b.delays.CarryForward)
	st.OnState(message.SpaceTransaction, b.tx.OnState)
	st.OnRetain(b.tx.CarryForward)
	return b
}

func (b *waitingDisk) run(tb testing.TB, more ...func(context.Context) error) {
	storeCtx, stopStore := context.WithCancel(context.WithoutCancel(tb.Context()))
	rulesCtx, stopRules := context.WithCancel(storeCtx)
	var rules, log errgroup.Group
	log.Go(func() error { return b.store.Run(storeCtx) })
	for _, run := range more {
		rules.Go(func() error { return run(rulesCtx) })
	}
	rules.Go(func() error { return b.tx.Run(rulesCtx) })
	b.stop = func() {
		stopRules()
		err := rules.Wait()
		stopStore()
		if err := errors.Join(err, log.Wait(), b.store.Close()); err != nil {
			tb.Errorf("stop: %v", err)
		}
	}
}

// send sends with properties and waits.
func (b *waitingDisk) send(tb testing.TB, body string, pairs ...string) *SendRequest {
	tb.Helper()
	req := plain("T", body)
	req.Properties = props(pairs...)
	done := make(chan error, 1)
	req.Done = func(_ *SendRequest, err error) { done <- err }
	b.sender.Send(req)
	if err := <-done; err != nil {
		tb.Fatal(err)
	}
	return req
}

// end decides and waits.
func (b *waitingDisk) end(req *SendRequest, decision Decision, again bool) error {
	m := &req.Result().Messages[0]
	done := make(chan error, 1)
	b.tx.End(&EndRequest{
		LogOffset: m.LogOffset, QueueOffset: m.QueueOffset, TransactionID: req.Result().UniqueKey,
		Group: "p", Decision: decision, FromCheck: again, Done: func(_ *EndRequest, err error) { done <- err },
	})
	return <-done
}

// awaitCount waits until queue 0 of the topic has so many messages.
func (b *waitingDisk) awaitCount(tb testing.TB, topic string, count message.QueueOffset) {
	tb.Helper()
	woken := make(chan struct{}, 1)
	w := &store.Waiter{Wake: func(*store.Waiter) { woken <- struct{}{} }}
	for b.store.Await(topic, 0, count-1, w) {
		select {
		case <-woken:
		case <-time.After(time.Minute):
			_, maximum, _ := b.store.Bounds(topic, 0)
			tb.Fatalf("%s has %d messages, want %d", topic, maximum, count)
		}
	}
}

// await waits as well, and returns how often each body is there.
func (b *waitingDisk) await(tb testing.TB, topic string, count message.QueueOffset) map[string]int {
	tb.Helper()
	b.awaitCount(tb, topic, count)
	seen := map[string]int{}
	minimum, maximum, _ := b.store.Bounds(topic, 0)
	for off := minimum; off < maximum; off++ {
		rec, err := b.store.At(topic, 0, off)
		if err != nil {
			tb.Fatal(err)
		}
		seen[string(rec.Body())]++
	}
	return seen
}

// exactly fails unless every one of count bodies is there once.
func exactly(tb testing.TB, seen map[string]int, count int) {
	tb.Helper()
	if len(seen) != count {
		tb.Errorf("%d messages, want %d", len(seen), count)
	}
	for body, n := range seen {
		if n != 1 {
			tb.Errorf("message %s is there %d times", body, n)
		}
	}
}

// copyLog copies a store's log as it is at the moment, as a crash of the machine would leave it: its end is
// torn, and there is no index.
func copyLog(tb testing.TB, dir string) string {
	tb.Helper()
	to := tb.TempDir()
	if err := os.CopyFS(filepath.Join(to, "commitlog"), os.DirFS(filepath.Join(dir, "commitlog"))); err != nil {
		tb.Fatal(err)
	}
	return to
}

// TestC075TimersFromATornLog: the log is copied in the middle of deliveries. From the copy, without an index,
// every message comes once, as it does from the original.
func TestC075TimersFromATornLog(t *testing.T) {
	t.Parallel()
	const count = 2000
	dir := t.TempDir()
	b := openWaitingDisk(t, store.Config{Dir: dir})
	b.send(t, "create the topic")
	due := fmt.Sprint(time.Now().Add(1500 * time.Millisecond).UnixMilli())
	var g sync.WaitGroup
	for part := range 20 {
		g.Go(func() {
			for i := part; i < count; i += 20 {
				b.send(t, fmt.Sprint(i), "TIMER_DELIVER_MS", due)
			}
		})
	}
	g.Wait()
	b.await(t, "T", 200) // some are delivered
	torn := copyLog(t, dir)
	exactly(t, b.await(t, "T", count+1), count+1)
	b.stop()
	b = openWaitingDisk(t, store.Config{Dir: torn})
	defer b.stop()
	exactly(t, b.await(t, "T", count+1), count+1)
	if next, ok, err := b.delays.NextDue(); ok || err != nil {
		t.Errorf("a timer is left, due at %d, %v", next, err)
	}
}

// TestWaitingOutlivesRetention drops the segments in which timers and half messages were stored, and the
// index.
func TestWaitingOutlivesRetention(t *testing.T) {
	t.Parallel()
	const count = 60
	cfg := store.Config{Dir: t.TempDir()}
	cfg.Log.SegmentBytes = 64 << 10
	cfg.Retention.MaxBytes = 256 << 10
	b := openWaitingDisk(t, cfg)
	b.send(t, "create the topic")
	var timers, halves []*SendRequest
	for i := range count {
		timers = append(
			timers,
			b.send(t, fmt.Sprint("timer ", i), "TIMER_DELAY_SEC", "3600", "UNIQ_KEY", fmt.Sprint("t", i)),
		)
		halves = append(
			halves,
			b.send(t, fmt.Sprint("half ", i), "TRAN_MSG", "true", "PGROUP", "p", "UNIQ_KEY", fmt.Sprint("h", i)),
		)
	}
	for range 2 {
		for range 60 {
			filler := plain("Filler", string(make([]byte, 16<<10)))
			done := make(chan error, 1)
			filler.Done = func(_ *SendRequest, err error) { done <- err }
			b.sender.Send(filler)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		if dropped, err := b.store.Retain(t.Context()); err != nil || dropped == 0 {
			t.Fatalf("dropped %d segments, %v", dropped, err)
		}
	}
	if first := b.store.First(); first <= halves[count-1].Result().Messages[0].LogOffset {
		t.Fatalf("the log begins at %d: nothing of interest was dropped", first)
	}
	if d, open := b.delays.Stats(), openHalves(b.tx); d.Waiting != count || open != count {
		t.Errorf("stats %+v, %d open", d, open)
	}
	b.stop()
	if err := os.RemoveAll(filepath.Join(cfg.Dir, "index")); err != nil {
		t.Fatal(err)
	}
	b = loadWaitingDisk(t, cfg)
	b.run(t) // nobody delivers but the test
	defer b.stop()
	if d, open := b.delays.Stats(), openHalves(b.tx); !d.Counting && d.Waiting != count || open != count {
		t.Errorf("stats after a restart %+v, %d open", d, open)
	}
	_, before, _ := b.store.Bounds("T", 0)
	for i := range count {
		if i%3 == 0 { // the timer is called back, the half message rolled back
			done := make(chan error, 1)
			b.recalls.Recall("T", timers[i].Result().RecallHandle, func(_ string, err error) { done <- err })
			if err := <-done; err != nil {
				t.Fatalf("recall of %d: %v", i, err)
			}
			if err := b.end(halves[i], Rollback, false); err != nil {
				t.Fatalf("rollback of %d: %v", i, err)
			}
			continue
		}
		if err := b.end(halves[i], Commit, false); err != nil {
			t.Fatalf("commit of %d: %v", i, err)
		}
	}
	b.delays.deliver(time.Now().Add(2 * time.Hour))
	want := before + 2*count*2/3
	seen := b.await(t, "T", want)
	delete(seen, "create the topic")
	exactly(t, seen, 2*count*2/3)
	for i := 0; i < count; i += 3 {
		if seen[fmt.Sprint("timer ", i)]+seen[fmt.Sprint("half ", i)] != 0 {
			t.Errorf("number %d was not to come", i)
		}
	}
}

// TestTransactionsRace: many decide about the same half messages at once; of each one decision counts, and
// the log copied in the middle says the same.
func TestTransactionsRace(t *testing.T) {
	t.Parallel()
	const count = 200
	dir := t.TempDir()
	b := openWaitingDisk(t, store.Config{Dir: dir})
	b.send(t, "create the topic")
	halves := make([]*SendRequest, count)
	for i := range halves {
		halves[i] = b.send(t, fmt.Sprint(i), "TRAN_MSG", "true", "PGROUP", "p", "UNIQ_KEY", fmt.Sprint("u", i))
	}
	var mu sync.Mutex
	won := map[int]Decision{}
	decide := func(i int, decision Decision) {
		err := b.end(halves[i], decision, false)
		mu.Lock()
		defer mu.Unlock()
		switch other, decided := won[i]; {
		case err == nil && decided && other != decision:
			t.Errorf("half %d: both decisions won", i)
		case err == nil:
			won[i] = decision
		case !refusal(IllegalOperation, "was decided before")(err):
			t.Errorf("half %d: %v", i, err)
		}
	}
	var g sync.WaitGroup
	for worker := range 4 {
		g.Go(func() {
			for i := range count {
				decide(i, []Decision{Commit, Rollback}[(worker+i)%2])
			}
		})
	}
	g.Wait()
	torn := copyLog(t, dir)
	b.stop()
	for _, at := range []string{dir, torn} {
		b = openWaitingDisk(t, store.Config{Dir: at})
		seen := b.await(t, "T", 1)
		for i := range count {
			if want := won[i] == Commit; want != (seen[fmt.Sprint(i)] == 1) {
				t.Errorf("half %d: won %v, is there %d times", i, won[i], seen[fmt.Sprint(i)])
			}
		}
		if open := openHalves(b.tx); open != 0 {
			t.Errorf("%d are open", open)
		}
		b.stop()
	}
}

// TestC090BrokenHalfOnDisk: a half message whose record is damaged on disk does not keep the others from
// being checked.
func TestC090BrokenHalfOnDisk(t *testing.T) {
	t.Parallel()
	cfg := store.Config{Dir: t.TempDir()}
	cfg.Log.SegmentBytes = 64 << 10
	b := openWaitingDisk(t, cfg)
	b.send(t, "create the topic")
	bad := b.send(t, "bad", "TRAN_MSG", "true", "PGROUP", "p", "CHECK_IMMUNITY_TIME_IN_SECONDS", "0")
	b.send(t, string(make([]byte, 100<<10))) // the next segment begins
	b.send(t, "good", "TRAN_MSG", "true", "PGROUP", "p", "CHECK_IMMUNITY_TIME_IN_SECONDS", "0")
	at := bad.Result().Messages[0].LogOffset
	file := b.store.Segments()[0].Path
	b.stop()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	raw[at+100] ^= 1
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	b = openWaitingDisk(t, cfg)
	defer b.stop()
	checked := make(chan *TransactionCheck, 10)
	b.mu.Lock()
	b.checked = func(c *TransactionCheck) { checked <- c }
	b.mu.Unlock()
	b.clients.Heartbeat(channel(1), &Heartbeat{ClientID: "c", Producers: []string{"p"}}, time.Now())
	c := <-checked
	m, err := message.Decode(c.Record)
	if err != nil || string(m.Body) != "good" || m.Topic != "T" || c.Checks != 1 {
		t.Errorf("asked about %+v, %v", c, err)
	}
	if open := openHalves(b.tx); open != 2 {
		t.Errorf("%d are open", open)
	}
}

// openHalves is how many half messages nobody has decided about.
func openHalves(t *Transactions) (open int64) {
	for _, n := range t.OpenByTopic() {
		open += n
	}
	return open
}
