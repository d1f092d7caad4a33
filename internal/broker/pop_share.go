// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/roquetmq/roquet/internal/broker/due"
	"github.com/roquetmq/roquet/internal/broker/pop"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// State records in message.SpacePop. Keys are topic, 0, group, 0, queue id (4 bytes) and an offset (8 bytes),
// behind a letter:
//
//	's'  a span of claims that begins at the offset; the value is package pop's
//	'm'  the message at the offset, which retention drops but its group still has; the value is its record
const (
	popSpanKey = 's'
	popKeptKey = 'm'

	popKeyTail = 4 + 8

	// maxPopScratch bounds the memory that a share keeps for making records.
	maxPopScratch = 8 << 10
)

func appendPopPrefix(dst []byte, letter byte, key popKey) []byte {
	dst = append(append(dst, letter), key.topic...)
	dst = append(append(dst, 0), key.group...)
	return append(dst, 0)
}

func appendPopKey(dst []byte, letter byte, key popKey, queueID int32, off message.QueueOffset) []byte {
	dst = appendPopPrefix(dst, letter, key)
	dst = binary.BigEndian.AppendUint32(dst, uint32(queueID))
	return binary.BigEndian.AppendUint64(dst, uint64(off))
}

// popRecord is a key taken apart.
type popRecord struct {
	letter  byte
	key     popKey
	queueID int32
	offset  message.QueueOffset
}

func parsePopKey(b []byte) (r popRecord, ok bool) {
	if len(b) < 1+popKeyTail {
		return r, false
	}
	tail := b[len(b)-popKeyTail:]
	topic, rest, ok1 := bytes.Cut(b[1:len(b)-popKeyTail], []byte{0})
	group, rest, ok2 := bytes.Cut(rest, []byte{0})
	r.letter, r.key = b[0], popKey{topic: string(topic), group: string(group)}
	r.queueID = int32(binary.BigEndian.Uint32(tail))
	r.offset = message.QueueOffset(binary.BigEndian.Uint64(tail[4:]))
	return r, ok1 && ok2 && len(rest) == 0 && r.queueID >= 0 && r.queueID <= maxQueueNums && r.offset >= 0
}

// popShare is what one group has of one topic.
//
// Claims change in memory first and are appended under the same hold of mu. So the log has changes in the
// order in which memory had them, and when a write fails, all that were computed after it fail too: the store
// accepts no other before it has told every failure. Memory is then thrown away and loaded again.
type popShare struct {
	key popKey

	// turn is held by one receive at a time, also while it reads messages.
	turn struct {
		sync.Mutex
		first uint32    // the queue that the next receive looks at first
		takes []popTake // that receive's scratch
	}
	mu struct {
		sync.Mutex
		queues []*pop.Queue // by queue id; nil: no receive has looked at it
		kept   map[popRecord]struct{}
		broken error // memory is not what is stored; why
		closed error // being deleted, or deleted; what to say
		batch  popBatch
		refs   popRefs

		scratch pop.Scratch
	}
	inFlight atomic.Int32 // writes that are not settled
	gone     atomic.Bool  // deleted
	overdue  atomic.Bool  // messages wait to become dead letters that no deadline tells of

	signals atomic.Uint64 // grows when there may be something to receive
	waits   popWaits

	due.Slot // in popAlarm.mu.heap, and guarded by that lock
}

func newPopShare(key popKey) *popShare {
	s := &popShare{key: key}
	s.mu.kept = map[popRecord]struct{}{}
	return s
}

// load reads all claims.
func (p *Popper) load() error {
	for st, err := range p.store.States(message.SpacePop, nil) {
		r, ok := parsePopKey(st.Key)
		if err == nil && !ok {
			err = fmt.Errorf("a malformed key %q", st.Key)
		}
		if err == nil {
			s, _ := p.shares.LoadOrCompute(r.key, func() (*popShare, bool) { return newPopShare(r.key), false })
			err = s.restoreLocked(r, st.Value)
		}
		if err != nil {
			return fmt.Errorf("load pop claims: %w", err)
		}
	}
	for _, s := range p.shares.All() {
		p.restored(s)
	}
	return nil
}

// restoreLocked takes one record over. Records of a queue come in order.
func (s *popShare) restoreLocked(r popRecord, value []byte) error {
	if r.letter == popKeptKey {
		s.mu.kept[r] = struct{}{}
		return nil
	}
	for int(r.queueID) >= len(s.mu.queues) {
		s.mu.queues = append(s.mu.queues, nil)
	}
	q := &s.mu.queues[r.queueID]
	if *q == nil {
		*q = pop.Restored(&s.mu.scratch)
	}
	if err := (*q).Restore(r.offset, value); err != nil {
		return fmt.Errorf("topic %s, group %s, queue %d, span %d: %w", r.key.topic, r.key.group, r.queueID,
			r.offset, err)
	}
	return nil
}

// restored tells others what was loaded: offsets that are behind it, and when to look at it.
func (p *Popper) restored(s *popShare) {
	for id, q := range s.mu.queues {
		if q == nil {
			continue
		}
		if known, ok := p.offsets.Query(s.key.group, s.key.topic, int32(id)); !ok || known < q.Committed() {
			p.offsets.Commit(s.key.group, s.key.topic, int32(id), q.Committed())
		}
		p.offsets.CommitPull(s.key.group, s.key.topic, int32(id), q.Next())
	}
	p.alarm.sooner(s, s.deadlineLocked())
}

// deadlineLocked is when the share has to be looked at.
func (s *popShare) deadlineLocked() int64 {
	first := due.Never
	for _, q := range s.mu.queues {
		if q != nil {
			first = min(first, q.Deadline())
		}
	}
	return first
}

// usableLocked returns nil when memory is what is stored and on its way. After a failed write it loads what
// is stored, once all writes are settled; until then everything is refused as that write was.
func (p *Popper) usableLocked(s *popShare) error {
	switch {
	case s.mu.closed != nil:
		return s.mu.closed
	case s.mu.broken == nil:
		return nil
	case s.inFlight.Load() > 0:
		return s.mu.broken
	}
	return p.reloadLocked(s)
}

// reloadLocked is apart from usableLocked because the loop over states allocates for a function that has it.
func (p *Popper) reloadLocked(s *popShare) error {
	s.mu.queues, s.mu.kept = nil, map[popRecord]struct{}{}
	for _, letter := range []byte{popSpanKey, popKeptKey} {
		for st, err := range p.store.States(message.SpacePop, appendPopPrefix(nil, letter, s.key)) {
			if r, ok := parsePopKey(st.Key); err == nil && ok && r.key == s.key {
				err = s.restoreLocked(r, st.Value)
			}
			if err != nil {
				return fmt.Errorf("load pop claims again: %w", err)
			}
		}
	}
	s.mu.broken = nil
	p.restored(s)
	s.signals.Add(1)
	return nil
}

// queueLocked returns the claims of a queue, nil when no receive has looked at it.
func (s *popShare) queueLocked(id int32) *pop.Queue {
	if id < 0 || int(id) >= len(s.mu.queues) {
		return nil
	}
	return s.mu.queues[id]
}

// obtain returns the share of a group and a topic, created if need be.
func (p *Popper) obtain(topic, group string) (*popShare, error) {
	if s, ok := p.shares.Load(popKey{topic, group}); ok {
		return s, nil
	}
	p.gate.Lock()
	defer p.gate.Unlock()
	for _, of := range []popKey{{topic: topic}, {group: group}} {
		if p.gate.closing[of] > 0 {
			return nil, of.gone()
		}
	}
	s := newPopShare(popKey{strings.Clone(topic), strings.Clone(group)})
	s, _ = p.shares.LoadOrStore(s.key, s)
	return s, nil
}

// forget is what goes along with the deletion of a topic, or of a group: nothing is claimed from now on, and
// the claims go in the same write.
func (p *Popper) forget(of popKey) companion {
	p.gate.Lock()
	p.gate.closing[of]++
	p.gate.Unlock()
	var shares []*popShare
	keys := map[string]struct{}{}
	for key, s := range p.shares.All() {
		if key.topic != of.topic && key.group != of.group {
			continue
		}
		shares = append(shares, s)
		s.mu.Lock()
		s.mu.closed = of.gone()
		p.keysLocked(s, keys)
		s.mu.Unlock()
	}
	c := companion{settle: []func(error){func(err error) { p.forgotten(of, shares, err) }}}
	for key := range keys {
		c.states = append(c.states, message.State{Space: message.SpacePop, Delete: true, Key: []byte(key)})
	}
	return c
}

// gone says that a topic, or a group, is no more.
func (k popKey) gone() error {
	if k.topic != "" {
		return NoTopic(k.topic)
	}
	return NoGroup(k.group)
}

// keysLocked adds the keys of all records of the share, those on their way too.
func (p *Popper) keysLocked(s *popShare, keys map[string]struct{}) {
	if s.mu.broken != nil { // there may be others than memory has
		for _, letter := range []byte{popSpanKey, popKeptKey} {
			for st, err := range p.store.States(message.SpacePop, appendPopPrefix(nil, letter, s.key)) {
				if err != nil {
					p.cfg.Logger.Error("pop claims cannot be read", "topic", s.key.topic, "group", s.key.group,
						"error", err)
					break
				}
				keys[string(st.Key)] = struct{}{}
			}
		}
	}
	for id, q := range s.mu.queues {
		if q == nil {
			continue
		}
		for _, from := range q.Spans(nil) {
			keys[string(appendPopKey(nil, popSpanKey, s.key, int32(id), from))] = struct{}{}
		}
	}
	for r := range s.mu.kept {
		keys[string(appendPopKey(nil, popKeptKey, s.key, r.queueID, r.offset))] = struct{}{}
	}
}

// forgotten ends forget: the shares are no more, or go on when the deletion failed.
func (p *Popper) forgotten(of popKey, shares []*popShare, err error) {
	for _, s := range shares {
		s.mu.Lock()
		if err == nil {
			s.gone.Store(true)
			p.shares.Delete(s.key)
			p.alarm.set(s, never)
		} else {
			s.mu.closed = nil
			p.alarm.sooner(s, nowMillis())
		}
		s.mu.Unlock()
		if err == nil {
			p.signalAll(s)
		}
	}
	p.gate.Lock()
	defer p.gate.Unlock()
	if p.gate.closing[of]--; p.gate.closing[of] == 0 {
		delete(p.gate.closing, of)
	}
}

// popBatch is the state records of one write, while they are made.
type popBatch struct {
	buf  []byte
	cuts []popCut
}

// popCut is where a record's key and value end in the buffer.
type popCut struct {
	key, value int
	del        bool
}

func (b *popBatch) begin() {
	if cap(b.buf) > maxPopScratch {
		b.buf = nil
	}
	b.buf, b.cuts = b.buf[:0], b.cuts[:0]
}

// add adds what an action asks to store.
func (b *popBatch) add(key popKey, queueID int32, a *pop.Action) {
	b.buf = appendPopKey(b.buf, popSpanKey, key, queueID, a.Offset)
	cut := popCut{key: len(b.buf), del: a.Kind == pop.Delete}
	if !cut.del {
		b.buf = a.AppendValue(b.buf)
	}
	cut.value = len(b.buf)
	b.cuts = append(b.cuts, cut)
}

// keep keeps a message.
func (b *popBatch) keep(r popRecord, rec message.Record) {
	b.buf = appendPopKey(b.buf, popKeptKey, r.key, r.queueID, r.offset)
	cut := popCut{key: len(b.buf)}
	b.buf = append(b.buf, rec...)
	cut.value = len(b.buf)
	b.cuts = append(b.cuts, cut)
}

// drop deletes a message that was kept.
func (b *popBatch) drop(r popRecord) {
	b.buf = appendPopKey(b.buf, popKeptKey, r.key, r.queueID, r.offset)
	b.cuts = append(b.cuts, popCut{key: len(b.buf), value: len(b.buf), del: true})
}

// states returns the records; they share one piece of memory of their own.
func (b *popBatch) states() []message.State {
	if len(b.cuts) == 0 {
		return nil
	}
	mem := bytes.Clone(b.buf)
	states := make([]message.State, len(b.cuts))
	at := 0
	for i, cut := range b.cuts {
		st := &states[i]
		st.Space, st.Delete = message.SpacePop, cut.del
		st.Key, st.Value = mem[at:cut.key:cut.key], mem[cut.key:cut.value:cut.value]
		at = cut.value
	}
	return states
}

// popChange is what a number of steps come to, apart from what they store.
type popChange struct {
	commits []popCommit
	dead    []popDead
	wake    bool
	due     int64 // the least deadline of the queues stepped
}

type popCommit struct {
	queueID   int32
	committed message.QueueOffset
}

// popDead is a message that is to become a dead letter.
type popDead struct {
	queueID int32
	offset  message.QueueOffset
	times   int32 // its reconsumeTimes as told last
}

// takeLocked takes over those of the actions of a step that every step may ask for.
func (s *popShare) takeLocked(c *popChange, queueID int32, q *pop.Queue, actions []pop.Action) {
	for i := range actions {
		switch a := &actions[i]; a.Kind {
		case pop.Put, pop.Delete:
			s.mu.batch.add(s.key, queueID, a)
		case pop.Finished:
			r := popRecord{popKeptKey, s.key, queueID, a.Offset}
			if _, kept := s.mu.kept[r]; kept {
				delete(s.mu.kept, r)
				s.mu.batch.drop(r)
			}
		case pop.Commit:
			c.commits = append(c.commits, popCommit{queueID, a.Offset})
		case pop.DeadLetter:
			c.dead = append(c.dead, popDead{queueID, a.Offset, a.Times})
		case pop.Wake:
			c.wake = true
		case pop.Deliver, pop.Renewed, pop.Refused:
		}
	}
	if due := q.Deadline(); c.due == 0 || due < c.due {
		c.due = due
	}
}

// stepLocked steps by itself, and stores what that asks for.
func (p *Popper) stepLocked(s *popShare, queueID int32, q *pop.Queue, ev pop.Event) error {
	var c popChange
	s.mu.batch.begin()
	s.takeLocked(&c, queueID, q, q.Step(nowMillis(), ev))
	_, err := p.appendLocked(s, p.aside(s), &c)
	return err
}

// appendLocked stores what the steps since batch.begin ask for, and whatever w has. Without anything to store
// it does nothing; stored tells. An error means that memory is not what is stored.
func (p *Popper) appendLocked(s *popShare, w *store.Write, c *popChange) (stored bool, err error) {
	w.State = s.mu.batch.states()
	if len(w.State) > 0 || len(w.Messages) > 0 {
		s.inFlight.Add(1)
		if err := p.store.Append(w); err != nil {
			s.inFlight.Add(-1)
			p.breakLocked(s, err)
			return false, err
		}
		stored = true
	}
	for _, commit := range c.commits {
		p.offsets.Commit(s.key.group, s.key.topic, commit.queueID, commit.committed)
	}
	return stored, nil
}

// settled is the beginning of every Done: it notes a failure before the store accepts anything else.
func (p *Popper) settled(s *popShare, err error) {
	s.inFlight.Add(-1)
	if err != nil {
		s.mu.Lock()
		p.breakLocked(s, err)
		s.mu.Unlock()
	}
}

// breakLocked notes that memory is not what is stored.
func (p *Popper) breakLocked(s *popShare, cause error) {
	s.mu.broken = cause
	p.alarm.sooner(s, nowMillis()+popRetry.Milliseconds())
}

// aside is a Write that nobody waits for.
func (p *Popper) aside(s *popShare) *store.Write {
	return &store.Write{Done: func(_ *store.Write, err error) {
		p.settled(s, err)
		if err != nil {
			p.cfg.Logger.Warn("pop claims could not be stored, they are loaded again", "error", err,
				"topic", s.key.topic, "group", s.key.group)
		}
	}}
}
