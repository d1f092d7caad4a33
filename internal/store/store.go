// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/roquetmq/roquet/internal/commitlog"
	"github.com/roquetmq/roquet/internal/index"
	"github.com/roquetmq/roquet/internal/message"
)

// Store is one broker's messages and state: a commit log, and an index that is derived from it.
type Store struct {
	cfg    Config
	log    *commitlog.Log
	db     *index.DB
	queues *queueTable

	assign  assigner
	applier applier
	carry   carryGuard
	damages damageReport

	rekeying sync.Mutex // held while lost key sidecars are written

	settled   func()
	retention retention
	bounds    atomic.Pointer[Retention]

	failed atomic.Pointer[IndexError] // set for good when the log could not be applied
	ailing atomic.Bool                // the index had an error when the last entry was applied
}

// Open repairs and opens the log, opens the index, rebuilds it when it is lost, damaged or ahead of the
// log, and applies what it has not seen. Nothing runs in the background until Run. Errors: those of the
// configuration, of the disk, and *commitlog.CorruptError when what has to be read of the log is damaged.
func Open(cfg Config) (*Store, error) {
	cfg.setDefaults()
	log, err := commitlog.Open(cfg.Log)
	if err != nil {
		return nil, fmt.Errorf("open the commit log: %w", err)
	}
	s := &Store{cfg: cfg, log: log}
	s.assign.epoch, s.assign.host = 1, cfg.StoreHost
	s.applier.store = s
	s.SetRetention(cfg.Retention)
	if err := s.recover(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// OnSettled registers fn to be called after the Done calls of each batch: the moment to flush replies.
// Register it before Run.
func (s *Store) OnSettled(fn func()) { s.settled = fn }

// OnRetain registers fn to be called before the log is cut, or some time ahead of that: messages in front
// of cut that must live on have to be appended again (Write.Reserve), and be durable, before it returns. An
// error postpones the cut. Register before Run.
func (s *Store) OnRetain(fn func(ctx context.Context, cut message.LogOffset) error) {
	s.retention.hooks = append(s.retention.hooks, fn)
}

// Run commits, applies and retains until ctx is done. Then it settles what was accepted, and returns after
// all its goroutines have ended; appends get commitlog.ErrClosed from then on, reads go on until Close. Who
// still waits is not woken: whoever holds waiters ends them.
func (s *Store) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		apply := func(e commitlog.Entry) { _ = s.applier.apply(e) } // indexError tells
		reset := func() { s.assign.epoch++ }                        // after a failed batch, under the append lock
		return s.log.Run(ctx, commitlog.Handler{Apply: apply, Settled: s.settled, Reset: reset})
	})
	g.Go(func() error { return s.retainLoop(ctx) })
	return g.Wait()
}

// Close writes the index down and closes index and log. Call it after Run has returned.
func (s *Store) Close() error {
	var errs []error
	if s.db != nil {
		errs = append(errs, s.db.Close())
		s.db = nil
	}
	return errors.Join(append(errs, s.log.Close())...)
}

// Append hands w to the log; see Write for what follows. An error means that Done will not be called and
// nothing is stored: ErrEmptyWrite, *message.SizeError, *IndexError, and the log's commitlog.ErrClosed,
// ErrTooLarge, *BrokenError, *DiskFullError, *BusyError. Safe for concurrent use; it does not wait for the
// disk.
func (s *Store) Append(w *Write) error {
	size, err := s.prepare(w)
	if err != nil {
		return err
	}
	return s.log.Append(&w.grp, size, w.Reserve)
}

// Checkpoint links the log as it is now into dir, which is made: a store in itself, whose segments may have more bytes
// than the returned ones say. Everything acknowledged before the call is in it. The index is left out; Open builds it.
func (s *Store) Checkpoint(ctx context.Context, dir string) ([]commitlog.Segment, error) {
	if s.cfg.Log.FlushDiskType == commitlog.Async {
		if err := s.log.Roll(ctx); err != nil { // makes what is acknowledged durable
			return nil, fmt.Errorf("checkpoint: %w", err)
		}
	}
	return s.log.Link(filepath.Join(dir, logFolder))
}

// First returns the oldest log position that is kept, and End the end of what is durable.
func (s *Store) First() message.LogOffset { return s.log.First() }

// End returns the position behind the last durable record.
func (s *Store) End() message.LogOffset { return s.log.End() }

// Segments returns the log's files, oldest first.
func (s *Store) Segments() []commitlog.Segment { return s.log.Segments() }

// Stats returns the log's counters.
func (s *Store) Stats() commitlog.Stats { return s.log.Stats() }

// Health reports whether writes are accepted, and if not why.
func (s *Store) Health() (writable bool, cause error) {
	if err := s.indexError(); err != nil {
		return false, err
	}
	return s.log.Health()
}

// indexError returns why writes are refused although the log is well, or nil. What the index gets over by
// itself (a full disk) is asked for again.
func (s *Store) indexError() error {
	if failed := s.failed.Load(); failed != nil {
		return failed
	}
	if !s.ailing.Load() {
		return nil
	}
	if err := s.db.Err(); err != nil {
		return &IndexError{Cause: s.log.Explain(err)}
	}
	s.ailing.Store(false)
	return nil
}

// fail makes the store refuse writes for good, because the index does not say what the log says.
func (s *Store) fail(cause error) error {
	if s.failed.CompareAndSwap(nil, &IndexError{Cause: cause}) {
		s.cfg.Logger.Error("index failed, writes are refused", slog.Any("error", cause))
	}
	return s.failed.Load()
}
