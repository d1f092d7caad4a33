// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/roquetmq/roquet/internal/message"
)

// startOnFiles starts a store whose 60 messages, which begin with their numbers, have left the memory.
func startOnFiles(t *testing.T) *runner {
	t.Helper()
	cfg := testConfig(t)
	cfg.Log.RingBytes = 1
	r := start(t, cfg)
	for i := range 60 {
		r.send(msg("t", 0, fmt.Sprint(i)+strings.Repeat(" ", 8000)))
	}
	return r
}

// TestFetchFromMappedSegments looks at all records and wants few: they stay what they are after their segment has been
// dropped. When somebody cuts a file that is mapped, that is damage like any other.
func TestFetchFromMappedSegments(t *testing.T) {
	t.Parallel()
	r := startOnFiles(t)
	wanted := func(rec message.Record) bool { return rec.Body()[0] == '5' }
	fetch := func(from message.QueueOffset) FetchResult {
		return r.Fetch(&FetchRequest{Topic: "t", From: from, MatchRecord: wanted, MaxBytes: 1 << 20})
	}
	res := fetch(0)
	if res.Status != Found || len(res.Records) != 11 || res.Next != 60 {
		t.Fatalf("%v, %d records, next %d, %v", res.Status, len(res.Records), res.Next, res.Err)
	}
	segs := r.log.Segments()
	if err := os.Truncate(segs[2].Path, 100); err != nil {
		t.Fatal(err)
	}
	cut := fetch(res.Min)
	if cut.Status != Found || len(cut.Records) == 0 || cut.Next >= 60 {
		t.Errorf("before the cut: %v, %d records, next %d, %v", cut.Status, len(cut.Records), cut.Next, cut.Err)
	}
	if cut = fetch(cut.Next); cut.Status != Damaged || cut.Err == nil || cut.Next == 60 {
		t.Errorf("at the cut: %v, next %d, %v", cut.Status, cut.Next, cut.Err)
	}
	if cut = fetch(cut.Next); cut.Status != Found || cut.Next != 60 {
		t.Errorf("behind the cut: %v, next %d, %v", cut.Status, cut.Next, cut.Err)
	}
	if _, err := r.log.DropBefore(segs[len(segs)-1].First); err != nil {
		t.Fatal(err)
	}
	for _, rec := range res.Records {
		if err := message.Record(rec).Check(); err != nil {
			t.Error(err)
		}
	}
}

// TestBodyDamagedAfterItWasVerified: what a filtered walk gives out is verified even when its block is trusted.
func TestBodyDamagedAfterItWasVerified(t *testing.T) {
	t.Parallel()
	r := startOnFiles(t)
	fetch := func(from message.QueueOffset) FetchResult {
		return r.Fetch(&FetchRequest{
			Topic: "t", From: from, MaxBytes: 1 << 20, MatchRecord: func(message.Record) bool { return true },
		})
	}
	whole := fetch(0)
	if whole.Status != Found || len(whole.Records) != 32 {
		t.Fatalf("%v, %d records", whole.Status, len(whole.Records))
	}
	pos := message.Record(whole.Records[9]).LogOffset()
	for _, seg := range r.log.Segments() {
		if pos < seg.First || pos >= seg.End {
			continue
		}
		file, err := os.OpenFile(seg.Path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteAt([]byte{'x'}, int64(pos-seg.First)+4000); err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if res := fetch(0); res.Status != Found || res.Next != 9 || len(res.Records) != 9 {
		t.Errorf("before the damage: %v, %d records, next %d, %v", res.Status, len(res.Records), res.Next, res.Err)
	}
	if res := fetch(9); res.Status != Damaged || res.Err == nil {
		t.Errorf("at the damage: %v, %d records, next %d", res.Status, len(res.Records), res.Next)
	}
}

// TestPanicOfAFilter is not taken for a fault of the memory.
func TestPanicOfAFilter(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	r.send(msg("t", 0, "a"))
	defer func() {
		if p := recover(); p != "bug" {
			t.Error(p)
		}
	}()
	r.Fetch(&FetchRequest{Topic: "t", MatchRecord: func(message.Record) bool { panic("bug") }})
}
