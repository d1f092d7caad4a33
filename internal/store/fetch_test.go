// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"strings"
	"testing"

	"github.com/roquetmq/roquet/internal/message"
)

func TestFetchStatuses(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	for i := range 5 {
		r.send(msg("t", 0, fmt.Sprint(i), message.PropertyTags, []string{"even", "odd"}[i%2]))
	}
	even := message.TagsCode("even")
	match := func(code int64) bool { return code == even }
	tests := []struct {
		name   string
		req    FetchRequest
		status FetchStatus
		next   message.QueueOffset
		count  int
	}{
		{"no queue", FetchRequest{Topic: "t", QueueID: 9, From: 3}, NoMatchedLogicQueue, 0, 0},
		{"no topic", FetchRequest{Topic: "u"}, NoMatchedLogicQueue, 0, 0},
		{"all", FetchRequest{Topic: "t"}, Found, 5, 5},
		{"from the middle", FetchRequest{Topic: "t", From: 3}, Found, 5, 2},
		{"two", FetchRequest{Topic: "t", MaxCount: 2}, Found, 2, 2},
		{"one is returned in any case", FetchRequest{Topic: "t", MaxBytes: 1}, Found, 1, 1},
		{"by tag", FetchRequest{Topic: "t", Match: match}, Found, 5, 3},
		{"by tag, two", FetchRequest{Topic: "t", Match: match, MaxCount: 2}, Found, 3, 2},
		{"no match", FetchRequest{Topic: "t", Match: func(int64) bool { return false }}, NoMatchedMessage, 5, 0},
		{
			"scan bound",
			FetchRequest{Topic: "t", MaxCount: 1, MaxScan: 2, Match: func(int64) bool { return false }},
			NoMatchedMessage, 2, 0,
		},
		{
			"by record",
			FetchRequest{Topic: "t", MatchRecord: func(r message.Record) bool { return string(r.Body()) == "3" }},
			Found, 5, 1,
		},
		{"at the end", FetchRequest{Topic: "t", From: 5}, OffsetOverflowOne, 5, 0},
		{"past the end", FetchRequest{Topic: "t", From: 6}, OffsetOverflowBadly, 5, 0},
		{"negative", FetchRequest{Topic: "t", From: -1}, OffsetTooSmall, 0, 0},
	}
	for _, test := range tests {
		res := r.Fetch(&test.req)
		if res.Status != test.status || res.Next != test.next || len(res.Records) != test.count {
			t.Errorf("%s: %v next %d, %d records; want %v next %d, %d records", test.name,
				res.Status, res.Next, len(res.Records), test.status, test.next, test.count)
		}
	}
	if minimum, maximum, ok := r.Bounds("t", 0); minimum != 0 || maximum != 5 || !ok {
		t.Errorf("bounds %d %d %v", minimum, maximum, ok)
	}
	if _, _, ok := r.Bounds("t", 1); ok {
		t.Error("bounds of a queue that is not there")
	}
}

// TestFetchLooksAtSoManyBytes: a filter that wants none of the large messages is answered before it has read them all.
func TestFetchLooksAtSoManyBytes(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	body := strings.Repeat("x", 3<<20)
	for range 8 {
		r.send(msg("t", 0, body))
	}
	none := func(message.Record) bool { return false }
	res := r.Fetch(&FetchRequest{Topic: "t", MatchRecord: none})
	if res.Status != NoMatchedMessage || res.Next != 6 {
		t.Errorf("%v, next %d", res.Status, res.Next)
	}
	if res = r.Fetch(&FetchRequest{Topic: "t", From: res.Next, MatchRecord: none}); res.Next != 8 {
		t.Errorf("%v, next %d", res.Status, res.Next)
	}
}

func TestFetchKeepsWhatIsInInto(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	r.send(msg("t", 0, "a"))
	into := make([][]byte, 1, 8)
	res := r.Fetch(&FetchRequest{Topic: "t", Into: into})
	if len(res.Records) != 2 || &res.Records[0] != &into[0] {
		t.Fatalf("%d records", len(res.Records))
	}
}

func TestFetchStatusNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for status := Found; status <= Unreadable; status++ {
		name := status.String()
		if name == "UNKNOWN" || seen[name] {
			t.Errorf("status %d has the name %s", status, name)
		}
		seen[name] = true
	}
}

func TestFetchAllocations(t *testing.T) {
	r := start(t, testConfig(t))
	batch := make([]message.Message, 64)
	for i := range batch {
		batch[i] = msg("t", 0, "some body", message.PropertyTags, "x")
	}
	r.send(batch...)
	req := FetchRequest{Topic: "t", From: 7, Into: make([][]byte, 0, 32)}
	if n := testing.AllocsPerRun(100, func() {
		if res := r.Fetch(&req); res.Status != Found || len(res.Records) != 32 {
			t.Fatal(res.Status)
		}
	}); n > 0 {
		t.Errorf("%v allocations a fetch", n)
	}
}
