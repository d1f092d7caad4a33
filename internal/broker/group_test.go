// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/roquetmq/roquet/internal/message"
)

func TestGroupDefaultsFillWhatIsMissing(t *testing.T) {
	t.Parallel()
	var cfg GroupConfig
	if err := json.Unmarshal([]byte(`{"groupName":"g","retryMaxTimes":3,"unknown":1}`), &cfg); err != nil {
		t.Fatal(err)
	}
	want := NewGroupConfig("g")
	want.RetryMaxTimes = 3
	got, _ := json.Marshal(cfg)
	expected, _ := json.Marshal(want)
	if string(got) != string(expected) {
		t.Errorf("decoded %s\n   want %s", got, expected)
	}
	for _, part := range []string{
		`"consumeEnable":true`, `"retryQueueNums":1`, `"whichBrokerWhenConsumeSlowly":1`,
		`"groupRetryPolicy":{"type":"CUSTOMIZED"}`, `"consumeTimeoutMinute":15`, `"attributes":{}`,
	} {
		if !strings.Contains(string(got), part) {
			t.Errorf("%s lacks %s", got, part)
		}
	}
	if strings.Contains(string(got), "subscriptionDataSet") {
		t.Error("an empty subscriptionDataSet is written")
	}
}

func TestGroupEnsure(t *testing.T) {
	t.Parallel()
	s := openTables(t, newMemJournal())
	outcomes := make([]outcome, 10)
	for i := range outcomes {
		s.groups.Ensure("g", outcomes[i].gotGroup)
	}
	if n := s.journal.apply(t, nil); n != 1 {
		t.Errorf("%d writes", n)
	}
	for i := range outcomes {
		if outcomes[i].want(t, 1, true); outcomes[i].group.Name != "g" {
			t.Error("another group")
		}
	}
	var illegal outcome
	s.groups.Ensure("a.b", illegal.gotGroup)
	illegal.want(t, 1, false)

	off := openTables(t, newMemJournal(), func(_ *TopicsConfig, gc *GroupsConfig) { gc.AutoCreateDisabled = true })
	var refused, system outcome
	off.groups.Ensure("g", refused.gotGroup)
	if refused.want(t, 1, false); !errors.Is(refused.err, GroupNotExist) {
		t.Error(refused.err)
	}
	off.groups.Ensure("CID_RMQ_SYS_X", system.gotGroup)
	off.journal.apply(t, nil)
	system.want(t, 1, true)
	if _, ok := off.groups.Lookup("TOOLS_CONSUMER"); !ok {
		t.Error("no system groups")
	}
}

// A group, or a topic, that is being changed is there, also where none would be created now.
func TestChangedNamesAreThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *worldConfig) { c.groups.AutoCreateDisabled = true })
	w.group(t, "g")
	own := TopicConfig{Name: "a.b", ReadQueueNums: 1, WriteQueueNums: 1, Perm: PermRead | PermWrite}
	w.topics.EnsureTopic(own, func(*TopicConfig, error) {}) // the broker's own: no client may create it
	w.st.apply()

	cfg := NewGroupConfig("g")
	cfg.RetryMaxTimes = 3
	var put, ensured, changed, sent outcome
	w.groups.PutAll([]GroupConfig{cfg}, put.done)
	w.groups.Ensure("g", ensured.gotGroup)
	own.Order = true
	w.topics.EnsureTopic(own, changed.gotTopic)
	w.sender.Send(sendRequest(own.Name, "b", &sent))
	w.st.apply()
	if ensured.want(t, 1, true); ensured.group.RetryMaxTimes != 3 {
		t.Errorf("the group as it was before: %+v", ensured.group)
	}
	if changed.want(t, 1, true); !changed.topic.Order {
		t.Error("no order")
	}
	sent.want(t, 1, true)
	w.only(t, own.Name, 0)
}

func TestGroupPutDisableDelete(t *testing.T) {
	t.Parallel()
	s := openTables(t, newMemJournal())
	cfg := NewGroupConfig("g")
	cfg.RetryMaxTimes = 5
	cfg.Attributes = map[string]string{"+priority.factor": "50"}
	var put, bad, name, disabled, deleted outcome
	s.groups.PutAll([]GroupConfig{cfg}, put.done)
	s.journal.apply(t, nil)
	put.want(t, 1, true)
	cfg.Attributes = map[string]string{"+priority.factor": "101"}
	s.groups.PutAll([]GroupConfig{cfg}, bad.done)
	bad.want(t, 1, false)
	s.groups.PutAll([]GroupConfig{NewGroupConfig("h"), NewGroupConfig("a.b")}, name.done)
	name.want(t, 1, false)
	cfg.ConsumeEnable, cfg.Attributes = false, nil
	s.groups.PutAll([]GroupConfig{cfg}, disabled.done)
	s.journal.apply(t, nil)
	disabled.want(t, 1, true)
	got, _ := s.groups.Lookup("g")
	if got.RetryMaxTimes != 5 || got.ConsumeEnable || got.Attributes["priority.factor"] != "50" {
		t.Errorf("%+v", got)
	}
	s.groups.Delete("g", s.offsets, deleted.done)
	s.journal.apply(t, nil)
	deleted.want(t, 1, true)
	if _, ok := s.groups.Lookup("g"); ok {
		t.Error("still there")
	}
	if _, ok := s.groups.Lookup("h"); ok {
		t.Error("half of a refused list was stored")
	}
}

// TestC054DeleteGroupWithOffsets: a recreated group has no offsets, now and after a restart.
func TestC054DeleteGroupWithOffsets(t *testing.T) {
	t.Parallel()
	s := openTables(t, newMemJournal())
	var created, deleted, again outcome
	s.groups.Ensure("g", created.gotGroup)
	s.journal.apply(t, nil)
	s.offsets.Commit("g", "orders", 0, 7)
	s.offsets.Commit("other", "orders", 0, 8)
	s.offsets.Flush(nil)
	s.offsets.Commit("g", "orders", 1, 9) // not flushed yet
	s.groups.Delete("g", s.offsets, deleted.done)
	s.offsets.Flush(nil)
	s.journal.apply(t, nil)
	deleted.want(t, 1, true)
	s.groups.Ensure("g", again.gotGroup)
	s.journal.apply(t, nil)
	for _, s := range []*tables{s, openTables(t, s.journal.reopened())} {
		if _, found := s.offsets.Query("g", "orders", 0); found {
			t.Error("an offset is there")
		}
		if off, _ := s.offsets.Query("other", "orders", 0); off != 8 {
			t.Errorf("another group's offset is %d", off)
		}
		if len(s.offsets.TopicsOf("g")) != 0 || slices.Contains(s.offsets.GroupsOf("orders"), "g") {
			t.Error("the group is still listed")
		}
	}
	s = openTables(t, newMemJournal())
	s.offsets.Commit("never-created", "orders", 0, 7)
	var gone outcome
	s.groups.Delete("never-created", s.offsets, gone.done)
	s.journal.apply(t, nil)
	if gone.want(t, 1, true); s.offsets.Len() != 0 {
		t.Error("offsets of a group without config are still there")
	}
}

func TestForbidden(t *testing.T) {
	t.Parallel()
	s := openTables(t, newMemJournal())
	set := func(topic string, perm int32, forbidden bool) {
		t.Helper()
		var o outcome
		s.groups.SetForbidden("g", topic, perm, forbidden, o.done)
		s.journal.apply(t, nil)
		o.want(t, 1, true)
	}
	before := s.groups.Version()
	set("a", PermRead, true)
	set("b", PermRead, true)
	set("a", PermWrite, true)
	set("a", PermWrite, false)
	set("b", PermRead, false)
	set("b", PermRead, false) // nothing to change
	if s.groups.Version().Counter != before.Counter+5 {
		t.Errorf("version %+v after %+v", s.groups.Version(), before)
	}
	for _, s := range []*tables{s, openTables(t, s.journal.reopened())} {
		if s.groups.Forbidden("g", "a") != PermRead || s.groups.Forbidden("g", "b") != 0 ||
			s.groups.Forbidden("h", "a") != 0 {
			t.Errorf("forbidden %v", s.groups.ForbiddenTable())
		}
		if len(s.groups.All()) != s.groups.Len() || slices.ContainsFunc(s.groups.All(), func(c *GroupConfig) bool {
			return strings.HasPrefix(c.Name, "\x00")
		}) {
			t.Error("the forbidden table is among the groups")
		}
	}
	var created, deleted outcome
	s.groups.Ensure("g", created.gotGroup)
	s.journal.apply(t, nil)
	s.groups.Delete("g", s.offsets, deleted.done)
	s.journal.apply(t, nil)
	deleted.want(t, 1, true)
	if s.groups.Forbidden("g", "a") != 0 || len(s.journal.keys(message.SpaceGroup)) != 2 { // two versions
		t.Errorf("left over: %v, %q", s.groups.ForbiddenTable(), s.journal.keys(message.SpaceGroup))
	}
}

func TestRetryDelays(t *testing.T) { // alone: it counts allocations
	exponential := func(initial, limit, multiplier int64) GroupRetryPolicy {
		return GroupRetryPolicy{
			Type:        "EXPONENTIAL",
			Exponential: &ExponentialRetryPolicy{Initial: initial, Max: limit, Multiplier: multiplier},
		}
	}
	for _, tc := range []struct {
		name   string
		policy GroupRetryPolicy
		delays map[int]int64
	}{
		{
			"default",
			GroupRetryPolicy{Type: "CUSTOMIZED"},
			map[int]int64{-1: 10_000, 0: 10_000, 1: 30_000, 2: 60_000, 15: 7_200_000, 16: 7_200_000, 99: 7_200_000},
		},
		{
			"customized",
			GroupRetryPolicy{Type: "CUSTOMIZED", Customized: &CustomizedRetryPolicy{Next: []int64{1, 2, 3, 4}}},
			map[int]int64{0: 3, 1: 4, 2: 4},
		},
		{"one entry", GroupRetryPolicy{Customized: &CustomizedRetryPolicy{Next: []int64{9}}}, map[int]int64{0: 9, 5: 9}},
		{
			"exponential", exponential(5000, 7_200_000, 2),
			map[int]int64{0: 5000, 1: 10_000, 10: 5_120_000, 11: 7_200_000, 99: 7_200_000},
		},
		{"exponential default", GroupRetryPolicy{Type: "EXPONENTIAL"}, map[int]int64{0: 5000, 3: 40_000}},
		{"no overflow", exponential(1<<40, 1<<62, 1<<40), map[int]int64{0: 1 << 40, 1: 1 << 62, 9: 1 << 62}},
	} {
		for times, want := range tc.delays {
			if got := tc.policy.NextDelay(times); got != want {
				t.Errorf("%s: after %d times %d ms, want %d", tc.name, times, got, want)
			}
			if n := testing.AllocsPerRun(10, func() { tc.policy.NextDelay(times) }); n != 0 {
				t.Errorf("%s: %v allocations for each message that is tried again", tc.name, n)
			}
		}
	}
}

func TestHeartbeatCreatesGroupAndRetryTopic(t *testing.T) {
	t.Parallel()
	s := openTables(t, newMemJournal())
	clients := NewClients(ClientsConfig{Logger: quiet()})
	h := NewHeartbeats(s.topics, s.groups, clients, quiet())
	beat := func() *outcome {
		o := &outcome{}
		hb := &Heartbeat{ClientID: "c1", Producers: []string{"p"}, Consumers: []ConsumerData{
			{Group: "g", Model: Clustering, UnitMode: true, Subscriptions: []SubscriptionData{{Topic: "orders"}}},
			{Group: "a.b", Model: Clustering},
			{Group: "h", Model: Clustering},
		}}
		h.Handle(channel(1), hb, at(0), func(_ HeartbeatResult, err error) { o.done(err) })
		return o
	}
	first := beat()
	if _, ok := clients.Group("g"); ok || first.calls != 0 {
		t.Error("registered before the group is durable")
	}
	for s.journal.apply(t, nil) > 0 {
	}
	first.want(t, 1, true)
	retry, ok := s.topics.Lookup("%RETRY%g")
	if !ok || retry.WriteQueueNums != 1 || retry.Perm != PermRead|PermWrite || retry.SysFlag != 2 {
		t.Errorf("retry topic %+v", retry)
	}
	if got := clients.consumers.Size(); got != 2 || !clients.Alive("g", "c1") || !clients.Alive("h", "c1") {
		t.Errorf("registered in %d groups", got)
	}
	second := beat()
	if second.want(t, 1, true); len(s.journal.pending) != 0 {
		t.Error("a known client's heartbeat stores something")
	}

	full := openTables(t, newMemJournal())
	full.journal.refuse = errDisk
	var failed outcome
	NewHeartbeats(full.topics, full.groups, clients, quiet()).Handle(channel(2),
		&Heartbeat{ClientID: "c2", Consumers: []ConsumerData{{Group: "new"}}}, at(0),
		func(_ HeartbeatResult, err error) { failed.done(err) })
	failed.want(t, 1, false)
	if _, ok := clients.Group("new"); ok {
		t.Error("registered without a group")
	}
}

func TestHeartbeatTellsRetryTopicOfOrderAndQuietGroups(t *testing.T) {
	t.Parallel()
	s := openTables(t, newMemJournal())
	ordered := plainTopic("orders")
	ordered.Order = true
	s.mustPut(t, ordered)
	cfg := NewGroupConfig("g")
	cfg.NotifyConsumerIDsChangedEnable, cfg.RetryQueueNums = false, 3
	var put, beaten outcome
	s.groups.PutAll([]GroupConfig{cfg}, put.done)
	s.journal.apply(t, nil)
	notices := 0
	clients := NewClients(ClientsConfig{Logger: quiet(), Notify: func(string, []Channel) { notices++ }})
	NewHeartbeats(s.topics, s.groups, clients, quiet()).Handle(channel(1), &Heartbeat{
		ClientID: "c1",
		Consumers: []ConsumerData{
			{Group: "g", Model: Clustering, Subscriptions: []SubscriptionData{{Topic: "orders"}}},
		},
	},
		at(0), func(_ HeartbeatResult, err error) { beaten.done(err) })
	s.journal.apply(t, nil)
	beaten.want(t, 1, true)
	if retry, _ := s.topics.Lookup("%RETRY%g"); !retry.Order || retry.ReadQueueNums != 3 {
		t.Errorf("retry topic %+v", retry)
	}
	if notices != 0 {
		t.Errorf("%d notices to a group that wants none", notices)
	}
}

func TestGroupAttributesOnTheWire(t *testing.T) {
	t.Parallel()
	changes, err := ParseAttributes("+lite.sub.model=Exclusive,+lite.sub.wildcard=TRUE,+lite.bind.topic=t")
	if err != nil {
		t.Fatal(err)
	}
	got, err := alterAttributes(true, groupAttributes(), nil, changes)
	want := map[string]string{"lite.sub.model": "Exclusive", "lite.sub.wildcard": "TRUE", "lite.bind.topic": "t"}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := alterAttributes(
		false,
		groupAttributes(),
		got,
		map[string]string{"+lite.sub.wildcard": "maybe"},
	); err == nil {
		t.Error("accepted a boolean that is none")
	}
}
