// SPDX-License-Identifier: Apache-2.0

package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/roquetmq/roquet/internal/message"
)

// DropBefore forgets queue entries and keys that only speak of the log before pos, which the log no longer
// retains. It costs time for the queues that lose entries; the others are a look at one number each. Nothing
// behind Applied is forgotten, and the log must not drop it either: replay needs it. Any goroutine. If it
// fails, or a crash undoes it, the next call does it all.
func (d *DB) DropBefore(pos message.LogOffset) error {
	pos = min(pos, d.Applied())
	d.background.Lock()
	defer d.background.Unlock()
	b := d.pebble.NewBatch()
	var err error
	for _, t := range d.allTopics() {
		for _, q := range t.all() {
			err = errors.Join(err, q.dropBefore(b, pos))
		}
	}
	if err == nil {
		err = b.Commit(pebble.NoSync)
	}
	err = errors.Join(err, b.Close(), d.keys.dropBefore(pos))
	if err != nil {
		return fmt.Errorf("drop index entries before position %d: %w", pos, err)
	}
	return nil
}

// dropBefore puts into b what removes the queue's chunks that lie wholly before pos, and notes where the
// queue begins now. A topic that is being deleted loses everything by the checkpoint that deletes it, which
// waits for background.
func (q *Queue) dropBefore(b *pebble.Batch, pos message.LogOffset) error {
	to := chunkNumber(q.Min(pos))
	q.mu.Lock()
	from, low, lowPos := q.dropped, q.min, q.minPos
	q.dropped = max(q.dropped, to)
	q.mu.Unlock()
	if from >= to {
		return nil
	}
	first := appendChunkKey(nil, q.topic.id, q.id, 0)
	if err := b.DeleteRange(first, appendChunkKey(nil, q.topic.id, q.id, to), nil); err != nil {
		return err
	}
	value := binary.BigEndian.AppendUint64(nil, uint64(low))
	value = binary.BigEndian.AppendUint64(value, uint64(max(lowPos, 0)))
	return b.Set(appendQueueKey(nil, spaceMin, q.topic.id, q.id), value, nil)
}

func removeIfThere(disk vfs.FS, name string) error {
	if err := disk.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
