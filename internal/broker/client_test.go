// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// at is a moment so many seconds after the tests' beginning of time.
func at(seconds float64) time.Time {
	return time.Unix(1_700_000_000, 0).Add(time.Duration(seconds * float64(time.Second)))
}

// consumer is a heartbeat of one clustering push consumer of the topics.
func consumer(clientID, group string, topics ...string) *Heartbeat {
	data := ConsumerData{Group: group, Type: ConsumePassively, Model: Clustering, FromWhere: ConsumeFromLastOffset}
	for _, topic := range topics {
		data.Subscriptions = append(data.Subscriptions, SubscriptionData{Topic: topic, SubString: "*", SubVersion: 1})
	}
	return &Heartbeat{ClientID: clientID, Language: "JAVA", Version: 500, Consumers: []ConsumerData{data}}
}

// listener records what Clients tells.
type listener struct {
	notices   map[string]int // channels told, by group
	rounds    int
	conflicts []Conflict
}

func (l *listener) config() ClientsConfig {
	l.notices = map[string]int{}
	return ClientsConfig{
		Logger:   quiet(),
		Notify:   func(group string, members []Channel) { l.rounds++; l.notices[group] += len(members) },
		Conflict: func(c Conflict) { l.conflicts = append(l.conflicts, c) },
	}
}

func TestClientsRegisterAndLeave(t *testing.T) {
	t.Parallel()
	var l listener
	c := NewClients(l.config())
	hb := consumer("c1", "g", "orders", "%RETRY%g")
	hb.Producers = []string{"p"}
	c.Heartbeat(channel(1), hb, at(0))
	c.Heartbeat(channel(2), consumer("c2", "g", "orders", "%RETRY%g"), at(5))

	group, ok := c.Group("g")
	if !ok || group.Type != ConsumePassively || group.Model != Clustering ||
		group.FromWhere != ConsumeFromLastOffset {
		t.Fatalf("group %+v", group)
	}
	if ids := group.ClientIDs(); !slices.Equal(ids, []string{"c1", "c2"}) || len(group.channels) != 2 {
		t.Errorf("members %v", ids)
	}
	if sub, ok := c.Subscription("g", "orders"); !ok || sub.SubString != "*" {
		t.Errorf("subscription %+v", sub)
	}
	if m, ok := c.Member("g", "c2"); !ok || m.Channel.ID() != 2 || m.Language != "JAVA" || !m.LastSeen.Equal(at(5)) {
		t.Errorf("member %+v", m)
	}
	if members := c.Members("g"); len(members) != 2 || members[0].ClientID != "c1" {
		t.Errorf("members %+v", members)
	}
	if all := c.Producers("p"); len(all) != 1 || all[0].ClientID != "c1" || len(c.ProducerGroups()["p"]) != 1 {
		t.Errorf("producers %+v", all)
	}
	if got := c.GroupsOf("orders"); !slices.Equal(got, []string{"g"}) {
		t.Errorf("groups of the topic %v", got)
	}

	c.Disconnected(channel(1), at(6))
	if group, _ := c.Group("g"); !slices.Equal(group.ClientIDs(), []string{"c2"}) || c.Alive("g", "c1") {
		t.Errorf("members %v", group.ClientIDs())
	}
	if len(c.Producers("p")) != 0 {
		t.Error("the producer is still there")
	}
	c.Disconnected(channel(2), at(7))
	if _, ok := c.Group("g"); ok || c.consumers.Size() != 0 || len(c.mu.groupsOf) != 0 || len(c.mu.producers) != 0 {
		t.Error("something is left")
	}
	if group.Subscriptions["orders"] == nil {
		t.Error("what was given out changed")
	}
}

// TestC014UnregisterTwice: leaving twice, and leaving without having come, is fine.
func TestC014UnregisterTwice(t *testing.T) {
	t.Parallel()
	var l listener
	c := NewClients(l.config())
	hb := consumer("c1", "g", "orders")
	hb.Producers = []string{"p"}
	c.Heartbeat(channel(1), hb, at(0))
	for range 2 {
		c.Unregister(channel(1), "p", "g", at(1))
	}
	c.Unregister(channel(9), "never", "seen", at(1))
	c.Unregister(channel(9), "", "", at(1))
	c.Disconnected(channel(1), at(1))
	if _, ok := c.Group("g"); ok {
		t.Error("still there")
	}
}

// TestC069MembersKeepTheirTopics: two clients of one group with different topics do not erase each other, and
// it is told once.
func TestC069MembersKeepTheirTopics(t *testing.T) {
	t.Parallel()
	var l listener
	c := NewClients(l.config())
	for i := range 4 {
		c.Heartbeat(channel(1), consumer("c1", "g", "T1", "%RETRY%g"), at(float64(30*i)))
		c.Heartbeat(channel(2), consumer("c2", "g", "T2", "%RETRY%g"), at(float64(30*i+1)))
	}
	for _, topic := range []string{"T1", "T2"} {
		if _, ok := c.Subscription("g", topic); !ok {
			t.Errorf("%s was erased", topic)
		}
	}
	if len(l.conflicts) != 1 || l.conflicts[0].Kind != ConflictSubscription || l.conflicts[0].Topic != "T1" ||
		l.conflicts[0].Group != "g" || c.Conflicts() != 1 {
		t.Fatalf("conflicts %+v", l.conflicts)
	}
	ids := []string{l.conflicts[0].Members[0].ClientID, l.conflicts[0].Members[1].ClientID}
	if slices.Sort(ids); !slices.Equal(ids, []string{"c1", "c2"}) {
		t.Errorf("told of %v", ids)
	}
	c.Disconnected(channel(2), at(200))
	if _, ok := c.Subscription("g", "T2"); ok {
		t.Error("T2 is still subscribed")
	}
}

func TestSubscriptionVersions(t *testing.T) {
	t.Parallel()
	var l listener
	c := NewClients(l.config())
	beat := func(ch uint64, expression string, version int64) {
		hb := consumer(fmt.Sprint("c", ch), "g", "orders")
		hb.Consumers[0].Subscriptions[0].SubString = expression
		hb.Consumers[0].Subscriptions[0].SubVersion = version
		c.Heartbeat(channel(ch), hb, at(0))
	}
	want := func(expression string) {
		t.Helper()
		if sub, _ := c.Subscription("g", "orders"); sub.SubString != expression {
			t.Errorf("subscription %q, want %q", sub.SubString, expression)
		}
	}
	beat(1, "a", 10)
	beat(2, "b", 20)
	want("b")
	beat(1, "a", 10)
	want("b")
	beat(1, "c", 30)
	want("c")
	if len(l.conflicts) == 0 || l.conflicts[0].Topic != "orders" {
		t.Errorf("conflicts %+v", l.conflicts)
	}
	beat(2, "c", 30)
	c.Disconnected(channel(1), at(1))
	want("c")
}

// TestC057SharedClientID: in a clustering group it is told, with both addresses; in a broadcasting one it is
// not.
func TestC057SharedClientID(t *testing.T) {
	t.Parallel()
	for _, model := range []MessageModel{Clustering, Broadcasting} {
		var l listener
		c := NewClients(l.config())
		one, two := testChannel{1, "10.0.0.1:4000"}, testChannel{2, "10.0.0.2:4000"}
		for i := range 3 {
			for _, ch := range []testChannel{one, two} {
				hb := consumer("10.0.0.9@1", "g", "orders")
				hb.Consumers[0].Model = model
				c.Heartbeat(ch, hb, at(float64(30*i)))
			}
		}
		group, _ := c.Group("g")
		if len(group.channels) != 2 || len(group.ClientIDs()) != 1 {
			t.Errorf("%s: %d connections, client ids %v", model, len(group.channels), group.ClientIDs())
		}
		if model == Broadcasting {
			if len(l.conflicts) != 0 {
				t.Errorf("broadcasting: %+v", l.conflicts)
			}
			continue
		}
		if len(l.conflicts) != 1 || l.conflicts[0].Kind != ConflictClientID {
			t.Fatalf("clustering: %+v", l.conflicts)
		}
		addrs := map[string]bool{}
		for _, m := range l.conflicts[0].Members {
			addrs[m.Channel.RemoteAddr().String()] = true
		}
		if !addrs["10.0.0.1:4000"] || !addrs["10.0.0.2:4000"] {
			t.Errorf("told of %v", addrs)
		}
		if m, _ := c.Member("g", "10.0.0.9@1"); m.Channel.ID() != 2 {
			t.Error("not the newest connection")
		}
	}
}

// TestC057Reconnect: one client on a new connection, with the old one still open, is not two clients.
func TestC057Reconnect(t *testing.T) {
	t.Parallel()
	var l listener
	c := NewClients(l.config())
	c.Heartbeat(testChannel{1, "10.0.0.1:4000"}, consumer("c1", "g", "orders"), at(0))
	for i := range 3 {
		c.Heartbeat(testChannel{2, "10.0.0.1:4001"}, consumer("c1", "g", "orders"), at(float64(30*i)))
	}
	if len(l.conflicts) != 0 {
		t.Errorf("told of %+v", l.conflicts)
	}
	c.Heartbeat(testChannel{1, "10.0.0.1:4000"}, consumer("c1", "g", "orders"), at(100))
	if len(l.conflicts) != 1 {
		t.Errorf("the older connection lives, yet told of %+v", l.conflicts)
	}
}

// TestC219NoticesAreMerged: 200 consumers that restart together make some notices, not 200 × 200.
func TestC219NoticesAreMerged(t *testing.T) {
	t.Parallel()
	var l listener
	c := NewClients(l.config())
	const consumers = 200
	for i := range consumers { // within two seconds
		now := at(float64(i) / 100)
		c.Heartbeat(channel(uint64(i+1)), consumer(fmt.Sprint("c", i), "g", "orders"), now)
		if i%100 == 99 {
			c.Tick(now)
		}
	}
	c.Tick(at(3))
	c.Tick(at(4))
	if l.rounds > 5 || l.notices["g"] > 4*consumers {
		t.Errorf("%d rounds, %d notices", l.rounds, l.notices["g"])
	}
	if l.rounds < 2 {
		t.Errorf("%d rounds: the last change was not told", l.rounds)
	}
	before := l.rounds
	for i := range consumers {
		c.Heartbeat(channel(uint64(i+1)), consumer(fmt.Sprint("c", i), "g", "orders"), at(30))
	}
	c.Tick(at(31))
	if l.rounds != before {
		t.Error("heartbeats without a change are told")
	}
	for i := range consumers {
		c.Disconnected(channel(uint64(i+1)), at(40))
	}
	c.Tick(at(42))
	if l.rounds > before+1 {
		t.Errorf("%d rounds for all leaving at once", l.rounds-before)
	}
	if len(c.mu.pending) != 0 {
		t.Error("notices are held for a group without members")
	}
}

func TestNoticeIsSentAtOnceAndOnlyToThoseWhoShare(t *testing.T) {
	t.Parallel()
	var l listener
	c := NewClients(l.config())
	c.Heartbeat(channel(1), consumer("c1", "g", "orders"), at(0))
	if l.notices["g"] != 1 {
		t.Errorf("%d notices at once", l.notices["g"])
	}
	c.Heartbeat(channel(2), consumer("c2", "g", "orders"), at(0.5))
	if l.notices["g"] != 1 {
		t.Error("the second change within a second was told at once")
	}
	c.Tick(at(1))
	if l.notices["g"] != 3 {
		t.Errorf("%d notices after the interval", l.notices["g"])
	}
	hb := consumer("c3", "b", "orders")
	hb.Consumers[0].Model = Broadcasting
	c.Heartbeat(channel(3), hb, at(10))
	if l.notices["b"] != 0 {
		t.Error("a broadcasting group was told")
	}
	c.Notify("g", at(20))
	c.Notify("nobody", at(20))
	if l.notices["g"] != 5 {
		t.Errorf("%d notices", l.notices["g"])
	}
}

func TestHeartbeatV2(t *testing.T) {
	t.Parallel()
	var l listener
	c := NewClients(l.config())
	beat := func(fingerprint int32, without bool) bool {
		hb := consumer("c1", "g", "orders")
		hb.Fingerprint, hb.WithoutSubscriptions = fingerprint, without
		if without {
			hb.Consumers[0].Subscriptions = nil
		}
		return c.Heartbeat(channel(1), hb, at(0)).SubscriptionsChanged
	}
	if !beat(5, true) {
		t.Error("an unknown client without subscriptions is not asked for them")
	}
	if beat(5, false) {
		t.Error("asked again")
	}
	if beat(5, true) {
		t.Error("a known fingerprint is not known")
	}
	if _, ok := c.Subscription("g", "orders"); !ok {
		t.Error("subscriptions were lost")
	}
	if !beat(6, true) {
		t.Error("another fingerprint is taken for the known one")
	}
}

func TestClientsExpire(t *testing.T) {
	t.Parallel()
	var l listener
	c := NewClients(l.config())
	hb := consumer("c1", "g", "orders")
	hb.Producers = []string{"p"}
	c.Heartbeat(channel(1), hb, at(0))
	c.Heartbeat(channel(2), consumer("c2", "g", "orders"), at(100))
	if silent := c.Expire(at(120)); len(silent) != 0 {
		t.Errorf("expired early: %v", silent)
	}
	silent := c.Expire(at(121))
	if len(silent) != 1 || silent[0].ID() != 1 {
		t.Fatalf("expired %v", silent)
	}
	if group, _ := c.Group("g"); !slices.Equal(group.ClientIDs(), []string{"c2"}) || len(c.Producers("p")) != 0 {
		t.Error("still there")
	}
}

func TestClientQueriesDoNotAllocate(t *testing.T) {
	var l listener
	c := NewClients(l.config())
	c.Heartbeat(channel(1), consumer("c1", "g", "orders"), at(0))
	if n := testing.AllocsPerRun(100, func() {
		if _, ok := c.Subscription("g", "orders"); !ok || !c.Alive("g", "c1") {
			t.Error("not found")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestClientsConcurrently: everything at once, for the race detector; in the end nobody is left.
func TestClientsConcurrently(t *testing.T) {
	t.Parallel()
	var notices atomic.Int64
	c := NewClients(ClientsConfig{Logger: quiet(), Notify: func(string, []Channel) { notices.Add(1) }})
	l := NewQueueLocks(c.Alive, quiet())
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			ch, id := channel(uint64(w+1)), fmt.Sprint("c", w)
			for i := range 100 {
				now := at(float64(i))
				hb := consumer(id, fmt.Sprint("g", i%3), "orders", fmt.Sprint("t", w))
				hb.Producers = []string{"p"}
				c.Heartbeat(ch, hb, now)
				l.Lock("g0", id, ch, queues(0, 1, 2), now)
				c.Subscription("g0", "orders")
				c.Members("g1")
				c.Producers("p")
				c.Tick(now)
				c.Expire(now)
				for _, group := range l.Sweep(now) {
					c.Notify(group, now)
				}
				if i%10 == 9 {
					c.Disconnected(ch, now)
					l.Disconnected(ch, now)
				}
			}
		})
	}
	wg.Wait()
	if c.consumers.Size() != 0 || len(c.ProducerGroups()) != 0 || notices.Load() == 0 {
		t.Errorf("left: %v; %d notices", c.consumers.Size(), notices.Load())
	}
}
