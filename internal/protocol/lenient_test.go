// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLenientQueueTables reads map keys in every form that clients of twelve years send.
func TestLenientQueueTables(t *testing.T) {
	t.Parallel()
	q := func(id int32) MessageQueue { return MessageQueue{BrokerName: "b", QueueID: id, Topic: "t"} }
	tests := []struct {
		name, text string
		want       map[MessageQueue]int64
	}{
		{
			"object keys",
			`{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:5,{"topic":"t","queueId":1,"brokerName":"b"}:6}}`,
			map[MessageQueue]int64{q(0): 5, q(1): 6},
		},
		{
			"string keys", `{"offsetTable":{"{\"brokerName\":\"b\",\"queueId\":0,\"topic\":\"t\"}":5}}`,
			map[MessageQueue]int64{q(0): 5},
		},
		{
			"white space",
			" {\n\t\"offsetTable\" : { { \"brokerName\" : \"b\" , \"queueId\" : 0 , \"topic\" : \"t\" } : 5 }\r\n}",
			map[MessageQueue]int64{q(0): 5},
		},
		{
			"unknown fields around",
			`{"a":[1,{"b":[]},null],"offsetTable":{{"brokerName":"b","x":{},"topic":"t"}:"5"},{"k":1}:{},"c":true}`,
			map[MessageQueue]int64{q(0): 5},
		},
		{
			"bare names, stray commas, trailing text",
			`{,offsetTable:{{brokerName:b,queueId:0,topic:"t",}:5,,}}}] trailing`,
			map[MessageQueue]int64{q(0): 5},
		},
		{"null value", `{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:null}}`, map[MessageQueue]int64{}},
		{"null table", `{"offsetTable":null}`, nil},
		{"no object in the string", `{"offsetTable":{"x":5}}`, map[MessageQueue]int64{}},
		{
			"last one wins",
			`{"offsetTable":{},"offsetTable":{{"brokerName":"b","topic":"t"}:7L}}`,
			map[MessageQueue]int64{q(0): 7},
		},
	}
	for _, tt := range tests {
		got, err := DecodeBody[ResetOffsetBody]([]byte(tt.text))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if diff := cmp.Diff(tt.want, got.OffsetTable); diff != "" {
			t.Errorf("%s differs:\n%s", tt.name, diff)
		}
	}
}

func TestLenientScalars(t *testing.T) {
	t.Parallel()
	integers := map[string]int64{
		`9007199254740993`:     9007199254740993,
		`"9007199254740993"`:   9007199254740993,
		`-9223372036854775808`: -1 << 63,
		`5.0`:                  5,
		`5e3`:                  5000,
		`5L`:                   5,
		`""`:                   0,
		`null`:                 0,
		`+7`:                   7,
	}
	for text, want := range integers {
		got, err := DecodeBody[TopicOffset]([]byte(`{"maxOffset":` + text + `}`))
		if err != nil || got.MaxOffset != want {
			t.Errorf("%s: got %+v, %v, want %d", text, got, err, want)
		}
	}
	texts := map[string]string{
		`"a\"\\\/\b\f\n\r\té😀"`: "a\"\\/\b\f\n\r\té😀", `"\uD83D"`: "\uFFFD", `12`: "12", `true`: "true", `null`: "",
		`{"a":[1,"}"]}`: `{"a":[1,"}"]}`, `word`: "word", `""`: "",
	}
	for text, want := range texts {
		got, err := DecodeBody[GroupForbidden]([]byte(`{"group":` + text + `}`))
		if err != nil || got.Group != want {
			t.Errorf("%s: got %+v, %v, want %q", text, got, err, want)
		}
	}
	truths := map[string]bool{
		`true`:   true,
		`"TRUE"`: true,
		`1`:      true,
		`0`:      false,
		`"no"`:   false,
		`null`:   false,
		`""`:     false,
	}
	for text, want := range truths {
		got, err := DecodeBody[GroupForbidden]([]byte(`{"readable":` + text + `}`))
		if err != nil || got.Readable != want {
			t.Errorf("%s: got %+v, %v, want %t", text, got, err, want)
		}
	}
	if got, err := DecodeBody[GroupForbidden]([]byte(`{"gro\u0075p":"g"}`)); err != nil || got.Group != "g" {
		t.Errorf("escaped key: got %+v, %v", got, err)
	}
}

// TestBodyErrors wants an *Error that names the type, the byte and what is wrong.
func TestBodyErrors(t *testing.T) {
	t.Parallel()
	tests := []struct{ text, want string }{
		{``, "HeartbeatData: byte 0: expected an object, found the end"},
		{`null`, "HeartbeatData: byte 4: it is null"},
		{`[]`, `HeartbeatData: byte 0: expected an object, found '['`},
		{`{"clientID":"x`, "HeartbeatData: byte 12: string without end"},
		{`{"clientID":"\q"}`, "HeartbeatData: byte 13: string with an unknown escape"},
		{`{"clientID" "x"}`, `HeartbeatData: byte 12: expected a colon, found '"'`},
		{`{"clientID":}`, `HeartbeatData: byte 12: expected a value, found '}'`},
		{`{"x":[}`, `HeartbeatData: byte 6: expected a value, found '}'`},
		{`{"x":1`, `HeartbeatData: byte 6: expected "}", found the end`},
		{`{"consumerDataSet":{}}`, `HeartbeatData: byte 19: expected an array, found '{'`},
		{`{"consumerDataSet":[1]}`, `HeartbeatData: byte 20: expected an object, found '1'`},
		{
			`{"heartbeatFingerprint":2147483648}`,
			"HeartbeatData: byte 24: expected a whole number of -2147483648 to 2147483647, found \"2147483648\"",
		},
		{`{"heartbeatFingerprint":1.5}`, "found \"1.5\""},
		{"{\"x\":\x00}", `expected a value, found '\x00'`},
	}
	for _, tt := range tests {
		_, err := DecodeBody[HeartbeatData]([]byte(tt.text))
		var refused *Error
		if !errors.As(err, &refused) || refused.Code != SystemError || !strings.Contains(refused.Remark, tt.want) {
			t.Errorf("%s:\ngot  %v\nwant %s", tt.text, err, tt.want)
		}
	}
	if _, err := DecodeBodies[AclInfo](
		[]byte(`{}`),
	); err == nil ||
		!strings.Contains(err.Error(), "AclInfo: byte 0") {
		t.Errorf("list: %v", err)
	}
	if _, err := DecodeBody[BrokerStatsItem]([]byte(`{"tps":"NaN"}`)); err == nil {
		t.Error("NaN was accepted")
	}
	if _, err := DecodeBody[BatchAckMessageRequestBody]([]byte(`{"acks":[{"b":"%"}]}`)); err == nil {
		t.Error("broken base64 was accepted")
	}
	if _, err := DecodeBody[ResetOffsetBody]([]byte(`{"offsetTable":{"{\"queueId\":x}":1}}`)); err == nil {
		t.Error("a broken key was accepted")
	}
}

// TestBodyLimits feeds texts that are small or cheap to send and dear to read.
func TestBodyLimits(t *testing.T) {
	t.Parallel()
	refs := func(n, bytes int) string {
		attributes := `{"k":"` + strings.Repeat("x", bytes) + `"}`
		ref := strings.Repeat(`,{"attributes":{"$ref":"$.topicConfigList[0].attributes"}}`, n)
		return `{"topicConfigList":[{"attributes":` + attributes + `}` + ref + `]}`
	}
	tests := []struct{ name, text, want string }{
		{"deep, skipped", `{"x":` + strings.Repeat("[", 1_000_000) + `}`, "levels deep"},
		{"deep, as key", strings.Repeat("{", 1_000_000), "levels deep"},
		{"many objects", `{"topicConfigList":[` + strings.Repeat("{},", maxBodyObjects+1) + `]}`, "objects"},
		{"large", strings.Repeat(" ", maxBodyBytes+1), "bytes are more than"},
		{"a reference to itself", `{"topicConfigList":[{"$ref":"$.topicConfigList[0]"}]}`, ""},
		{"a reference to the root", `{"topicConfigList":[{"$ref":"$"}],"x":1}`, ""},
		{"references to much", refs(100, 100_000), "references cost"},
		{
			"references from afar",
			`{"x":"` + strings.Repeat("x", 100_000) + `",` + refs(100, 1)[1:],
			"references cost",
		},
		{"a few references", refs(100, 100), ""},
	}
	for _, tt := range tests {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := DecodeBody[CreateTopicListRequestBody]([]byte(tt.text))
		runtime.ReadMemStats(&after)
		if tt.want == "" != (err == nil) || (err != nil && !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
		// Parallel tests allocate, too: the bound is generous.
		if spent := after.TotalAlloc - before.TotalAlloc; spent > 512<<20 {
			t.Errorf("%s: %d bytes allocated for %d of text", tt.name, spent, len(tt.text))
		}
	}
}

func TestReferencePaths(t *testing.T) {
	t.Parallel()
	tests := []struct{ path, want string }{
		{"$.x.y", "1"},
		{"$.list[1]", "2"},
		{"$.list[1].z", ""},
		{"$.a\\\\.b", "3"},
		{"$.list[2]", ""},
		{"$.none", ""},
		{"$.x.", ""},
		{"$.list[", ""},
		{"$.list[-1]", ""},
		{"@", ""},
		{"..", ""},
		{"", ""},
		{"$$", ""},
		{"$.list", ""},
		{"$.x.y.k", ""},
	}
	for _, tt := range tests {
		text := fmt.Sprintf(
			`{"x":{"q":0,"y":{"k":"1"}},"list":[{"k":"0"},{"k":"2"}],"a.b":{"k":"3"},"table":{"$ref":%q,"more":[]}}`,
			tt.path,
		)
		got, err := DecodeBody[KVTable]([]byte(text))
		if tt.path == "$.list" { // a list where a table belongs
			if err == nil {
				t.Errorf("%s was accepted", tt.path)
			}
			continue
		}
		if err != nil || got.Table["k"] != tt.want {
			t.Errorf("%s: got %v, %v, want %q", tt.path, got, err, tt.want)
		}
	}
	// A reference to nowhere inside a list is left out; one in front of it does not disturb what follows.
	got, err := DecodeBody[LockBatchRequestBody]([]byte(
		`{"mqSet":[{"$ref":"$.nowhere"},{"topic":"t","queueId":1},null,{"$ref":"$.mqSet[1]"}],"clientId":"c"}`))
	want := []MessageQueue{{Topic: "t", QueueID: 1}, {Topic: "t", QueueID: 1}}
	if err != nil || !cmp.Equal(got.MQSet, want) || got.ClientID != "c" {
		t.Errorf("got %+v, %v", got, err)
	}
}
