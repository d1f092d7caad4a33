// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"maps"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/roquetmq/roquet/internal/message"
)

// asError is errors.As with a check of the error found.
func asError[E error](check func(E) bool) func(error) bool {
	return func(err error) bool {
		var e E
		return errors.As(err, &e) && (check == nil || check(e))
	}
}

// refusal is a Refusal for the reason, whose text holds text.
func refusal(reason Reason, text string) func(error) bool {
	return func(err error) bool { return errors.Is(err, reason) && strings.Contains(err.Error(), text) }
}

func denied(text string) func(error) bool { return refusal(NoPermission, text) }

func tooLarge(what string, limit, actual int) func(error) bool {
	return asError(func(e *message.SizeError) bool {
		return *e == message.SizeError{What: what, Limit: limit, Actual: actual}
	})
}

func TestSendStoresTheMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.topic(t, "T", 4)
	req := w.mustSend(t, "T", "hello", withProps("UNIQ_KEY", "u1", "TAGS", "a", "KEYS", "k"), func(r *SendRequest) {
		r.QueueID, r.Flag, r.SysFlag = 2, 7, message.SysFlagCompressed
	})
	m := w.only(t, "T", 2)
	want := map[string]string{
		"UNIQ_KEY": "u1", "TAGS": "a", "KEYS": "k", "MSG_REGION": "DefaultRegion",
		"TRACE_ON": "true", "CLUSTER": "C",
	}
	if diff := cmp.Diff(want, maps.Collect(message.Properties(m.Properties))); diff != "" {
		t.Errorf("properties (-want +got):\n%s", diff)
	}
	if string(m.Body) != "hello" || m.Flag != 7 || m.SysFlag != message.SysFlagCompressed ||
		m.BornTimestamp != 1700000000000 || m.BornHost.String() != "10.0.0.9:5000" || m.StoreHost != testStoreHost {
		t.Errorf("stored %+v", m)
	}
	res := req.Result()
	if res.QueueID != 2 || res.QueueOffset != 0 || res.UniqueKey != "u1" {
		t.Errorf("result %+v", res)
	}
	id := string(res.AppendMsgID(nil))
	host, off, err := message.ParseOffsetMsgID(id)
	if err != nil || host != testStoreHost || off != m.LogOffset {
		t.Errorf("message id %s: %v %d %v", id, host, off, err)
	}
	if n := w.stats.broker.putTimes.Load(); n != 1 {
		t.Errorf("counted %d messages", n)
	}
}

func TestSendPicksAQueueAndAKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.topic(t, "T", 4, func(c *TopicConfig) { c.WriteQueueNums = 2 })
	seen := map[int32]bool{}
	for range 50 {
		req := w.mustSend(t, "T", "b", func(r *SendRequest) { r.QueueID = -1 })
		res := req.Result()
		seen[res.QueueID] = true
		if len(res.UniqueKey) != 32 {
			t.Fatalf("made the unique key %q", res.UniqueKey)
		}
		m := res.Messages[0]
		rec, err := w.st.At("T", res.QueueID, res.QueueOffset)
		if err != nil {
			t.Fatal(err)
		}
		if key, _ := message.Property(rec.Properties(), message.PropertyUniqueKey); key != res.UniqueKey {
			t.Fatalf("stored key %q of %q", key, m.TailProperties)
		}
	}
	if !maps.Equal(seen, map[int32]bool{0: true, 1: true}) {
		t.Errorf("picked queues %v, want 0 and 1", seen)
	}
}

func TestSendRefusals(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("t", 128)
	limit := func(n int) func(*worldConfig) { return func(c *worldConfig) { c.sender.MaxMessageBytes = n } }
	noWrite := func(c *worldConfig) { c.denied = PermWrite }
	noHalf := func(c *worldConfig) { c.noHalf = true }
	tests := []struct {
		name, topic, body string
		world             func(*worldConfig)
		change            func(*SendRequest)
		want              func(error) bool
	}{
		{name: "good", topic: "T", body: "b"},
		{
			name:  "C124 topic of 128",
			topic: long,
			body:  "b",
			want:  refusal(IllegalParameter, "is longer than topic max length: 127, it has 128"),
		},
		{
			name:  "C125 dot",
			topic: "a.b",
			body:  "b",
			want:  refusal(IllegalParameter, "illegal characters"),
		},
		{name: "C127 path", topic: "../../x", body: "b", want: refusal(IllegalParameter, "illegal characters")},
		{name: "system topic", topic: ScheduleTopic, body: "b", want: denied("Sending message to topic[")},
		{name: "half topic", topic: TransHalfTopic, body: "b", want: denied("Sending message to topic[")},
		{
			name: "ordered topic without broker permission", topic: "Ordered", body: "b", world: noWrite,
			want: denied("the broker[10.0.0.1] sending message"),
		},
		{name: "other topic without broker permission", topic: "T", body: "b", world: noWrite},
		{name: "queue of read and write", topic: "Shrunk", body: "b", change: func(r *SendRequest) { r.QueueID = 7 }},
		{
			name: "queue too high", topic: "Shrunk", body: "b", change: func(r *SendRequest) { r.QueueID = 8 },
			want: refusal(IllegalParameter, "request queueId[8] is illegal, topic[Shrunk] has 8 read"),
		},
		{
			name: "no queue to write to", topic: "Closed", body: "b", change: func(r *SendRequest) { r.QueueID = -1 },
			want: refusal(IllegalParameter, "queueId[-1]"),
		},
		{name: "empty body", topic: "T", want: refusal(IllegalMessage, "the message is illegal, "+"body")},
		{name: "C037 body of the limit", topic: "T", body: strings.Repeat("x", 100), world: limit(100)},
		{
			name: "C037 body over the limit", topic: "T", body: strings.Repeat("x", 101), world: limit(100),
			want: tooLarge("message body", 100, 101),
		},
		{
			name:   "C030 x01 in a value",
			topic:  "T",
			body:   "b",
			change: func(r *SendRequest) { r.Properties = "u\x01a\x01b\x02TAGS\x01t\x02" },
			want:   asError[*message.PropertyError](nil),
		},
		{
			name: "C031 32768", topic: "T", body: "b",
			change: func(r *SendRequest) { r.Properties = props("p", strings.Repeat("v", 32765)) },
			want:   tooLarge("properties", 32767, 32768),
		},
		{
			name: "C031 65536", topic: "T", body: "b",
			change: func(r *SendRequest) { r.Properties = props("p", strings.Repeat("v", 65533)) },
			want:   tooLarge("properties", 32767, 65536),
		},
		{
			name: "transaction", topic: "T", body: "b", world: noHalf, change: withProps("TRAN_MSG", "True"),
			want: denied("sending transaction message"),
		},
		{name: "not a transaction", topic: "T", body: "b", change: withProps("TRAN_MSG", "false")},
		{
			name:   "prepared by flag",
			topic:  "T",
			body:   "b",
			world:  noHalf,
			change: func(r *SendRequest) { r.SysFlag = message.TransactionPrepared },
			want:   denied("sending transaction message"),
		},
		{
			name:   "rolled back by flag",
			topic:  "T",
			body:   "b",
			change: func(r *SendRequest) { r.SysFlag = message.TransactionRollback },
			want:   refusal(IllegalMessage, "the message is illegal, "+"sysFlag"),
		},
		{
			name:   "inner batch by flag",
			topic:  "T",
			body:   "b",
			change: func(r *SendRequest) { r.SysFlag = message.SysFlagInnerBatch },
			want:   refusal(IllegalMessage, "the message is illegal, "+"message"),
		},
		{
			name:   "inner batch by property",
			topic:  "T",
			body:   "b",
			change: withProps("INNER_NUM", "2"),
			want:   refusal(IllegalMessage, "the message is illegal, "+"message"),
		},
		{
			name: "delivery time", topic: "T", body: "b", change: withProps("TIMER_DELIVER_MS", "99999999999999"),
			want: refusal(IllegalMessage, "timer message illegal"),
		},
		{
			name: "C078 level that is no number", topic: "T", body: "b", change: withProps("DELAY", "x"),
			want: refusal(IllegalMessage, "the message is illegal, "+"property DELAY"),
		},
		{
			name: "C035 malformed counters", topic: "T", body: "b",
			change: func(r *SendRequest) { r.Properties = "RECONSUME_TIME\x01abc\x02MAX_RECONSUME_TIMES\x01\x02" },
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
			w.topic(t, "T", 4)
			w.topic(t, "Ordered", 4, func(c *TopicConfig) { c.Order = true })
			w.topic(t, "Shrunk", 8, func(c *TopicConfig) { c.WriteQueueNums = 4 })
			w.topic(t, "Closed", 4, func(c *TopicConfig) { c.WriteQueueNums = 0 })
			before := w.st.endOfLog()
			_, err := w.send(t, tt.topic, tt.body, func(r *SendRequest) {
				if tt.change != nil {
					tt.change(r)
				}
			})
			switch {
			case tt.want == nil && err != nil:
				t.Fatal(err)
			case tt.want != nil && (err == nil || !tt.want(err)):
				t.Fatalf("error %v (%T)", err, err)
			case tt.want != nil && w.st.endOfLog() != before:
				t.Error("what was refused is stored")
			}
		})
	}
}

func TestC031PropertiesMayFillTheLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.topic(t, "T", 1)
	full := props("UNIQ_KEY", "u", "p", strings.Repeat("v", 32767-len(props("UNIQ_KEY", "u", "p", ""))))
	for _, given := range []string{full, full[:len(full)-60] + "\x02"} {
		req := w.mustSend(t, "T", "b", func(r *SendRequest) { r.Properties = given })
		res := req.Result()
		rec, err := w.st.At("T", 0, res.QueueOffset)
		if err != nil || rec.Check() != nil {
			t.Fatal(err, rec.Check())
		}
		if !strings.HasPrefix(rec.Properties(), given) || res.UniqueKey != "u" {
			t.Errorf("stored %d bytes of properties, given %d", len(rec.Properties()), len(given))
		}
	}
	without := props("p", strings.Repeat("v", 32764))
	if req := w.mustSend(t, "T", "b", func(r *SendRequest) { r.Properties = without }); req.Result().UniqueKey != "" {
		t.Error("claims a unique key that there was no room for")
	}
}

func TestC161RefusedMessageLeavesNoHole(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *worldConfig) { c.sender.MaxMessageBytes = 10 })
	w.topic(t, "T", 1)
	first := w.mustSend(t, "T", "good")
	if _, err := w.send(t, "T", "more than ten bytes"); err == nil {
		t.Fatal("accepted")
	}
	second := w.mustSend(t, "T", "good")
	if a, b := first.Result().QueueOffset, second.Result().QueueOffset; a != 0 || b != 1 {
		t.Errorf("offsets %d and %d, want 0 and 1", a, b)
	}
}

func TestSendCreatesTheTopic(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, topic string
		world       func(*worldConfig)
		create      Creation
		want        *TopicConfig // name, queues and flags; nil: refused
	}{
		{"as the client asks", "New", nil, Creation{AutoCreateTopic, 4, false}, &TopicConfig{WriteQueueNums: 4}},
		{
			"no more than the default topic has",
			"New",
			nil,
			Creation{AutoCreateTopic, 16, false},
			&TopicConfig{WriteQueueNums: 8},
		},
		{"unit", "New", nil, Creation{AutoCreateTopic, 4, true}, &TopicConfig{WriteQueueNums: 4, SysFlag: 1}},
		{"unknown default topic", "New", nil, Creation{"nope", 4, false}, nil},
		{
			"auto creation off", "New", func(c *worldConfig) { c.topics.AutoCreateDisabled = true },
			Creation{AutoCreateTopic, 4, false},
			nil,
		},
		{
			"C128 auto creation off, default topic is the cluster", "New",
			func(c *worldConfig) { c.topics.AutoCreateDisabled = true },
			Creation{"C", 4, false},
			nil,
		},
		{
			"retry topic with auto creation off",
			"%RETRY%g",
			func(c *worldConfig) { c.topics.AutoCreateDisabled = true },
			Creation{AutoCreateTopic, 4, true},
			&TopicConfig{WriteQueueNums: 1, SysFlag: 2},
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
			_, err := w.send(t, tt.topic, "b", func(r *SendRequest) { r.Create = tt.create })
			got, ok := w.topics.Lookup(tt.topic)
			if tt.want == nil {
				if !refusal(
					TopicNotExist,
					"topic[New] not exist, apply first please! create topic New on send",
				)(
					err,
				) ||
					ok {
					t.Errorf("error %v, topic exists %v", err, ok)
				}
				return
			}
			if err != nil || !ok {
				t.Fatalf("error %v, topic exists %v", err, ok)
			}
			if got.WriteQueueNums != tt.want.WriteQueueNums || got.SysFlag != tt.want.SysFlag {
				t.Errorf("created %+v", got)
			}
			w.only(t, tt.topic, 0)
		})
	}
}

// Sends to a topic are stored in the order they came also while it is being created: whoever comes when it is there
// already, but not all who waited for it went on, does not pass them. Nor does who comes while a failed creation ends.
func TestSendsWaitTheirTurn(t *testing.T) {
	t.Parallel()
	const topic = "New"
	w := newWorld(t)
	var answers []error
	send := func(body string) {
		w.sender.Send(&SendRequest{
			Topic: topic, Body: []byte(body), QueueID: 0, Create: Creation{AutoCreateTopic, 1, false},
			BornTimestamp: 1, BornHost: testStoreHost,
			Done: func(_ *SendRequest, err error) { answers = append(answers, err) },
		})
	}
	ensured := func(told string) {
		w.topics.EnsureForSend(topic, AutoCreateTopic, 1, 0, func(*TopicConfig, error) { send(told) })
	}
	w.topics.OnChange(func([]string) { send("4") }) // Lookup shows it, nobody has been told
	send("1")
	ensured("5") // who waited is told
	send("2")
	ensured("6")
	send("3")
	w.st.apply()
	for i, m := range w.messages(t, topic, 0) {
		if string(m.Body) != strconv.Itoa(i+1) {
			t.Errorf("message %d is %s", i+1, m.Body)
		}
	}
	if len(answers) != 6 || errors.Join(answers...) != nil {
		t.Errorf("answers %v", answers)
	}

	w, answers = newWorld(t), nil
	w.st.setErrors(nil, errors.New("full"))
	ensured("3")
	send("1")
	w.topics.EnsureForSend(topic, AutoCreateTopic, 1, 0, func(*TopicConfig, error) {
		w.st.setErrors(nil, nil)
		send("2")
	})
	w.st.apply()
	if len(answers) != 3 || answers[0] == nil || errors.Join(answers[1:]...) != nil {
		t.Errorf("answers after a failure %v", answers)
	}
	if n := len(w.messages(t, topic, 0)); n != 2 || w.topics.table.heads.Load() != 0 {
		t.Errorf("%d messages after a failure, %d names not at rest", n, w.topics.table.heads.Load())
	}
}

// What is being changed is there all the while, whether names like it are created by themselves or not.
func TestChangesDoNotHideNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *worldConfig) { c.topics.AutoCreateDisabled, c.groups.AutoCreateDisabled = true, true })
	w.group(t, "g")
	w.topic(t, "T", 1)
	retry := RetryTopic("g")
	w.topics.EnsureRetry("g", 1, false, false, func(*TopicConfig, error) {})
	w.st.apply()
	var put outcome
	for i, name := range []string{"T", retry} {
		cfg, _ := w.topics.Lookup(name)
		changed := cloneTopic(*cfg)
		changed.ReadQueueNums++
		w.topics.table.change(name, func(*TopicConfig) (*TopicConfig, error) { return &changed, nil }, put.done)
		group := NewGroupConfig("g")
		group.RetryMaxTimes = int32(3 + i)
		w.groups.PutAll([]GroupConfig{group}, put.done)
		w.mustSend(t, name, "b")
	}
	put.want(t, 4, true)
}

func TestSendPassesTheStoresErrorOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.topic(t, "T", 1)
	w.st.refuse = errors.New("full")
	if _, err := w.send(t, "T", "b"); !errors.Is(err, w.st.refuse) {
		t.Errorf("refused append: %v", err)
	}
	w.st.refuse = nil
	w.st.fail = errors.New("broken")
	if _, err := w.send(t, "T", "b"); !errors.Is(err, w.st.fail) {
		t.Errorf("failed append: %v", err)
	}
	if n := w.stats.broker.putFailed.Load(); n != 1 {
		t.Errorf("counted %d failures", n)
	}
}

func TestSendStripsPopCK(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.topic(t, "T", 1)
	w.mustSend(t, "T", "b", withProps("a", "b", "POP_CK", "handle", "TAGS", "t"))
	m := w.only(t, "T", 0)
	if property(&m, "POP_CK") != "" || property(&m, "TAGS") != "t" || property(&m, "a") != "b" {
		t.Errorf("properties %q", m.Properties)
	}
}

func TestC036UserPropertiesRoundTrip(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.topic(t, "T", 1)
	want := map[string]string{"location": "Beijing,China", "q": "a=b=c", "spaces": "   ", "emoji": "😀"}
	var enc []byte
	for name, value := range want {
		enc = message.AppendProperty(enc, name, value)
	}
	w.mustSend(t, "T", "b", func(r *SendRequest) { r.Properties = string(enc) })
	m := w.only(t, "T", 0)
	for name, value := range want {
		if got := property(&m, name); got != value {
			t.Errorf("%s is %q, want %q", name, got, value)
		}
	}
}

func TestMultiTagTopicMarksItsMessages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.topic(t, "T", 1, func(c *TopicConfig) { c.FilterType = multiTagFilter })
	w.mustSend(t, "T", "b")
	if m := w.only(t, "T", 0); m.SysFlag&message.SysFlagMultiTags == 0 {
		t.Errorf("sysFlag %#x", m.SysFlag)
	}
}

func TestC149IPv6Producer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.topic(t, "T", 1)
	born := netip.MustParseAddrPort("[2001:db8::1]:5000")
	w.mustSend(t, "T", "b", func(r *SendRequest) { r.BornHost = born })
	if m := w.only(t, "T", 0); m.BornHost != born || m.SysFlag&message.SysFlagBornHostV6 == 0 {
		t.Errorf("born host %v, sysFlag %#x", m.BornHost, m.SysFlag)
	}
}

func TestSendAllocations(t *testing.T) {
	w := newWorld(t)
	w.topic(t, "T", 4)
	body, text := []byte("body"), props("UNIQ_KEY", "u1", "TAGS", "a", "KEYS", "k", "WAIT", "true")
	done := func(*SendRequest, error) {}
	w.sender.store = discard{}
	n := testing.AllocsPerRun(100, func() {
		req := &SendRequest{Topic: "T", QueueID: 1, Body: body, Properties: text, MaxReconsumeTimes: -1, Done: done}
		w.sender.Send(req)
	})
	if n > 1 {
		t.Errorf("%v allocations, want 1: the request", n)
	}
}

func BenchmarkSend(b *testing.B) {
	w := newWorld(b)
	w.topic(b, "T", 4)
	body, text := []byte("body"), props("UNIQ_KEY", "u1", "TAGS", "a", "KEYS", "k", "WAIT", "true")
	done := func(*SendRequest, error) {}
	w.sender.store = discard{}
	b.ReportAllocs()
	for b.Loop() {
		req := &SendRequest{Topic: "T", QueueID: 1, Body: body, Properties: text, MaxReconsumeTimes: -1, Done: done}
		w.sender.Send(req)
	}
}

// The numbers are those of Hashing.consistentHash of guava 32.0.1, with Java's String.hashCode of the key.
func TestConsistentHashIsGuavas(t *testing.T) {
	t.Parallel()
	buckets := []int32{1, 2, 3, 4, 8, 16, 100, 65535}
	for key, want := range map[string][]int32{
		"a":          {0, 0, 0, 0, 0, 0, 29, 49599},
		"order-1":    {0, 0, 0, 3, 3, 3, 3, 12831},
		"order-2":    {0, 0, 2, 2, 2, 11, 46, 51604},
		"order-3":    {0, 1, 1, 3, 7, 7, 35, 29494},
		"order-4":    {0, 1, 2, 2, 6, 13, 31, 62707},
		"group-0":    {0, 1, 1, 1, 1, 1, 67, 22122},
		"group-17":   {0, 1, 1, 3, 7, 7, 34, 37241},
		"用户-42":      {0, 1, 2, 2, 7, 8, 86, 33957},
		"zzzzzzzzzz": {0, 0, 2, 2, 2, 2, 81, 39376},
		"-":          {0, 1, 1, 3, 3, 3, 76, 46256},
		"Aa":         {0, 1, 1, 1, 5, 14, 14, 48121},
		"BB":         {0, 1, 1, 1, 5, 14, 14, 48121},
	} {
		for i, n := range buckets {
			if got := consistentHash(message.TagsCode(key), n); got != want[i] {
				t.Errorf("%q over %d: %d, want %d", key, n, got, want[i])
			}
		}
	}
}
