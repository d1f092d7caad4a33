// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/roquetmq/roquet/internal/protocol"
)

// outages lets the clients of a server that is killed wait until it is there again.
type outages struct {
	mu  sync.RWMutex
	srv *server
}

func (o *outages) restart() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.srv.kill()
	o.srv.start()
}

// over returns when no outage is under way.
func (o *outages) over() {
	o.mu.RLock()
	defer o.mu.RUnlock()
}

// orderly is a group of consumers that fail in every way, and what they saw.
type orderly struct {
	t            *testing.T
	out          *outages
	h            *history
	group, topic string
	keyOf        func(m *received) string
	ended        context.Context //nolint:containedctx // the consumers' common end
}

// consumer is one of the group.
type consumer struct {
	open      func() door
	invisible time.Duration
	crashes   bool // it may forget what it received
	random    *rand.Rand
}

// seqOf reads the number behind the key in a body: key/number.
func seqOf(body string) int {
	_, text, _ := strings.Cut(body, "/")
	n, err := strconv.Atoi(text)
	if err != nil {
		return -1
	}
	return n
}

// consume receives until the group has ended.
func (o *orderly) consume(c *consumer) error {
	d := c.open()
	defer func() { d.close() }()
	stop := context.AfterFunc(o.ended, func() { d.close() }) // ends a receive that waits
	for o.ended.Err() == nil {
		batch, err := o.receive(d, c)
		if err == nil && len(batch) > 0 {
			err = o.settle(d, c, batch)
		}
		var refused *refusal
		switch {
		case o.ended.Err() != nil:
			return nil
		case err == nil:
			continue
		case errors.As(err, &refused) && refused.kind != badHandle && refused.kind != "UNRECOGNIZED_CLIENT_TYPE":
			return err
		}
		// The connection was lost, or the consumer crashed: another one begins.
		stop()
		d.close()
		o.out.over()
		d = c.open()
		now := d
		stop = context.AfterFunc(o.ended, func() { now.close() })
	}
	return nil
}

func (o *orderly) receive(d door, c *consumer) ([]received, error) {
	number, at := o.h.receiving()
	asked := time.Now()
	batch, err := d.receive(&receiving{
		group: o.group, topic: o.topic, count: 1 + c.random.IntN(8), invisible: c.invisible, wait: 5 * time.Second,
		orderly: true,
	})
	if err != nil {
		return nil, err
	}
	// The messages of a key stand together in the history, as one receive's.
	byKey := map[string][]step{}
	for i := range batch {
		m := &batch[i]
		s := step{
			kind: got, key: o.keyOf(m), seq: seqOf(m.body), receive: number, at: at, pop: time.Now().UnixMilli(),
			until: asked.Add(c.invisible).UnixMilli(), attempt: m.attempt,
		}
		byKey[s.key] = append(byKey[s.key], s)
	}
	for _, steps := range byKey {
		o.h.note(steps...)
	}
	return batch, nil
}

// errCrashed makes a consumer begin anew.
var errCrashed = errors.New("the consumer crashed")

// settle acknowledges a batch, or a part of it: the rest is given back, or forgotten.
func (o *orderly) settle(d door, c *consumer, batch []received) error {
	good := len(batch)
	fate := c.random.IntN(10)
	if fate < 3 {
		good = c.random.IntN(len(batch) + 1)
	}
	for i := range batch {
		m := &batch[i]
		s := step{kind: begun, key: o.keyOf(m), seq: seqOf(m.body)}
		if i >= good && fate == 0 && c.crashes {
			return errCrashed
		}
		o.h.note(s)
		if err := o.settleOne(d, m, i < good); err != nil {
			return err
		}
	}
	return nil
}

// settleOne acknowledges or gives back, while the server is there: what came of it shall be known.
func (o *orderly) settleOne(d door, m *received, good bool) error {
	o.out.mu.RLock()
	defer o.out.mu.RUnlock()
	if !good {
		_, err := d.change(o.group, o.topic, m.handle, 0)
		return err
	}
	err := d.ack(o.group, o.topic, m.handle)
	if err == nil {
		o.h.note(step{kind: acked, key: o.keyOf(m), seq: seqOf(m.body)})
	}
	return err
}

// check compares the history with what was sent: so many messages of each key.
func (o *orderly) check(sent map[string]int) {
	o.t.Helper()
	for key, n := range sent {
		for i, fault := range checkOrder(o.h.of(key), n) {
			if i < 5 {
				o.t.Errorf("%s: %s", key, fault)
			}
		}
	}
	for _, key := range o.h.keys() {
		if sent[key] == 0 {
			o.t.Errorf("messages of %q, which nobody sent", key)
		}
	}
}

// run lets the consumers consume what was sent while the server is killed a few times.
func (o *orderly) run(kills int, sent map[string]int, send func() error, consumers ...*consumer) {
	o.t.Helper()
	total := 0
	for _, n := range sent {
		total += n
	}
	ended, end := context.WithCancel(o.t.Context())
	defer end()
	o.ended = ended
	var g errgroup.Group
	for _, c := range consumers {
		g.Go(func() error {
			err := o.consume(c)
			if err != nil {
				o.h.note(step{kind: acked, key: "failed"}) // wakes who waits
			}
			return err
		})
	}
	if err := send(); err != nil {
		o.t.Fatal(err)
	}
	for kill := range kills {
		o.h.reach((kill + 1) * total / (kills + 1))
		o.out.restart()
	}
	o.h.reach(total)
	end()
	if err := g.Wait(); err != nil {
		o.t.Fatal(err)
	}
	o.check(sent)
}

// randomOf seeds what a test does, and tells the seed.
func randomOf(t *testing.T) func(stream uint64) *rand.Rand {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	return func(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }
}

// TestOrderByMessageGroup: the messages of each message group are consumed in order although consumers of two doors
// give messages back and crash, and the server is killed. Case C111: three consumers share one group that
// is not orderly, since the topic is.
func TestOrderByMessageGroup(t *testing.T) {
	t.Parallel()
	random := randomOf(t)
	out := &outages{srv: startChild(t, t.TempDir())}
	out.srv.topic("t", fifo, 2)
	out.srv.group("g", false, 1000)
	o := &orderly{
		t: t, out: out, h: newHistory(), group: "g", topic: "t", keyOf: func(m *received) string { return m.group },
	}
	sent := map[string]int{"a": 120, "b": 40, "c": 40}
	byGRPC := func() door { return newGRPC(t, out.srv.addr, "consumer") }
	o.run(
		1,
		sent,
		func() error {
			var g errgroup.Group
			for key, n := range sent {
				g.Go(func() error {
					d := newGRPC(t, out.srv.addr, "producer")
					defer d.close()
					for i := range n {
						if _, err := d.send(
							&outgoing{topic: "t", body: fmt.Sprintf("%s/%d", key, i), group: key},
						); err != nil {
							return err
						}
					}
					return nil
				})
			}
			return g.Wait()
		},
		&consumer{open: byGRPC, invisible: 10 * time.Second, random: random(1)},
		&consumer{open: byGRPC, invisible: 10 * time.Second, random: random(2)},
		&consumer{
			open:      func() door { return newREST(out.srv.addr) },
			invisible: time.Second,
			crashes:   true,
			random:    random(3),
		},
	)
}

// TestOrderByQueue: the messages of each queue are consumed in order by native consumers that pop, give messages
// back and crash, while the server is killed again and again.
func TestOrderByQueue(t *testing.T) {
	t.Parallel()
	random := randomOf(t)
	out := &outages{srv: startChild(t, t.TempDir())}
	out.srv.topic("t", normal, 2)
	out.srv.group("g", true, 1000)
	o := &orderly{
		t: t, out: out, h: newHistory(), group: "g", topic: "t",
		keyOf: func(m *received) string { return fmt.Sprint("q", m.queue) },
	}
	sent := map[string]int{"q0": 80, "q1": 80}
	open := func() door { return newRemoting(t, out.srv.addr) }
	o.run(3, sent, func() error {
		d := newRemoting(t, out.srv.addr)
		defer d.close()
		for i := range 80 {
			for q := range int32(2) {
				if _, err := d.send(&outgoing{topic: "t", body: fmt.Sprintf("q%d/%d", q, i), queue: q}); err != nil {
					return err
				}
			}
		}
		return nil
	},
		&consumer{open: open, invisible: time.Second, crashes: true, random: random(1)},
		&consumer{open: open, invisible: time.Second, crashes: true, random: random(2)},
		&consumer{open: open, invisible: 10 * time.Second, random: random(3)},
	)
}

// TestC109LostAnswers: a consumer that lost the answer of a receive asks again: with the same attempt id it
// gets the same messages at once, with another one when their time is over, and until then nobody gets what
// comes behind.
func TestC109LostAnswers(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	srv.topic("t", fifo, 1)
	srv.group("g", true, 16)
	d, web := newGRPC(t, srv.addr, "client"), newREST(srv.addr)
	defer d.close()
	defer web.close()
	for i := range 4 {
		if _, err := d.send(&outgoing{topic: "t", body: fmt.Sprintf("a/%d", i), group: "a"}); err != nil {
			t.Fatal(err)
		}
	}
	r := &receiving{
		group:     "g",
		topic:     "t",
		count:     2,
		invisible: 10 * time.Second,
		wait:      5 * time.Second,
		attempt:   "one",
	}
	want := func(got []received, err error, attempt int, bodies ...string) {
		t.Helper()
		var all []string
		for i := range got {
			all = append(all, got[i].body)
		}
		if err != nil || !slices.Equal(all, bodies) || got[0].attempt != attempt {
			t.Fatalf("received %q, want %q as attempt %d: %+v, %v", all, bodies, attempt, got, err)
		}
	}
	lost, err := d.receive(r)
	want(lost, err, 1, "a/0", "a/1")
	again, err := d.receive(r)
	want(again, err, 1, "a/0", "a/1")
	for i := range again {
		if err := d.ack("g", "t", again[i].handle); err != nil {
			t.Fatal(err)
		}
	}
	lost, err = web.receive(&receiving{group: "g", topic: "t", count: 1, invisible: time.Second})
	want(lost, err, 1, "a/2")
	began := time.Now()
	r.attempt, r.count = "two", 1
	again, err = d.receive(r)
	want(again, err, 2, "a/2")
	if took := time.Since(began); took < 900*time.Millisecond || took > 4*time.Second {
		t.Errorf("blocked for %v, the invisible time was 1 s", took)
	}
}

// owner is a native consumer that reads queues in order.
type owner struct {
	t *testing.T
	*remotingDoor

	id string
}

func newOwner(t *testing.T, srv *server, id string) *owner {
	t.Helper()
	o := &owner{t, newRemoting(t, srv.addr), id}
	t.Cleanup(o.close)
	o.must(protocol.HeartBeat, nil, protocol.EncodeBody(&protocol.HeartbeatData{
		ClientID: id, ConsumerDataSet: []protocol.ConsumerData{{
			GroupName: "g", ConsumeType: protocol.ConsumePassively, MessageModel: protocol.Clustering,
			ConsumeFromWhere: protocol.ConsumeFromFirstOffset, SubscriptionDataSet: []protocol.SubscriptionData{
				{Topic: "t", SubString: "*", ExpressionType: "TAG", SubVersion: 1},
			},
		}},
	}))
	return o
}

func (o *owner) must(code protocol.Code, h protocol.Header, body []byte) *protocol.Command {
	o.t.Helper()
	answer, err := o.call(code, h, body)
	if err != nil {
		o.t.Fatalf("%s: %v", code, err)
	}
	return answer
}

func (o *owner) lock() bool {
	o.t.Helper()
	answer := o.must(protocol.LockBatchMQ, nil, protocol.EncodeBody(&protocol.LockBatchRequestBody{
		ConsumerGroup: "g", ClientID: o.id,
		MQSet: []protocol.MessageQueue{{Topic: "t", BrokerName: brokerName, QueueID: 0}},
	}))
	locked, err := protocol.DecodeBody[protocol.LockBatchResponseBody](answer.Body)
	if err != nil {
		o.t.Fatal(err)
	}
	return len(locked.LockOKMQSet) == 1
}

// pull reads on where the group is, and returns the bodies' numbers.
func (o *owner) pull(count int32) (from int64, numbers []int) {
	o.t.Helper()
	answer := o.must(protocol.QueryConsumerOffset, &protocol.QueryConsumerOffsetRequestHeader{
		ConsumerGroup: "g", Topic: "t",
	}, nil)
	from, err := strconv.ParseInt(answer.Ext.Value("offset"), 10, 64)
	if err != nil {
		o.t.Fatal(err)
	}
	answer = o.must(protocol.PullMessage, &protocol.PullMessageRequestHeader{
		ConsumerGroup: "g", Topic: "t", QueueOffset: from, MaxMsgNums: count, SysFlag: 4, Subscription: "*",
		ExpressionType: protocol.ExpressionTag,
	}, nil)
	records, err := recordsOf(answer.Body)
	if err != nil {
		o.t.Fatal(err)
	}
	for i := range records {
		numbers = append(numbers, seqOf(string(records[i].Body)))
	}
	return from, numbers
}

func (o *owner) commit(offset int64) {
	o.t.Helper()
	o.must(protocol.UpdateConsumerOffset, &protocol.UpdateConsumerOffsetRequestHeader{
		ConsumerGroup: "g", Topic: "t", CommitOffset: offset,
	}, nil)
}

// TestC113KilledConsumerLosesItsLocks: a native consumer that owns a queue is killed; another one owns it within
// seconds and goes on where the group was, in order. Case C112: a lock is granted right after the heartbeat.
func TestC113KilledConsumerLosesItsLocks(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	srv.topic("t", normal, 1)
	srv.group("g", false, 16)
	first, second := newOwner(t, srv, "c1"), newOwner(t, srv, "c2")
	if !first.lock() || second.lock() {
		t.Fatal("the queue is not the first one's")
	}
	for i := range 20 {
		if _, err := first.send(&outgoing{topic: "t", body: fmt.Sprint("q/", i)}); err != nil {
			t.Fatal(err)
		}
	}
	if from, numbers := first.pull(8); from != 0 || len(numbers) != 8 {
		t.Fatal(from, numbers)
	}
	first.commit(5)
	first.close() // as the kernel does for a process that is killed
	began := time.Now()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !second.lock() {
		if <-tick.C; time.Since(began) > 15*time.Second {
			t.Fatal("the lock of a consumer that is gone holds")
		}
	}
	from, numbers := second.pull(32)
	if from != 5 || len(numbers) != 15 || numbers[0] != 5 || !slices.IsSorted(numbers) {
		t.Errorf("from %d: %v", from, numbers)
	}
}
