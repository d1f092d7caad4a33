// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"
	"strings"
	"testing"

	"github.com/roquetmq/roquet/internal/message"
)

// batch encodes a batch of bodies with properties: body, properties, body, properties …
func batch(pairs ...string) []byte {
	var dst []byte
	for i := 0; i < len(pairs); i += 2 {
		dst = message.AppendBatchEntry(dst, int32(i/2), []byte(pairs[i]), pairs[i+1])
	}
	return dst
}

func asBatch(body []byte) func(*SendRequest) {
	return func(req *SendRequest) { req.Batch, req.Body = true, body }
}

func TestBatchIsStoredTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.topic(t, "T", 4)
	w.mustSend(t, "T", "before")
	body := batch("one", props("UNIQ_KEY", "u1", "TAGS", "a"), "two", "", "three", props("KEYS", "k"))
	req := w.mustSend(t, "T", "", asBatch(body))
	all := w.messages(t, "T", 0)
	if len(all) != 4 {
		t.Fatalf("%d messages", len(all))
	}
	var ids []string
	for i, want := range []string{"one", "two", "three"} {
		m := all[i+1]
		if string(m.Body) != want || m.QueueOffset != message.QueueOffset(i+1) || m.Flag != int32(i) {
			t.Errorf("message %d: %q at %d, flag %d", i, m.Body, m.QueueOffset, m.Flag)
		}
		ids = append(ids, message.OffsetMsgID(testStoreHost, m.LogOffset))
	}
	if all[1].Properties != props("UNIQ_KEY", "u1", "TAGS", "a") || all[2].Properties != "" {
		t.Errorf("properties %q, %q: not as they came", all[1].Properties, all[2].Properties)
	}
	res := req.Result()
	if got := string(
		res.AppendMsgID(nil),
	); got != strings.Join(ids, ",") || res.QueueOffset != 1 ||
		res.UniqueKey != "" {
		t.Errorf("ids %s, offset %d, key %q", got, res.QueueOffset, res.UniqueKey)
	}
	if w.st.writes != 3 { // the topic, and one write for each send
		t.Errorf("%d writes", w.st.writes)
	}
}

func TestBatchRefusals(t *testing.T) {
	t.Parallel()
	bad := func(pairs ...string) []byte { return batch("good", "", "bad", props(pairs...), "good", "") }
	tests := []struct {
		name   string
		topic  string
		body   []byte
		change func(*SendRequest)
		want   func(error) bool
	}{
		{name: "good", body: batch("b", "")},
		{
			name: "C028 member with DELAY",
			body: bad("DELAY", "3"),
			want: refusal(IllegalMessage, "the message is illegal, "+"message"),
		},
		{
			name: "C028 member with TIMER_DELAY_SEC",
			body: bad("TIMER_DELAY_SEC", "10"),
			want: refusal(IllegalMessage, "the message is illegal, "+"message"),
		},
		{
			name: "C028 member with TIMER_DELAY_MS",
			body: bad("TIMER_DELAY_MS", "10"),
			want: refusal(IllegalMessage, "the message is illegal, "+"message"),
		},
		{
			name: "C028 member with TIMER_DELIVER_MS",
			body: bad("TIMER_DELIVER_MS", "10"),
			want: refusal(IllegalMessage, "the message is illegal, "+"message"),
		},
		{name: "member with delay 0", body: bad("DELAY", "0")},
		{
			name: "member with a transaction",
			body: bad("TRAN_MSG", "true"),
			want: refusal(IllegalMessage, "the message is illegal, "+"message"),
		},
		{
			name: "inner batch member",
			body: bad("INNER_NUM", "2"),
			want: refusal(IllegalMessage, "the message is illegal, "+"message"),
		},
		{
			name:   "batch with DELAY",
			body:   batch("b", ""),
			change: withProps("DELAY", "3"),
			want:   refusal(IllegalMessage, "the message is illegal, "+"message"),
		},
		{
			name:   "batch with a transaction",
			body:   batch("b", ""),
			change: func(r *SendRequest) { r.SysFlag = message.TransactionPrepared },
			want:   refusal(IllegalMessage, "the message is illegal, "+"message"),
		},
		{
			name: "empty member",
			body: batch("b", "", "", ""),
			want: refusal(IllegalMessage, "the message is illegal, "+"body"),
		},
		{name: "no member", body: []byte{}, want: refusal(IllegalMessage, "the message is illegal, "+"body")},
		{name: "cut", body: batch("b", "")[:20], want: asError[*message.FormatError](nil)},
		{
			name: "C030 separator in a member",
			body: batch("b", "a\x01b\x01c\x02"),
			want: asError[*message.PropertyError](nil),
		},
		{name: "C031 32767 in a member", body: batch("b", props("p", strings.Repeat("v", 32764)))},
		{
			name: "C031 32768 in a member", body: batch("b", props("p", strings.Repeat("v", 32765))),
			want: tooLarge("properties", 32767, 32768),
		},
		{
			name: "C031 65536 in a member", body: batch("b", props("p", strings.Repeat("v", 65533))),
			want: asError[*message.FormatError](nil),
		},
		{
			name:  "retry topic",
			topic: "%RETRY%g",
			body:  batch("b", ""),
			want:  refusal(IllegalMessage, "the message is illegal, "+"batch request"),
		},
		{
			name: "long retry topic", topic: "%RETRY%" + strings.Repeat("g", 121), body: batch("b", ""),
			want: tooLarge("topic", 127, 128),
		},
		{
			name: "too large", body: batch(strings.Repeat("x", 1<<20), "", strings.Repeat("x", 1<<20), ""),
			want: tooLarge("message body", 2<<20, 2<<20+44),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(c *worldConfig) { c.sender.MaxMessageBytes = 2 << 20 })
			w.topic(t, "T", 4)
			topic := tt.topic
			if topic == "" {
				topic = "T"
			}
			if topic != "T" {
				var o outcome
				w.topics.EnsureTopic(
					TopicConfig{Name: topic, ReadQueueNums: 1, WriteQueueNums: 1, Perm: 6},
					o.gotTopic,
				)
				w.st.apply()
			}
			before := w.st.endOfLog()
			_, err := w.send(t, topic, "", asBatch(tt.body), func(r *SendRequest) {
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
				t.Error("something of what was refused is stored")
			}
		})
	}
}

func TestC029BatchGoesToTheHeadersTopic(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.topic(t, "T", 4)
	w.topic(t, "Other", 4)
	w.mustSend(t, "T", "", asBatch(batch("one", "", "two", props("REAL_TOPIC", "Other", "REAL_QID", "1"))),
		func(r *SendRequest) { r.QueueID = 3 })
	if n := len(w.messages(t, "T", 3)); n != 2 {
		t.Errorf("%d messages in the topic of the header, want 2", n)
	}
	for id := range int32(4) {
		if n := len(w.messages(t, "Other", id)); n != 0 {
			t.Errorf("%d messages in another topic", n)
		}
	}
}

func BenchmarkSendBatch(b *testing.B) {
	w := newWorld(b)
	w.topic(b, "T", 4)
	var body []byte
	for i := range 32 {
		body = message.AppendBatchEntry(
			body,
			0,
			make([]byte, 1024),
			props("UNIQ_KEY", fmt.Sprint("key", i), "WAIT", "true"),
		)
	}
	done := func(*SendRequest, error) {}
	w.sender.store = discard{}
	b.ReportAllocs()
	for b.Loop() {
		w.sender.Send(&SendRequest{Topic: "T", QueueID: 1, Body: body, Batch: true, Done: done})
	}
}
