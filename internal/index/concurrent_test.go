// SPDX-License-Identifier: Apache-2.0

package index

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/roquetmq/roquet/internal/message"
)

// crowd is one applier and many readers over the same index. What an entry holds follows from its queue and
// offset, so that a reader can tell a right one from a wrong one without a model.
type crowd struct {
	d       *DB
	first   atomic.Int64
	end     atomic.Int64
	stopped atomic.Bool
}

const (
	crowdTopics = 6
	crowdQueues = 4
	crowdKeys   = 50
	crowdBytes  = 100
)

func crowdTags(queue int32, off message.QueueOffset) int64 { return int64(queue)<<40 ^ int64(off)*7 }

func crowdKey(pos message.LogOffset) string {
	return fmt.Sprintf("key-%d", int64(pos)/crowdBytes%crowdKeys)
}

func (c *crowd) apply(entries int) error {
	rng := rand.New(rand.NewPCG(5, 6))
	topic := []byte("topic0")
	for i := range entries {
		pos := message.LogOffset(i * crowdBytes)
		topic[5] = '0' + byte(rng.IntN(crowdTopics))
		q := c.d.Queue(string(topic), rng.Int32N(crowdQueues))
		q.Add(Entry{Offset: q.Next(), Pos: pos, Size: crowdBytes, TagsCode: crowdTags(q.ID(), q.Next())})
		c.d.AddKey(KeyUnique, topic, crowdKey(pos), pos)
		switch {
		case i%7 == 0:
			c.d.Put(message.SpaceOffset, topic, fmt.Append(nil, pos), pos)
		case i%9999 == 9998:
			c.d.DeleteTopic("topic3", pos)
		}
		c.end.Store(int64(pos) + crowdBytes)
		if err := c.d.Checkpoint(pos + crowdBytes); err != nil {
			return err
		}
	}
	return c.d.Err()
}

func (c *crowd) readQueues(rng *rand.Rand) error {
	topic := []byte("topic0")
	buf := make([]Entry, 40)
	for !c.stopped.Load() {
		topic[5] = '0' + byte(rng.IntN(crowdTopics))
		q := c.d.LookupQueue(string(topic), rng.Int32N(crowdQueues))
		if q == nil {
			continue
		}
		low, next := q.Min(message.LogOffset(c.first.Load())), q.Next()
		if low >= next {
			continue
		}
		from := low + message.QueueOffset(rng.Int64N(int64(next-low)))
		if err := c.readSome(q, from, next, buf[:1+rng.IntN(len(buf))]); err != nil {
			return fmt.Errorf("read %s/%d (%d-%d): %w", topic, q.ID(), low, next, err)
		}
	}
	return nil
}

// readSome reads on, while the queue grows and loses its oldest entries.
func (c *crowd) readSome(q *Queue, from, end message.QueueOffset, buf []Entry) error {
	r := Reader{Queue: q}
	defer r.Close()
	for from < end {
		n, err := r.Read(from, buf)
		if errors.Is(err, ErrDropped) {
			return nil
		}
		if err != nil || n == 0 {
			return fmt.Errorf("at %d: %d, %w", from, n, err)
		}
		for i, e := range buf[:n] {
			if e.Offset != from+message.QueueOffset(i) || e.TagsCode != crowdTags(q.ID(), e.Offset) ||
				e.Size != crowdBytes {
				return fmt.Errorf("at %d: wrong entry %+v", from, e)
			}
		}
		from += message.QueueOffset(n)
	}
	return nil
}

func (c *crowd) findKeys(rng *rand.Rand) error {
	for !c.stopped.Load() {
		key := fmt.Sprintf("key-%d", rng.IntN(crowdKeys))
		topic := fmt.Sprintf("topic%d", rng.IntN(crowdTopics))
		last := message.LogOffset(1 << 62)
		for pos, err := range c.d.FindKeys(KeyUnique, topic, key, message.LogOffset(c.first.Load()), 1<<62) {
			if err != nil {
				return err
			}
			if pos >= last || crowdKey(pos) != key {
				return fmt.Errorf("key %s: found %d after %d", key, pos, last)
			}
			last = pos
		}
		_, pos, ok, err := c.d.Get(message.SpaceOffset, []byte(topic))
		if err != nil || ok && int64(pos) >= c.end.Load()+crowdBytes {
			return fmt.Errorf("state of %s at %d: %w", topic, pos, err)
		}
	}
	return nil
}

func (c *crowd) drop() error {
	for !c.stopped.Load() {
		if pos := c.d.Applied() / 2; int64(pos) > c.first.Load() {
			c.first.Store(int64(pos))
			if err := c.d.DropBefore(pos); err != nil {
				return err
			}
		}
		if missing := c.d.MissingKeys(message.LogOffset(c.first.Load())); len(missing) > 0 {
			return fmt.Errorf("missing keys %v", missing)
		}
	}
	return nil
}

// TestConcurrency is for the race detector, and for readers that meet checkpoints, merges, drops and deleted
// topics.
func TestConcurrency(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	entries := 60_000
	if testing.Short() {
		entries = 20_000
	}
	c := &crowd{d: mustOpen(t, vfs.NewMem(), Config{CheckpointBytes: 50_000})}
	var readers sync.WaitGroup
	check := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	for i := range 3 {
		readers.Go(func() { check(c.readQueues(rand.New(rand.NewPCG(1, uint64(i))))) })
	}
	readers.Go(func() { check(c.findKeys(rand.New(rand.NewPCG(2, 2)))) })
	readers.Go(func() { check(c.drop()) })
	check(c.apply(entries))
	c.stopped.Store(true)
	readers.Wait()
	check(c.d.Sync())
	mustClose(t, c.d)
}
