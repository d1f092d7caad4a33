// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"strings"
	"time"

	"github.com/roquetmq/roquet/internal/commitlog"
	"github.com/roquetmq/roquet/internal/index"
	"github.com/roquetmq/roquet/internal/message"
)

// maxClockStep is by how much segment times and store timestamps are allowed to differ: the latter never go
// back when the wall clock does.
const maxClockStep = time.Hour

// Bounds returns the visible range [minimum, maximum) of a queue. ok is false when nothing was ever stored
// in it.
func (s *Store) Bounds(topic string, queueID int32) (minimum, maximum message.QueueOffset, ok bool) {
	idx := s.queues.index(topic, queueID)
	if idx == nil {
		return 0, 0, false
	}
	maximum = idx.Next() // before the minimum: it only grows
	return min(idx.Min(s.log.First()), maximum), maximum, true
}

// At returns the record at a queue offset. The record is the store's memory: it must not be written to.
// Errors: ErrNotFound, *DamagedError, *index.CorruptError.
func (s *Store) At(topic string, queueID int32, off message.QueueOffset) (message.Record, error) {
	idx := s.queues.index(topic, queueID)
	if idx == nil || off < 0 {
		return nil, ErrNotFound
	}
	var e [1]index.Entry
	n, err := idx.Read(off, e[:])
	if errors.Is(err, index.ErrDropped) || (err == nil && n == 0) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	rec, err := s.readEntry(&commitlog.Reader{Log: s.log}, idx, &e[0])
	if s.isDropped(err, e[0].Pos) {
		return nil, ErrNotFound
	}
	return rec, err
}

// Record returns the message that begins at pos; a position inside a message, or of a state record, is not
// found. The record is the store's memory: it must not be written to. Errors: ErrNotFound, *DamagedError.
func (s *Store) Record(pos message.LogOffset) (message.Record, error) {
	raw, err := s.log.Read(pos, 0)
	if errors.Is(err, commitlog.ErrNotFound) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, s.damaged(&DamagedError{Pos: pos, Cause: err})
	}
	rec := message.Record(raw)
	if !rec.IsMessage() {
		return nil, ErrNotFound
	}
	return rec, nil
}

// readEntry reads the record of a queue entry and makes sure that it is the one. Errors: *DamagedError,
// which for a record that retention has dropped has commitlog.ErrNotFound as its cause.
func (s *Store) readEntry(r *commitlog.Reader, idx *index.Queue, e *index.Entry) (message.Record, error) {
	raw, err := r.Read(e.Pos, int(e.Size))
	if err == nil {
		rec := message.Record(raw)
		if rec.IsMessage() && rec.QueueOffset() == e.Offset {
			return rec, nil
		}
		err = errNotTheRecord
	}
	damage := &DamagedError{
		Topic: idx.Topic(), QueueID: idx.ID(), Offset: e.Offset, End: e.Offset + 1, Pos: e.Pos, Cause: err,
	}
	if s.isDropped(err, e.Pos) {
		return nil, damage
	}
	return nil, s.damaged(damage)
}

var errNotTheRecord = errors.New("the record there is another one than the index says")

// isDropped reports whether err came from reading a position that retention has taken away.
func (s *Store) isDropped(err error, pos message.LogOffset) bool {
	return errors.Is(err, commitlog.ErrNotFound) && pos < s.log.First()
}

// OffsetByTime searches a queue by store timestamp (ms). With upper false it returns the first message that
// was stored at or after millis, or the maximum when there is none. With upper true it returns the last one
// stored at or before millis, or the minimum when there is none. Of equal times the first or the last one
// counts. Damaged messages are passed over. Errors: ErrNotFound for a queue in which nothing was ever
// stored, *index.CorruptError. Source: ConsumeQueue.getOffsetInQueueByTime.
func (s *Store) OffsetByTime(topic string, queueID int32, millis int64, upper bool) (message.QueueOffset, error) {
	minimum, maximum, ok := s.Bounds(topic, queueID)
	if !ok {
		return 0, ErrNotFound
	}
	if upper {
		millis++ // the last at or before millis is the one in front of the first after it
	}
	low, high := minimum, maximum // every message in front of low is older than millis, none from high on is
	for low < high {
		mid := low + (high-low)/2
		at, time, err := s.timeFrom(topic, queueID, mid, high)
		switch {
		case err != nil:
			return 0, err
		case at == high: // nothing readable in [mid, high)
			high = mid
		case time >= millis:
			high = mid
		default:
			low = at + 1
		}
	}
	if upper {
		return max(low-1, minimum), nil
	}
	return low, nil
}

// timeFrom returns the first readable message in [from, to) and its store timestamp; to when there is none.
func (s *Store) timeFrom(
	topic string, queueID int32, from, to message.QueueOffset,
) (at message.QueueOffset, millis int64, err error) {
	for at = from; at < to; at++ {
		rec, err := s.At(topic, queueID, at)
		if err == nil {
			return at, rec.StoreTimestamp(), nil
		}
		if _, damaged := errors.AsType[*DamagedError](err); !damaged && !errors.Is(err, ErrNotFound) {
			return 0, 0, err
		}
	}
	return to, 0, nil
}

// ByKey returns up to limit messages of topic, newest first, that carry key as one of their KEYS (unique
// false) or as their UNIQ_KEY (unique true) and whose store timestamp lies in [begin, end] (ms). Topic and
// key are compared on the record itself; each record comes once. A key index that is damaged on disk is
// rebuilt from the log first. Errors (*DamagedError, *index.KeysError) come with what was found in spite of
// them.
func (s *Store) ByKey(topic, key string, unique bool, limit int, begin, end int64) ([]message.Record, error) {
	found, err := s.byKey(topic, key, unique, limit, begin, end)
	if _, ok := errors.AsType[*index.KeysError](err); ok {
		if err := s.rewriteKeys(); err != nil {
			return found, err
		}
		found, err = s.byKey(topic, key, unique, limit, begin, end)
	}
	return found, err
}

func (s *Store) byKey(topic, key string, unique bool, limit int, begin, end int64) ([]message.Record, error) {
	kind := index.KeyOrdinary
	if unique {
		kind = index.KeyUnique
	}
	var found []message.Record
	var errs []error
	from, to := s.between(begin, end)
	for pos, err := range s.db.FindKeys(kind, topic, key, from, to) {
		if len(found) >= limit {
			break
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		rec, err := s.Record(pos)
		switch {
		case errors.Is(err, ErrNotFound):
		case err != nil:
			errs = append(errs, err)
		case hasKey(rec, topic, key, unique) && inWindow(rec.StoreTimestamp(), begin, end):
			found = append(found, rec)
		}
	}
	return found, errors.Join(errs...)
}

// between returns a range of log positions that holds every message stored in [begin, end] (ms). It is as
// coarse as segments are, and allows for a wall clock that was set back.
func (s *Store) between(begin, end int64) (from, to message.LogOffset) {
	slack := maxClockStep.Milliseconds()
	segments := s.log.Segments()
	from, to = s.log.First(), s.log.End()
	for i := range segments {
		if i+1 < len(segments) && segments[i].LastMillis+slack < begin {
			from = segments[i].End
		}
		if i > 0 && segments[i].FirstMillis-slack > end {
			return from, segments[i].First
		}
	}
	return from, to
}

func inWindow(millis, begin, end int64) bool { return begin <= millis && millis <= end }

// hasKey compares topic and key on the record.
func hasKey(rec message.Record, topic, key string, unique bool) bool {
	if string(rec.Topic()) != topic || key == "" {
		return false
	}
	props := indexed(rec.Properties())
	if unique {
		return props.uniqueKey == key
	}
	for token := range strings.SplitSeq(props.keys, " ") {
		if token == key {
			return true
		}
	}
	return false
}
