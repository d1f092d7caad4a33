// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/roquetmq/roquet/internal/broker/filter"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// pullRequest is a pull of everything in T queue 0 by group g that records its outcome.
func pullRequest(off message.QueueOffset, o *outcome) *PullRequest {
	return &PullRequest{
		Group: "g", Topic: "T", Offset: off, MaxCount: 32, SysFlag: PullSubscription, Peer: 1,
		Done: func(_ *PullRequest, err error) { o.done(err) },
	}
}

// pull pulls and returns the request and what Done got; the pull must not be held.
func (w *world) pull(tb fataler, off message.QueueOffset, change ...func(*PullRequest)) (*PullRequest, error) {
	tb.Helper()
	var o outcome
	req := pullRequest(off, &o)
	for _, fn := range change {
		fn(req)
	}
	w.puller.Pull(req)
	if o.calls != 1 {
		tb.Fatalf("Done was called %d times", o.calls)
	}
	return req, o.err
}

func (w *world) mustPull(tb fataler, off message.QueueOffset, change ...func(*PullRequest)) *PullResult {
	tb.Helper()
	req, err := w.pull(tb, off, change...)
	if err != nil {
		tb.Fatalf("pull from %d: %v", off, err)
	}
	return req.Result()
}

func bodies(r *PullResult) (all []string) {
	for _, rec := range r.Records {
		all = append(all, string(message.Record(rec).Body()))
	}
	return all
}

func newPullWorld(tb fataler, configure ...func(*worldConfig)) *world {
	tb.Helper()
	w := newWorld(tb, configure...)
	w.topic(tb, "T", 4)
	w.group(tb, "g")
	return w
}

func TestPullOutcomes(t *testing.T) {
	t.Parallel()
	w := newPullWorld(t)
	for i := range 5 {
		w.mustSend(t, "T", fmt.Sprint(i), withProps("TAGS", "a"))
	}
	w.topic(t, "Empty", 1)
	w.st.queueLocked(memQueueKey{"Empty", 0})
	w.st.queues[memQueueKey{"T", 0}].first = 2 // retention took the first two
	none := func(r *PullRequest) { r.Subscription = PullExpression{Text: "b"} }
	queue := func(topic string, id int32) func(*PullRequest) {
		return func(r *PullRequest) { r.Topic, r.QueueID = topic, id }
	}
	tests := []struct {
		name    string
		off     message.QueueOffset
		change  func(*PullRequest)
		outcome PullOutcome
		status  string
		next    message.QueueOffset
		found   []string
	}{
		{"found", 3, nil, PullFound, "FOUND", 5, []string{"3", "4"}},
		{"no match", 3, none, PullRetryImmediately, "NO_MATCHED_MESSAGE", 5, nil},
		{"too small", 1, nil, PullOffsetMoved, "OFFSET_TOO_SMALL", 2, nil},
		{"negative", -1, nil, PullOffsetMoved, "OFFSET_TOO_SMALL", 2, nil},
		{"at the end", 5, nil, PullNotFound, "OFFSET_OVERFLOW_ONE", 5, nil},
		{"beyond the end", 6, nil, PullOffsetMoved, "OFFSET_OVERFLOW_BADLY", 5, nil},
		{"never written, from 0", 0, queue("T", 1), PullNotFound, "NO_MATCHED_LOGIC_QUEUE", 0, nil},
		{"never written, from elsewhere", 7, queue("T", 1), PullOffsetMoved, "NO_MATCHED_LOGIC_QUEUE", 0, nil},
		{"empty, from 0", 0, queue("Empty", 0), PullNotFound, "NO_MESSAGE_IN_QUEUE", 0, nil},
		{"empty, from elsewhere", 7, queue("Empty", 0), PullOffsetMoved, "NO_MESSAGE_IN_QUEUE", 0, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := w.mustPull(t, tt.off, func(req *PullRequest) {
				if tt.change != nil {
					tt.change(req)
				}
			})
			status := tt.status
			if r.Outcome != tt.outcome || r.Status != status || r.Next != tt.next ||
				!slices.Equal(bodies(r), tt.found) {
				t.Errorf("outcome %d %s, next %d, found %q", r.Outcome, r.Status, r.Next, bodies(r))
			}
		})
	}
	r := w.mustPull(t, 3)
	if r.Min != 2 || r.Max != 5 || r.Bytes != len(r.Records[0])+len(r.Records[1]) {
		t.Errorf("bounds %d %d, %d bytes", r.Min, r.Max, r.Bytes)
	}
	if off, _ := w.offsets.QueryPull("g", "T", 0); off != 5 {
		t.Errorf("pull offset %d is not noted", off)
	}
}

func TestPullLimits(t *testing.T) {
	t.Parallel()
	w := newPullWorld(t, func(c *worldConfig) { c.puller.MaxCount, c.puller.MaxBytes = 8, 3000 })
	for range 20 {
		w.mustSend(t, "T", string(make([]byte, 100)), withProps("UNIQ_KEY", "u"))
	}
	size := len(w.mustPull(t, 0).Records[0])
	tests := []struct {
		name               string
		count, bytes, want int
	}{
		{"as asked", 3, 0, 3},
		{"the broker's count", 100, 0, 8},
		{"none asked is one", 0, 0, 1},
		{"negative asked is one", -1, 0, 1},
		{"the request's bytes", 8, 2 * size, 2},
		{"one message in any case", 8, 1, 1},
		{"the broker's bytes do not bound these", 8, 1 << 30, 8},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := w.mustPull(t, 0, func(req *PullRequest) { req.MaxCount, req.MaxBytes = tt.count, tt.bytes })
			if len(r.Records) != tt.want || r.Next != message.QueueOffset(tt.want) {
				t.Errorf("%d records, next %d; want %d", len(r.Records), r.Next, tt.want)
			}
		})
	}
}

func TestPullIsBoundByTheBrokersBytes(t *testing.T) {
	t.Parallel()
	w := newPullWorld(t, func(c *worldConfig) { c.puller.MaxBytes = 1000 })
	for range 5 {
		w.mustSend(t, "T", string(make([]byte, 300)))
	}
	if r := w.mustPull(t, 0, func(req *PullRequest) { req.MaxBytes = 1 << 20 }); len(r.Records) != 2 {
		t.Errorf("%d records", len(r.Records))
	}
}

func TestPullRefusals(t *testing.T) {
	t.Parallel()
	heartbeat := func(w *world, change func(*ConsumerData)) {
		data := ConsumerData{
			Group: "g", Type: ConsumePassively, Model: Clustering,
			Subscriptions: []SubscriptionData{{Topic: "T", SubString: "*", SubVersion: 5}},
		}
		if change != nil {
			change(&data)
		}
		w.clients.Heartbeat(channel(1), &Heartbeat{ClientID: "c", Consumers: []ConsumerData{data}}, time.Now())
	}
	told := func(r *PullRequest) { r.SysFlag &^= PullSubscription }
	missing := func(topic string) func(error) bool {
		return refusal(SubscriptionMissing, "no consumer of group g "+topic)
	}
	tests := []struct {
		name   string
		world  func(*worldConfig)
		setUp  func(*testing.T, *world)
		change func(*PullRequest)
		want   func(error) bool
	}{
		{
			name:  "broker not readable",
			world: func(c *worldConfig) { c.denied = PermRead },
			want:  denied("] pulling message"),
		},
		{
			name: "lite pull disabled", world: func(c *worldConfig) { c.puller.LitePullDisabled = true },
			change: func(r *PullRequest) { r.LitePull = true }, want: denied("for lite pull consumer"),
		},
		{name: "lite pull disabled, ordinary pull", world: func(c *worldConfig) { c.puller.LitePullDisabled = true }},
		{
			name: "unknown group", world: func(c *worldConfig) { c.groups.AutoCreateDisabled = true },
			change: func(r *PullRequest) { r.Group = "x" },
			want:   refusal(GroupNotExist, "subscription group not exist, x"),
		},
		{name: "group may not consume", setUp: func(t *testing.T, w *world) {
			t.Helper()
			w.group(t, "g", func(c *GroupConfig) { c.ConsumeEnable = false })
		}, want: denied("subscription group no permission, g")},
		{
			name: "unknown topic", change: func(r *PullRequest) { r.Topic = "X" },
			want: refusal(TopicNotExist, "topic[X] not exist"),
		},
		{name: "topic not readable", setUp: func(t *testing.T, w *world) {
			t.Helper()
			w.topic(t, "T", 4, func(c *TopicConfig) { c.Perm = PermWrite })
		}, want: denied("the topic[T] pulling")},
		{
			name: "queue too high", change: func(r *PullRequest) { r.QueueID = 4 },
			want: refusal(IllegalParameter, "queueId[4] is illegal, topic:[T] topicConfig.readQueueNums:[4]"),
		},
		{
			name:   "queue negative",
			change: func(r *PullRequest) { r.QueueID = -1 },
			want:   refusal(IllegalParameter, "queueId[-1]"),
		},
		{
			name: "bad expression", change: func(r *PullRequest) { r.Subscription.Text = "||" },
			want: refusal(SubscriptionIllegal, filter.ErrEmpty.Error()),
		},
		{name: "nobody told a subscription", change: told, want: missing("is connected")},
		{name: "told", setUp: func(_ *testing.T, w *world) { heartbeat(w, nil) }, change: told},
		{name: "told for another topic", setUp: func(_ *testing.T, w *world) {
			heartbeat(w, func(d *ConsumerData) { d.Subscriptions[0].Topic = "Other" })
		}, change: told, want: missing("subscribes T")},
		{name: "told by broadcast consumers that may not", setUp: func(t *testing.T, w *world) {
			t.Helper()
			w.group(t, "g", func(c *GroupConfig) { c.ConsumeBroadcastEnable = false })
			heartbeat(w, func(d *ConsumerData) { d.Model = Broadcasting })
		}, change: told, want: denied("by broadcast way")},
		{name: "told, but forbidden", setUp: func(t *testing.T, w *world) {
			t.Helper()
			heartbeat(w, nil)
			var o outcome
			w.groups.SetForbidden("g", "T", PermRead, true, o.done)
			w.st.apply()
		}, change: told, want: denied("the consumer group[g] is forbidden for topic[T]")},
		{
			name: "C068 told an older version", setUp: func(_ *testing.T, w *world) { heartbeat(w, nil) },
			change: func(r *PullRequest) { told(r); r.Subscription.Version = 6 },
			want:   refusal(SubscriptionOld, "not latest"),
		},
		{
			name: "C068 told a newer version", setUp: func(_ *testing.T, w *world) { heartbeat(w, nil) },
			change: func(r *PullRequest) { told(r); r.Subscription.Version = 4 },
		},
		{name: "told a class filter", setUp: func(_ *testing.T, w *world) {
			heartbeat(
				w,
				func(d *ConsumerData) { d.Subscriptions[0].ClassFilterMode = true; d.Subscriptions[0].SubString = "X" },
			)
		}, change: told},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newPullWorld(t, func(c *worldConfig) {
				if tt.world != nil {
					tt.world(c)
				}
			})
			w.mustSend(t, "T", "b")
			if tt.setUp != nil {
				tt.setUp(t, w)
			}
			req, err := w.pull(t, 0, func(r *PullRequest) {
				if tt.change != nil {
					tt.change(r)
				}
			})
			switch {
			case tt.want == nil && (err != nil || req.Result().Outcome != PullFound):
				t.Errorf("error %v, result %+v", err, req.Result())
			case tt.want != nil && (err == nil || !tt.want(err)):
				t.Errorf("error %v (%T)", err, err)
			}
		})
	}
}

func TestPullCommitsAndResets(t *testing.T) {
	t.Parallel()
	w := newPullWorld(t)
	for range 5 {
		w.mustSend(t, "T", "b")
	}
	commit := func(r *PullRequest) { r.SysFlag, r.CommitOffset = r.SysFlag|PullCommitOffset, 3 }
	w.mustPull(t, 5, func(r *PullRequest) { r.CommitOffset = 2 })
	if off, ok := w.offsets.Query("g", "T", 0); ok {
		t.Errorf("committed %d without the flag", off)
	}
	w.mustPull(t, 5, commit)
	if off, _ := w.offsets.Query("g", "T", 0); off != 3 {
		t.Errorf("committed %d, want 3", off)
	}
	if _, err := w.pull(t, 5, commit, func(r *PullRequest) { r.QueueID, r.CommitOffset = 9, 4 }); err == nil {
		t.Error("queue 9 was read")
	}
	var o outcome
	w.offsets.Reset("g", "T", map[int32]message.QueueOffset{0: 1}, o.done)
	w.st.apply()
	r := w.mustPull(t, 5, commit)
	if r.Outcome != PullOffsetMoved || r.Status != "OFFSET_RESET" || r.Next != 1 || r.Min != 0 || r.Max != 5 ||
		len(r.Records) != 0 {
		t.Errorf("after the reset %+v", r)
	}
	if r := w.mustPull(t, 1); r.Outcome != PullFound {
		t.Errorf("after the reset was taken %+v", r)
	}
}

func TestPullOverDamage(t *testing.T) {
	t.Parallel()
	w := newPullWorld(t)
	for range 3 {
		w.mustSend(t, "T", "b")
	}
	w.st.damaged[w.st.queues[memQueueKey{"T", 0}].pos[1]] = &store.DamagedError{Topic: "T", Offset: 1, End: 2}
	if r := w.mustPull(t, 0); r.Outcome != PullFound || r.Next != 1 {
		t.Errorf("in front of the damage %+v", r)
	}
	r := w.mustPull(t, 1)
	if r.Outcome != PullOffsetMoved || r.Next != 2 || !asError[*store.DamagedError](nil)(r.Damage) {
		t.Errorf("at the damage %+v", r)
	}
	if r := w.mustPull(t, 2); r.Outcome != PullFound {
		t.Errorf("behind the damage %+v", r)
	}
}

func TestPullAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("sync.Pool drops at random under the race detector")
	}
	w := newPullWorld(t)
	for range 32 {
		w.mustSend(t, "T", "b")
	}
	w.clients.Heartbeat(channel(1), &Heartbeat{ClientID: "c", Consumers: []ConsumerData{{
		Group: "g", Type: ConsumePassively,
		Model: Clustering, Subscriptions: []SubscriptionData{{Topic: "T", SubString: "*"}},
	}}}, time.Now())
	req := pullRequest(0, &outcome{})
	req.Done, req.SysFlag = func(*PullRequest, error) {}, 0
	if n := testing.AllocsPerRun(100, func() { w.puller.Pull(req) }); n > 1 {
		t.Errorf("%v allocations, want 1: the slice of records", n)
	}
	if len(req.Result().Records) != 32 {
		t.Errorf("%d records", len(req.Result().Records))
	}
}

func BenchmarkPull(b *testing.B) {
	w := newPullWorld(b)
	for range 32 {
		w.mustSend(b, "T", "b")
	}
	req := pullRequest(0, &outcome{})
	req.Done = func(*PullRequest, error) {}
	b.ReportAllocs()
	for b.Loop() {
		w.puller.Pull(req)
	}
}
