// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/roquetmq/roquet/internal/commitlog"
	"github.com/roquetmq/roquet/internal/index"
	"github.com/roquetmq/roquet/internal/message"
)

// recover opens the index and brings it to the end of the log.
//
// The index is a prefix of the log's application, up to Applied; some state beyond it may be there already,
// which does not hurt as state is applied again. It is thrown away when it does not belong to this log:
// ahead of it (the log lost an unsynced tail, FlushDiskType Async), or so far behind that retention has cut
// what it has not seen.
func (s *Store) recover() error {
	if err := s.openIndex(); err != nil {
		return err
	}
	s.queues = newQueueTable(s.db)
	if err := s.rewriteKeys(); err != nil {
		return err
	}
	if err := s.replay(); err != nil {
		return err
	}
	for _, seg := range s.log.Segments() {
		s.applier.lastTime = max(s.applier.lastTime, seg.LastMillis)
	}
	s.assign.lastTime = s.applier.lastTime
	return nil
}

func (s *Store) openIndex() error {
	dir, fs := s.cfg.indexDir(), s.cfg.FS
	db, err := index.Open(dir, fs, s.cfg.Index)
	_, corrupt := errors.AsType[*index.CorruptError](err)
	switch {
	case corrupt:
		s.cfg.Logger.Warn("index is damaged, rebuilding it from the log", slog.Any("error", err))
	case err != nil:
		return fmt.Errorf("open the index: %w", err)
	default:
		reason := s.unfit(db)
		if reason == "" {
			s.db = db
			return nil
		}
		s.cfg.Logger.Warn("index does not fit the log, rebuilding it", slog.String("reason", reason),
			slog.Int64("applied", int64(db.Applied())), slog.Int64("high", int64(db.High())),
			slog.Int64("log_first", int64(s.log.First())), slog.Int64("log_end", int64(s.log.End())))
		if err := db.Close(); err != nil {
			return fmt.Errorf("close the unfit index: %w", err)
		}
	}
	if err := index.Wipe(dir, fs); err != nil {
		return fmt.Errorf("delete the unfit index: %w", err)
	}
	if s.db, err = index.Open(dir, fs, s.cfg.Index); err != nil {
		return fmt.Errorf("open a new index: %w", err)
	}
	return nil
}

// unfit says why the index can not be brought up to date by replaying, "" if it can.
func (s *Store) unfit(db *index.DB) string {
	switch {
	case db.High() > s.log.End() || db.Applied() > s.log.End():
		return "ahead of the log"
	case db.Applied() < s.log.First() && db.High() > 0:
		return "behind what the log keeps"
	}
	return ""
}

// replay applies what the index has not seen, and reads the store timestamps of the last segment.
func (s *Store) replay() error {
	applied, from := s.db.Applied(), s.db.Applied()
	if segments := s.log.Segments(); len(segments) > 0 {
		from = min(from, segments[len(segments)-1].First)
	}
	var entries, records int
	err := s.log.Replay(max(from, s.log.First()), func(e commitlog.Entry) error {
		if e.Position < applied {
			return s.applier.times(e)
		}
		entries++
		records += e.Count
		return s.applier.apply(e)
	})
	if err != nil {
		return fmt.Errorf("replay the log from position %d: %w", from, err)
	}
	if entries > 0 {
		s.cfg.Logger.Info("replayed the log", slog.Int64("from", int64(applied)),
			slog.Int64("to", int64(s.log.End())), slog.Int("entries", entries), slog.Int("records", records))
	}
	return nil
}

// times only looks at store timestamps.
func (a *applier) times(e commitlog.Entry) error {
	return e.Each(func(_ message.LogOffset, rec []byte) error {
		if r := message.Record(rec); r.IsMessage() && r.IsWhole() {
			a.lastTime = max(a.lastTime, r.StoreTimestamp())
		}
		return nil
	})
}

// rewriteKeys writes the key sidecars that the index has lost. It may be called while the store runs.
func (s *Store) rewriteKeys() error {
	s.rekeying.Lock()
	defer s.rekeying.Unlock()
	for _, missing := range s.db.MissingKeys(s.log.First()) {
		s.cfg.Logger.Warn("key sidecar is missing, rebuilding it from the log",
			slog.Int64("from", int64(missing.From)), slog.Int64("to", int64(missing.To)))
		if err := s.rewriteRange(missing); err != nil {
			return fmt.Errorf("rebuild keys of log positions [%d, %d): %w", missing.From, missing.To, err)
		}
	}
	return nil
}

func (s *Store) rewriteRange(missing index.KeyRange) error {
	w := s.db.RewriteKeys(missing)
	err := s.log.Replay(missing.From, func(e commitlog.Entry) error {
		if e.Position >= missing.To {
			return errPast
		}
		err := e.Each(func(pos message.LogOffset, rec []byte) error {
			messageKeys(w.Add, pos, rec)
			return nil
		})
		return errors.Join(err, w.Checkpoint(e.End))
	})
	if err != nil && !errors.Is(err, errPast) {
		return err
	}
	return w.Close()
}

// errPast ends a replay that has seen enough.
var errPast = errors.New("past the range")
