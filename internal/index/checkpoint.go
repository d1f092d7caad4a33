// SPDX-License-Identifier: Apache-2.0

package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/roquetmq/roquet/internal/message"
)

// A checkpoint must hold exactly what was applied before its position, while the applier goes on. Copying all
// changed queues first would stop the applier for a millisecond with many queues. Instead time is cut into
// epochs: Checkpoint begins the next epoch, and the first change of a queue in it notes where the queue ended
// before (Queue.cut). So the applier pays one comparison an entry, and the checkpoint reads up to the cut at
// its leisure. Only one runs at a time, hence one cut per queue is enough.

// applier is what only the applier touches.
type applier struct {
	epoch   uint32
	dirty   []*Queue // changed in this epoch
	created []*topic // in this epoch
	deleted []*topic
	applied message.LogOffset // last position given to Checkpoint
	begun   message.LogOffset // position of the last checkpoint begun
	running *checkpoint       // the last one begun; nil before the first
	warm    []*Queue          // queues of the last checkpoint; unchanged during the next, they lose their memory
}

// checkpoint is one job: what to write, until it is durable.
type checkpoint struct {
	db      *DB
	epoch   uint32
	applied message.LogOffset
	dirty   []*Queue
	warm    []*Queue
	created []*topic
	deleted []*topic
	nextID  uint32
	keys    []*keyTable
	ends    []message.QueueOffset // what persisted becomes, for each dirty queue
	buf     []byte
	key     []byte
	done    chan struct{} // closed at the end
	err     error         // valid after done: nil means durable
}

// ended tells whether the job is over.
func (c *checkpoint) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// Checkpoint is called by the applier after every applied log entry, with the end of that entry. It costs
// nothing until Config.CheckpointBytes were applied; then everything before applied is made durable in the
// background. If that is still going on when much more has been applied, Checkpoint waits for it. It returns
// an error only when the background work has been failing for so long that 8 × CheckpointBytes wait in
// memory, or when it cannot go on (Err tells which): then the caller must stop applying.
func (d *DB) Checkpoint(applied message.LogOffset) error {
	a := &d.applier
	a.applied = max(a.applied, applied)
	behind := int64(applied - a.begun)
	if behind < d.cfg.CheckpointBytes {
		return nil
	}
	if a.running != nil && !a.running.ended() {
		d.keys.limitSpan(a.applied)
		if behind < maxBehindHealthy*d.cfg.CheckpointBytes {
			return nil
		}
		if err := d.awaitHealthy(a.running, behind); err != nil || !a.running.ended() {
			return err
		}
	}
	if err := d.checkpointErr(); err != nil {
		return err
	}
	d.beginCheckpoint()
	return nil
}

// awaitHealthy waits for the running checkpoint, but not while it fails.
func (d *DB) awaitHealthy(running *checkpoint, behind int64) error {
	for d.health.err() == nil {
		select {
		case <-running.done:
			return nil
		case <-d.health.failed:
		}
	}
	if behind < maxBehindFailing*d.cfg.CheckpointBytes {
		return nil
	}
	return fmt.Errorf("index is %d bytes of log behind: %w", behind, d.health.err())
}

// checkpointErr returns why no further checkpoint may follow the last one, or nil: it was given up.
func (d *DB) checkpointErr() error {
	if last := d.applier.running; last != nil {
		<-last.done
		return last.err
	}
	return nil
}

// Sync makes everything up to the last position given to Checkpoint durable now, and waits for it. Applier
// only.
func (d *DB) Sync() error {
	if err := d.checkpointErr(); err != nil {
		return err
	}
	d.beginCheckpoint()
	return d.checkpointErr()
}

// Begin begins a checkpoint, unless one is running, and returns a channel that is closed when it has ended.
// Applier only.
func (d *DB) Begin() <-chan struct{} {
	if last := d.applier.running; last == nil || (last.ended() && last.err == nil) {
		d.beginCheckpoint()
	}
	return d.applier.running.done
}

// beginCheckpoint ends the epoch. No other checkpoint is running.
func (d *DB) beginCheckpoint() {
	d.commitState() // state before the position must not come after it
	a := &d.applier
	c := &checkpoint{
		db: d, epoch: a.epoch, applied: a.applied, nextID: d.topics.nextID,
		dirty: a.dirty, warm: a.warm, created: a.created, deleted: a.deleted,
		keys: d.keys.freeze(a.applied), done: make(chan struct{}),
	}
	a.epoch++
	a.warm, a.dirty = a.dirty, make([]*Queue, 0, len(a.dirty))
	a.created, a.deleted = nil, nil
	a.begun, a.running = a.applied, c
	d.jobs.Go(c.run)
}

// run writes the checkpoint and waits until it is durable.
func (c *checkpoint) run() {
	defer close(c.done)
	began := time.Now()
	if c.err = c.writeKeys(); c.err != nil {
		return
	}
	d := c.db
	d.background.Lock()
	size, err := c.commit()
	d.background.Unlock()
	if err != nil {
		c.err = err
		return
	}
	if c.err = d.flush(); c.err != nil {
		return
	}
	d.applied.Store(int64(c.applied))
	d.background.Lock()
	if err := d.keys.mergeLast(d.cfg.CheckpointBytes); err != nil {
		d.cfg.Logger.Warn("index cannot merge key sidecars", "error", err)
	}
	d.background.Unlock()
	d.cfg.Logger.Debug("index checkpoint", "log_offset", int64(c.applied), "queue_count", len(c.dirty),
		"batch_bytes", size, "duration", time.Since(began))
}

// writeKeys writes the sidecars, trying again until it works or the index is closed.
func (c *checkpoint) writeKeys() error {
	h := c.db.health
	for _, t := range c.keys {
		for err := c.db.keys.write(t); err != nil; err = c.db.keys.write(t) {
			h.fail(fmt.Errorf("write key sidecar: %w", err))
			if !h.pause() {
				return err
			}
		}
		h.succeed()
	}
	return nil
}

// flush waits until everything committed so far is durable, or the index is broken, or a flush failed while
// it closes.
func (d *DB) flush() error {
	select {
	case <-d.health.failed: // of an earlier attempt
	default:
	}
	flushed, err := d.pebble.AsyncFlush()
	if err != nil {
		return err
	}
	for {
		select {
		case <-flushed:
			return d.health.brokenErr()
		case <-d.health.broken:
			return d.health.err()
		case <-d.health.failed:
			select {
			case <-d.health.closing:
				return errors.Join(ErrClosed, d.health.err())
			default: // Pebble tries again
			}
		}
	}
}

// commit gives the batch to Pebble, after which memory may forget what is in it. It returns the batch's size.
func (c *checkpoint) commit() (int, error) {
	b := c.db.pebble.NewBatch()
	err := c.fill(b)
	size := b.Len()
	if err == nil {
		err = b.Commit(pebble.NoSync)
	}
	if err = errors.Join(err, b.Close()); err != nil {
		c.db.health.breakDown(fmt.Errorf("commit checkpoint: %w", err))
		return 0, err
	}
	for i, q := range c.dirty {
		q.forget(c.ends[i])
	}
	for _, q := range c.warm {
		q.cool(c.epoch)
	}
	return size, nil
}

// fill puts all changes of the epoch into b.
func (c *checkpoint) fill(b *pebble.Batch) error {
	for _, t := range c.created {
		c.key = appendTopicKey(c.key[:0], t.name)
		if err := b.Set(c.key, binary.BigEndian.AppendUint32(nil, t.id), nil); err != nil {
			return err
		}
	}
	c.ends = make([]message.QueueOffset, len(c.dirty))
	for i, q := range c.dirty {
		var err error
		if c.ends[i], err = c.putQueue(b, q); err != nil {
			return err
		}
	}
	for _, t := range c.deleted {
		if err := c.deleteTopic(b, t); err != nil {
			return err
		}
	}
	err := b.Set([]byte(metaNextTopic), binary.BigEndian.AppendUint32(nil, c.nextID), nil)
	return errors.Join(err, b.Set([]byte(metaApplied), binary.BigEndian.AppendUint64(nil, uint64(c.applied)), nil))
}

// deleteTopic removes all of t. The name may belong to a younger topic by now; then it stays.
func (c *checkpoint) deleteTopic(b *pebble.Batch, t *topic) error {
	for _, space := range []byte{spaceTail, spaceMin, spaceChunk} {
		from := appendTopicIDKey(nil, space, t.id)
		if err := b.DeleteRange(from, KeyEnd(from), nil); err != nil {
			return err
		}
	}
	for _, younger := range c.created {
		if younger.name == t.name && younger.id > t.id {
			return nil
		}
	}
	c.key = appendTopicKey(c.key[:0], t.name)
	return b.Delete(c.key, nil)
}

// queuePart is what a checkpoint writes of one queue: the entries in [from, to), parts of which are in
// memory.
type queuePart struct {
	from, to message.QueueOffset
	low      message.QueueOffset
	lowPos   message.LogOffset
	chunks   []chunk // copies: their slots end at to
}

// part takes, under the queue's lock, what putQueue writes outside it.
func (q *Queue) part(epoch uint32) queuePart {
	q.mu.Lock()
	defer q.mu.Unlock()
	to := q.Next()
	if q.epoch > epoch {
		to = q.cut
	}
	p := queuePart{to: to, low: q.min, lowPos: q.minPos}
	if p.low >= to { // all of it has expired
		p.low, p.lowPos = to, noPosition
	}
	p.from = max(p.low, min(q.persisted, to)&^chunkMask)
	if q.mem == nil || q.mem.base() >= to {
		return p
	}
	w := q.mem
	for _, c := range w.chunks[max(0, chunkNumber(p.from)-w.first):] {
		if c.base >= to {
			break
		}
		p.chunks = append(p.chunks, chunk{base: c.base, slots: c.slots[:min(c.end(), to)-c.base]})
	}
	return p
}

// putQueue writes the queue's chunks that filled up since the last checkpoint, and its tail. It returns where
// they end.
func (c *checkpoint) putQueue(b *pebble.Batch, q *Queue) (message.QueueOffset, error) {
	if q.topic.diedBy(c.epoch) {
		return 0, nil
	}
	p := q.part(c.epoch)
	before, err := q.before(&p)
	if err != nil {
		return 0, err
	}
	buf := appendTailHead(c.buf[:0], p.to, p.low, max(p.lowPos, 0))
	head := len(buf)
	for i := range p.chunks {
		m := &p.chunks[i]
		base := m.base - message.QueueOffset(len(before))
		buf = appendChunk(buf[:head], base, before, m.slots)
		before = nil
		if m.end()&chunkMask != 0 {
			break // the last one: it is part of the tail
		}
		c.key = appendChunkKey(c.key[:0], q.topic.id, q.id, chunkNumber(base))
		if err := b.Set(c.key, buf[head:], nil); err != nil {
			return 0, err
		}
		buf = buf[:head]
	}
	if len(buf) == head {
		buf = appendChunk(buf, 0)
	}
	c.buf = buf
	c.key = appendQueueKey(c.key[:0], spaceTail, q.topic.id, q.id)
	return p.to, b.Set(c.key, buf, nil)
}

// before returns the entries of the part's first chunk that only Pebble has: the queue had left memory before
// it grew.
func (q *Queue) before(p *queuePart) ([]slot, error) {
	if len(p.chunks) == 0 || p.chunks[0].base <= p.from {
		return nil, nil
	}
	base := p.chunks[0].base
	old, err := q.loadTail()
	if err != nil {
		return nil, err
	}
	if old.base > p.from || old.end() < base {
		return nil, q.topic.db.corrupt(fmt.Errorf("topic %s queue %d: tail lacks offsets %d to %d",
			q.topic.name, q.id, p.from, base-1))
	}
	return old.slots[p.from-old.base : base-old.base], nil
}

// forget drops from memory the full chunks that Pebble has by now. They go to the cache: consumers are not
// far behind.
func (q *Queue) forget(persisted message.QueueOffset) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.persisted = max(q.persisted, persisted)
	if q.mem == nil {
		return
	}
	w := q.mem
	full := 0
	for _, c := range w.chunks {
		if c.end()&chunkMask != 0 || c.end() > persisted {
			break
		}
		q.topic.db.cache.put(q, w.first+int64(full), c)
		full++
	}
	switch full {
	case 0:
	case len(w.chunks):
		q.mem = nil
	default:
		q.mem = &window{first: w.first + int64(full), chunks: append([]*chunk(nil), w.chunks[full:]...)}
	}
}

// cool drops all memory of a queue that has not changed in this epoch nor since. Pebble has everything.
func (q *Queue) cool(epoch uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.epoch < epoch && q.persisted == q.Next() {
		q.mem = nil
	}
}
