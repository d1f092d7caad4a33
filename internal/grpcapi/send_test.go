// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"bytes"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// plain is a message that nothing is wrong with.
func plain(topic string, change func(m *v2.Message)) *v2.Message {
	m := &v2.Message{
		Topic: resource(topic), Body: []byte("hello"), UserProperties: map[string]string{},
		SystemProperties: &v2.SystemProperties{
			MessageId: "01ABC", MessageType: v2.MessageType_NORMAL, BodyEncoding: v2.Encoding_IDENTITY,
			BornTimestamp: timestamppb.New(time.UnixMilli(1_700_000_000_123)), BornHost: "client-host",
		},
	}
	if change != nil {
		change(m)
	}
	return m
}

// What the original refuses, with its code, one line a rule. Cases C015, C016, C017, C018, C031, C037.
//
//lint:long one table
func TestSendIsChecked(t *testing.T) {
	t.Parallel()
	d := newDoor(t, func(c *Config) { c.MaxBodyBytes = func() int { return 1000 } })
	d.broker.on(protocol.SendMessageV2, replySend)
	sys := func(change func(s *v2.SystemProperties)) func(*v2.Message) {
		return func(m *v2.Message) { change(m.GetSystemProperties()) }
	}
	user := func(name, value string) func(*v2.Message) {
		return func(m *v2.Message) { m.UserProperties[name] = value }
	}
	typed := func(typ v2.MessageType, change func(s *v2.SystemProperties)) func(*v2.Message) {
		return sys(func(s *v2.SystemProperties) {
			s.MessageType = typ
			if change != nil {
				change(s)
			}
		})
	}
	soon := timestamppb.New(time.Now().Add(time.Minute))
	delayed := func(s *v2.SystemProperties) { s.DeliveryTimestamp = soon }
	grouped := func(s *v2.SystemProperties) { s.MessageGroup = proto.String("g") }
	for _, tc := range []struct {
		name   string
		topic  string
		change func(*v2.Message)
		want   v2.Code
		says   string
	}{
		{"good", "normal", nil, v2.Code_OK, ""},
		{"topic blank", " ", nil, v2.Code_ILLEGAL_TOPIC, "blank"},
		{"topic with a dollar sign", "a$b", nil, v2.Code_ILLEGAL_TOPIC, "illegal characters"},
		{"system topic", "TBW102", nil, v2.Code_ILLEGAL_TOPIC, "system topic"},
		{"topic for reading", "readonly", nil, v2.Code_FORBIDDEN, "no writable queue: topic readonly has 8"},
		{"topic unknown", "nowhere", nil, v2.Code_TOPIC_NOT_FOUND, "nowhere"},
		{"body empty", "normal", func(m *v2.Message) { m.Body = nil }, v2.Code_MESSAGE_BODY_EMPTY, "empty"},
		{"body of the limit", "normal", func(m *v2.Message) { m.Body = make([]byte, 1000) }, v2.Code_OK, ""},
		{
			"body over the limit", "normal", func(m *v2.Message) { m.Body = make([]byte, 1001) }, v2.Code_MESSAGE_BODY_TOO_LARGE,
			"max 1000, it has 1001",
		},
		{"128 properties", "normal", func(m *v2.Message) { m.UserProperties = many(128) }, v2.Code_OK, ""},
		{"129 properties", "normal", func(m *v2.Message) { m.UserProperties = many(129) }, v2.Code_MESSAGE_PROPERTIES_TOO_LARGE, "128"},
		{"property of the system", "normal", user("TAGS", "x"), v2.Code_ILLEGAL_MESSAGE_PROPERTY_KEY, "TAGS"},
		{"property POP_CK", "normal", user("POP_CK", "x"), v2.Code_ILLEGAL_MESSAGE_PROPERTY_KEY, "POP_CK"},
		{"property name empty", "normal", user("", "x"), v2.Code_ILLEGAL_MESSAGE_PROPERTY_KEY, "empty"},
		{"property value with \\x01", "normal", user("a", "a\x01b"), v2.Code_ILLEGAL_MESSAGE_PROPERTY_KEY, "value"},
		{"property name with \\x02", "normal", user("k\x02", "v"), v2.Code_ILLEGAL_MESSAGE_PROPERTY_KEY, "key"},
		{"property value with a line feed", "normal", user("a", "\n"), v2.Code_ILLEGAL_MESSAGE_PROPERTY_KEY, "value"},
		{"property value with DEL", "normal", user("a", "\x7f"), v2.Code_ILLEGAL_MESSAGE_PROPERTY_KEY, "value"},
		{"property value with U+009F", "normal", user("a", "\u009f"), v2.Code_ILLEGAL_MESSAGE_PROPERTY_KEY, "value"},
		{"property value unicode", "normal", user("ключ", "值"), v2.Code_OK, ""},
		{"tag blank", "normal", sys(func(s *v2.SystemProperties) { s.Tag = proto.String("  ") }), v2.Code_ILLEGAL_MESSAGE_TAG, "whitespace"},
		{"tag empty", "normal", sys(func(s *v2.SystemProperties) { s.Tag = proto.String("") }), v2.Code_OK, ""},
		{"tag with a bar", "normal", sys(func(s *v2.SystemProperties) { s.Tag = proto.String("a|b") }), v2.Code_ILLEGAL_MESSAGE_TAG, "'|'"},
		{"tag with control", "normal", sys(func(s *v2.SystemProperties) { s.Tag = proto.String("a\tb") }), v2.Code_ILLEGAL_MESSAGE_TAG, "control"},
		{"key blank", "normal", sys(func(s *v2.SystemProperties) { s.Keys = []string{"ok", " "} }), v2.Code_ILLEGAL_MESSAGE_KEY, "whitespace"},
		{"key with control", "normal", sys(func(s *v2.SystemProperties) { s.Keys = []string{"\x00"} }), v2.Code_ILLEGAL_MESSAGE_KEY, "control"},
		{"properties of 16 KiB", "normal", user("k", strings.Repeat("v", 16<<10-1)), v2.Code_OK, ""},
		{"properties over 16 KiB", "normal", user("k", strings.Repeat("v", 16<<10)), v2.Code_MESSAGE_PROPERTIES_TOO_LARGE, "16384"},
		{"tag counts too", "normal", func(m *v2.Message) {
			m.UserProperties["k"] = strings.Repeat("v", 16<<10-1)
			m.GetSystemProperties().Tag = proto.String("t")
		}, v2.Code_MESSAGE_PROPERTIES_TOO_LARGE, "16384"},
		{"id blank", "normal", sys(func(s *v2.SystemProperties) { s.MessageId = " " }), v2.Code_ILLEGAL_MESSAGE_ID, "empty"},
		{"id with control", "normal", sys(func(s *v2.SystemProperties) { s.MessageId = "a\x02" }), v2.Code_ILLEGAL_MESSAGE_ID, "control"},
		{"recovery of an hour", "transaction", typed(v2.MessageType_TRANSACTION, func(s *v2.SystemProperties) {
			s.OrphanedTransactionRecoveryDuration = durationpb.New(time.Hour)
		}), v2.Code_OK, ""},
		{"recovery too late", "transaction", typed(v2.MessageType_TRANSACTION, func(s *v2.SystemProperties) {
			s.OrphanedTransactionRecoveryDuration = durationpb.New(time.Hour + time.Second)
		}), v2.Code_BAD_REQUEST, "3600"},
		{"delay of 39 days", "delay", typed(v2.MessageType_DELAY, func(s *v2.SystemProperties) {
			s.DeliveryTimestamp = timestamppb.New(time.Now().Add(39 * 24 * time.Hour))
		}), v2.Code_OK, ""},
		{"delay too long", "delay", typed(v2.MessageType_DELAY, func(s *v2.SystemProperties) {
			s.DeliveryTimestamp = timestamppb.New(time.Now().Add(40*24*time.Hour + time.Minute))
		}), v2.Code_ILLEGAL_DELIVERY_TIME, "too large"},
		{"delivery in 9999, farther than a duration reaches", "delay", typed(v2.MessageType_DELAY, func(s *v2.SystemProperties) {
			s.DeliveryTimestamp = &timestamppb.Timestamp{Seconds: 253402300799}
		}), v2.Code_ILLEGAL_DELIVERY_TIME, "asked for 251"},
		{"priority negative", "priority", typed(v2.MessageType_PRIORITY, func(s *v2.SystemProperties) {
			s.Priority = proto.Int32(-1)
		}), v2.Code_BAD_REQUEST, "-1, wanted 0 or more"},
		{"C074 delivery time negative", "delay", typed(v2.MessageType_DELAY, func(s *v2.SystemProperties) {
			s.DeliveryTimestamp = timestamppb.New(time.UnixMilli(-1))
		}), v2.Code_ILLEGAL_DELIVERY_TIME, "negative: -1 ms"},
		{"C074 delivery time past", "delay", typed(v2.MessageType_DELAY, func(s *v2.SystemProperties) {
			s.DeliveryTimestamp = timestamppb.New(time.UnixMilli(0))
		}), v2.Code_OK, ""},
		{
			"group blank", "fifo", typed(v2.MessageType_FIFO, func(s *v2.SystemProperties) { s.MessageGroup = proto.String(" ") }),
			v2.Code_ILLEGAL_MESSAGE_GROUP, "whitespace",
		},
		{"group of 63 bytes", "fifo", typed(v2.MessageType_FIFO, func(s *v2.SystemProperties) {
			s.MessageGroup = proto.String(strings.Repeat("g", 63))
		}), v2.Code_OK, ""},
		{"group of 64 bytes", "fifo", typed(v2.MessageType_FIFO, func(s *v2.SystemProperties) {
			s.MessageGroup = proto.String(strings.Repeat("g", 64))
		}), v2.Code_ILLEGAL_MESSAGE_GROUP, "64"},
		{
			"group with control", "fifo", typed(v2.MessageType_FIFO, func(s *v2.SystemProperties) { s.MessageGroup = proto.String("a\nb") }),
			v2.Code_ILLEGAL_MESSAGE_GROUP, "control",
		},
		{"lite topic", "normal", sys(func(s *v2.SystemProperties) { s.LiteTopic = proto.String("a b") }), v2.Code_ILLEGAL_LITE_TOPIC, "a b"},
		{
			"trace context with a separator", "normal", sys(func(s *v2.SystemProperties) { s.TraceContext = proto.String("a\x01") }),
			v2.Code_MESSAGE_CORRUPTED, "U+0001",
		},
		{
			"fifo to a normal topic", "normal", typed(v2.MessageType_FIFO, grouped), v2.Code_MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
			"expected type is NORMAL, but actual type is FIFO",
		},
		{"normal to a fifo topic", "fifo", nil, v2.Code_MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, "FIFO"},
		{"everything to a mixed topic", "mixed", typed(v2.MessageType_FIFO, grouped), v2.Code_OK, ""},
		{"group on a normal message", "mixed", sys(grouped), v2.Code_MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, "NORMAL"},
		{"delay on a normal message", "mixed", sys(delayed), v2.Code_MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, "DELAY"},
		{
			"delayed transaction", "mixed", typed(v2.MessageType_TRANSACTION, delayed), v2.Code_MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
			"TRANSACTION and DELAY",
		},
		{
			"delayed fifo", "mixed", typed(v2.MessageType_FIFO, func(s *v2.SystemProperties) { delayed(s); grouped(s) }),
			v2.Code_MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, "DELAY and FIFO",
		},
		{"fifo without a group", "fifo", typed(v2.MessageType_FIFO, nil), v2.Code_MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, "FIFO"},
		{"delay without a time", "delay", typed(v2.MessageType_DELAY, nil), v2.Code_MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, "DELAY"},
		{"type left open", "fifo", typed(v2.MessageType_MESSAGE_TYPE_UNSPECIFIED, grouped), v2.Code_OK, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := len(d.broker.seen(protocol.SendMessageV2))
			answer, err := d.client.SendMessage(as(t, "c1"), &v2.SendMessageRequest{
				Messages: []*v2.Message{plain(tc.topic, tc.change)},
			})
			if err != nil {
				t.Fatal(err)
			}
			wantCode(t, answer.GetStatus(), tc.want)
			if !strings.Contains(answer.GetStatus().GetMessage(), tc.says) {
				t.Errorf("message %q, want %q in it", answer.GetStatus().GetMessage(), tc.says)
			}
			stored := len(d.broker.seen(protocol.SendMessageV2)) - before
			if good := tc.want == v2.Code_OK; good != (stored == 1) || good != (len(answer.GetEntries()) == 1) {
				t.Errorf("%d calls, %d entries", stored, len(answer.GetEntries()))
			}
		})
	}
}

func many(n int) map[string]string {
	m := map[string]string{}
	for i := range n {
		m[fmt.Sprint("p", i)] = "v"
	}
	return m
}

func replySend(c *remoting.Call) {
	c.Reply(remoting.Response{Header: &protocol.SendMessageResponseHeader{
		MsgID:         "0A00000200002A9F0000000000000400",
		QueueID:       1,
		QueueOffset:   42,
		TransactionID: "01ABC",
		RecallHandle:  "recall-me",
	}})
}

func TestSendBecomesACall(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	d.broker.on(protocol.SendMessageV2, replySend)
	at := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	for _, tc := range []struct {
		name   string
		topic  string
		change func(*v2.Message)
		want   map[string]string
		flags  int32
	}{
		{"normal", "normal", func(m *v2.Message) {
			m.UserProperties["color"] = "red"
			m.GetSystemProperties().Tag = proto.String("tag")
			m.GetSystemProperties().Keys = []string{"k1", "k2"}
			m.GetSystemProperties().TraceContext = proto.String("00-trace")
		}, map[string]string{"color": "red", "TAGS": "tag", "KEYS": "k1 k2", "TRACE_CONTEXT": "00-trace"}, 0},
		{"compressed", "normal", func(m *v2.Message) { m.GetSystemProperties().BodyEncoding = v2.Encoding_GZIP }, nil, 1},
		{"fifo", "fifo", func(m *v2.Message) {
			m.GetSystemProperties().MessageType = v2.MessageType_FIFO
			m.GetSystemProperties().MessageGroup = proto.String("order-4")
		}, map[string]string{"__SHARDINGKEY": "order-4"}, 0},
		{"delayed", "delay", func(m *v2.Message) {
			m.GetSystemProperties().MessageType = v2.MessageType_DELAY
			m.GetSystemProperties().DeliveryTimestamp = timestamppb.New(at)
		}, map[string]string{"TIMER_DELIVER_MS": fmt.Sprint(at.UnixMilli())}, 0},
		{"transaction", "transaction", func(m *v2.Message) {
			m.GetSystemProperties().MessageType = v2.MessageType_TRANSACTION
			m.GetSystemProperties().OrphanedTransactionRecoveryDuration = durationpb.New(30 * time.Second)
		}, map[string]string{"TRAN_MSG": "true", "CHECK_IMMUNITY_TIME_IN_SECONDS": "30"}, 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			answer, err := d.client.SendMessage(as(t, "c1"), &v2.SendMessageRequest{
				Messages: []*v2.Message{plain(tc.topic, tc.change)},
			})
			if err != nil {
				t.Fatal(err)
			}
			wantCode(t, answer.GetStatus(), v2.Code_OK)
			entry := answer.GetEntries()[0]
			if entry.GetMessageId() != "01ABC" || entry.GetTransactionId() != "01ABC" || entry.GetOffset() != 42 ||
				entry.GetRecallHandle() != "recall-me" {
				t.Errorf("entry %v", entry)
			}
			seen := d.broker.seen(protocol.SendMessageV2)
			h, _ := seen[len(seen)-1].(*protocol.SendMessageRequestHeader)
			if h.Topic != tc.topic || h.ProducerGroup != tc.topic || h.SysFlag != tc.flags || h.QueueID != anyQueue ||
				h.BornTimestamp != 1_700_000_000_123 {
				t.Errorf("header %+v", h)
			}
			want := map[string]string{
				"UNIQ_KEY":       "01ABC",
				"PGROUP":         tc.topic,
				"__BORNHOST":     "client-host",
				"BORN_TIMESTAMP": "1700000000123",
			}
			maps.Copy(want, tc.want)
			got := maps.Collect(message.Properties(h.Properties))
			if !maps.Equal(got, want) {
				t.Errorf("properties %v, want %v", got, want)
			}
		})
	}
}

func TestSendBatch(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	var body []byte
	d.broker.on(protocol.SendBatchMessage, func(c *remoting.Call) {
		body = bytes.Clone(c.Body)
		replySend(c)
	})
	send := func(messages ...*v2.Message) *v2.SendMessageResponse {
		answer, err := d.client.SendMessage(as(t, "c1"), &v2.SendMessageRequest{Messages: messages})
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	id := func(id, group string) *v2.Message {
		return plain("mixed", func(m *v2.Message) {
			m.Body = []byte("body " + id)
			m.GetSystemProperties().MessageId = id
			if group != "" {
				m.GetSystemProperties().MessageType = v2.MessageType_FIFO
				m.GetSystemProperties().MessageGroup = proto.String(group)
			}
		})
	}
	answer := send(id("A", ""), id("B", ""), id("C", ""))
	wantCode(t, answer.GetStatus(), v2.Code_OK)
	var ids []string
	for i, e := range answer.GetEntries() {
		ids = append(ids, e.GetMessageId())
		if e.GetOffset() != int64(42+i) || e.GetStatus().GetCode() != v2.Code_OK {
			t.Errorf("entry %v", e)
		}
	}
	if text(ids) != "[A B C]" {
		t.Errorf("ids %v", ids)
	}
	var stored []string
	err := message.DecodeBatch(body, func(_ int32, b []byte, props string) error {
		id, _ := message.Property(props, message.PropertyUniqueKey)
		stored = append(stored, id+"="+string(b))
		return nil
	})
	if err != nil || text(stored) != "[A=body A B=body B C=body C]" {
		t.Errorf("stored %v, %v", stored, err)
	}

	wantCode(t, send(id("A", "g1"), id("B", "g1")).GetStatus(), v2.Code_OK)
	seen := d.broker.seen(protocol.SendBatchMessage)
	if h, _ := seen[1].(*protocol.SendMessageRequestHeader); h.QueueID != anyQueue ||
		!h.Batch.Value {
		t.Errorf("header %+v", h)
	}
	wantCode(t, send(id("A", "g1"), id("B", "g2")).GetStatus(), v2.Code_ILLEGAL_MESSAGE_GROUP)
	wantCode(t, send(id("A", ""), plain("normal", nil)).GetStatus(), v2.Code_MESSAGE_CORRUPTED)
	wantCode(t, send().GetStatus(), v2.Code_MESSAGE_CORRUPTED)
}

func TestSendFailures(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	for _, tc := range []struct {
		code    protocol.ResponseCode
		want    v2.Code
		entries int
	}{
		{protocol.SystemBusy, v2.Code_TOO_MANY_REQUESTS, 0},
		{protocol.NoPermission, v2.Code_FORBIDDEN, 0},
		{protocol.MessageIllegal, v2.Code_MESSAGE_CORRUPTED, 0},
		{protocol.ServiceNotAvailable, v2.Code_INTERNAL_SERVER_ERROR, 0},
		{protocol.FlushDiskTimeout, v2.Code_MASTER_PERSISTENCE_TIMEOUT, 1},
		{protocol.FlushSlaveTimeout, v2.Code_SLAVE_PERSISTENCE_TIMEOUT, 1},
		{protocol.SlaveNotAvailable, v2.Code_HA_NOT_AVAILABLE, 1},
	} {
		d.broker.on(protocol.SendMessageV2, func(c *remoting.Call) {
			c.Reply(remoting.Response{Code: tc.code, Remark: "because"})
		})
		answer, err := d.client.SendMessage(
			as(t, "c1"),
			&v2.SendMessageRequest{Messages: []*v2.Message{plain("normal", nil)}},
		)
		if err != nil {
			t.Fatal(err)
		}
		wantCode(t, answer.GetStatus(), tc.want)
		if len(answer.GetEntries()) != tc.entries || answer.GetStatus().GetMessage() != "because" {
			t.Errorf("%s: %v", tc.code, answer)
		}
	}
}

// What the sender's own clock says is not believed where it matters, and a client without an address still has one.
func TestSendWithoutBirth(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	d.broker.on(protocol.SendMessageV2, replySend)
	before := time.Now().UnixMilli()
	answer, err := d.client.SendMessage(
		as(t, "c1"),
		&v2.SendMessageRequest{Messages: []*v2.Message{plain("normal", func(m *v2.Message) {
			m.SystemProperties = &v2.SystemProperties{MessageId: "X", DeliveryAttempt: proto.Int32(123456)}
		})}},
	)
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, answer.GetStatus(), v2.Code_OK)
	h, _ := d.broker.seen(protocol.SendMessageV2)[0].(*protocol.SendMessageRequestHeader)
	if h.BornTimestamp < before || h.ReconsumeTimes.Or(0) != 0 {
		t.Errorf("header %+v", h)
	}
}
