// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// CarryForward keeps every message in front of cut that was handed out and is not finished: its record is
// stored again, as a state record that goes when the message is finished. So it comes back, and can become a
// dead letter, although the log in front of cut is dropped. It returns when all that is durable.
//
// What is received in front of cut from now on is kept when it is received.
func (p *Popper) CarryForward(ctx context.Context, cut message.LogOffset) error {
	p.carried.Store(max(p.carried.Load(), int64(cut)))
	for _, s := range p.shares.All() {
		s.mu.Lock()
		err := p.usableLocked(s)
		queues := len(s.mu.queues)
		s.mu.Unlock()
		if err != nil {
			if isGone(err) {
				continue
			}
			return fmt.Errorf("carry received messages forward: %w", err)
		}
		for id := range int32(queues) {
			if err := p.carryQueue(ctx, s, id, cut); err != nil {
				return fmt.Errorf("carry received messages forward: %w", err)
			}
		}
	}
	return nil
}

// carryQueue keeps the messages of one queue.
func (p *Popper) carryQueue(ctx context.Context, s *popShare, id int32, cut message.LogOffset) error {
	s.mu.Lock()
	var offsets []message.QueueOffset
	if q := s.queueLocked(id); q != nil {
		offsets = q.Unfinished(nil)
	}
	s.mu.Unlock()
	for _, off := range offsets {
		if err := ctx.Err(); err != nil {
			return err
		}
		rec, err := p.store.At(s.key.topic, id, off)
		switch {
		case lost(err):
			continue // kept before, or lost already: its next delivery reports it
		case err != nil:
			return err
		case rec.LogOffset() >= cut:
			return nil // as those behind it
		}
		if err := p.keep(s, popRecord{popKeptKey, s.key, id, off}, rec); err != nil {
			return err
		}
	}
	return nil
}

// keep stores the record of a message that is still not finished, and waits until that is durable.
func (p *Popper) keep(s *popShare, r popRecord, rec message.Record) error {
	done := make(chan error, 1)
	w := &store.Write{
		Reserve: true,
		State: []message.State{{
			Space: message.SpacePop, Key: appendPopKey(nil, r.letter, r.key, r.queueID, r.offset), Value: rec,
		}},
		Done: func(_ *store.Write, err error) {
			p.settled(s, err)
			done <- err
		},
	}
	s.mu.Lock()
	err := p.usableLocked(s)
	q := s.queueLocked(r.queueID)
	_, kept := s.mu.kept[r]
	if err != nil || q == nil || !q.Holds(r.offset) || kept {
		s.mu.Unlock()
		if isGone(err) {
			return nil
		}
		return err
	}
	s.mu.kept[r] = struct{}{}
	s.inFlight.Add(1)
	if err = p.store.Append(w); err != nil {
		s.inFlight.Add(-1)
		p.breakLocked(s, err)
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return <-done
}

// isGone tells whether the share is being deleted.
func isGone(err error) bool {
	return errors.Is(err, TopicNotExist) || errors.Is(err, GroupNotExist)
}
