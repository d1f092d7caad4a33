// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/roquetmq/roquet/internal/message"
)

func keysOf(t *testing.T, r *runner, topic, key string, unique bool) []string {
	t.Helper()
	recs, err := r.ByKey(topic, key, unique, 100, 0, forever)
	if err != nil {
		t.Fatal(err)
	}
	var bodies []string
	for _, rec := range recs {
		bodies = append(bodies, string(rec.Body()))
	}
	return bodies
}

// C041: topic#key with the same Java hash is told apart by comparing the record.
func TestC041KeyHashCollision(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	r.send(msg("AaTopic", 0, "1", message.PropertyKeys, "Aa"), msg("BBTopic", 0, "2", message.PropertyKeys, "BB"))
	wantBodies(t, keysOf(t, r, "AaTopic", "BB", false))
	wantBodies(t, keysOf(t, r, "BBTopic", "Aa", false))
	wantBodies(t, keysOf(t, r, "AaTopic", "Aa", false), "1")
	wantBodies(t, keysOf(t, r, "BBTopic", "BB", false), "2")
}

// C042: every physical record of one unique key is returned, once, newest first.
func TestC042EveryRecordOfAUniqueKey(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	for i := range 3 {
		r.send(msg("%RETRY%g", 0, fmt.Sprint("try ", i), message.PropertyUniqueKey, "U1", message.PropertyKeys, "k"))
	}
	wantBodies(t, keysOf(t, r, "%RETRY%g", "U1", true), "try 2", "try 1", "try 0")
	wantBodies(t, keysOf(t, r, "%RETRY%g", "U1", false))
	wantBodies(t, keysOf(t, r, "%RETRY%g", "k", true))
	r = r.restart()
	wantBodies(t, keysOf(t, r, "%RETRY%g", "U1", true), "try 2", "try 1", "try 0")
}

// C043: a key that is given twice leads to its record once.
func TestC043RepeatedKey(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	r.send(msg("t", 0, "a", message.PropertyKeys, "k1 k1"), msg("t", 0, "b", message.PropertyKeys, "k0  k2 "))
	wantBodies(t, keysOf(t, r, "t", "k1", false), "a")
	wantBodies(t, keysOf(t, r, "t", "k2", false), "b")
	wantBodies(t, keysOf(t, r, "t", "k", false))
	wantBodies(t, keysOf(t, r, "t", "", false))
}

func TestByKeyWindowAndLimit(t *testing.T) {
	t.Parallel()
	c := newClock()
	cfg := testConfig(t)
	cfg.Now = c.now
	r := start(t, cfg)
	begin := c.now().UnixMilli()
	for i := range 5 {
		r.send(msg("t", 0, fmt.Sprint(i), message.PropertyKeys, "k"))
		c.advance(time.Second)
	}
	for _, test := range []struct {
		from, to int64
		limit    int
		want     []string
	}{
		{0, forever, 10, []string{"4", "3", "2", "1", "0"}},
		{0, forever, 2, []string{"4", "3"}},
		{begin + 1000, begin + 2000, 10, []string{"2", "1"}},
		{begin + 1001, begin + 1999, 10, nil},
		{0, begin, 10, []string{"0"}},
	} {
		recs, err := r.ByKey("t", "k", false, test.limit, test.from, test.to)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, rec := range recs {
			got = append(got, string(rec.Body()))
		}
		wantBodies(t, got, test.want...)
	}
}

// C050: a search by a time that many messages share leads to the first of them (or to the last, when asked
// so).
func TestC050OffsetByTime(t *testing.T) {
	t.Parallel()
	c := newClock()
	cfg := testConfig(t)
	cfg.Now = c.now
	r := start(t, cfg)
	t0 := c.now().UnixMilli()
	for range 3 { // at t0, t0+1s, t0+2s: 50 messages each
		batch := make([]message.Message, 50)
		for i := range batch {
			batch[i] = msg("t", 0, "x")
		}
		r.send(batch...)
		c.advance(time.Second)
	}
	for _, test := range []struct {
		millis       int64
		lower, upper message.QueueOffset
	}{
		{0, 0, 0},
		{t0 - 1, 0, 0},
		{t0, 0, 49},
		{t0 + 500, 50, 49},
		{t0 + 1000, 50, 99},
		{t0 + 1001, 100, 99},
		{t0 + 2000, 100, 149},
		{t0 + 2001, 150, 149},
		{forever - 1, 150, 149},
	} {
		lower, err1 := r.OffsetByTime("t", 0, test.millis, false)
		upper, err2 := r.OffsetByTime("t", 0, test.millis, true)
		if lower != test.lower || upper != test.upper || err1 != nil || err2 != nil {
			t.Errorf(
				"time t0%+d: %d, %d (%v, %v), want %d, %d",
				test.millis-t0,
				lower,
				upper,
				err1,
				err2,
				test.lower,
				test.upper,
			)
		}
	}
	if _, err := r.OffsetByTime("t", 1, t0, false); !errors.Is(err, ErrNotFound) {
		t.Errorf("no queue: %v", err)
	}
}

func TestRecordAtWrongPositions(t *testing.T) {
	t.Parallel()
	r := start(t, testConfig(t))
	w := r.write(
		&Write{
			Messages: []message.Message{msg("t", 0, "a"), msg("t", 0, "b")},
			State:    []message.State{put(message.SpaceKV, "k", "v")},
		},
	)
	first, second := w.Messages[0].LogOffset, w.Messages[1].LogOffset
	for _, pos := range []message.LogOffset{-1, 0, first - 1, first + 1, second - 1, second + message.LogOffset(w.Messages[1].EncodedLen()), 1 << 40} {
		if rec, err := r.Record(pos); !errors.Is(err, ErrNotFound) {
			t.Errorf("position %d: %v %v", pos, rec, err)
		}
	}
	if rec, err := r.At("t", 0, 1); err != nil || string(rec.Body()) != "b" {
		t.Errorf("At: %v", err)
	}
	for _, off := range []message.QueueOffset{-1, 2, 1 << 40} {
		if _, err := r.At("t", 0, off); !errors.Is(err, ErrNotFound) {
			t.Errorf("At %d: %v", off, err)
		}
	}
}

func TestIndexedProperties(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		props string
		want  indexedProperties
	}{
		{"", indexedProperties{}},
		{"TAGS\x01a\x02", indexedProperties{tags: "a"}},
		{"TAGS\x01a", indexedProperties{tags: "a"}},
		{"TAGS\x01a\x02TAGS\x01b\x02", indexedProperties{tags: "b"}},
		{"TAGS\x01\x02KEYS\x01\x02UNIQ_KEY\x01\x02", indexedProperties{}},
		{"a\x01b\x02UNIQ_KEY\x01u\x02KEYS\x01k1 k2\x02x\x02", indexedProperties{keys: "k1 k2", uniqueKey: "u"}},
		{"XTAGS\x01a\x02TAGSX\x01b\x02", indexedProperties{}},
	} {
		got := indexed(test.props)
		if got != test.want {
			t.Errorf("%q: %+v, want %+v", test.props, got, test.want)
		}
		tags, _ := message.Property(test.props, message.PropertyTags)
		keys, _ := message.Property(test.props, message.PropertyKeys)
		unique, _ := message.Property(test.props, message.PropertyUniqueKey)
		if (indexedProperties{tags, keys, unique}) != got {
			t.Errorf("%q: message.Property reads it differently", test.props)
		}
	}
}
