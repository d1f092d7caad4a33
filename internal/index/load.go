// SPDX-License-Identifier: Apache-2.0

package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/cockroachdb/pebble/v2"

	"github.com/roquetmq/roquet/internal/message"
)

// openError tells damage, which a rebuild cures, from a disk or a lock that says no.
func openError(dir string, err error) error {
	var refused syscall.Errno
	if !isCorruption(err) && errors.As(err, &refused) {
		return fmt.Errorf("open index %s: %w", dir, err)
	}
	return &CorruptError{Dir: dir, Cause: err}
}

// loadQueues makes the topics and queues that Pebble has; their entries stay there.
func (d *DB) loadQueues() error {
	byID := make(map[uint32]*topic)
	err := d.each(spaceTopic, func(key, value []byte) error {
		if len(value) != 4 {
			return fmt.Errorf("topic %q has an id of %d bytes", key[1:], len(value))
		}
		t := &topic{db: d, name: string(key[1:]), id: binary.BigEndian.Uint32(value)}
		t.queues.Store(new([]*Queue))
		if byID[t.id] != nil {
			return fmt.Errorf("topics %q and %q have the same id", byID[t.id].name, t.name)
		}
		byID[t.id], d.topics.byName[t.name] = t, t
		return nil
	})
	if err != nil {
		return err
	}
	next, err := d.mark(metaNextTopic, 4)
	if err != nil {
		return err
	}
	d.topics.nextID = max(uint32(next), 1)
	if err := d.each(spaceTail, func(key, value []byte) error { return loadTail(byID, key, value) }); err != nil {
		return err
	}
	return d.each(spaceMin, func(key, value []byte) error { return loadMin(byID, key, value) })
}

func loadTail(byID map[uint32]*topic, key, value []byte) error {
	topicID, queueID, ok := splitQueueKey(key)
	t := byID[topicID]
	if !ok || t == nil {
		return fmt.Errorf("queue tail % x belongs to no topic", key)
	}
	tail, err := decodeTail(value)
	if err != nil {
		return fmt.Errorf("topic %s queue %d: %w", t.name, queueID, err)
	}
	q := &Queue{topic: t, id: queueID, persisted: tail.next, min: tail.min, minPos: tail.minPos}
	q.next.Store(int64(tail.next))
	grown := append(slices.Clip(t.all()), q) // keys ascend, and so do the ids
	t.queues.Store(&grown)
	return nil
}

// loadMin lets a queue begin where DropBefore left it, if its tail is older.
func loadMin(byID map[uint32]*topic, key, value []byte) error {
	topicID, queueID, ok := splitQueueKey(key)
	if !ok || len(value) != 16 {
		return fmt.Errorf("queue minimum % x is malformed", key)
	}
	t := byID[topicID]
	if t == nil || t.queue(queueID) == nil {
		return fmt.Errorf("queue minimum % x belongs to no queue", key)
	}
	q := t.queue(queueID)
	low := min(message.QueueOffset(binary.BigEndian.Uint64(value)), q.Next())
	q.dropped = chunkNumber(low)
	if low >= q.min {
		q.min, q.minPos = low, message.LogOffset(binary.BigEndian.Uint64(value[8:]))
	}
	return nil
}

// each calls fn for all keys of a keyspace. What fn returns means damage.
func (d *DB) each(space byte, fn func(key, value []byte) error) error {
	it, err := d.pebble.NewIter(&pebble.IterOptions{LowerBound: []byte{space}, UpperBound: []byte{space + 1}})
	if err != nil {
		return d.readError(err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			break // it.Close returns it
		}
		if err := fn(it.Key(), value); err != nil {
			return errors.Join(d.corrupt(err), it.Close())
		}
	}
	if err := it.Close(); err != nil {
		return d.readError(err)
	}
	return nil
}
