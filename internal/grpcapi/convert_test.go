// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"bytes"
	"crypto/md5"
	"encoding/binary"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/message"
)

func TestDelivered(t *testing.T) {
	t.Parallel()
	rec := stored(
		"orders",
		3,
		17,
		"hello",
		props(
			"color",
			"red",
			"TAGS",
			"t1",
			"KEYS",
			"k1 k2",
			"UNIQ_KEY",
			"01ABC",
			"CLUSTER",
			"c",
			"__SHARDINGKEY",
			"g",
			"TRACE_CONTEXT",
			"00-trace",
			"__BORNHOST",
			"client-host",
			"PGROUP",
			"orders",
			"MSG_REGION",
			"r",
		),
	)
	got, err := delivered(rec, &delivery{topic: &v2.Resource{ResourceNamespace: "ns", Name: "orders"}, handle: "H"})
	if err != nil {
		t.Fatal(err)
	}
	want := &v2.Message{
		Topic: &v2.Resource{
			ResourceNamespace: "ns",
			Name:              "orders",
		},
		UserProperties: map[string]string{"color": "red"},
		Body:           []byte("hello"),
		SystemProperties: &v2.SystemProperties{
			Tag:            proto.String("t1"),
			Keys:           []string{"k1", "k2"},
			MessageId:      "01ABC",
			BodyDigest:     &v2.Digest{Type: v2.DigestType_MD5, Checksum: "5D41402ABC4B2A76B9719D911017C592"},
			BodyEncoding:   v2.Encoding_IDENTITY,
			MessageType:    v2.MessageType_FIFO,
			BornTimestamp:  timestamppb.New(time.UnixMilli(1_700_000_000_123)),
			BornHost:       "client-host",
			StoreTimestamp: timestamppb.New(time.UnixMilli(1_700_000_000_456)),
			StoreHost:      "10.0.0.2:10911",
			ReceiptHandle: proto.String(
				"H",
			),
			QueueId:         3,
			QueueOffset:     proto.Int64(17),
			DeliveryAttempt: proto.Int32(1),
			MessageGroup:    proto.String("g"),
			TraceContext:    proto.String("00-trace"),
		},
	}
	if !proto.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestDeliveredTypes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		props string
		want  v2.MessageType
	}{
		{"", v2.MessageType_NORMAL},
		{props("TRAN_MSG", "true", "DELAY", "3"), v2.MessageType_TRANSACTION},
		{props("TRAN_MSG", "false"), v2.MessageType_NORMAL},
		{props("DELAY", "3", "__SHARDINGKEY", "g"), v2.MessageType_DELAY},
		{props("TIMER_DELIVER_MS", "1700000000000"), v2.MessageType_DELAY},
		{props("TIMER_DELAY_SEC", "3"), v2.MessageType_DELAY},
		{props("TIMER_DELAY_MS", "3"), v2.MessageType_DELAY},
		{props("__SHARDINGKEY", "g", "_SYS_MSG_PRIORITY_", "2"), v2.MessageType_FIFO},
		{props("_SYS_MSG_PRIORITY_", "2"), v2.MessageType_PRIORITY},
		{props("__LITE_TOPIC", "l"), v2.MessageType_LITE},
	} {
		m, err := delivered(stored("t", 0, 0, "x", tc.props), nil)
		if err != nil || m.GetSystemProperties().GetMessageType() != tc.want {
			t.Errorf("%q: %v %v", tc.props, m.GetSystemProperties().GetMessageType(), err)
		}
	}
}

// A message that asked for a time, however, was due when the broker says.
func TestDeliveredTimes(t *testing.T) {
	t.Parallel()
	for _, asked := range []string{
		props("TIMER_DELAY_SEC", "3"), props("TIMER_DELAY_MS", "3000"), props("TIMER_DELIVER_MS", "1700000000000"),
	} {
		m, err := delivered(stored("t", 0, 0, "x", asked+props("TIMER_OUT_MS", "1700000000000")), nil)
		if at := m.GetSystemProperties().GetDeliveryTimestamp().AsTime().UnixMilli(); err != nil ||
			at != 1700000000000 {
			t.Errorf("%q: due at %d, %v", asked, at, err)
		}
	}
}

// A message of a 4.x producer has no unique key when it comes as a batch of old clients: then its offset id
// stands for it. A dead letter says where it came from.
func TestDeliveredWithoutAKey(t *testing.T) {
	t.Parallel()
	m, err := delivered(
		stored("t", 0, 5, "x", props("DLQ_ORIGIN_TOPIC", "orders", "DLQ_ORIGIN_MESSAGE_ID", "01XYZ")),
		nil,
	)
	if err != nil {
		t.Fatal(err)
	}
	sys := m.GetSystemProperties()
	if want := message.OffsetMsgID(
		mustAddr("10.0.0.2:10911"),
		1005,
	); sys.GetMessageId() != want || sys.GetBornHost() != "10.0.0.1" ||
		sys.GetDeadLetterQueue().GetMessageId() != "01XYZ" ||
		sys.GetDeadLetterQueue().GetTopic() != "orders" {
		t.Errorf("%v", sys)
	}
}

func squeeze(t *testing.T, plain []byte, open func(io.Writer) (io.WriteCloser, error)) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := open(&b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestInflate(t *testing.T) {
	t.Parallel()
	plain := bytes.Repeat([]byte("compressible "), 1000)
	bomb := make([]byte, maxInflatedBytes+1)
	zlibWriter := func(w io.Writer) (io.WriteCloser, error) { return zlib.NewWriter(w), nil }
	gzipWriter := func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil }
	lz4Writer := func(w io.Writer) (io.WriteCloser, error) { return lz4.NewWriter(w), nil }
	zstdWriter := func(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w) }
	for _, tc := range []struct {
		name string
		body []byte
		flag int32
		want []byte // nil: stays compressed
	}{
		{"zlib without a type", squeeze(t, plain, zlibWriter), 0, plain},
		{"zlib", squeeze(t, plain, zlibWriter), message.CompressionZLIB, plain},
		{"gzip called zlib", squeeze(t, plain, gzipWriter), 0, plain},
		{"lz4", squeeze(t, plain, lz4Writer), message.CompressionLZ4, plain},
		{"lz4 without a type", squeeze(t, plain, lz4Writer), 0, plain},
		{"zstd", squeeze(t, plain, zstdWriter), message.CompressionZSTD, plain},
		{"not compressed", []byte("plain"), 0, nil},
		{"empty", nil, 0, nil},
		{"not lz4", []byte("plain"), message.CompressionLZ4, nil},
		{"cut short", squeeze(t, plain, zlibWriter)[:20], 0, nil},
		{"too large", squeeze(t, bomb, zlibWriter), 0, nil},
	} {
		m := message.Message{
			Topic: "t", Body: tc.body, SysFlag: message.SysFlagCompressed | tc.flag,
			BornHost: mustAddr("1.1.1.1:1"), StoreHost: mustAddr("1.1.1.1:1"),
		}
		got, err := delivered(m.AppendTo(nil), nil)
		if err != nil {
			t.Fatal(err)
		}
		want, encoding := tc.want, v2.Encoding_IDENTITY
		if want == nil {
			want, encoding = tc.body, v2.Encoding_GZIP
		}
		sys := got.GetSystemProperties()
		if !bytes.Equal(got.GetBody(), want) || sys.GetBodyEncoding() != encoding ||
			sys.GetBodyDigest().GetChecksum() != digestOf(want) {
			t.Errorf("%s: %d bytes, %s", tc.name, len(got.GetBody()), sys.GetBodyEncoding())
		}
	}
}

// digestOf is the digest that clients compute.
func digestOf(body []byte) string { return fmt.Sprintf("%X", md5.Sum(body)) }

// The encoding by hand is what protobuf makes of the same message, whatever is stored.
func TestEncodeReceived(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SampledFrom([]string{
			"TAGS",
			"KEYS",
			"UNIQ_KEY",
			"__SHARDINGKEY",
			"TRACE_CONTEXT",
			"color",
			"größe",
			"TIMER_DELIVER_MS",
			"_SYS_MSG_PRIORITY_",
			"DLQ_ORIGIN_TOPIC",
			"DLQ_ORIGIN_MESSAGE_ID",
			"__BORNHOST",
			"__LITE_TOPIC",
			"CLUSTER",
			"\xff\xfe",
			"TRAN_MSG",
			"DELAY",
		})
		var encodedProps []byte
		for _, name := range rapid.SliceOfDistinct(names, func(s string) string { return s }).Draw(t, "names") {
			value := rapid.OneOf(
				rapid.StringMatching(
					`[a-z0-9 ]{1,20}`,
				),
				rapid.SampledFrom([]string{"1", "1700000000001", "a\xffb", "日本"}),
			).Draw(t, "value")
			encodedProps = message.AppendProperty(encodedProps, name, value)
		}
		m := message.Message{
			Topic:          "topic",
			QueueID:        rapid.Int32Range(0, 70_000).Draw(t, "queue"),
			QueueOffset:    message.QueueOffset(rapid.Int64Min(0).Draw(t, "offset")),
			ReconsumeTimes: rapid.Int32Range(0, 1000).Draw(t, "times"),
			BornTimestamp: rapid.Int64Range(
				-5,
				4_000_000_000_000,
			).Draw(
				t,
				"born",
			),
			StoreTimestamp: 1_700_000_000_456,
			BornHost:       mustAddr("10.0.0.1:5000"),
			StoreHost:      mustAddr("[2001:db8::1]:10911"),
			Body:           []byte(rapid.StringN(0, 3000, -1).Draw(t, "body")),
			Properties:     string(encodedProps),
		}
		rec := m.AppendTo(nil)
		d := &delivery{
			topic: &v2.Resource{
				ResourceNamespace: rapid.SampledFrom([]string{"", "ns"}).Draw(t, "namespace"),
				Name:              "topic",
			},
			handle: rapid.StringMatching(`[0-9 ]{0,90}`).Draw(t, "handle"),
		}
		want, err := delivered(rec, d)
		if err != nil {
			t.Fatal(err)
		}
		before := make([]byte, rapid.IntRange(0, 9).Draw(t, "before"), 10)
		d.framed = true
		answer, body, err := appendDelivered(before, rec, d)
		if err != nil {
			t.Fatal(err)
		}
		answer = append(answer, body...)[len(before):]
		if n := binary.BigEndian.Uint32(answer[1:]); answer[0] != 0 || int(n) != len(answer)-frameHead {
			t.Fatalf("frame head %x of %d bytes", answer[:frameHead], len(answer))
		}
		var got v2.ReceiveMessageResponse
		if err := proto.Unmarshal(answer[frameHead:], &got); err != nil {
			t.Fatal(err)
		}
		again, err := proto.Marshal(want)
		if err != nil {
			t.Fatalf("protobuf refuses it: %v", err)
		}
		var other v2.Message
		if err := proto.Unmarshal(again, &other); err != nil || !proto.Equal(got.GetMessage(), &other) {
			t.Fatalf("got  %v\nwant %v, %v", &got, &other, err)
		}
		if len(other.ProtoReflect().GetUnknown()) > 0 ||
			len(other.GetSystemProperties().ProtoReflect().GetUnknown()) > 0 {
			t.Fatalf("unknown fields: %v", &other)
		}
		if at := other.GetSystemProperties().GetBornTimestamp().AsTime().UnixMilli(); at != m.BornTimestamp {
			t.Fatalf("born %d, want %d", at, m.BornTimestamp)
		}
	})
}
