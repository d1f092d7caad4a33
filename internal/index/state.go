// SPDX-License-Identifier: Apache-2.0

package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/roquetmq/roquet/internal/message"
)

// Changes of state gather in one Pebble batch until it holds so many, or until someone reads: a commit costs
// more than the change itself.
const (
	maxPendingChanges = 256
	maxPendingBytes   = 64 << 10
)

// stateTable holds the changes that Pebble has not got yet. Every batch also says how far in the log its
// changes came from (High), so that a crash cannot separate the two.
type stateTable struct {
	pending atomic.Int32 // number of changes in batch, for readers that look without the lock
	mu      sync.Mutex
	batch   *pebble.Batch // nil while pending is 0
	high    message.LogOffset
	key     []byte
	value   []byte
}

// Put sets key of space to value, which came from the state record at pos. Applier only. It keeps neither
// slice.
func (d *DB) Put(space message.Space, key, value []byte, pos message.LogOffset) {
	st := &d.state
	st.mu.Lock()
	defer st.mu.Unlock()
	st.key = appendStateKey(st.key[:0], space, key)
	st.value = append(binary.BigEndian.AppendUint64(st.value[:0], uint64(pos)), value...)
	b := d.pendingLocked(pos)
	if err := b.Set(st.key, st.value, nil); err != nil {
		d.health.breakDown(fmt.Errorf("set state: %w", err))
	}
	d.commitFullLocked()
}

// Delete removes key of space, as said by the state record at pos. Applier only.
func (d *DB) Delete(space message.Space, key []byte, pos message.LogOffset) {
	st := &d.state
	st.mu.Lock()
	defer st.mu.Unlock()
	st.key = appendStateKey(st.key[:0], space, key)
	b := d.pendingLocked(pos)
	if err := b.Delete(st.key, nil); err != nil {
		d.health.breakDown(fmt.Errorf("delete state: %w", err))
	}
	d.commitFullLocked()
}

// pendingLocked returns the batch for a change that came from pos.
func (d *DB) pendingLocked(pos message.LogOffset) *pebble.Batch {
	st := &d.state
	if st.batch == nil {
		st.batch = d.pebble.NewBatch()
	}
	st.high = max(st.high, pos+1)
	st.pending.Add(1)
	return st.batch
}

func (d *DB) commitFullLocked() {
	if d.state.pending.Load() >= maxPendingChanges || d.state.batch.Len() >= maxPendingBytes {
		d.commitStateLocked()
	}
}

// commitState gives all pending changes to Pebble, where they are seen by Get and Scan.
func (d *DB) commitState() {
	if d.state.pending.Load() == 0 {
		return
	}
	d.state.mu.Lock()
	defer d.state.mu.Unlock()
	d.commitStateLocked()
}

func (d *DB) commitStateLocked() {
	st := &d.state
	if st.batch == nil {
		return
	}
	st.value = binary.BigEndian.AppendUint64(st.value[:0], uint64(st.high))
	err := st.batch.Set([]byte(metaHigh), st.value, nil)
	if err == nil {
		err = st.batch.Commit(pebble.NoSync)
	}
	err = errors.Join(err, st.batch.Close())
	if err != nil {
		d.health.breakDown(fmt.Errorf("commit state: %w", err))
	}
	st.batch = nil
	st.pending.Store(0)
}

// Get returns a copy of the value and the position of the record it came from; ok is false when there is
// none. Any goroutine; it sees every Put and Delete that returned before. Errors: *CorruptError.
func (d *DB) Get(space message.Space, key []byte) (value []byte, pos message.LogOffset, ok bool, err error) {
	d.commitState()
	stored, closer, err := d.pebble.Get(appendStateKey(nil, space, key))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, 0, false, nil
	}
	if err != nil {
		return nil, 0, false, d.readError(err)
	}
	pos, v, err := d.splitState(stored)
	value = slices.Clone(v)
	if err := errors.Join(err, closer.Close()); err != nil {
		return nil, 0, false, err
	}
	return value, pos, true, nil
}

// Stored is a key of the state, its value, and the position of the record that it came from.
type Stored struct {
	Key, Value []byte
	Pos        message.LogOffset
}

// Scan yields the keys of space in [from, to) in ascending order; a nil to means the end of the space. Key and
// Value are valid until the next one. It sees the state as it was when it began, whatever is changed meanwhile.
// An error comes last. Any goroutine. Errors: *CorruptError.
func (d *DB) Scan(space message.Space, from, to []byte) iter.Seq2[Stored, error] {
	return func(yield func(Stored, error) bool) {
		d.commitState()
		upper := KeyEnd(appendStateKey(nil, space, nil))
		if to != nil {
			upper = appendStateKey(nil, space, to)
		}
		for st, err := range d.walk(appendStateKey(nil, space, from), upper) {
			if err == nil {
				st.Key = st.Key[2:]
				st.Pos, st.Value, err = d.splitState(st.Value)
			}
			if !yield(st, err) || err != nil {
				return
			}
		}
	}
}

// walk yields what Pebble has in [lower, upper), as it has it. An error comes last.
func (d *DB) walk(lower, upper []byte) iter.Seq2[Stored, error] {
	return func(yield func(Stored, error) bool) {
		it, err := d.pebble.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
		if err != nil {
			yield(Stored{}, d.readError(err))
			return
		}
		more := true
		for ok := it.First(); ok && more; ok = more && it.Next() {
			value, err := it.ValueAndErr()
			if err != nil {
				break // it.Close returns it
			}
			more = yield(Stored{Key: it.Key(), Value: value}, nil)
		}
		if err := it.Close(); err != nil {
			if err = d.readError(err); more {
				yield(Stored{}, err)
			}
		}
	}
}

func (d *DB) splitState(stored []byte) (message.LogOffset, []byte, error) {
	if len(stored) < stateHead {
		return 0, nil, d.corrupt(fmt.Errorf("state value of %d bytes", len(stored)))
	}
	return message.LogOffset(binary.BigEndian.Uint64(stored)), stored[stateHead:], nil
}

// readError makes a *CorruptError of what Pebble says when it cannot read, and remembers it.
func (d *DB) readError(err error) error {
	if !isCorruption(err) {
		return fmt.Errorf("read index %s: %w", d.dir, err)
	}
	if info := pebble.ExtractDataCorruptionInfo(err); info != nil {
		err = fmt.Errorf("%s: %w", info.Path, info.Details)
	}
	return d.corrupt(err)
}

// corrupt remembers that the index is damaged and returns the error that says so.
func (d *DB) corrupt(cause error) error {
	err := &CorruptError{Dir: d.dir, Cause: cause}
	d.health.breakDown(err)
	return err
}
