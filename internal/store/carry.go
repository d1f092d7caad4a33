// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/roquetmq/roquet/internal/commitlog"
	"github.com/roquetmq/roquet/internal/index"
	"github.com/roquetmq/roquet/internal/message"
)

// maxCarryBytes bounds the state that is carried forward in one entry.
const maxCarryBytes = 256 << 10

// carryGuard keeps a carry from writing an old value behind a newer one. From begin to end it notes every
// key that goes into the log; carried records of these keys are left out, under the append lock, where the
// order of the log is decided. If the batch with the newer value fails, then so do those behind it, and
// with them the carry.
type carryGuard struct {
	active atomic.Bool
	mu     struct {
		sync.Mutex
		written map[string]struct{} // space byte and key
		deleted map[string]struct{} // topics
	}
}

func (c *carryGuard) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.written = make(map[string]struct{})
	c.mu.deleted = make(map[string]struct{})
	c.active.Store(true)
}

func (c *carryGuard) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active.Store(false)
	c.mu.written, c.mu.deleted = nil, nil
}

// noteWritten notes state that goes into the log. Under the append lock.
func (c *carryGuard) noteWritten(states []message.State) {
	if !c.active.Load() {
		return // what begins now appends behind this, and so finds it applied
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.written == nil {
		return
	}
	for i := range states {
		st := &states[i]
		c.mu.written[guardKey(st)] = struct{}{}
		if topic, ok := deletedTopic(st); ok {
			c.mu.deleted[topic] = struct{}{}
		}
	}
}

// appendCarried lays down those of the states that nobody wrote since begin. Under the append lock.
func (c *carryGuard) appendCarried(dst []byte, states []message.State) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range states {
		st := &states[i]
		if _, newer := c.mu.written[guardKey(st)]; newer {
			continue
		}
		if key, _, ok := parseFloor(st); ok {
			if _, gone := c.mu.deleted[key.topic]; gone {
				continue
			}
		}
		dst = st.AppendTo(dst)
	}
	return dst
}

// guardKey is the space and the key.
func guardKey(st *message.State) string {
	return string(append([]byte{byte(st.Space)}, st.Key...))
}

// carryGroup is one entry's worth of carried state. It begins with the cut, so that it is never empty.
type carryGroup struct {
	guard  *carryGuard
	cut    message.State
	states []message.State
	done   chan error
}

func (g *carryGroup) size() int {
	size := g.cut.EncodedLen()
	for i := range g.states {
		size += g.states[i].EncodedLen()
	}
	return size
}

// Encode is commitlog.Group's.
func (g *carryGroup) Encode(dst []byte) []byte {
	return g.guard.appendCarried(g.cut.AppendTo(dst), g.states)
}

// Done is commitlog.Group's.
func (g *carryGroup) Done(_ message.LogOffset, err error) { g.done <- err }

// carryForward appends again what is alive in front of cut: state that nobody has overwritten since, and
// the next offset of queues all of whose messages are in front of cut. When it returns nil, all that is
// durable behind cut, and the log from cut on says everything. It is called by the retention loop alone.
func (s *Store) carryForward(ctx context.Context, cut message.LogOffset) error {
	for _, hook := range s.retention.hooks { // first: moving a message also renews the state that goes with it
		if err := hook(ctx, cut); err != nil {
			return fmt.Errorf("carry messages forward: %w", err)
		}
	}
	needed := false // a cut that takes nothing alive with it writes nothing: it works on a full disk
	for _, err := range s.carried(cut) {
		if err == nil {
			needed, err = true, s.carryState(cut)
		}
		if err != nil {
			return fmt.Errorf("carry state forward: %w", err)
		}
		break
	}
	if s.cfg.Log.FlushDiskType == commitlog.Async && (needed || len(s.retention.hooks) > 0) {
		return s.log.Roll(ctx) // what was carried is only written: this makes it durable
	}
	return nil
}

func (s *Store) carryState(cut message.LogOffset) error {
	s.carry.begin()
	defer s.carry.end()
	// All that was encoded before begin is applied when this is done; all that is encoded later is noted.
	if err := s.carryBatch(cut, nil); err != nil {
		return err
	}
	return s.carryBatches(cut)
}

func (s *Store) carryBatches(cut message.LogOffset) error {
	var batch []message.State
	size := 0
	for st, err := range s.carried(cut) {
		if err != nil {
			return err
		}
		batch = append(batch, st)
		if size += st.EncodedLen(); size < maxCarryBytes {
			continue
		}
		if err := s.carryBatch(cut, batch); err != nil {
			return err
		}
		batch, size = nil, 0
	}
	if len(batch) == 0 {
		return nil
	}
	return s.carryBatch(cut, batch)
}

// carryBatch appends states and waits until they are durable and applied. The log settles everything it
// accepts, also when it stops.
func (s *Store) carryBatch(cut message.LogOffset, states []message.State) error {
	g := &carryGroup{guard: &s.carry, states: states, done: make(chan error, 1)}
	g.cut = message.State{
		Space: message.SpaceBroker, Key: []byte{ownKey, ownKeyCut},
		Value: binary.BigEndian.AppendUint64(nil, uint64(cut)),
	}
	if err := s.log.Append(g, g.size(), true); err != nil {
		return err
	}
	return <-g.done
}

// carried yields every state record that has to be carried over cut. An error comes last.
func (s *Store) carried(cut message.LogOffset) iter.Seq2[message.State, error] {
	return func(yield func(message.State, error) bool) {
		for space := range 256 {
			for stored, err := range s.db.Scan(message.Space(space), nil, nil) {
				if err == nil && stored.Pos >= cut {
					continue
				}
				st := message.State{
					Space: message.Space(space), Key: bytes.Clone(stored.Key), Value: bytes.Clone(stored.Value),
				}
				if isOwn(st.Space, st.Key) && !s.staleFloor(&st, cut) {
					continue // the cut, or a floor that scanFloors looks after
				}
				if !yield(st, err) {
					return
				}
			}
		}
		s.scanFloors(cut, yield)
	}
}

// staleFloor reports whether the record is a floor that is not needed any more; then it makes a deletion of
// it.
func (s *Store) staleFloor(st *message.State, cut message.LogOffset) bool {
	key, _, ok := parseFloor(st)
	if !ok {
		return false
	}
	if idx := s.db.LookupQueue(key.topic, key.id); idx != nil && !endsBehind(idx, cut) {
		return false
	}
	st.Delete, st.Value = true, nil
	return true
}

// scanFloors yields a floor for every queue that has no message behind cut and none there already.
func (s *Store) scanFloors(cut message.LogOffset, yield func(message.State, error) bool) {
	for _, topic := range s.db.Topics() {
		for _, idx := range s.db.Queues(topic) {
			next := idx.Next()
			if next == 0 || endsBehind(idx, cut) {
				continue
			}
			floor := floorState(queueKey{topic, idx.ID()}, next)
			value, pos, ok, err := s.db.Get(floor.Space, floor.Key)
			if ok && pos >= cut && bytes.Equal(value, floor.Value) {
				continue
			}
			if !yield(floor, err) || err != nil {
				return
			}
		}
	}
}

// endsBehind reports whether the queue's last message is at or behind pos. (Queue.Min would answer too, but
// it lets go of what is in front of pos, which is not dropped yet.)
func endsBehind(idx *index.Queue, pos message.LogOffset) bool {
	next := idx.Next()
	if next == 0 {
		return false
	}
	var last [1]index.Entry
	n, err := idx.Read(next-1, last[:])
	return err == nil && n == 1 && last[0].Pos >= pos
}
