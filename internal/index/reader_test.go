// SPDX-License-Identifier: Apache-2.0

package index

import (
	"errors"
	"testing"

	"github.com/roquetmq/roquet/internal/message"
)

// TestReaderOfAGrowingQueue goes on behind what Pebble had when its iterator was opened.
func TestReaderOfAGrowingQueue(t *testing.T) {
	t.Parallel()
	d := mustOpen(t, newDisk(t), Config{})
	q := d.Queue("topic", 0)
	grow := func(chunks int) {
		for range chunks * chunkEntries {
			q.Add(Entry{Offset: q.Next(), Pos: message.LogOffset(q.Next()) * 300, Size: 300})
		}
		if err := errors.Join(d.Checkpoint(message.LogOffset(q.Next())*300), d.Sync()); err != nil {
			t.Fatal(err)
		}
		for i := range d.cache {
			d.cache[i].Store(nil)
		}
	}
	grow(4)
	r := Reader{Queue: q}
	defer r.Close()
	var buf [100]Entry
	next := message.QueueOffset(0)
	readTo := func(end message.QueueOffset) {
		t.Helper()
		for next < end {
			n, err := r.Read(next, buf[:min(len(buf), int(end-next))])
			if n == 0 || err != nil {
				t.Fatalf("at %d: %d, %v", next, n, err)
			}
			for i, e := range buf[:n] {
				if off := next + message.QueueOffset(i); e.Offset != off || e.Pos != message.LogOffset(off)*300 {
					t.Fatalf("at %d: %+v", off, e)
				}
			}
			next += message.QueueOffset(n)
		}
	}
	readTo(3 * chunkEntries)
	if r.iter == nil {
		t.Fatal("the third chunk was not read by an iterator")
	}
	grow(4)
	readTo(8 * chunkEntries)
	if n, err := r.Read(next, buf[:]); n != 0 || err != nil {
		t.Errorf("at the end: %d, %v", n, err)
	}
}
