// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"
	"strings"
	"testing"
)

// TestC124C125C127ValidateTopic: one verdict on a name, whatever door it came by.
func TestC124C125C127ValidateTopic(t *testing.T) {
	t.Parallel()
	long := func(n int) string { return strings.Repeat("t", n) }
	const illegal = ", contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
	for _, tc := range []struct {
		name, topic string
		reason      string // in the text; empty: the name is good
		text        string
	}{
		{"plain", "orders", "", ""},
		{"every kind of character", "aZ09_-%|", "", ""},
		{"127", long(127), "", ""},
		{
			"128", long(128), tooLong,
			"The specified topic: " + long(128) + ", is longer than topic max length: 127, it has 128",
		},
		{"255", long(255), tooLong, ""},
		{"64 KiB is not repeated", long(65536), tooLong, ""},
		{"retry topic of 255", RetryPrefix + long(248), "", ""},
		{"retry topic of 256", RetryPrefix + long(249), tooLong, ""},
		{"dead letter topic of 255", DLQPrefix + long(250), "", ""},
		{"empty", "", blank, "The specified topic is blank."},
		{"spaces", "  \t", blank, "The specified topic is blank."},
		{"dot inside", "a.b", illegalName, "The specified topic: a.b" + illegal},
		{"path up", "../../x", illegalName, "The specified topic: ../../x" + illegal},
		{"slash", "a/b", illegalName, ""},
		{"backslash", `a\b`, illegalName, ""},
		{"dot", ".", illegalName, ""},
		{"zero byte", "a\x00b", illegalName, ""},
		{"not ASCII", "tópico", illegalName, ""},
		{"at sign", "a@b", illegalName, ""},
		{"plus sign", "a+b", illegalName, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			checkName(t, ValidateTopic(tc.topic), "topic", tc.reason, tc.text)
		})
	}
}

// What is wrong with names.
const (
	tooLong     = "is longer than"
	blank       = "is blank."
	illegalName = "contains illegal characters"
)

func checkName(t *testing.T, err error, what, reason, text string) {
	t.Helper()
	if reason == "" && err == nil {
		return
	}
	if reason == "" || !refusal(IllegalParameter, "The specified "+what)(err) ||
		!refusal(IllegalParameter, reason)(err) {
		t.Fatalf("error %v, want %q", err, reason)
	}
	if text != "" && err.Error() != text {
		t.Errorf("text %q, want %q", err, text)
	}
	if len(err.Error()) > 500 {
		t.Errorf("text of %d bytes", len(err.Error()))
	}
}

// TestC126LongGroup: a group of 120 characters can have its retry, dead letter and pop retry topics.
func TestC126LongGroup(t *testing.T) {
	t.Parallel()
	group, topic := strings.Repeat("g", MaxGroupBytes), strings.Repeat("t", MaxTopicBytes)
	if err := ValidateGroup(group); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{RetryTopic(group), DLQTopic(group), PopRetryTopics(topic, group)[0]} {
		if err := ValidateTopic(name); err != nil {
			t.Error(err)
		}
	}
	checkName(t, ValidateGroup(group+"g"), "group", tooLong,
		fmt.Sprintf("The specified group: %sg, is longer than group max length: 120, it has 121", group))
	checkName(t, ValidateGroup("a.b"), "group", illegalName, "")
	checkName(t, ValidateGroup(""), "group", blank, "The specified group is blank.")
}

// FuzzValidateTopic: no accepted name (C127) can leave a folder.
func FuzzValidateTopic(f *testing.F) {
	for _, seed := range []string{"orders", "../../x", "%RETRY%g", "", "a b", "\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if ValidateTopic(name) != nil {
			return
		}
		if name == "" || len(name) > MaxRetryTopicBytes || strings.ContainsAny(name, "/\\.@+ \x00\x01\x02") {
			t.Errorf("accepted %q", name)
		}
	})
}

func TestSystemNames(t *testing.T) {
	t.Parallel()
	names := SystemNames{Cluster: "C1", Broker: "b1"}
	for topic, want := range map[string]bool{
		"TBW102": true, "SCHEDULE_TOPIC_XXXX": true, "BenchmarkTest": true, "SELF_TEST_TOPIC": true,
		"OFFSET_MOVED_EVENT": true, "RMQ_SYS_TRACE_TOPIC": true, "TRANS_CHECK_MAX_TIME_TOPIC": true,
		"rmq_sys_anything": true, "C1": true, "b1": true, "C1_REPLY_TOPIC": true, "CHECKPOINT_TOPIC": true,
		"": false, "orders": false, "C1_REPLY_TOPIC2": false, "%RETRY%g": false, "RMQ_SYS_OTHER": false, "c1": false,
	} {
		if got := names.IsTopic(topic); got != want {
			t.Errorf("IsTopic(%q) = %v", topic, got)
		}
	}
	for topic, want := range map[string]bool{
		"SCHEDULE_TOPIC_XXXX": true, "RMQ_SYS_TRANS_HALF_TOPIC": true, "SELF_TEST_TOPIC": true,
		"RMQ_SYS_TRACE_TOPIC": false, "TBW102": false, "orders": false,
	} {
		if got := IsSendForbidden(topic); got != want {
			t.Errorf("IsSendForbidden(%q) = %v", topic, got)
		}
	}
	for group, want := range map[string]bool{"TOOLS_CONSUMER": true, "CID_RMQ_SYS_X": true, "g": false} {
		if got := IsSystemGroup(group); got != want {
			t.Errorf("IsSystemGroup(%q) = %v", group, got)
		}
	}
}

func TestNameAllocations(t *testing.T) {
	names := SystemNames{Cluster: "C1", Broker: "b1"}
	if n := testing.AllocsPerRun(100, func() {
		if ValidateTopic("orders") != nil || names.IsTopic("orders") || IsSendForbidden("orders") {
			t.Error("refused")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
