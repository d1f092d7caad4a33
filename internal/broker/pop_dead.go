// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"time"

	"github.com/roquetmq/roquet/internal/broker/pop"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// bury stores the dead letter of a message, and that the message is finished, in one Write.
func (p *Popper) bury(s *popShare, d popDead, done func(error)) {
	p.topics.EnsureDLQ(s.key.group, func(dlq *TopicConfig, err error) {
		if err == nil {
			err = p.storeDead(s, d, dlq.Name, done)
		}
		if err != nil {
			p.spare(s, d, err)
			done(err)
		}
	})
}

// spare lets a message live on that could not become a dead letter; that is tried again.
func (p *Popper) spare(s *popShare, d popDead, cause error) {
	p.cfg.Logger.Warn("dead letter could not be stored, trying again", "topic", s.key.topic,
		"group", s.key.group, "queue_id", d.queueID, "offset", d.offset, "error", cause)
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queueLocked(d.queueID); q != nil && s.mu.broken == nil {
		q.Step(nowMillis(), &pop.Spare{Offset: d.offset, Wait: popRetry.Milliseconds()})
		p.alarm.sooner(s, q.Deadline())
	}
}

// storeDead stores a dead letter. When it returns nil, done was or will be called.
func (p *Popper) storeDead(s *popShare, d popDead, dlq string, done func(error)) error {
	w := &store.Write{}
	rec, err := p.message(s.key, d.queueID, d.offset)
	var origin string
	switch {
	case err == nil:
		if origin, err = deadLetter(w, rec, dlq, d.times); err != nil {
			return err
		}
	case lost(err):
		p.cfg.Logger.Error("message cannot become a dead letter, it is lost", "topic", s.key.topic,
			"group", s.key.group, "queue_id", d.queueID, "offset", d.offset, "error", err)
	default:
		return err
	}
	started := time.Now()
	w.Done = func(w *store.Write, err error) {
		p.settled(s, err)
		if err == nil && len(w.Messages) > 0 {
			p.stats.Put(dlq, KindNormal, 1, w.Messages[0].EncodedLen(), time.Since(started))
			p.stats.DLQ(s.key.group, origin)
		}
		done(err)
	}
	var c popChange
	s.mu.Lock()
	if err = p.usableLocked(s); err != nil {
		s.mu.Unlock()
		return err
	}
	stored, err := p.buryLocked(s, d, w, &c)
	s.mu.Unlock()
	switch {
	case err != nil:
		return err
	case !stored:
		done(nil)
	case c.wake:
		p.signal(s, AllQueues)
	}
	return nil
}

// buryLocked finishes the message and appends w; nothing is stored when it was finished otherwise meanwhile.
func (p *Popper) buryLocked(s *popShare, d popDead, w *store.Write, c *popChange) (stored bool, err error) {
	q := s.queueLocked(d.queueID)
	if q == nil {
		return false, nil
	}
	s.mu.batch.begin()
	actions := q.Step(nowMillis(), &pop.Bury{Offset: d.offset})
	s.takeLocked(c, d.queueID, q, actions)
	if len(actions) == 0 || actions[0].Kind != pop.Finished {
		return false, nil
	}
	return p.appendLocked(s, w, c)
}

// deadLetter makes w store the dead letter of a message; origin is the topic it came from.
func deadLetter(w *store.Write, rec message.Record, dlq string, times int32) (origin string, err error) {
	m, err := message.Decode(rec)
	if err != nil {
		return "", err
	}
	origin = originOf(&m)
	*w.Single() = message.Message{
		Topic: dlq, Flag: m.Flag, SysFlag: m.SysFlag, BornTimestamp: m.BornTimestamp, BornHost: m.BornHost,
		ReconsumeTimes: times + 1, Body: m.Body, Properties: sentBackProperties(&m, 0),
	}
	return origin, nil
}
