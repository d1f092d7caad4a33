// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/roquetmq/roquet/internal/message"
)

var errDisk = errors.New("disk is on fire")

func plainTopic(name string) TopicConfig {
	return TopicConfig{Name: name, ReadQueueNums: 4, WriteQueueNums: 4, Perm: PermRead | PermWrite}
}

// mustPut creates or changes a topic and waits for nothing.
func (s *tables) mustPut(tb fataler, cfg TopicConfig) {
	tb.Helper()
	var o outcome
	s.topics.Put(cfg, o.done)
	s.journal.apply(tb, nil)
	o.want(tb, 1, true)
}

func TestTopicPutIsSeenWhenDurable(t *testing.T) {
	t.Parallel()
	s := openTables(t, newMemJournal())
	var changed []string
	s.topics.OnChange(func(names []string) {
		for _, name := range names {
			if _, ok := s.topics.Lookup(name); !ok {
				t.Errorf("change of %s told before it is seen", name)
			}
		}
		changed = append(changed, names...)
	})
	before := s.topics.Version()
	var o outcome
	s.topics.Put(plainTopic("orders"), o.done)
	if _, ok := s.topics.Lookup("orders"); ok || o.calls != 0 {
		t.Fatal("seen or acknowledged before it is durable")
	}
	s.journal.apply(t, nil)
	o.want(t, 1, true)
	cfg, ok := s.topics.Lookup("orders")
	if !ok || cfg.WriteQueueNums != 4 || cfg.FilterType != "SINGLE_TAG" || !cfg.Readable() || !cfg.Writable() {
		t.Fatalf("found %+v", cfg)
	}
	if v := s.topics.Version(); v.Counter != before.Counter+1 || v.Timestamp == 0 {
		t.Errorf("version %+v after %+v", v, before)
	}
	if !slices.Equal(changed, []string{"orders"}) {
		t.Errorf("told of %v", changed)
	}

	var again outcome
	s.topics.Put(plainTopic("orders"), again.done)
	if again.want(t, 1, true); s.journal.apply(t, nil) != 0 {
		t.Error("the same config was stored again")
	}
}

func TestTopicPutRefusals(t *testing.T) {
	t.Parallel()
	s := openTables(t, newMemJournal())
	s.mustPut(t, plainTopic("known"))
	with := func(edit func(*TopicConfig)) TopicConfig {
		cfg := plainTopic("orders")
		edit(&cfg)
		return cfg
	}
	attrs := func(name string, kv ...string) TopicConfig {
		cfg := plainTopic(name)
		cfg.Attributes = map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			cfg.Attributes[kv[i]] = kv[i+1]
		}
		return cfg
	}
	for _, tc := range []struct {
		name string
		cfg  TopicConfig
		as   Reason
		text string
	}{
		{"bad name", plainTopic("a.b"), IllegalParameter, "illegal characters"},
		{"system topic", plainTopic("TBW102"), IllegalParameter, "The topic[TBW102] is conflict with system topic."},
		{"cluster's name", plainTopic("DefaultCluster"), IllegalParameter, "conflict with system topic"},
		{"negative queues", with(func(c *TopicConfig) { c.ReadQueueNums = -1 }), IllegalParameter, "readQueueNums -1"},
		{"too many queues", with(func(c *TopicConfig) { c.WriteQueueNums = 65536 }), IllegalParameter, "0 to 65535 queues"},
		{"unknown permission", with(func(c *TopicConfig) { c.Perm = 16 }), IllegalParameter, "perm 16"},
		{"mixed", attrs("orders", "+message.type", "MIXED"), IllegalParameter, "MIXED message type is not supported."},
		{"no sign", attrs("orders", "message.type", "FIFO"), Failed, ""},
		{
			"minus on create", attrs("orders", "-message.type", ""), Failed,
			"only add attribute is supported while creating topic. key: message.type",
		},
		{"unknown attribute", attrs("orders", "+colour", "red"), Failed, "unsupported key: colour"},
		{"unknown value", attrs("orders", "+message.type", "SLOW"), Failed, `value "SLOW" is not in set`},
		{"not supported value", attrs("orders", "+cleanup.policy", "COMPACTION"), Failed, "is not supported"},
		{"reserve time", attrs("orders", "+reserve.time", "5"), Failed, "Update topic reserveTime not supported"},
		{"range", attrs("orders", "+lite.topic.expiration", "43201"), Failed, "range(-1, 43200)"},
		{"delete what is not there", attrs("known", "-message.type", ""), Failed, "nonexistent"},
		{"fixed", attrs("known", "+queue.type", "SimpleCQ"), Failed, "unchangeable"},
		{"twice", attrs("known", "+message.type", "FIFO", "-message.type", ""), Failed, "duplication"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var o outcome
			s.topics.Put(tc.cfg, o.done)
			o.want(t, 1, false)
			if !refusal(tc.as, tc.text)(o.err) {
				t.Errorf("refused with %T %v, want %q", o.err, o.err, tc.text)
			}
			if len(s.journal.pending) != 0 {
				t.Error("stored something")
			}
		})
	}
}

func TestParseAttributes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		text string
		want map[string]string
		ok   bool
	}{
		{"", map[string]string{}, true},
		{"+message.type=FIFO", map[string]string{"+message.type": "FIFO"}, true},
		{"+a=1,-b,+c=x=y", map[string]string{"+a": "1", "-b": "", "+c": "x=y"}, true},
		{"a=1", nil, false},
		{"+a", nil, false},
		{"-a=1", nil, false},
		{"+a=1,+a=2", nil, false},
		{",", nil, false},
	} {
		got, err := ParseAttributes(tc.text)
		if (err == nil) != tc.ok || tc.ok && !maps.Equal(got, tc.want) {
			t.Errorf("%q: %v, %v", tc.text, got, err)
		}
	}
}

// TestTopicEditsOnTheWayBuildOnEachOther: two changes of one topic before either is durable lose nothing.
func TestTopicEditsOnTheWayBuildOnEachOther(t *testing.T) {
	t.Parallel()
	s := openTables(t, newMemJournal())
	s.mustPut(t, plainTopic("orders"))
	var first, second, third outcome
	change := func(o *outcome, key, value string) {
		cfg := plainTopic("orders")
		cfg.Attributes = map[string]string{key: value}
		s.topics.Put(cfg, o.done)
	}
	change(&first, "+message.type", "FIFO")
	change(&second, "+lite.topic.expiration", "7")
	change(&third, "+message.type", "FIFO") // nothing to change, but not durable yet
	if third.calls != 0 {
		t.Error("acknowledged what is on the way")
	}
	if n := s.journal.apply(t, nil); n != 2 {
		t.Errorf("%d writes", n)
	}
	first.want(t, 1, true)
	second.want(t, 1, true)
	third.want(t, 1, true)
	cfg, _ := s.topics.Lookup("orders")
	want := map[string]string{"message.type": "FIFO", "lite.topic.expiration": "7"}
	if !maps.Equal(cfg.Attributes, want) {
		t.Errorf("attributes %v", cfg.Attributes)
	}
}

func TestTopicFailedWriteChangesNothing(t *testing.T) {
	t.Parallel()
	s := openTables(t, newMemJournal())
	var refused, failed, joined, retried outcome
	s.journal.refuse = errDisk
	s.topics.Put(plainTopic("orders"), refused.done)
	refused.want(t, 1, false)
	s.journal.refuse = nil

	s.topics.Put(plainTopic("orders"), failed.done)
	s.topics.EnsureForSend("orders", AutoCreateTopic, 4, 0, joined.gotTopic)
	s.journal.apply(t, errDisk)
	failed.want(t, 1, false)
	joined.want(t, 1, false)
	if _, ok := s.topics.Lookup("orders"); ok || !errors.Is(joined.err, errDisk) {
		t.Errorf("found %v, joined with %v", ok, joined.err)
	}
	s.topics.Put(plainTopic("orders"), retried.done)
	s.journal.apply(t, nil)
	retried.want(t, 1, true)
}

func TestEnsureForSend(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, defaultTopic string
		queues, want       int32
	}{
		{"client's number", AutoCreateTopic, 4, 4},
		{"no more than the default topic's", AutoCreateTopic, 16, 8},
		{"one at least", AutoCreateTopic, -1, 1},
		{"after the broker's topic", "broker-a", 4, 1},
		{"after the cluster's topic", "DefaultCluster", 32, 16},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := openTables(t, newMemJournal())
			var o outcome
			s.topics.EnsureForSend("orders", tc.defaultTopic, tc.queues, 1, o.gotTopic)
			s.journal.apply(t, nil)
			o.want(t, 1, true)
			cfg := o.topic
			if cfg.ReadQueueNums != tc.want || cfg.WriteQueueNums != tc.want || cfg.Perm != PermRead|PermWrite ||
				cfg.SysFlag != 1 {
				t.Errorf("created %+v, want %d queues", cfg, tc.want)
			}
		})
	}
}

// TestEnsureForSendStoresOnce: a thousand first sends to a topic make one record, and all wait for it.
func TestEnsureForSendStoresOnce(t *testing.T) {
	t.Parallel()
	s := openTables(t, newMemJournal())
	outcomes := make([]outcome, 1000)
	for i := range outcomes {
		s.topics.EnsureForSend("orders", AutoCreateTopic, 4, 0, outcomes[i].gotTopic)
		if outcomes[i].calls != 0 {
			t.Fatal("acknowledged before it is durable")
		}
	}
	if n := s.journal.apply(t, nil); n != 1 {
		t.Errorf("%d writes", n)
	}
	for i := range outcomes {
		outcomes[i].want(t, 1, true)
		if outcomes[i].topic == nil || outcomes[i].topic.Name != "orders" {
			t.Fatalf("call %d got %+v", i, outcomes[i].topic)
		}
	}
}

// TestC128NoAutoCreate: with automatic creation off no default topic helps, whatever its name.
func TestC128NoAutoCreate(t *testing.T) {
	t.Parallel()
	off := func(tc *TopicsConfig, _ *GroupsConfig) { tc.AutoCreateDisabled = true }
	for _, defaultTopic := range []string{AutoCreateTopic, "DefaultCluster", "broker-a", "orders", ""} {
		s := openTables(t, newMemJournal(), off)
		var o outcome
		s.topics.EnsureForSend("orders", defaultTopic, 4, 0, o.gotTopic)
		if o.want(t, 1, false); !errors.Is(o.err, TopicNotExist) {
			t.Errorf("default topic %q: %v", defaultTopic, o.err)
		}
	}

	s := openTables(t, newMemJournal())
	s.topics.SetAutoCreate(false)
	var o, noInherit, noTopic outcome
	s.topics.EnsureForSend("orders", AutoCreateTopic, 4, 0, o.gotTopic)
	o.want(t, 1, false)
	s.topics.SetAutoCreate(true)
	s.topics.EnsureForSend("orders", BenchmarkTopic, 4, 0, noInherit.gotTopic)
	s.topics.EnsureForSend("orders", "nothing", 4, 0, noTopic.gotTopic)
	for _, o := range []outcome{noInherit, noTopic} {
		if o.want(t, 1, false); !errors.Is(o.err, TopicNotExist) {
			t.Error(o.err)
		}
	}
	var named outcome
	s.topics.EnsureForSend("a.b", AutoCreateTopic, 4, 0, named.gotTopic)
	if named.want(t, 1, false); !errors.Is(named.err, IllegalParameter) {
		t.Error(named.err)
	}
}

func TestRetryAndDeadLetterTopics(t *testing.T) {
	t.Parallel()
	s := openTables(t, newMemJournal())
	var created, kept, ordered, dlq outcome
	s.topics.EnsureRetry("g", 2, false, false, created.gotTopic)
	s.journal.apply(t, nil)
	created.want(t, 1, true)
	s.topics.EnsureRetry("g", 5, false, false, kept.gotTopic)
	if kept.want(t, 1, true); kept.topic.WriteQueueNums != 2 {
		t.Errorf("changed to %+v", kept.topic)
	}
	s.topics.EnsureRetry("g", 5, false, true, ordered.gotTopic)
	s.topics.EnsureDLQ("g", dlq.gotTopic)
	s.journal.apply(t, nil)
	if ordered.want(t, 1, true); !ordered.topic.Order || ordered.topic.WriteQueueNums != 2 {
		t.Errorf("order: %+v", ordered.topic)
	}
	if dlq.want(t, 1, true); dlq.topic.Name != "%DLQ%g" || dlq.topic.WriteQueueNums != 1 || !dlq.topic.Readable() {
		t.Errorf("dead letters: %+v", dlq.topic)
	}
}

func TestSystemTopicsExist(t *testing.T) {
	t.Parallel()
	s := openTables(t, newMemJournal())
	if len(s.journal.pending) != 0 {
		t.Error("start writes to the log")
	}
	for name, queues := range map[string]int32{
		"SELF_TEST_TOPIC": 1, "TBW102": 8, "BenchmarkTest": 1024, "DefaultCluster": 16, "broker-a": 1,
		"OFFSET_MOVED_EVENT": 1, "SCHEDULE_TOPIC_XXXX": 18, "RMQ_SYS_TRANS_HALF_TOPIC": 1,
		"RMQ_SYS_TRANS_OP_HALF_TOPIC": 1, "rmq_sys_wheel_timer": 1, "rmq_sys_REVIVE_LOG_DefaultCluster": 8,
		"rmq_sys_SYNC_BROKER_MEMBER_broker-a": 1, "DefaultCluster_REPLY_TOPIC": 1,
	} {
		if cfg, ok := s.topics.Lookup(name); !ok || cfg.WriteQueueNums != queues || !s.topics.IsSystem(name) {
			t.Errorf("%s: %+v", name, cfg)
		}
	}
	if _, ok := s.topics.Lookup(TraceTopic); ok {
		t.Error("the trace topic exists by itself")
	}
	var o outcome
	s.topics.Delete("TBW102", o.done)
	o.want(t, 1, false)
	if all := s.topics.All(); len(all) != s.topics.Len() ||
		!slices.IsSortedFunc(all, func(a, b *TopicConfig) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("%d of %d topics, or not in order", len(all), s.topics.Len())
	}
	off := openTables(t, newMemJournal(), func(tc *TopicsConfig, _ *GroupsConfig) {
		tc.AutoCreateDisabled, tc.ClusterTopicDisabled, tc.TraceTopic = true, true, true
	})
	if _, ok := off.topics.Lookup(AutoCreateTopic); ok {
		t.Error("TBW102 exists with automatic creation off")
	}
	if cfg, _ := off.topics.Lookup("DefaultCluster"); cfg.Perm != PermInherit {
		t.Errorf("cluster topic %+v", cfg)
	}
	if _, ok := off.topics.Lookup(TraceTopic); !ok {
		t.Error("no trace topic")
	}
}

// TestC132DeleteTakesPopRetryTopics: what pop consumers were to retry goes with the topic, and nothing else.
func TestC132DeleteTakesPopRetryTopics(t *testing.T) {
	t.Parallel()
	s := openTables(t, newMemJournal())
	s.mustPut(t, plainTopic("orders"))
	s.mustPut(t, plainTopic("others"))
	for _, name := range append(PopRetryTopics("orders", "g"), PopRetryTopics("others", "g")[0], RetryTopic("g")) {
		var o outcome
		s.topics.EnsureTopic(plainTopic(name), o.gotTopic)
		s.journal.apply(t, nil)
		o.want(t, 1, true)
	}
	s.offsets.Commit("g", "orders", 0, 5)
	var o outcome
	s.topics.Delete("orders", o.done)
	deletions := 0
	for _, w := range s.journal.pending {
		for _, st := range w.State {
			if st.Space == message.SpaceBroker {
				deletions++
			}
		}
	}
	if n := s.journal.apply(t, nil); n != 1 || deletions != 3 {
		t.Errorf("%d writes, the queues of %d topics dropped", n, deletions)
	}
	o.want(t, 1, true)
	for _, name := range append(PopRetryTopics("orders", "g"), "orders") {
		if _, ok := s.topics.Lookup(name); ok {
			t.Errorf("%s is still there", name)
		}
	}
	for _, name := range []string{"others", PopRetryTopics("others", "g")[0], RetryTopic("g")} {
		if _, ok := s.topics.Lookup(name); !ok {
			t.Errorf("%s is gone", name)
		}
	}
}

// TestC133RecreatedTopicHasNoOffsets: neither what was committed before, nor what came while it was being
// deleted.
func TestC133RecreatedTopicHasNoOffsets(t *testing.T) {
	t.Parallel()
	s := openTables(t, newMemJournal())
	s.mustPut(t, plainTopic("orders"))
	s.offsets.Commit("g", "orders", 0, 10)
	s.offsets.Commit("g", "others", 0, 3)
	s.offsets.Flush(nil)
	s.journal.apply(t, nil)

	var deleted outcome
	s.topics.Delete("orders", deleted.done)
	s.offsets.Commit("g", "orders", 0, 10) // the topic is still seen
	s.offsets.Flush(nil)
	s.journal.apply(t, nil)
	deleted.want(t, 1, true)

	s.mustPut(t, plainTopic("orders"))
	check := func(s *tables) {
		if off, ok := s.offsets.Query("g", "orders", 0); ok {
			t.Errorf("recreated topic begins at %d", off)
		}
		if off, _ := s.offsets.Query("g", "others", 0); off != 3 {
			t.Errorf("another topic's offset is %d", off)
		}
	}
	check(s)
	check(openTables(t, s.journal.reopened()))
}

func TestDeleteThatFailsKeepsOffsets(t *testing.T) {
	t.Parallel()
	s := openTables(t, newMemJournal())
	s.mustPut(t, plainTopic("orders"))
	s.offsets.Commit("g", "orders", 0, 10)
	for _, fail := range []func(){
		func() { s.journal.refuse = errDisk },
		func() {},
	} {
		fail()
		var o outcome
		s.topics.Delete("orders", o.done)
		s.journal.apply(t, errDisk)
		o.want(t, 1, false)
		s.journal.refuse = nil
		if off, ok := s.offsets.Query("g", "orders", 0); !ok || off != 10 {
			t.Errorf("offset %d, %v", off, ok)
		}
		if _, ok := s.topics.Lookup("orders"); !ok {
			t.Error("topic is gone")
		}
	}
	var gone outcome
	s.topics.Delete("nothing", gone.done)
	gone.want(t, 1, true)
}

func TestTopicLookupAllocations(t *testing.T) {
	s := openTables(t, newMemJournal())
	s.mustPut(t, plainTopic("orders"))
	names := []string{"orders", "nothing"}
	if n := testing.AllocsPerRun(100, func() {
		for _, name := range names {
			s.topics.Lookup(name)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestTablesConcurrently: changes, look-ups and the applier at once, for the race detector; nothing is lost.
func TestTablesConcurrently(t *testing.T) {
	t.Parallel()
	s := openTables(t, newMemJournal())
	const workers, rounds = 4, 50
	var acknowledged atomic.Int64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range rounds {
				name := fmt.Sprintf("t%d", i)
				s.topics.EnsureForSend(name, AutoCreateTopic, 4, 0, func(cfg *TopicConfig, err error) {
					if err == nil && cfg.Name == name {
						acknowledged.Add(1)
					}
				})
				s.groups.Ensure(fmt.Sprintf("g%d", w), func(_ *GroupConfig, err error) {
					if err == nil {
						acknowledged.Add(1)
					}
				})
				s.topics.Lookup(name)
				s.topics.All()
			}
		})
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			s.journal.apply(t, nil)
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	wg.Wait()
	close(stop)
	<-stopped
	s.journal.apply(t, nil)
	if n := acknowledged.Load(); n != 2*workers*rounds {
		t.Errorf("%d of %d calls succeeded", n, 2*workers*rounds)
	}
	for i := range rounds {
		if _, ok := s.topics.Lookup(fmt.Sprintf("t%d", i)); !ok {
			t.Errorf("topic %d is gone", i)
		}
	}
}
