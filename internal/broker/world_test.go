// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"net/netip"
	"time"

	"github.com/roquetmq/roquet/internal/broker/filter"
	"github.com/roquetmq/roquet/internal/broker/offset"
	"github.com/roquetmq/roquet/internal/message"
)

// world is a broker over a store in memory. Nothing in it runs by itself: settle makes durable what was
// appended.
type world struct {
	st      *memStore
	topics  *Topics
	groups  *Groups
	offsets *offset.Table
	clients *Clients
	locks   *QueueLocks
	stats   *Stats
	sender  *Sender
	puller  *Puller
	delays  *Delays
}

// worldConfig is what a test may change.
type worldConfig struct {
	topics TopicsConfig
	groups GroupsConfig
	sender SenderConfig
	puller PullerConfig
	denied int32 // permissions
	noHalf bool  // half messages are refused
}

func newWorld(tb fataler, configure ...func(*worldConfig)) *world {
	tb.Helper()
	return openWorld(tb, newMemStore(), configure...)
}

func openWorld(tb fataler, st *memStore, configure ...func(*worldConfig)) *world {
	tb.Helper()
	cfg := worldConfig{
		topics: TopicsConfig{System: SystemNames{Cluster: "C", Broker: "b"}, Logger: quiet()},
		groups: GroupsConfig{Logger: quiet()},
		sender: SenderConfig{
			BrokerAddr: "10.0.0.1", Cluster: "C",
			UniqueIDs: message.NewUniqueIDs(netip.MustParseAddr("10.0.0.1"), 1, 2),
		},
		puller: PullerConfig{BrokerAddr: "10.0.0.1", Filters: filter.NewCache(), Flush: func() {}, Logger: quiet()},
	}
	for _, fn := range configure {
		fn(&cfg)
	}
	w := &world{st: st}
	var err error
	if w.offsets, err = offset.New(st, quiet()); err != nil {
		tb.Fatal(err)
	}
	if w.topics, err = NewTopics(cfg.topics, st, w.offsets); err != nil {
		tb.Fatal(err)
	}
	if w.groups, err = NewGroups(cfg.groups, st); err != nil {
		tb.Fatal(err)
	}
	w.topics.SetDenied(cfg.denied)
	now := time.Now()
	w.clients = NewClients(ClientsConfig{Logger: quiet()})
	w.locks = NewQueueLocks(w.clients.Alive, quiet())
	w.stats = NewStats(cfg.topics.System, now)
	w.sender = NewSender(cfg.sender, w.topics, w.groups, w.locks, w.stats, st)
	w.sender.SetTransactionsDisabled(cfg.noHalf)
	w.puller = NewPuller(cfg.puller, w.topics, w.groups, w.clients, w.offsets, w.stats, st)
	w.delays = NewDelays(w.topics, w.stats, st, quiet())
	st.OnState(message.SpaceTimer, w.delays.OnTimer)
	return w
}

// topic creates a topic with so many queues.
func (w *world) topic(tb fataler, name string, queues int32, change ...func(*TopicConfig)) {
	tb.Helper()
	cfg := TopicConfig{Name: name, ReadQueueNums: queues, WriteQueueNums: queues, Perm: PermRead | PermWrite}
	for _, fn := range change {
		fn(&cfg)
	}
	var o outcome
	w.topics.Put(cfg, o.done)
	w.st.apply()
	o.want(tb, 1, true)
}

// group creates a group.
func (w *world) group(tb fataler, name string, change ...func(*GroupConfig)) {
	tb.Helper()
	cfg := NewGroupConfig(name)
	for _, fn := range change {
		fn(&cfg)
	}
	var o outcome
	w.groups.PutAll([]GroupConfig{cfg}, o.done)
	w.st.apply()
	o.want(tb, 1, true)
}

// sendRequest is a plain send that records its outcome.
func sendRequest(topic, body string, o *outcome) *SendRequest {
	return &SendRequest{
		Topic: topic, QueueID: 0, Body: []byte(body), BornTimestamp: 1700000000000,
		BornHost: netip.MustParseAddrPort("10.0.0.9:5000"), MaxReconsumeTimes: GroupMaxReconsumeTimes,
		Create: Creation{DefaultTopic: AutoCreateTopic, QueueNums: 4},
		Done:   func(_ *SendRequest, err error) { o.done(err) },
	}
}

// send sends and settles, and returns the request and what Done got.
func (w *world) send(tb fataler, topic, body string, change ...func(*SendRequest)) (*SendRequest, error) {
	tb.Helper()
	var o outcome
	req := sendRequest(topic, body, &o)
	for _, fn := range change {
		fn(req)
	}
	w.sender.Send(req)
	w.st.apply()
	if o.calls != 1 {
		tb.Fatalf("Done was called %d times", o.calls)
	}
	return req, o.err
}

// mustSend is send that succeeds.
func (w *world) mustSend(tb fataler, topic, body string, change ...func(*SendRequest)) *SendRequest {
	tb.Helper()
	req, err := w.send(tb, topic, body, change...)
	if err != nil {
		tb.Fatalf("send to %s: %v", topic, err)
	}
	return req
}

// messages returns what a queue holds.
func (w *world) messages(tb fataler, topic string, queueID int32) (all []message.Message) {
	tb.Helper()
	_, maximum, _ := w.st.Bounds(topic, queueID)
	for off := range maximum {
		rec, err := w.st.At(topic, queueID, off)
		if err != nil {
			tb.Fatal(err)
		}
		if err := rec.Check(); err != nil {
			tb.Fatal(err)
		}
		m, err := message.Decode(rec)
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// only returns the one message of a queue.
func (w *world) only(tb fataler, topic string, queueID int32) message.Message {
	tb.Helper()
	all := w.messages(tb, topic, queueID)
	if len(all) != 1 {
		tb.Fatalf("%s queue %d has %d messages, want 1", topic, queueID, len(all))
	}
	return all[0]
}

func property(m *message.Message, name string) string {
	value, _ := message.Property(m.Properties, name)
	return value
}

// props encodes name, value, name, value …
func props(pairs ...string) string {
	var dst []byte
	for i := 0; i < len(pairs); i += 2 {
		dst = message.AppendProperty(dst, pairs[i], pairs[i+1])
	}
	return string(dst)
}

func withProps(pairs ...string) func(*SendRequest) {
	return func(req *SendRequest) { req.Properties = props(pairs...) }
}
