// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// newLike returns a zero header of h's type.
func newLike(h Header) Header {
	fresh, _ := reflect.New(reflect.TypeOf(h).Elem()).Interface().(Header)
	return fresh
}

// fillHeader gives every field of the header a random value; optional ones are absent now and then.
func fillHeader(t *rapid.T, h Header) {
	v := reflect.ValueOf(h).Elem()
	for i := range v.NumField() {
		fillHeaderField(t, v.Field(i), v.Type().Field(i).Name)
	}
}

func fillHeaderField(t *rapid.T, f reflect.Value, name string) {
	switch f.Kind() {
	case reflect.String:
		f.SetString(rapid.String().Draw(t, name))
	case reflect.Int32:
		f.SetInt(int64(rapid.Int32().Draw(t, name)))
	case reflect.Int64:
		f.SetInt(rapid.Int64().Draw(t, name))
	case reflect.Bool:
		f.SetBool(rapid.Bool().Draw(t, name))
	case reflect.Struct: // an Optional
		if rapid.Bool().Draw(t, name+" present") {
			f.Field(1).SetBool(true)
			fillHeaderField(t, f.Field(0), name)
		}
	default:
		t.Fatalf("%s is a %v", name, f.Kind())
	}
}

// throughFrame encodes the header in a frame, decodes the frame and returns its command.
func throughFrame(t rapid.TB, form SerializeType, h Header) Command {
	frame := AppendFrame(nil, &Command{Code: 1, Serialize: form}, h)
	n, err := FrameSize(frame)
	if err != nil || n != len(frame)-FrameLengthBytes {
		t.Fatalf("%v: frame size %d, %v; %d bytes", form, n, err, len(frame))
	}
	cmd, err := DecodeFrame(frame[FrameLengthBytes:])
	if err != nil {
		t.Fatalf("%v: %v", form, err)
	}
	return cmd
}

func TestEveryHeaderComesBack(t *testing.T) {
	t.Parallel()
	all := AllHeaders()
	rapid.Check(t, func(t *rapid.T) {
		h := rapid.SampledFrom(all).Draw(t, "type")
		h = newLike(h)
		fillHeader(t, h)
		for _, form := range []SerializeType{SerializeJSON, SerializeROCKETMQ} {
			cmd := throughFrame(t, form, h)
			got := newLike(h)
			if err := got.DecodeExt(&cmd.Ext); err != nil {
				t.Fatalf("%v: %v", form, err)
			}
			if diff := cmp.Diff(h, got); diff != "" {
				t.Fatalf("%v (-want +got):\n%s", form, diff)
			}
		}
	})
}

// TestEveryHeaderIsSorted fills every header completely: the names it writes ascend, and without one of
// them it can be read or the error names what is missing.
func TestEveryHeaderIsSorted(t *testing.T) {
	t.Parallel()
	for _, h := range AllHeaders() {
		setAll(reflect.ValueOf(h).Elem())
		cmd := throughFrame(t, SerializeJSON, h)
		var names []string
		for name := range cmd.Ext.All() {
			names = append(names, name)
		}
		if len(names) != reflect.TypeOf(h).Elem().NumField() || !slices.IsSorted(names) {
			t.Errorf("%T writes %v", h, names)
		}
		for _, name := range names {
			var ext Ext
			for key, value := range cmd.Ext.All() {
				if key != name {
					ext.Set(key, value)
				}
			}
			checkMissing(t, newLike(h), &ext, name)
		}
	}
}

func checkMissing(t *testing.T, h Header, ext *Ext, name string) {
	t.Helper()
	err := h.DecodeExt(ext)
	if err == nil {
		return
	}
	var refused *Error
	if !errors.As(err, &refused) || refused.Code != SystemError || !strings.Contains(refused.Remark, name) ||
		!strings.Contains(refused.Remark, strings.TrimSuffix(reflect.TypeOf(h).Elem().Name(), "V2")) {
		t.Errorf("%T without %s: %v", h, name, err)
	}
}

// setAll gives every field a value that is written.
func setAll(v reflect.Value) {
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.String:
			f.SetString("x")
		case reflect.Struct:
			f.Field(1).SetBool(true)
		default:
		}
	}
}

// extOf returns an Ext of names and values in turn.
func extOf(pairs ...string) *Ext {
	var e Ext
	for i := 0; i < len(pairs); i += 2 {
		e.Set(pairs[i], pairs[i+1])
	}
	return &e
}

func TestDecodeExtRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		header Header
		ext    *Ext
		want   string
	}{
		{
			"C011 wrong names", &QueryMessageRequestHeader{},
			extOf("topic", "T", "key", "k", "maxNum", "32", "begin", "0", "end", "1"),
			"QueryMessageRequestHeader: required field beginTimestamp is missing",
		},
		{
			"nothing at all", &PullMessageRequestHeader{}, extOf(),
			"PullMessageRequestHeader: required field consumerGroup is missing",
		},
		{
			"a letter is missing", &SendMessageRequestHeader{},
			extOf("a", "p", "b", "T", "e", "0", "f", "0", "h", "0"),
			"SendMessageRequestHeader: required field bornTimestamp (g) is missing",
		},
		{
			"an empty number is none", &SearchOffsetResponseHeader{}, extOf("offset", ""),
			"SearchOffsetResponseHeader: required field offset is missing",
		},
		{
			"no number", &UpdateConsumerOffsetRequestHeader{},
			extOf("consumerGroup", "g", "topic", "T", "queueId", "one", "commitOffset", "x"),
			`UpdateConsumerOffsetRequestHeader: field queueId is "one", want a 32-bit integer`,
		},
		{
			"too large for 32 bits", &GetMinOffsetRequestHeader{}, extOf("topic", "T", "queueId", "2147483648"),
			`GetMinOffsetRequestHeader: field queueId is "2147483648", want a 32-bit integer`,
		},
		{
			"too large for 64 bits", &SearchOffsetResponseHeader{}, extOf("offset", "9223372036854775808"),
			`SearchOffsetResponseHeader: field offset is "9223372036854775808", want a 64-bit integer`,
		},
		{
			"an optional one malformed", &ConsumerSendMsgBackRequestHeader{},
			extOf("offset", "1", "group", "g", "delayLevel", "0", "maxReconsumeTimes", "+"),
			`ConsumerSendMsgBackRequestHeader: field maxReconsumeTimes is "+", want a 32-bit integer`,
		},
		{
			"quoted up to a limit", &SearchOffsetResponseHeader{}, extOf("offset", strings.Repeat("\x01", 1000)),
			`SearchOffsetResponseHeader: field offset is "` + strings.Repeat(`\x01`, maxQuoted) + `", want a 64-bit integer`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var got *Error
			if err := tc.header.DecodeExt(tc.ext); !errors.As(err, &got) {
				t.Fatalf("got %v", err)
			}
			if diff := cmp.Diff(&Error{Code: SystemError, Remark: tc.want}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeExtTakes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name      string
		ext       *Ext
		got, want Header
	}{
		{
			"V1, as the Go client sends it",
			extOf("producerGroup", "p", "topic", "T", "defaultTopic", "TBW102", "defaultTopicQueueNums", "4", "queueId", "1",
				"sysFlag", "0", "bornTimestamp", "5", "flag", "0", "properties", "A\x01B\x02", "reconsumeTimes", "0",
				"unitMode", "false", "maxReconsumeTimes", "0", "batch", "FALSE"),
			&SendMessageRequestHeader{},
			&SendMessageRequestHeader{
				ProducerGroup: "p", Topic: "T", DefaultTopic: "TBW102", DefaultTopicQueueNums: 4, QueueID: 1, BornTimestamp: 5,
				Properties: "A\x01B\x02", ReconsumeTimes: Some[int32](0), UnitMode: Some(false), Batch: Some(false),
				MaxReconsumeTimes: Some[int32](0),
			},
		},
		{
			"C009 V2 with the least", extOf("b", "T", "e", "-1", "f", "8", "g", "+5", "h", "0"),
			&SendMessageRequestHeader{},
			&SendMessageRequestHeader{Topic: "T", QueueID: -1, SysFlag: 8, BornTimestamp: 5},
		},
		{
			"V2 type, names spelt out", extOf("topic", "T", "queueId", "1", "sysFlag", "0", "bornTimestamp", "5", "flag", "0"),
			&SendMessageRequestHeaderV2{},
			&SendMessageRequestHeaderV2{Topic: "T", QueueID: 1, BornTimestamp: 5},
		},
		{
			"defaults", extOf("topic", "T", "queueId", "2"),
			&GetMaxOffsetRequestHeader{QueueID: 9},
			&GetMaxOffsetRequestHeader{Topic: "T", QueueID: 2, Committed: true},
		},
		{
			"defaults overruled, booleans in any case", extOf("topic", "T", "queueId", "2", "committed", "tRuE", "committed", "no"),
			&GetMaxOffsetRequestHeader{},
			&GetMaxOffsetRequestHeader{Topic: "T", QueueID: 2},
		},
		{
			"an empty optional is absent", extOf("consumerGroup", "g", "topic", "T", "queueId", "2", "setZeroIfNotFound", ""),
			&QueryConsumerOffsetRequestHeader{},
			&QueryConsumerOffsetRequestHeader{ConsumerGroup: "g", Topic: "T", QueueID: 2},
		},
		{
			"what was there before is gone", extOf("offset", "-9223372036854775808"),
			&SearchOffsetResponseHeader{Offset: 4}, &SearchOffsetResponseHeader{Offset: -9223372036854775808},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if err := tc.got.DecodeExt(tc.ext); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, tc.got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestOptional(t *testing.T) {
	t.Parallel()
	if Some[int32](0).Or(5) != 0 || (Optional[int32]{}).Or(5) != 5 {
		t.Error("Or does not tell absent from zero")
	}
}

func TestParseInt(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"0", "-0", "+7", "007", "123456789012345678", "-9223372036854775808", "9223372036854775807"} {
		if _, ok := parseInt(text); !ok {
			t.Errorf("%q is refused", text)
		}
	}
	for _, text := range []string{"", "-", "+", "1 ", " 1", "1_0", "0x1", "1.0", "1e3", "9223372036854775808", "1234567890123456789x"} {
		if n, ok := parseInt(text); ok {
			t.Errorf("%q is %d", text, n)
		}
	}
}
