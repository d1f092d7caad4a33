// SPDX-License-Identifier: Apache-2.0

package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"syscall"

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
	for st, err := range d.walk([]byte{spaceTopic}, []byte{spaceMin + 1}) {
		if err != nil {
			return err
		}
		switch st.Key[0] { // in this order
		case spaceTopic:
			err = d.loadTopic(byID, st.Key, st.Value)
		case spaceTail:
			err = loadTail(byID, st.Key, st.Value)
		case spaceMin:
			err = loadMin(byID, st.Key, st.Value)
		}
		if err != nil {
			return d.corrupt(err)
		}
	}
	next, err := d.mark(metaNextTopic, 4)
	d.topics.nextID = max(uint32(next), 1)
	return err
}

func (d *DB) loadTopic(byID map[uint32]*topic, key, value []byte) error {
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
