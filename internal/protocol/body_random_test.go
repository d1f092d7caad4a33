// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// bodyRoundTrip fills a body of type T at random, writes it and reads it back; it returns the text.
func bodyRoundTrip[T any, P BodyOf[T]](t *testing.T, r *rand.Rand) []byte {
	t.Helper()
	want := new(T)
	fillBody(reflect.ValueOf(want).Elem(), r)
	text := EncodeBody(P(want))
	got, err := DecodeBody[T, P](text)
	if err != nil {
		t.Fatalf("%T: %v in %s", want, err, text)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("%T differs in %s:\n%s", want, text, diff)
	}
	if again := EncodeBody(P(got)); !bytes.Equal(again, text) {
		t.Fatalf("%T: %s\nbecame %s", want, text, again)
	}
	return text
}

// fillBody sets every field at random, so that a field that fields() forgets shows as a difference.
func fillBody(v reflect.Value, r *rand.Rand) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int32, reflect.Int64:
		v.SetInt(int64(int32(r.Uint32())))
		if v.Kind() == reflect.Int64 && r.IntN(2) == 0 {
			v.SetInt(int64(r.Uint64()))
		}
	case reflect.Uint8:
		v.SetUint(r.Uint64N(14))
	case reflect.Float64:
		v.SetFloat(float64(r.Int64N(1<<40)) / float64(1+r.IntN(1<<20)) * []float64{1, -1, 1e-9, 1e30}[r.IntN(4)])
	case reflect.String:
		v.SetString([]string{"a", "b c", "\u0001\"\\/\n\u007f", "é漢🚀\u2028", "null", "{", "7", "$ref"}[r.IntN(8)])
	case reflect.Struct:
		for i := range v.NumField() {
			fillBody(v.Field(i), r)
		}
	case reflect.Pointer:
		if r.IntN(4) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fillBody(v.Elem(), r)
		}
	case reflect.Slice:
		for range 1 + r.IntN(3) {
			element := reflect.New(v.Type().Elem()).Elem()
			fillBody(element, r)
			v.Set(reflect.Append(v, element))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range r.IntN(4) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fillBody(key, r)
			fillBody(value, r)
			v.SetMapIndex(key, value)
		}
	}
}

// TestBodyRoundTrips covers every field of every body. Where no map has queues as keys, the text is strict
// JSON as well.
func TestBodyRoundTrips(t *testing.T) {
	t.Parallel()
	strict := []func(*testing.T, *rand.Rand) []byte{
		bodyRoundTrip[AclInfo],
		bodyRoundTrip[BatchAckMessageRequestBody],
		bodyRoundTrip[BrokerStatsData],
		bodyRoundTrip[CheckClientRequestBody],
		bodyRoundTrip[ClusterInfo],
		bodyRoundTrip[ConsumeMessageDirectlyResult],
		bodyRoundTrip[ConsumerConnection],
		bodyRoundTrip[ConsumerOffsetSerializeWrapper],
		bodyRoundTrip[CreateTopicListRequestBody],
		bodyRoundTrip[DelayOffsetSerializeWrapper],
		bodyRoundTrip[GetBrokerMemberGroupResponseBody],
		bodyRoundTrip[GetConsumerListByGroupResponseBody],
		bodyRoundTrip[GroupForbidden],
		bodyRoundTrip[GroupList],
		bodyRoundTrip[HARuntimeInfo],
		bodyRoundTrip[HeartbeatData],
		bodyRoundTrip[KVTable],
		bodyRoundTrip[LockBatchRequestBody],
		bodyRoundTrip[LockBatchResponseBody],
		bodyRoundTrip[MessageRequestModeSerializeWrapper],
		bodyRoundTrip[ProducerConnection],
		bodyRoundTrip[ProducerTableInfo],
		bodyRoundTrip[QueryAssignmentRequestBody],
		bodyRoundTrip[QueryAssignmentResponseBody],
		bodyRoundTrip[QueryConsumeQueueResponseBody],
		bodyRoundTrip[QueryConsumeTimeSpanBody],
		bodyRoundTrip[QueryCorrectionOffsetBody],
		bodyRoundTrip[QuerySubscriptionResponseBody],
		bodyRoundTrip[RegisterBrokerBody],
		bodyRoundTrip[ResetOffsetBodyForC],
		bodyRoundTrip[SetMessageRequestModeRequestBody],
		bodyRoundTrip[SubscriptionGroupConfig],
		bodyRoundTrip[SubscriptionGroupList],
		bodyRoundTrip[SubscriptionGroupWrapper],
		bodyRoundTrip[TopicConfig],
		bodyRoundTrip[TopicConfigAndMappingSerializeWrapper],
		bodyRoundTrip[TopicConfigAndQueueMapping],
		bodyRoundTrip[TopicList],
		bodyRoundTrip[TopicRouteData],
		bodyRoundTrip[UserInfo],
	}
	odd := []func(*testing.T, *rand.Rand) []byte{
		bodyRoundTrip[ConsumeStats], bodyRoundTrip[ConsumeStatsList], bodyRoundTrip[ConsumerRunningInfo],
		bodyRoundTrip[GetConsumerStatusBody], bodyRoundTrip[ResetOffsetBody], bodyRoundTrip[TopicStatsTable],
	}
	for seed := range uint64(25) {
		r := rand.New(rand.NewPCG(seed, 0))
		for _, fn := range strict {
			if text := fn(t, r); !json.Valid(text) {
				t.Fatalf("no JSON: %s", text)
			}
		}
		for _, fn := range odd {
			fn(t, r)
		}
	}
}

// TestRegisterBrokerBodyHostile cuts and bends the compressed form.
func TestRegisterBrokerBodyHostile(t *testing.T) {
	t.Parallel()
	body := RegisterBrokerBody{TopicConfigSerializeWrapper: TopicConfigAndMappingSerializeWrapper{
		TopicConfigTable: map[string]TopicConfig{"T": {TopicName: "T", TopicFilterType: "SINGLE_TAG", Perm: 6}},
	}}
	packed := body.EncodeCompressed()
	for n := range packed {
		if _, err := DecodeCompressedRegisterBody(packed[:n]); err == nil {
			t.Errorf("cut at %d of %d was accepted", n, len(packed))
		}
	}
	plain, err := inflate(packed, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := inflate(packed, len(plain)-1); err == nil {
		t.Error("more than the limit was unpacked")
	}
	withoutMapping := len(plain) - 4 // as a broker of 4.x sends it
	for n := range plain {
		_, err := DecodeCompressedRegisterBody(deflate(t, plain[:n]))
		if (n == withoutMapping) != (err == nil) {
			t.Errorf("content cut at %d of %d: %v", n, len(plain), err)
		}
	}
	for _, hostile := range [][]byte{
		binary.BigEndian.AppendUint32(nil, 1<<32-1),
		append(appendSized(nil, []byte(`{}`)), 0xff, 0xff, 0xff, 0xff),
		appendSized(append(appendSized(nil, []byte(`{}`)), 0, 0, 0, 1), []byte("T 8 8 6")),
		appendSized(append(appendSized(nil, []byte(`{}`)), 0, 0, 0, 1), []byte("T 8 x 6 SINGLE_TAG")),
	} {
		if got, err := DecodeCompressedRegisterBody(deflate(t, hostile)); err == nil {
			t.Errorf("%.40q… was accepted as %+v", hostile, got)
		}
	}
	odd := appendSized(append(appendSized(nil, []byte(`{}`)), 0, 0, 0, 1), []byte(`T 8 8 6 SINGLE_TAG {"a b":"c d"}`))
	got, err := DecodeCompressedRegisterBody(deflate(t, appendSized(odd, []byte("?"))))
	if err != nil || got.TopicConfigSerializeWrapper.TopicConfigTable["T"].Attributes["a b"] != "c d" {
		t.Errorf("attributes with spaces: %+v, %v", got, err)
	}
}

func deflate(t *testing.T, plain []byte) []byte {
	t.Helper()
	var packed bytes.Buffer
	z, err := zlib.NewWriterLevel(&packed, zlib.HuffmanOnly)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := z.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

// FuzzBodies reads any text as every type of body. What it accepts, it must write so that it reads the same
// again.
func FuzzBodies(f *testing.F) {
	for _, file := range []string{"rocketmq-5.5.0.txt", "rocketmq-5.3.2-references.txt", "clients.txt"} {
		for _, c := range captures(f, file) {
			f.Add([]byte(c.text))
		}
	}
	f.Add([]byte(`{"offsetTable":{"{\"queueId\":1}":5,{"$ref":"$"}:1},x:{"$ref":"$.a[0].b"},}`))
	all := recoders()
	f.Fuzz(func(t *testing.T, text []byte) {
		start := time.Now()
		kept := bytes.Clone(text)
		for name, fn := range all {
			first, err := fn(text)
			if err != nil {
				continue
			}
			second, err := fn(first)
			if err != nil {
				t.Fatalf("%s: %v in our own text %s", name, err, first)
			}
			if !bytes.Equal(first, second) {
				t.Fatalf("%s: %s\nbecame %s", name, first, second)
			}
		}
		if !bytes.Equal(kept, text) {
			t.Fatal("the text was changed")
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Fatalf("%d bytes took %v", len(text), took)
		}
	})
}

// FuzzRegisterBrokerBody reads any content of the compressed form.
func FuzzRegisterBrokerBody(f *testing.F) {
	f.Add(
		append(
			appendSized(append(appendSized(nil, []byte(`{}`)), 0, 0, 0, 1), []byte(`T 8 8 6 SINGLE_TAG {}`)),
			0,
			0,
			0,
			2,
			'[',
			']',
			0,
			0,
			0,
			0,
		),
	)
	f.Fuzz(func(t *testing.T, plain []byte) {
		got, err := DecodeCompressedRegisterBody(deflate(t, plain))
		if err != nil {
			return
		}
		packed := got.EncodeCompressed()
		if strings.Contains(got.topicText(), " ") {
			return // a name with a space cannot be written in this form
		}
		again, err := DecodeCompressedRegisterBody(packed)
		if diff := cmp.Diff(got, again, cmpopts.EquateEmpty()); diff != "" || err != nil {
			t.Fatalf("%v, differs:\n%s", err, diff)
		}
	})
}

func (b *RegisterBrokerBody) topicText() string {
	text := ""
	for _, topic := range b.TopicConfigSerializeWrapper.TopicConfigTable {
		text += topic.TopicName + topic.TopicFilterType
	}
	return text
}

func heartbeatText() []byte {
	h := HeartbeatData{
		ClientID:        "10.0.0.9@4711#123456789",
		ProducerDataSet: []ProducerData{{GroupName: "producer"}, {GroupName: "CLIENT_INNER_PRODUCER"}},
		ConsumerDataSet: []ConsumerData{
			{
				ConsumeFromWhere: ConsumeFromLastOffset,
				ConsumeType:      ConsumePassively,
				GroupName:        "group",
				MessageModel:     Clustering,
				SubscriptionDataSet: []SubscriptionData{
					{ExpressionType: ExpressionTag, SubString: "*", SubVersion: 1795969806314, Topic: "%RETRY%group"},
					{
						ExpressionType: ExpressionTag,
						SubString:      "a || b",
						SubVersion:     1795969806314,
						Topic:          "orders",
						Tags:           []string{"a", "b"},
						Codes:          []int32{97, 98},
					},
				},
			},
		},
	}
	return EncodeBody(&h)
}

// TestHeartbeatAllocations pins what a heartbeat costs: it comes every 30 seconds from every client.
func TestHeartbeatAllocations(t *testing.T) {
	text := heartbeatText()
	if n := testing.AllocsPerRun(100, func() {
		if _, err := DecodeBody[HeartbeatData](text); err != nil {
			t.Fatal(err)
		}
	}); n > 32 {
		t.Errorf("%.0f allocations", n)
	}
}

func BenchmarkDecodeHeartbeat(b *testing.B) {
	text := heartbeatText()
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeBody[HeartbeatData](text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeRoute(b *testing.B) {
	route, err := DecodeBody[TopicRouteData](captured(b, "TopicRouteData"))
	if err != nil {
		b.Fatal(err)
	}
	buf := EncodeBody(route)
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendBody(buf[:0], route)
	}
}
