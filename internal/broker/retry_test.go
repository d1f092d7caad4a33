// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// sendBack sends a message back and settles, and returns what Done got.
func (w *world) sendBack(tb fataler, group string, off message.LogOffset, change ...func(*SendBackRequest)) error {
	tb.Helper()
	var o outcome
	req := &SendBackRequest{
		Group: group, Offset: off, MaxReconsumeTimes: GroupMaxReconsumeTimes,
		Done: func(_ *SendBackRequest, err error) { o.done(err) },
	}
	for _, fn := range change {
		fn(req)
	}
	w.sender.SendBack(req)
	w.st.apply()
	if o.calls != 1 {
		tb.Fatalf("Done was called %d times", o.calls)
	}
	return o.err
}

// stored sends one message to a new topic T and returns where it is.
func (w *world) stored(tb fataler) message.Message {
	tb.Helper()
	w.topic(tb, "T", 1)
	w.mustSend(tb, "T", "body", withProps("UNIQ_KEY", "u1", "TAGS", "a", "DELAY", "0"))
	return w.only(tb, "T", 0)
}

func TestSendBackDelaysACopy(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		reconsumed int32
		asked      int32
		level      int // of the schedule topic
	}{
		{"first attempt", 0, 0, 3},
		{"grows with attempts", 4, 0, 7},
		{"as asked", 4, 2, 2},
		{"C078 above the table", 0, 100, 18},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.group(t, "g")
			w.topic(t, "T", 1)
			w.mustSend(t, "T", "body", withProps("UNIQ_KEY", "u1", "TAGS", "a"),
				func(r *SendRequest) { r.ReconsumeTimes = tt.reconsumed })
			m := w.only(t, "T", 0)
			if err := w.sendBack(
				t,
				"g",
				m.LogOffset,
				func(r *SendBackRequest) { r.DelayLevel = tt.asked },
			); err != nil {
				t.Fatal(err)
			}
			c := w.only(t, ScheduleTopic, int32(tt.level-1))
			want := map[string]string{
				"RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": message.OffsetMsgID(testStoreHost, m.LogOffset),
				"REAL_TOPIC": "%RETRY%g", "REAL_QID": "0", "UNIQ_KEY": "u1", "TAGS": "a",
			}
			for name, value := range want {
				if got := property(&c, name); got != value {
					t.Errorf("%s is %q, want %q", name, got, value)
				}
			}
			if c.ReconsumeTimes != tt.reconsumed+1 || string(c.Body) != "body" || c.BornHost != m.BornHost {
				t.Errorf("copy %+v", c)
			}
			if _, ok := w.topics.Lookup("%RETRY%g"); !ok {
				t.Error("the retry topic was not created")
			}
			if n := w.stats.group("g", "T")[groupSendBacks].value.Load(); n != 1 {
				t.Errorf("counted %d", n)
			}
		})
	}
}

func TestSendBackKeepsWhereAMessageCameFrom(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.group(t, "g")
	w.topic(t, "%RETRY%g2", 1)
	w.mustSend(t, "%RETRY%g2", "body", withProps("RETRY_TOPIC", "T0", "ORIGIN_MESSAGE_ID", "id0", "DELAY", "-1"),
		func(r *SendRequest) { w.group(t, "g2") })
	m := w.only(t, "%RETRY%g2", 0)
	if err := w.sendBack(t, "g", m.LogOffset); err != nil {
		t.Fatal(err)
	}
	c := w.only(t, ScheduleTopic, 2)
	if property(&c, "RETRY_TOPIC") != "T0" || property(&c, "ORIGIN_MESSAGE_ID") != "id0" {
		t.Errorf("properties %q", c.Properties)
	}
	if strings.Count(c.Properties, "RETRY_TOPIC") != 1 || strings.Count(c.Properties, "REAL_TOPIC") != 1 {
		t.Errorf("properties repeat: %q", c.Properties)
	}
	if n := w.stats.group("g", "T0")[groupSendBacks].value.Load(); n != 1 {
		t.Errorf("not counted under the original topic: %d", n)
	}
}

func TestSendBackToTheDeadLetterTopic(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("g", 120)
	tests := []struct {
		name       string
		group      string
		max        int32 // of the group
		reconsumed int32
		change     func(*SendBackRequest)
	}{
		{"C115 maximum of 0", "g", 0, 0, nil},
		{"maximum reached", "g", 16, 16, nil},
		{"maximum of the request", "g", 16, 2, func(r *SendBackRequest) { r.MaxReconsumeTimes = 2 }},
		{"asked for", "g", 16, 0, func(r *SendBackRequest) { r.DelayLevel = -1 }},
		{"C126 long group", long, 0, 0, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.group(t, tt.group, func(c *GroupConfig) { c.RetryMaxTimes = tt.max })
			w.topic(t, "T", 1)
			w.mustSend(t, "T", "body", func(r *SendRequest) { r.ReconsumeTimes = tt.reconsumed })
			m := w.only(t, "T", 0)
			err := w.sendBack(t, tt.group, m.LogOffset, func(r *SendBackRequest) {
				if tt.change != nil {
					tt.change(r)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			c := w.only(t, "%DLQ%"+tt.group, 0)
			if property(&c, "RETRY_TOPIC") != "T" || property(&c, "DELAY") != "" ||
				property(&c, "ORIGIN_MESSAGE_ID") != message.OffsetMsgID(testStoreHost, m.LogOffset) {
				t.Errorf("properties %q", c.Properties)
			}
			if c.ReconsumeTimes != tt.reconsumed+1 {
				t.Errorf("reconsumeTimes %d", c.ReconsumeTimes)
			}
			dlq, _ := w.topics.Lookup("%DLQ%" + tt.group)
			if dlq.WriteQueueNums != 1 || dlq.Perm != PermRead|PermWrite {
				t.Errorf("dead letter topic %+v", dlq)
			}
			if n := w.stats.group(tt.group, "T")[groupDLQs].value.Load(); n != 1 {
				t.Errorf("counted %d dead letters", n)
			}
		})
	}
}

// TestDeadLetterWithFullProperties: a dead letter that has no room to say where it came from is one all the same.
func TestDeadLetterWithFullProperties(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.group(t, "g", func(c *GroupConfig) { c.RetryMaxTimes = 0 })
	w.topic(t, "T", 1)
	full := props("UNIQ_KEY", "u", "x", strings.Repeat("x", message.MaxPropertiesBytes-14))
	w.mustSend(t, "T", "body", func(r *SendRequest) { r.Properties = full })
	m := w.only(t, "T", 0)
	if m.Properties != full || len(full) != message.MaxPropertiesBytes {
		t.Fatalf("%d bytes of properties, sent %d", len(m.Properties), len(full))
	}
	if err := w.sendBack(t, "g", m.LogOffset); err != nil {
		t.Fatal(err)
	}
	if c := w.only(t, "%DLQ%g", 0); c.Properties != full {
		t.Errorf("%d bytes of properties", len(c.Properties))
	}
}

func TestSendBackRefusals(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		world func(*worldConfig)
		setUp func(*testing.T, *world)
		group string
		off   message.LogOffset
		want  func(error) bool
	}{
		{
			name: "unknown group", world: func(c *worldConfig) { c.groups.AutoCreateDisabled = true }, group: "x",
			want: refusal(GroupNotExist, "subscription group not exist, x"),
		},
		{name: "bad group name", group: "a.b", want: refusal(IllegalParameter, "illegal characters")},
		{
			name: "broker without write permission", world: func(c *worldConfig) { c.denied = PermWrite },
			group: "g", want: denied("the broker[10.0.0.1] sending message"),
		},
		{
			name: "no such message", group: "g", off: 12345,
			want: func(err error) bool {
				return errors.Is(err, store.ErrNotFound) && strings.Contains(err.Error(), "12345")
			},
		},
		{
			name: "retry topic not writable", group: "g", want: denied("sending message is forbidden"),
			setUp: func(t *testing.T, w *world) {
				t.Helper()
				var o outcome
				w.topics.EnsureTopic(
					TopicConfig{Name: "%RETRY%g", ReadQueueNums: 1, WriteQueueNums: 1, Perm: PermRead},
					o.gotTopic,
				)
				w.st.apply()
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(c *worldConfig) {
				if tt.world != nil {
					tt.world(c)
				}
			})
			w.group(t, "g")
			m := w.stored(t)
			if tt.setUp != nil {
				tt.setUp(t, w)
			}
			before := w.st.endOfLog()
			if err := w.sendBack(t, tt.group, m.LogOffset+tt.off); err == nil || !tt.want(err) {
				t.Errorf("error %v (%T)", err, err)
			}
			if w.st.endOfLog() != before {
				t.Error("something was stored")
			}
		})
	}
}

func TestSendBackOfAGroupWithoutRetryQueues(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.group(t, "g", func(c *GroupConfig) { c.RetryQueueNums = 0 })
	m := w.stored(t)
	before := w.st.endOfLog()
	if err := w.sendBack(t, "g", m.LogOffset); err != nil || w.st.endOfLog() != before {
		t.Errorf("error %v, stored %v", err, w.st.endOfLog() != before)
	}
}

func TestSendToTheRetryTopic(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name            string
		reconsumed, max int32
		locked          bool
		props           string
		dead            bool
		level           int
		sysFlag         int32
	}{
		{name: "C008 no maximum, the group's is exceeded", reconsumed: 17, max: GroupMaxReconsumeTimes, dead: true},
		{name: "C008 no maximum, the group's is reached", reconsumed: 16, max: GroupMaxReconsumeTimes},
		{name: "its own maximum", reconsumed: 2, max: 1, dead: true},
		{name: "C115 its own maximum of 0", reconsumed: 1, max: 0, dead: true},
		{name: "C118 ordered consumption", reconsumed: 1, max: 16, locked: true, dead: true},
		{name: "delayed", reconsumed: 1, max: 16, props: props("DELAY", "4"), level: 4},
		{
			name:       "transaction of an old client",
			reconsumed: 1,
			max:        16,
			props:      props("TRAN_MSG", "true", "DELAY", "4"),
			level:      4,
		},
		{
			name: "a committed transaction", reconsumed: 2, max: 1, dead: true,
			props: props("TRAN_MSG", "true", "DELAY", "4"),
		},
		{name: "a committed transaction at once", max: 16, props: props("TRAN_MSG", "true")},
		{
			name: "a committed transaction of a client that takes sysFlag from TRAN_MSG", reconsumed: 1, max: 16,
			props: props("TRAN_MSG", "true", "DELAY", "4"), level: 4, sysFlag: message.TransactionPrepared,
		},
		{
			name: "the same, dead", reconsumed: 2, max: 1, dead: true,
			props: props("TRAN_MSG", "true", "DELAY", "4"), sysFlag: message.TransactionPrepared,
		},
		{
			name: "C035 malformed counters", reconsumed: 0, max: GroupMaxReconsumeTimes,
			props: "RECONSUME_TIME\x01abc\x02MAX_RECONSUME_TIMES\x01\x02",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if tt.locked {
				w.locks.Lock("g", "client", channel(1), []MessageQueue{{Topic: "T", QueueID: 0}}, time.Now())
			}
			req := w.mustSend(t, "%RETRY%g", "body", func(r *SendRequest) {
				r.ReconsumeTimes, r.MaxReconsumeTimes, r.SysFlag = tt.reconsumed, tt.max, tt.sysFlag
				r.Properties = tt.props + props("ORIGIN_MESSAGE_ID", "id0", "RETRY_TOPIC", "T")
			})
			topic, queue := "%RETRY%g", int32(0)
			switch {
			case tt.dead:
				topic = "%DLQ%g"
			case tt.level > 0:
				topic, queue = ScheduleTopic, int32(tt.level-1)
			}
			m := w.only(t, topic, queue)
			if m.ReconsumeTimes != tt.reconsumed || property(&m, "ORIGIN_MESSAGE_ID") != "id0" ||
				property(&m, "RETRY_TOPIC") != "T" {
				t.Errorf("stored %+v", m)
			}
			if want := map[bool]string{true: "-1", false: ""}[tt.dead]; tt.level == 0 &&
				property(&m, "DELAY") != want {
				t.Errorf("DELAY %q, want %q", property(&m, "DELAY"), want)
			}
			if res := req.Result(); res.QueueID != 0 {
				t.Errorf("result %+v", res)
			}
		})
	}
}

func TestSendToTheRetryTopicOfAnUnknownGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *worldConfig) { c.groups.AutoCreateDisabled = true })
	_, err := w.send(t, "%RETRY%g", "body")
	if !refusal(GroupNotExist, "subscription group not exist, g")(err) {
		t.Errorf("error %v", err)
	}
}

// TestRetriesUntilDead walks a message through all its attempts: deliver, fail, send back, until it is a dead
// letter.
func TestRetriesUntilDead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.group(t, "g", func(c *GroupConfig) { c.RetryMaxTimes = 3 })
	m := w.stored(t)
	origin := message.OffsetMsgID(testStoreHost, m.LogOffset)
	for attempt := range 3 {
		if err := w.sendBack(t, "g", m.LogOffset); err != nil {
			t.Fatal(err)
		}
		w.deliverAll(t, time.Now().Add(3*time.Hour))
		all := w.messages(t, "%RETRY%g", 0)
		if len(all) != attempt+1 {
			t.Fatalf("attempt %d: %d messages in the retry topic", attempt, len(all))
		}
		m = all[attempt]
		if m.ReconsumeTimes != int32(attempt+1) || property(&m, "ORIGIN_MESSAGE_ID") != origin ||
			property(&m, "RETRY_TOPIC") != "T" {
			t.Errorf("attempt %d: %+v", attempt, m)
		}
	}
	if err := w.sendBack(t, "g", m.LogOffset); err != nil {
		t.Fatal(err)
	}
	dead := w.only(t, "%DLQ%g", 0)
	if dead.ReconsumeTimes != 4 || property(&dead, "ORIGIN_MESSAGE_ID") != origin ||
		property(&dead, "UNIQ_KEY") != "u1" {
		t.Errorf("dead letter %+v", dead)
	}
}

// deliverAll delivers what is due at now, as Delays.Run would.
func (w *world) deliverAll(tb fataler, now time.Time) {
	tb.Helper()
	for {
		w.delays.deliver(now)
		if w.st.apply() == 0 {
			return
		}
	}
}

func TestDelayLevelsTable(t *testing.T) {
	t.Parallel()
	levels := DelayLevels(nil).orDefault()
	if len(levels) != 18 || levels.Delay(1) != time.Second || levels.Delay(18) != 2*time.Hour {
		t.Fatalf("default table %v", levels)
	}
	for asked, want := range map[int]int{-1: 0, 0: 0, 1: 1, 18: 18, 19: 18, 100: 18} {
		if got := levels.Clamp(asked); got != want {
			t.Errorf("C078 Clamp(%d) = %d, want %d", asked, got, want)
		}
	}
}
