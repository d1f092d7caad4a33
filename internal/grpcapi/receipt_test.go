// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"testing"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/protocol"
)

func TestParseHandle(t *testing.T) {
	t.Parallel()
	good := "5 1700000000000 60000 0 0 broker-a 3 17 4711"
	h, err := parseHandle(good)
	if err != nil || h.text() != good || h.queueID != 3 || h.offset != 17 || h.logOffset != 4711 ||
		h.visibleAt() != 1700000060000 {
		t.Fatalf("%+v %v", h, err)
	}
	eight := "5 1700000000000 60000 0 1 broker-a 3 17"
	if h, err := parseHandle(
		eight,
	); err != nil || h.text() != eight || h.logOffset != -1 ||
		h.realTopic("t", "g") != "%RETRY%g_t" {
		t.Errorf("%+v %v", h, err)
	}
	for _, bad := range []string{
		"", " ", "5", "5 1 1 0 0 b 3", "5 1 1 0 0 b 3 x", "-5 1 1 0 0 b 3 1", "5 1 1 0 0 b 3 17 1 1", "5 1 1 0 0 b 99999999999 17",
		"5 1 1 0 0  3 17 1 1", string(make([]byte, 600)),
	} {
		if _, err := parseHandle(bad); statusOf(err).GetCode() != v2.Code_INVALID_RECEIPT_HANDLE {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func FuzzParseHandle(f *testing.F) {
	f.Add("5 1700000000000 60000 0 0 broker-a 3 17 4711")
	f.Add("5 1 1 0 1 b 3 17")
	f.Fuzz(func(t *testing.T, text string) {
		h, err := parseHandle(text)
		if err != nil {
			return
		}
		again, err := parseHandle(h.text())
		if err != nil || again != h {
			t.Errorf("%q became %q: %+v, %+v, %v", text, h.text(), h, again, err)
		}
	})
}

func TestPopInfo(t *testing.T) {
	t.Parallel()
	info := readPopInfo(&protocol.PopMessageResponseHeader{
		StartOffsetInfo: "0 1 100;0 12 7;1 1 5", OrderCountInfo: "0 qo1%101 2;0 1 1;0 12 0",
	})
	for _, tc := range []struct {
		retry        string
		queue        int32
		offset       int64
		start, count int64
	}{
		{"0", 1, 101, 100, 2},
		{"0", 1, 102, 100, 1},
		{"0", 12, 9, 7, 0},
		{"1", 1, 6, 5, 0},
		{"0", 2, 33, 33, 0},
	} {
		start, count := info.start(tc.retry, tc.queue, tc.offset), info.attempts(tc.retry, tc.queue, tc.offset)
		if start != tc.start || int64(count) != tc.count {
			t.Errorf("%+v: start %d, count %d", tc, start, count)
		}
	}
}
