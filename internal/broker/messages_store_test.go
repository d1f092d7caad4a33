// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/roquetmq/roquet/internal/broker/filter"
	"github.com/roquetmq/roquet/internal/broker/offset"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// diskBroker is sending, pulling and delays over a real store on disk.
type diskBroker struct {
	store   *store.Store
	topics  *Topics
	groups  *Groups
	offsets *offset.Table
	sender  *Sender
	puller  *Puller
	delays  *Delays
	stop    func()
}

func openDisk(tb testing.TB, cfg store.Config) *diskBroker {
	tb.Helper()
	b := loadDisk(tb, cfg)
	b.run(tb, b.delays.Run)
	return b
}

// loadDisk is openDisk of what nothing runs yet.
func loadDisk(tb testing.TB, cfg store.Config) *diskBroker {
	tb.Helper()
	cfg.StoreHost = testStoreHost
	st, err := store.Open(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	b := &diskBroker{store: st}
	names := SystemNames{Cluster: "C", Broker: "b"}
	if b.offsets, err = offset.New(st, quiet()); err != nil {
		tb.Fatal(err)
	}
	if b.topics, err = NewTopics(TopicsConfig{System: names, Logger: quiet()}, st, b.offsets); err != nil {
		tb.Fatal(err)
	}
	if b.groups, err = NewGroups(GroupsConfig{Logger: quiet()}, st); err != nil {
		tb.Fatal(err)
	}
	clients := NewClients(ClientsConfig{Logger: quiet()})
	stats := NewStats(names, time.Now())
	levels := DelayLevels{0, time.Hour}
	b.sender = NewSender(SenderConfig{Levels: levels, UniqueIDs: message.NewUniqueIDs(netip.IPv4Unspecified(), 1, 2)},
		b.topics, b.groups, NewQueueLocks(clients.Alive, quiet()), stats, st)
	b.puller = NewPuller(
		PullerConfig{Filters: filter.NewCache(), Flush: func() {}, Logger: quiet()},
		b.topics,
		b.groups,
		clients,
		b.offsets,
		stats,
		st,
	)
	b.delays = NewDelays(b.topics, stats, st, quiet())
	st.OnState(message.SpaceTimer, b.delays.OnTimer)
	st.OnRetain(b.delays.CarryForward)
	return b
}

// run runs the store, and what runs over it; stop ends both in order.
func (b *diskBroker) run(tb testing.TB, more ...func(context.Context) error) {
	storeCtx, stopStore := context.WithCancel(context.WithoutCancel(tb.Context()))
	rulesCtx, stopRules := context.WithCancel(storeCtx)
	var rules, log errgroup.Group
	log.Go(func() error { return b.store.Run(storeCtx) })
	rules.Go(func() error { return b.puller.Run(rulesCtx) })
	for _, run := range more {
		rules.Go(func() error { return run(rulesCtx) })
	}
	b.stop = func() {
		stopRules()
		err := rules.Wait()
		stopStore()
		if err := errors.Join(err, log.Wait(), b.store.Close()); err != nil {
			tb.Errorf("stop: %v", err)
		}
	}
}

// send sends and waits.
func (b *diskBroker) send(tb testing.TB, req *SendRequest) {
	tb.Helper()
	done := make(chan error, 1)
	req.Done = func(_ *SendRequest, err error) { done <- err }
	b.sender.Send(req)
	if err := <-done; err != nil {
		tb.Fatal(err)
	}
}

// pull pulls, waiting for a message up to a minute.
func (b *diskBroker) pull(tb testing.TB, topic string, off message.QueueOffset) *PullResult {
	tb.Helper()
	done := make(chan error, 1)
	req := &PullRequest{
		Group: "g", Topic: topic, Offset: off, MaxCount: 32, SysFlag: PullSubscription | PullSuspend,
		Suspend: time.Minute, Done: func(_ *PullRequest, err error) { done <- err },
	}
	b.puller.Pull(req)
	if err := <-done; err != nil {
		tb.Fatal(err)
	}
	return req.Result()
}

// TestC027ConcurrentBatches sends batches to one queue from many producers while a consumer pulls it.
func TestC027ConcurrentBatches(t *testing.T) {
	t.Parallel()
	const producers, batches, size = 16, 10, 64
	b := openDisk(t, store.Config{Dir: t.TempDir()})
	defer b.stop()
	b.send(t, plain("T", "first"))
	var mu sync.Mutex
	sent := map[message.QueueOffset]string{}
	var g sync.WaitGroup
	for p := range producers {
		g.Go(func() {
			for i := range batches {
				req := plain("T", "")
				for j := range size {
					req.Body = message.AppendBatchEntry(req.Body, 0, fmt.Appendf(nil, "%d/%d/%d", p, i, j), "")
				}
				req.Batch = true
				b.send(t, req)
				mu.Lock()
				for _, m := range req.Result().Messages {
					sent[m.QueueOffset] = string(m.Body)
				}
				mu.Unlock()
			}
		})
	}
	var next message.QueueOffset = 1
	got := map[message.QueueOffset]string{}
	for len(got) < producers*batches*size {
		r := b.pull(t, "T", next)
		if r.Outcome != PullFound {
			t.Fatalf("pull from %d: %+v", next, r)
		}
		for _, rec := range r.Records {
			rec := message.Record(rec)
			if rec.QueueOffset() != next || rec.Check() != nil {
				t.Fatalf("offset %d, want %d; %v", rec.QueueOffset(), next, rec.Check())
			}
			got[next] = string(rec.Body())
			next++
		}
	}
	g.Wait()
	for off, body := range got {
		if sent[off] != body {
			t.Fatalf("offset %d holds %q, its producer was told of %q", off, body, sent[off])
		}
	}
}

// plain is a send to queue 0 that creates its topic.
func plain(topic, body string) *SendRequest {
	return &SendRequest{
		Topic: topic, Body: []byte(body), MaxReconsumeTimes: GroupMaxReconsumeTimes,
		Create: Creation{DefaultTopic: AutoCreateTopic, QueueNums: 1},
	}
}

// TestC058MessageBetweenCheckAndSuspend sends to a consumer that waits again and again: no round may take
// seconds.
func TestC058MessageBetweenCheckAndSuspend(t *testing.T) {
	t.Parallel()
	const rounds = 300
	b := openDisk(t, store.Config{Dir: t.TempDir()})
	defer b.stop()
	b.send(t, plain("T", "0"))
	start := time.Now()
	for i := range message.QueueOffset(rounds) {
		var g sync.WaitGroup
		g.Go(func() { b.send(t, plain("T", fmt.Sprint(i+1))) })
		if r := b.pull(t, "T", i+1); r.Outcome != PullFound || r.Next != i+2 {
			t.Fatalf("round %d: %+v", i, r)
		}
		g.Wait()
	}
	if took := time.Since(start); took > 30*time.Second { // a lost wake-up would take the minute of the pull
		t.Errorf("%d rounds took %v", rounds, took)
	}
	if b.puller.Held() != 0 {
		t.Errorf("%d pulls are held", b.puller.Held())
	}
}

// TestDelaysOnDisk delivers, restarts with timers that became due meanwhile, and finds each message once.
func TestDelaysOnDisk(t *testing.T) {
	t.Parallel()
	const many = 500
	dir := t.TempDir()
	b := openDisk(t, store.Config{Dir: dir})
	b.send(t, plain("T", "first"))
	var g sync.WaitGroup
	for i := range many {
		g.Go(func() {
			req := plain("T", fmt.Sprint(i))
			req.Properties = props("DELAY", "1")
			b.send(t, req)
		})
	}
	g.Wait()
	b.stop() // in the middle of the deliveries
	b = openDisk(t, store.Config{Dir: dir})
	defer b.stop()
	seen := map[string]bool{}
	for next := message.QueueOffset(1); len(seen) < many; {
		r := b.pull(t, "T", next)
		for _, rec := range r.Records {
			body := string(message.Record(rec).Body())
			if seen[body] {
				t.Fatalf("message %s came twice", body)
			}
			seen[body] = true
		}
		next = r.Next
	}
	if _, maximum, _ := b.store.Bounds("T", 0); maximum != many+1 {
		t.Errorf("the queue has %d messages, want %d", maximum, many+1)
	}
	if pending, err := b.delays.Pending(); err != nil || len(pending) != 0 {
		t.Errorf("pending %v, %v", pending, err)
	}
}

// TestDelaysOutliveRetention drops the segments in which delayed messages were stored.
func TestDelaysOutliveRetention(t *testing.T) {
	t.Parallel()
	const many = 100
	cfg := store.Config{Dir: t.TempDir()}
	cfg.Log.SegmentBytes = 64 << 10
	cfg.Retention.MaxBytes = 128 << 10
	b := openDisk(t, cfg)
	for i := range many {
		req := plain("T", fmt.Sprint(i))
		req.Properties = props("DELAY", "2")
		b.send(t, req)
	}
	for range 40 {
		b.send(t, plain("Filler", string(make([]byte, 16<<10))))
	}
	dropped, err := b.store.Retain(t.Context())
	if err != nil || dropped == 0 {
		t.Fatalf("dropped %d segments, %v", dropped, err)
	}
	b.stop()
	b = loadDisk(t, cfg)
	b.run(t) // nobody delivers but the test
	defer b.stop()
	b.delays.deliver(time.Now().Add(2 * time.Hour))
	seen := map[string]bool{}
	for next := message.QueueOffset(0); len(seen) < many; {
		r := b.pull(t, "T", next)
		for _, rec := range r.Records {
			seen[string(message.Record(rec).Body())] = true
		}
		next = r.Next
	}
	if _, maximum, _ := b.store.Bounds("T", 0); maximum != many {
		t.Errorf("the queue has %d messages, want %d", maximum, many)
	}
}

// BenchmarkDiskSend is the whole way of a message through the rules and a real store, many at once.
func BenchmarkDiskSend(b *testing.B) {
	d := openDisk(b, store.Config{Dir: b.TempDir()})
	defer d.stop()
	d.send(b, plain("T", "first"))
	body, text := make([]byte, 128), props("UNIQ_KEY", "01000000000000000000000000000000", "WAIT", "true")
	inFlight := make(chan struct{}, 512)
	done := func(_ *SendRequest, err error) {
		if err != nil {
			b.Error(err)
		}
		<-inFlight
	}
	b.ReportAllocs()
	for b.Loop() {
		inFlight <- struct{}{}
		d.sender.Send(&SendRequest{Topic: "T", Body: body, Properties: text, MaxReconsumeTimes: -1, Done: done})
	}
	for range cap(inFlight) {
		inFlight <- struct{}{}
	}
}
