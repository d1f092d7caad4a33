// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/roquetmq/roquet/internal/commitlog"
	"github.com/roquetmq/roquet/internal/message"
)

// The oldest segment is cleared ahead of time when there are so many segments: with fewer, what is alive would only be
// moved to and fro. Who receives from a segment that is cleared has to store whole messages with the claims, so it must
// be a small part of the log, or the log be near its bounds (a quota may be lower than the disk tells).
const (
	minSegmentsToClear = 4
	manySegments       = 64
	nearBytes          = 8 << 30
)

// maxForcedBytes bounds what goes at one look because the disk is too full: if something else fills it,
// dropping everything at once would not help either.
const maxForcedBytes = 1 << 30

// retention is what Retain remembers.
type retention struct {
	sync.Mutex // held during Retain
	hooks      []func(ctx context.Context, cut message.LogOffset) error
	carriedTo  message.LogOffset // nothing in front of it is alive
}

// SetRetention changes what the log keeps, from the next look on; the time between looks stays.
func (s *Store) SetRetention(r Retention) {
	r.setDefaults()
	s.bounds.Store(&r)
}

// retainLoop looks every Retention.Interval what may go, until ctx is done.
func (s *Store) retainLoop(ctx context.Context) error {
	tick := time.Tick(s.cfg.Retention.Interval)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
		}
		_, err := s.Retain(ctx)
		if err != nil && ctx.Err() == nil && !errors.Is(err, commitlog.ErrClosed) {
			s.cfg.Logger.Warn("retention failed, trying again", slog.Any("error", err),
				slog.Duration("interval", s.cfg.Retention.Interval))
		}
	}
}

// Retain drops what retention allows, now, and returns how many segments went. What is alive in them is
// carried forward first. Run calls it at intervals; calls wait for each other. It needs a running store.
//
// The oldest segment is cleared of what is alive ahead of time. So a segment can be given up even when the
// disk is so full that nothing can be written any more, and that makes the room to go on.
func (s *Store) Retain(ctx context.Context) (segments int, err error) {
	s.retention.Lock()
	defer s.retention.Unlock()
	segs := s.log.Segments()
	n := s.expired(segs)
	if n > 0 && n == len(segs) { // the last one is written to: it can go once there is another
		if err = s.log.Roll(ctx); err != nil {
			n--
		}
	}
	if n > 0 {
		cut := segs[n-1].End
		err = errors.Join(err, s.carryTo(ctx, cut))
		var dropErr error
		segments, dropErr = s.drop(s.indexed(ctx, min(cut, s.retention.carriedTo)))
		err = errors.Join(err, dropErr)
	}
	segs = s.log.Segments()
	scarce := len(segs) >= manySegments || len(segs) >= minSegmentsToClear && s.excessBytes(segs) > -nearBytes
	if err == nil && scarce {
		err = s.carryTo(ctx, segs[0].End)
	}
	return segments, err
}

// carryTo carries forward what is alive in front of cut, unless that was done before.
func (s *Store) carryTo(ctx context.Context, cut message.LogOffset) error {
	if cut <= s.retention.carriedTo {
		return nil
	}
	if err := s.carryForward(ctx, cut); err != nil {
		return err
	}
	s.retention.carriedTo = cut
	return nil
}

// maxCheckpointWait bounds how long a cut waits for the index.
const maxCheckpointWait = 10 * time.Second

// indexed has the index written down up to cut and returns how far it is: what the index on disk lacks must stay
// in the log, or a crash would cost a rebuild. When the index cannot be written now, the next look cuts the rest.
func (s *Store) indexed(ctx context.Context, cut message.LogOffset) message.LogOffset {
	ctx, cancel := context.WithTimeout(ctx, maxCheckpointWait)
	defer cancel()
	for range 2 { // one that is running may have begun before cut
		if s.db.Applied() >= cut || s.db.Err() != nil {
			break
		}
		s.applier.mu.Lock()
		done := s.db.Begin()
		s.applier.mu.Unlock()
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
	return min(cut, s.db.Applied())
}

// drop takes away the segments in front of cut, and what the index knows of them.
func (s *Store) drop(cut message.LogOffset) (segments int, err error) {
	if segments, err = s.log.DropBefore(cut); segments == 0 || err != nil {
		return segments, err
	}
	if err := s.db.DropBefore(cut); err != nil {
		return segments, err
	}
	s.cfg.Logger.Info("dropped old segments", slog.Int("segments", segments),
		slog.Int64("log_first", int64(s.log.First())), slog.Int64("log_end", int64(s.log.End())))
	return segments, nil
}

// expired returns how many of the oldest segments may go.
func (s *Store) expired(segs []commitlog.Segment) int {
	oldest := s.cfg.Now().Add(-s.bounds.Load().FileReservedTime).UnixMilli()
	excess := s.excessBytes(segs)
	for i := range segs {
		seg := &segs[i]
		tail := i == len(segs)-1
		aged := seg.LastMillis < oldest && seg.LastMillis > 0
		if aged && tail {
			aged = s.holdsMessages(seg)
		}
		if !aged && (excess <= 0 || tail) {
			return i
		}
		excess -= seg.Bytes()
	}
	return len(segs)
}

// excessBytes is by how much the log is larger than its bounds allow; less than 0 is how far it is from them.
func (s *Store) excessBytes(segs []commitlog.Segment) int64 {
	excess := int64(math.MinInt64)
	if limit := s.bounds.Load().MaxBytes; limit > 0 {
		excess = -limit
		for i := range segs {
			excess += segs[i].Bytes()
		}
	}
	usage, err := s.cfg.Log.FS.GetDiskUsage(s.cfg.Log.Dir)
	if err != nil {
		s.cfg.Logger.Debug("cannot tell how full the disk is", slog.Any("error", err))
		return max(excess, 0)
	}
	// As RocketMQ and the log count it: used of what ordinary users can have.
	limit := (usage.UsedBytes + usage.AvailBytes) / 100 * uint64(s.bounds.Load().CleanForciblyPercent)
	return max(excess, min(int64(usage.UsedBytes)-int64(limit), maxForcedBytes))
}

// holdsMessages reports whether a queue has a message at or behind the beginning of seg.
func (s *Store) holdsMessages(seg *commitlog.Segment) bool {
	for _, topic := range s.db.Topics() {
		for _, idx := range s.db.Queues(topic) {
			if endsBehind(idx, seg.First) {
				return true
			}
		}
	}
	return false
}
