// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"fmt"
	"testing"

	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

func newQueries(w *world) *Queries { return NewQueries(w.offsets, w.st, w.st.endOfLog) }

func TestQueryByKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.topic(t, "T", 1)
	for i := range 100 {
		w.mustSend(t, "T", fmt.Sprint(i), withProps("KEYS", "k", "UNIQ_KEY", "u"))
	}
	last := w.messages(t, "T", 0)[99]
	tests := []struct {
		name string
		ask  KeyQuery
		want int
	}{
		{"as many as asked", KeyQuery{Topic: "T", Key: "k", Limit: 3, End: never}, 3},
		{"never more than the limit", KeyQuery{Topic: "T", Key: "k", Limit: 1000, End: never}, MaxQueryCount},
		{"one at least", KeyQuery{Topic: "T", Key: "k", End: never}, 1},
		{"outside the time", KeyQuery{Topic: "T", Key: "k", Limit: 3, End: last.StoreTimestamp - 1_000_000}, 0},
		{
			"C044 unique key at any time",
			KeyQuery{Topic: "T", Key: "u", Unique: true, Begin: 1, End: 2},
			DefaultQueryCount,
		},
		{"C041 other topic", KeyQuery{Topic: "X", Key: "k", Limit: 3, End: never}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := newQueries(w).ByKey(tt.ask)
			if err != nil || len(got) != tt.want {
				t.Fatalf("%d records, %v; want %d", len(got), err, tt.want)
			}
			if len(got) > 0 && got[0].LogOffset() != last.LogOffset {
				t.Error("the newest is not the first")
			}
		})
	}
}

func TestQueryOffsets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.topic(t, "T", 1)
	q := newQueries(w)
	if at, err := q.EarliestStoreTime(
		"T",
		0,
	); err != nil || at != -1 || q.MinOffset("T", 0) != 0 ||
		q.MaxOffset("T", 0) != 0 {
		t.Errorf("never written: earliest %d, %v", at, err)
	}
	for range 5 {
		w.mustSend(t, "T", "b")
	}
	w.st.queues[memQueueKey{"T", 0}].first = 2
	third := w.st.records[w.st.queues[memQueueKey{"T", 0}].pos[2]]
	at, err := q.EarliestStoreTime("T", 0)
	if err != nil || at != third.StoreTimestamp() || q.MinOffset("T", 0) != 2 || q.MaxOffset("T", 0) != 5 {
		t.Errorf("earliest %d, %v, bounds %d %d", at, err, q.MinOffset("T", 0), q.MaxOffset("T", 0))
	}
	damage := errors.New("flipped bit")
	w.st.damaged[third.LogOffset()] = damage
	if _, err := q.EarliestStoreTime("T", 0); !errors.Is(err, damage) {
		t.Errorf("damaged: %v", err)
	}
	w.st.damaged[third.LogOffset()] = store.ErrNotFound
	if at, err := q.EarliestStoreTime("T", 0); err != nil || at != -1 {
		t.Errorf("dropped meanwhile: %d, %v", at, err)
	}
	w.st.queues[memQueueKey{"T", 0}].first = 5
	if at, err := q.EarliestStoreTime("T", 0); err != nil || at != -1 {
		t.Errorf("C156 all dropped: %d, %v", at, err)
	}
}

func TestQueryConsumerOffset(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.topic(t, "T", 3)
	q := newQueries(w)
	w.mustSend(t, "T", "b")
	w.mustSend(t, "T", "b", func(r *SendRequest) { r.QueueID = 1 })
	w.st.queues[memQueueKey{"T", 1}].first = 1
	w.offsets.Commit("g", "T", 1, 7)
	tests := []struct {
		name  string
		group string
		queue int32
		zero  bool
		want  message.QueueOffset
		ok    bool
	}{
		{"committed", "g", 1, false, 7, true},
		{"young queue begins at 0", "new", 0, true, 0, true},
		{"young queue, but not asked for", "new", 0, false, 0, false},
		{"first messages are gone", "new", 1, true, 0, false},
		{"never written", "new", 2, true, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if off, ok := q.ConsumerOffset(tt.group, "T", tt.queue, tt.zero); off != tt.want || ok != tt.ok {
				t.Errorf("%d, %v; want %d, %v", off, ok, tt.want, tt.ok)
			}
		})
	}
	old := NewQueries(w.offsets, w.st, func() message.LogOffset { return w.st.endOfLog() + youngBytes })
	if _, ok := old.ConsumerOffset("new", "T", 0, true); ok {
		t.Error("an old queue begins at 0")
	}
}
