// SPDX-License-Identifier: Apache-2.0

package store

import (
	"net/netip"

	"github.com/roquetmq/roquet/internal/commitlog"
	"github.com/roquetmq/roquet/internal/message"
)

var _ commitlog.Group = (*group)(nil)

// assigner gives out queue offsets and store timestamps. It is guarded by the log's append lock: Encode and
// Reset are called with that held, and nothing else touches it but Open.
//
// A queue's counter holds for one epoch. Reset starts a new one, and with it every counter is taken again
// from what the index has applied, which by then is all that is in the log. So a failed batch leaves
// neither a hole nor a double.
type assigner struct {
	epoch    uint64
	lastTime int64 // ms, the greatest store timestamp given
	host     netip.AddrPort
}

// next gives the queue's next offset.
func (a *assigner) next(q *queue) message.QueueOffset {
	if q.assignedEpoch != a.epoch {
		q.assignedEpoch, q.assigned = a.epoch, q.next()
	}
	off := q.assigned
	q.assigned++
	return off
}

// unused reports whether nothing was appended to the queue since its topic was deleted.
func (a *assigner) unused(q *queue) bool { return q.assignedEpoch != a.epoch || q.assigned == 0 }

// restart makes the queue begin at 0 again, because the deletion of its topic goes into the log here.
func (a *assigner) restart(q *queue) {
	q.assignedEpoch, q.assigned = a.epoch, 0
}

// group is what a Write is to the log. It lives inside the Write, so that making it costs nothing.
type group struct {
	store *Store
	write *Write
	queue *queue // of the first message
	now   int64  // ms, when Append was called
}

// Encode chooses queue offsets and the store timestamp, and lays down the records: messages, then state.
func (g *group) Encode(dst []byte) []byte {
	w, s := g.write, g.store
	a := &s.assign
	a.lastTime = max(a.lastTime, g.now)
	q := g.queue
	for i := range w.Messages {
		m := &w.Messages[i]
		m.StoreTimestamp, m.QueueOffset, m.LogOffset = a.lastTime, 0, 0
		if !message.IsQueued(m.SysFlag) {
			continue
		}
		if m.QueueID != q.key.id || q.gone || m.Topic != q.key.topic {
			q = s.queues.obtain(m.Topic, m.QueueID)
		}
		m.QueueOffset = a.next(q)
	}
	if w.Assigned != nil {
		w.Assigned(w)
	}
	for i := range w.Messages {
		dst = w.Messages[i].AppendTo(dst)
	}
	if len(w.State) > 0 {
		s.carry.noteWritten(w.State)
	}
	for i := range w.State {
		if topic, ok := deletedTopic(&w.State[i]); ok {
			s.queues.each(topic, a.restart)
		}
		dst = w.State[i].AppendTo(dst)
	}
	return dst
}

// Done fills in where the messages are, and hands the Write back.
func (g *group) Done(first message.LogOffset, err error) {
	w := g.write
	g.store, g.write, g.queue = nil, nil, nil
	if err == nil {
		for i := range w.Messages {
			m := &w.Messages[i]
			m.LogOffset = first
			first += message.LogOffset(m.EncodedLen())
		}
	}
	if w.Done != nil {
		w.Done(w, err)
	}
}

// prepare checks the Write, makes it a group, puts its queues into the table so that Encode only has to
// look them up, and returns the size of its records.
func (s *Store) prepare(w *Write) (size int, err error) {
	if err := s.indexError(); err != nil {
		return 0, err
	}
	if len(w.Messages) == 0 && len(w.State) == 0 {
		return 0, ErrEmptyWrite
	}
	var q *queue
	for i := range w.Messages {
		m := &w.Messages[i]
		if err := m.Validate(); err != nil {
			return 0, err
		}
		m.StoreHost = s.assign.host
		size += m.EncodedLen()
		if q == nil || m.QueueID != q.key.id || m.Topic != q.key.topic {
			q = s.queues.obtain(m.Topic, m.QueueID)
		}
		if i == 0 {
			w.grp.queue = q
		}
	}
	for i := range w.State {
		st := &w.State[i]
		if err := st.Validate(); err != nil {
			return 0, err
		}
		size += st.EncodedLen()
		if topic, ok := deletedTopic(st); ok {
			s.queues.load(topic)
		}
	}
	w.grp.store, w.grp.write, w.grp.now = s, w, s.cfg.Now().UnixMilli()
	return size, nil
}
