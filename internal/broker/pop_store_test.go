// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/roquetmq/roquet/internal/broker/filter"
	"github.com/roquetmq/roquet/internal/broker/offset"
	"github.com/roquetmq/roquet/internal/broker/pop"
	"github.com/roquetmq/roquet/internal/commitlog"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// popDisk is a Popper over a real store on disk.
type popDisk struct {
	store   *store.Store
	topics  *Topics
	groups  *Groups
	offsets *offset.Table
	popper  *Popper
	stop    func()
}

func openPopDisk(tb testing.TB, cfg store.Config) *popDisk {
	tb.Helper()
	cfg.StoreHost = testStoreHost
	st, err := store.Open(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	d := &popDisk{store: st}
	names := SystemNames{Cluster: "C", Broker: "b"}
	if d.offsets, err = offset.New(st, quiet()); err != nil {
		tb.Fatal(err)
	}
	if d.topics, err = NewTopics(TopicsConfig{System: names, Logger: quiet()}, st, d.offsets); err != nil {
		tb.Fatal(err)
	}
	if d.groups, err = NewGroups(GroupsConfig{Logger: quiet()}, st); err != nil {
		tb.Fatal(err)
	}
	d.popper, err = NewPopper(
		PopperConfig{BrokerName: "b", LogEnd: st.End, Filters: filter.NewCache(), Flush: func() {}, Logger: quiet()},
		d.topics,
		d.groups,
		d.offsets,
		NewStats(names, time.Now()),
		st,
	)
	if err != nil {
		tb.Fatal(err)
	}
	st.OnRetain(d.popper.CarryForward)
	storeCtx, stopStore := context.WithCancel(context.WithoutCancel(tb.Context()))
	rulesCtx, stopRules := context.WithCancel(storeCtx)
	var rules, log errgroup.Group
	log.Go(func() error { return st.Run(storeCtx) })
	rules.Go(func() error { return d.popper.Run(rulesCtx) })
	d.stop = func() {
		stopRules()
		err := rules.Wait()
		stopStore()
		if err := errors.Join(err, log.Wait(), st.Close()); err != nil {
			tb.Errorf("stop: %v", err)
		}
	}
	return d
}

func (d *popDisk) setUp(tb testing.TB, queues int32) {
	tb.Helper()
	for _, change := range []func(done func(error)){
		func(done func(error)) {
			d.topics.Put(TopicConfig{
				Name: "T", ReadQueueNums: queues, WriteQueueNums: queues, Perm: PermRead | PermWrite,
			}, done)
		},
		func(done func(error)) { d.groups.PutAll([]GroupConfig{NewGroupConfig("g")}, done) },
	} {
		ended := make(chan error, 1)
		change(func(err error) { ended <- err })
		if err := <-ended; err != nil {
			tb.Fatal(err)
		}
	}
}

// send stores messages with bodies from first on, in turn in all queues.
func (d *popDisk) send(tb testing.TB, first, n, queues, size int) {
	tb.Helper()
	const batch = 500
	for at := first; at < first+n; at += batch {
		w := &store.Write{}
		for i := at; i < min(at+batch, first+n); i++ {
			body := fmt.Sprintf("%08d", i)
			w.Messages = append(w.Messages, message.Message{
				Topic: "T", QueueID: int32(i % queues),
				Body: []byte(body + strings.Repeat("x", max(0, size-len(body)))), Properties: props("UNIQ_KEY", body),
			})
		}
		done := make(chan error, 1)
		w.Done = func(_ *store.Write, err error) { done <- err }
		if err := d.store.Append(w); err != nil {
			tb.Fatal(err)
		}
		if err := <-done; err != nil {
			tb.Fatal(err)
		}
	}
}

func (d *popDisk) pop(maximum int, invisible, wait time.Duration) (*PopResult, error) {
	done := make(chan error, 1)
	req := &PopRequest{
		Group: "g", Topic: "T", QueueID: AllQueues, MaxCount: maximum, Invisible: invisible, Wait: wait,
		Done: func(_ *PopRequest, err error) { done <- err },
	}
	d.popper.Pop(req)
	err := <-done
	return req.Result(), err
}

func (d *popDisk) ack(handles ...pop.Handle) ([]error, error) {
	done := make(chan error, 1)
	req := &SettleRequest{
		Group:   "g",
		Topic:   "T",
		Handles: handles,
		Done:    func(_ *SettleRequest, err error) { done <- err },
	}
	d.popper.Ack(req)
	err := <-done
	return req.Results, err
}

// TestKilledAmongAThousandClaims: eight consumers receive and acknowledge, and at some moment the process is
// gone. No message whose acknowledgement was answered comes again; every other one does, after its invisible
// time.
func TestKilledAmongAThousandClaims(t *testing.T) {
	t.Parallel()
	const total, consumers, queues = 4000, 8, 4
	const invisible = 1500 * time.Millisecond
	dir := t.TempDir()
	d := openPopDisk(t, store.Config{Dir: dir})
	d.setUp(t, queues)
	d.send(t, 0, total, queues, 100)
	var mu sync.Mutex
	acked, claimed := map[string]bool{}, 0
	enough := make(chan struct{})
	var g errgroup.Group
	for c := range consumers {
		g.Go(func() error {
			for {
				r, err := d.pop(1+c, invisible, 0)
				if err != nil || r.Outcome != PopFound {
					return err
				}
				for i := range r.Messages {
					if i%3 == 2 {
						continue // this one it loses
					}
					results, err := d.ack(r.Handle(i))
					if err != nil {
						return err
					}
					mu.Lock()
					if results[0] == nil {
						acked[string(r.Messages[i].Record.Body()[:8])] = true
					}
					if claimed++; claimed == 1000 {
						close(enough)
					}
					mu.Unlock()
				}
			}
		})
	}
	<-enough
	mu.Lock()
	before := len(acked)
	must := make(map[string]bool, before)
	for body := range acked {
		must[body] = true
	}
	mu.Unlock()
	image := copyLog(t, dir)
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	d.stop()

	d = openPopDisk(t, store.Config{Dir: image})
	defer d.stop()
	seen := map[string]int{}
	for {
		r, err := d.pop(32, time.Hour, 2*invisible)
		if err != nil {
			t.Fatal(err)
		}
		if r.Outcome != PopFound {
			break
		}
		for i := range r.Messages {
			seen[string(r.Messages[i].Record.Body()[:8])]++
		}
	}
	for i := range total {
		body := fmt.Sprintf("%08d", i)
		switch {
		case must[body] && seen[body] > 0:
			t.Errorf("%s was acknowledged and came again", body)
		case !acked[body] && seen[body] != 1:
			t.Errorf("%s was not acknowledged and came %d times", body, seen[body])
		case seen[body] > 1:
			t.Errorf("%s came %d times", body, seen[body])
		}
	}
	t.Logf("%d acknowledged before the image, %d at the end, %d came after it", before, len(acked), len(seen))
}

// TestRetentionKeepsWhatIsReceived: the log is cut while messages are out; they come back, and can be
// acknowledged.
func TestRetentionKeepsWhatIsReceived(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := store.Config{
		Dir: dir, Log: commitlog.Config{SegmentBytes: 1 << 20},
		Retention: store.Retention{MaxBytes: 1 << 20, Interval: time.Hour},
	}
	d := openPopDisk(t, cfg)
	d.setUp(t, 2)
	d.send(t, 0, 10, 2, 200)
	first, err := d.pop(10, 500*time.Millisecond, 0)
	if err != nil || len(first.Messages) != 10 {
		t.Fatalf("%d messages, %v", len(first.Messages), err)
	}
	if results, err := d.ack(first.Handle(0)); err != nil || results[0] != nil {
		t.Fatal(results, err)
	}
	d.send(t, 10, 4000, 2, 1000)
	if _, err := d.store.Retain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if low, _, _ := d.store.Bounds("T", 0); low < 5 {
		t.Fatalf("retention did not drop the messages: the queue begins at %d", low)
	}
	d.stop()

	d = openPopDisk(t, cfg)
	defer d.stop()
	var back []pop.Handle
	for len(back) < 9 {
		r, err := d.pop(32, time.Minute, 5*time.Second)
		if err != nil || r.Outcome != PopFound {
			t.Fatalf("%d came back, then %v, %v", len(back), r.Outcome, err)
		}
		for i := range r.Messages {
			if m := &r.Messages[i]; m.Offset < 5 {
				if err := m.Record.Check(); err != nil || m.ReconsumeTimes != 1 {
					t.Errorf("offset %d: reconsumeTimes %d, %v", m.Offset, m.ReconsumeTimes, err)
				}
				back = append(back, r.Handle(i))
			}
		}
	}
	results, err := d.ack(back...)
	if err := errors.Join(append(results, err)...); err != nil {
		t.Fatal(err)
	}
	kept := 0
	for _, err = range d.store.States(message.SpacePop, []byte{popKeptKey}) {
		kept++
	}
	if err != nil || kept != 0 {
		t.Errorf("%d messages are still kept, %v", kept, err)
	}
}

// TestC106EachMessageOnce: many consumers, waiting and not; each message is handed out once.
func TestC106EachMessageOnce(t *testing.T) {
	t.Parallel()
	const total, consumers, queues = 3000, 16, 8
	d := openPopDisk(t, store.Config{Dir: t.TempDir()})
	defer d.stop()
	d.setUp(t, queues)
	var mu sync.Mutex
	seen := map[string]int{}
	var g errgroup.Group
	for c := range consumers {
		g.Go(func() error {
			for {
				r, err := d.pop(1+c%5, time.Minute, 2*time.Second)
				if err != nil || r.Outcome != PopFound {
					return err
				}
				var handles []pop.Handle
				mu.Lock()
				for i := range r.Messages {
					seen[string(r.Messages[i].Record.Body())]++
					handles = append(handles, r.Handle(i))
				}
				mu.Unlock()
				results, err := d.ack(handles...)
				if err := errors.Join(append(results, err)...); err != nil {
					return err
				}
			}
		})
	}
	for at := 0; at < total; at += 100 {
		d.send(t, at, 100, queues, 20)
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if len(seen) != total {
		t.Errorf("%d of %d messages", len(seen), total)
	}
	for body, n := range seen {
		if n != 1 {
			t.Errorf("%s came %d times", body, n)
		}
	}
	for id := range int32(queues) {
		_, maximum, _ := d.store.Bounds("T", id)
		if committed, _ := d.offsets.Query("g", "T", id); committed != maximum {
			t.Errorf("queue %d: committed %d of %d", id, committed, maximum)
		}
	}
}

// TestC132DeletedAmongReceives: a topic is deleted and created again, over and over, while a group receives and
// acknowledges. What is sent to the last one comes once, and nothing else does; and so it is after a restart.
func TestC132DeletedAmongReceives(t *testing.T) {
	t.Parallel()
	const rounds, queues, last = 15, 2, 300
	dir := t.TempDir()
	d := openPopDisk(t, store.Config{Dir: dir})
	d.setUp(t, queues)
	over := make(chan struct{})
	var g errgroup.Group
	for c := range 4 {
		g.Go(func() error {
			for {
				select {
				case <-over:
					return nil
				default:
				}
				r, err := d.pop(1+c*5, time.Hour, 20*time.Millisecond)
				if err != nil && !errors.Is(err, TopicNotExist) {
					return err
				}
				for i := range r.Messages {
					if _, err := d.ack(r.Handle(i)); err != nil && !errors.Is(err, TopicNotExist) {
						return err
					}
				}
			}
		})
	}
	for range rounds {
		d.send(t, 0, 200, queues, 20)
		done := make(chan error, 1)
		d.topics.Delete("T", func(err error) { done <- err })
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		d.setUp(t, queues)
	}
	close(over)
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	d.topics.Delete("T", func(err error) { done <- err })
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	d.setUp(t, queues)
	d.send(t, 1000, last, queues, 20)
	seen := map[string]int{}
	drain := func() {
		for {
			r, err := d.pop(32, time.Hour, 0)
			if err != nil {
				t.Fatal(err)
			}
			if r.Outcome != PopFound {
				return
			}
			for i := range r.Messages {
				seen[string(r.Messages[i].Record.Body()[:8])]++
			}
			if len(seen) >= last/2 {
				return
			}
		}
	}
	drain()
	d.stop()
	d = openPopDisk(t, store.Config{Dir: dir})
	defer d.stop()
	for len(seen) < last {
		before := len(seen)
		if drain(); len(seen) == before {
			break
		}
	}
	drain()
	for i := range last {
		if body := fmt.Sprintf("%08d", 1000+i); seen[body] != 1 {
			t.Errorf("%s came %d times", body, seen[body])
		}
	}
	if len(seen) != last {
		t.Errorf("%d messages came, %d were sent", len(seen), last)
	}
}

// BenchmarkPopAck is receives of 32 messages and their acknowledgement, in one request or one by one, by so
// many consumers that syncs are shared. cpu-us/msg is the CPU time of the process for a message.
func BenchmarkPopAck(b *testing.B) {
	for _, bb := range []struct {
		name            string
		consumers, each int
	}{{"together", 16, 32}, {"one by one", 128, 1}} {
		b.Run(bb.name, func(b *testing.B) { benchmarkPopAck(b, bb.consumers, bb.each) })
	}
}

func benchmarkPopAck(b *testing.B, consumers, each int) {
	const queues = 8
	total := max(b.N*32, 32*consumers)
	d := openPopDisk(b, store.Config{Dir: b.TempDir()})
	defer d.stop()
	d.setUp(b, queues)
	d.send(b, 0, total, queues, 128)
	before := cpuTime()
	b.ReportAllocs()
	b.ResetTimer()
	var g errgroup.Group
	for range consumers {
		g.Go(func() error {
			handles := make([]pop.Handle, 0, 32)
			for {
				r, err := d.pop(32, time.Minute, 0)
				if err != nil || r.Outcome != PopFound {
					return err
				}
				for at := 0; at < len(r.Messages); at += each {
					handles = handles[:0]
					for i := at; i < min(at+each, len(r.Messages)); i++ {
						handles = append(handles, r.Handle(i))
					}
					if _, err := d.ack(handles...); err != nil {
						return err
					}
				}
			}
		})
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	b.ReportMetric(float64((cpuTime()-before).Microseconds())/float64(total), "cpu-us/msg")
}

// cpuTime is what the process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it cannot fail with these arguments
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
