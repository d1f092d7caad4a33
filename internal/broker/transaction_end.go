// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"math"
	"time"

	"github.com/roquetmq/roquet/internal/broker/transaction"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// maxSameKey bounds the messages of one unique key that are looked at.
const maxSameKey = 16

// Decision is what a producer says about its half message.
type Decision uint8

// The decisions.
const (
	Undecided Decision = iota
	Commit
	Rollback
)

// String names the decision as clients do.
func (d Decision) String() string {
	return [...]string{Undecided: "unknown", Commit: "commit", Rollback: "rollback"}[d]
}

// EndRequest is a producer's word about a half message. Its strings may alias a buffer that lives until Done.
type EndRequest struct {
	// LogOffset and QueueOffset say where the half message is, as the answer to its send or a check said. A
	// negative LogOffset finds it by Topic and TransactionID instead.
	LogOffset   message.LogOffset
	QueueOffset message.QueueOffset
	Topic       string // of the message; used only to find it
	// TransactionID is the message's unique key. With it a half message is found also when retention has
	// moved it.
	TransactionID string
	Group         string // the producer's; empty is not compared
	Decision      Decision
	// FromCheck says that this answers a check.
	FromCheck bool
	// May tells, with an error, that who decides may not decide about a message of the topic; nil: they may.
	May func(topic string) error
	// Done is called exactly once, when the decision is durable (err nil) or refused: by End itself, or later
	// by the store's applier. It must not block. After it the request may be used again.
	Done func(req *EndRequest, err error)

	write store.Write
	half  message.Message // as it is stored
	again bool            // it was moved while this waited, and looked for once more
}

// noHalf says that there is no such half message.
func noHalf(detail string, args ...any) error {
	return refuse(Failed, "Find prepared transaction message failed: "+detail, args...)
}

func decidedBefore(winning Decision) error {
	return refuse(IllegalOperation, "the transaction was decided before: %s", winning)
}

// End takes a decision over and calls req.Done. Undecided changes nothing. A decision that was taken before,
// and is the same, is no error. Errors given to Done: *Refusal (TopicNotExist: the message's topic is gone),
// those of req.May, of store.Append and of reading the half message. Source:
// EndTransactionProcessor.java.
func (t *Transactions) End(req *EndRequest) {
	req.again = false
	if req.Decision != Commit && req.Decision != Rollback {
		t.logger.Debug("producer does not know the state of a transaction", "group", req.Group,
			"log_offset", req.LogOffset, "transaction_id", req.TransactionID, "from_check", req.FromCheck)
		req.Done(req, nil)
		return
	}
	if err := t.end(req); err != nil {
		req.Done(req, err)
	}
}

// end finds the half message and claims it. When it returns nil, Done was or will be called.
func (t *Transactions) end(req *EndRequest) error {
	half, open, err := t.find(req)
	if err != nil {
		return err
	}
	if err := t.check(req, &half, open, time.Now()); err != nil {
		return err
	}
	if !open {
		req.Done(req, t.late(req))
		return nil
	}
	t.claim(half.Offset, func(half transaction.Half, granted bool) {
		var err error
		switch {
		case granted:
			if err = t.decide(req, &half); err != nil {
				t.finished(half.Offset, transaction.Failed)
			}
		case !req.again: // it was decided, or moved
			req.again = true
			err = t.end(req)
		default:
			req.Done(req, t.late(req))
		}
		if err != nil {
			req.Done(req, err)
		}
	})
	return nil
}

// find finds the half message that req is about, into req.half. open tells whether it is undecided.
func (t *Transactions) find(req *EndRequest) (half transaction.Half, open bool, err error) {
	if req.LogOffset < 0 {
		return t.findByID(req, func(transaction.Half) bool { return true })
	}
	rec, err := t.log.At(TransHalfTopic, 0, req.QueueOffset) // the shorter way to what Record finds
	if err != nil || rec.LogOffset() != req.LogOffset {
		rec, err = t.log.Record(req.LogOffset)
	}
	switch {
	case errors.Is(err, store.ErrNotFound):
		return t.findByID(req, req.isOrigin)
	case err != nil:
		return half, false, err
	case string(rec.Topic()) != TransHalfTopic:
		return half, false, noHalf("what is at %d is no half message", req.LogOffset)
	}
	if half, open = t.openAt(rec.QueueOffset()); !open {
		if req.TransactionID == "" {
			req.TransactionID, _ = message.Property(rec.Properties(), message.PropertyUniqueKey)
		}
		if moved, isOpen, err := t.findByID(req, req.isOrigin); err == nil && isOpen {
			return moved, true, nil
		}
		half = transaction.Half{Offset: rec.QueueOffset()}
	}
	req.half, err = message.Decode(rec)
	return half, open, err
}

// isOrigin reports whether req says where half was before retention moved it.
func (req *EndRequest) isOrigin(half transaction.Half) bool {
	return half.Moved && half.OriginPos == req.LogOffset && half.Origin == req.QueueOffset
}

// findByID finds the newest half message of the transaction id, an open one first; open ones must be
// accepted.
func (t *Transactions) findByID(req *EndRequest, accept func(transaction.Half) bool) (
	half transaction.Half, open bool, err error,
) {
	notFound := noHalf("log offset %d, transaction id %q", req.LogOffset, req.TransactionID)
	if req.TransactionID == "" {
		return half, false, notFound
	}
	recs, err := t.log.ByKey(TransHalfTopic, req.TransactionID, true, maxSameKey, 0, math.MaxInt64)
	var closed message.Record
	for _, rec := range recs {
		going, _, _ := destination(rec.Properties())
		if req.LogOffset < 0 && req.Topic != "" && going != req.Topic {
			continue
		}
		half, open = t.openAt(rec.QueueOffset())
		if open && accept(half) {
			req.half, err = message.Decode(rec)
			return half, true, err
		}
		if !open && closed == nil {
			closed = rec
		}
	}
	switch {
	case closed != nil:
		req.half, err = message.Decode(closed)
		return transaction.Half{Offset: closed.QueueOffset()}, false, err
	case err != nil:
		return half, false, err
	}
	return half, false, notFound
}

// check compares what the producer says with what is stored, in the original's order.
func (t *Transactions) check(req *EndRequest, half *transaction.Half, open bool, now time.Time) error {
	immunity, has := message.Property(req.half.Properties, message.PropertyCheckImmunityTimeInSeconds)
	if open && has && !req.FromCheck {
		t.mu.Lock()
		limit := max(t.mu.core.Timeout(), time.Duration(immunitySeconds(immunity))*time.Second)
		t.mu.Unlock()
		if age := now.Sub(time.UnixMilli(half.Since)); age > limit {
			return refuse(IllegalOperation, "the half message is too old for a decision that does not answer "+
				"a check: it is %v old, and may be %v (%s)", age, limit,
				message.PropertyCheckImmunityTimeInSeconds)
		}
	}
	if topic, _, ok := destination(req.half.Properties); ok && req.May != nil {
		if err := req.May(topic); err != nil {
			return err
		}
	}
	group, _ := message.Property(req.half.Properties, message.PropertyProducerGroup)
	if req.Group != "" && group != req.Group {
		return refuse(Failed, "The producer group wrong: the message is of %q, not %q", group, req.Group)
	}
	// One that is not open may be another one of the same id: there is nothing to decide, only something to
	// say.
	compared := req.LogOffset >= 0 && (open || req.LogOffset == req.half.LogOffset)
	if compared && req.QueueOffset != req.half.QueueOffset && !req.isOrigin(*half) {
		return refuse(Failed, "The transaction state table offset wrong: the message is at %d, not %d",
			req.half.QueueOffset, req.QueueOffset)
	}
	return nil
}

// decide appends the decision about the half message, which req holds.
func (t *Transactions) decide(req *EndRequest, half *transaction.Half) error {
	w := &req.write
	w.Messages, w.State, w.Assigned = nil, nil, nil
	if req.Decision == Commit {
		if err := t.realMessage(req); err != nil {
			return err
		}
	}
	w.State = append(w.State, closedState(half.Offset))
	offset, since := half.Offset, half.Since
	w.Done = func(w *store.Write, err error) {
		t.finished(offset, outcomeOf(err))
		if err == nil {
			t.decided(req, since)
		}
		req.Done(req, err)
	}
	return t.log.Append(w)
}

// realMessage puts the message that the half message stands for into req.write, on its way to its topic, or
// where it waits for its time. It keeps TRAN_MSG, as RocketMQ 5.5.0 delivers it: consumers tell by that that it was
// part of a transaction. Source: endMessageTransaction.
func (t *Transactions) realMessage(req *EndRequest) error {
	topic, queueID, ok := destination(req.half.Properties)
	if !ok {
		return noHalf("the half message does not say where it was going")
	}
	if _, ok := t.topics.Lookup(topic); !ok {
		return NoTopic(topic)
	}
	w := &req.write
	m := w.Single()
	*m = req.half
	m.Topic, m.QueueID = topic, queueID
	m.SysFlag = m.SysFlag&^message.TransactionMask | message.TransactionCommit
	m.PreparedTransactionOffset = m.LogOffset
	if req.LogOffset >= 0 {
		m.PreparedTransactionOffset = req.LogOffset
	}
	m.Properties = message.WithoutProperty(m.Properties, message.PropertyRealTopic, message.PropertyRealQueueID)
	var seen noted
	if err := seen.scan(m.Properties); err != nil {
		return err
	}
	// Any delay: it was checked when the half message was sent.
	_, err := seen.place(w, m, t.cfg.Levels, time.Now(), math.MaxInt64)
	return err
}

// decided counts a decision that is durable.
func (t *Transactions) decided(req *EndRequest, since int64) {
	age := time.Since(time.UnixMilli(since))
	if topic, _, ok := destination(req.half.Properties); ok {
		t.stats.Decided(topic, req.Decision == Commit, age)
	}
	if req.Decision == Rollback {
		return
	}
	m := &req.write.Messages[0]
	t.stats.Put(m.Topic, KindTransaction, 1, m.EncodedLen(), time.Since(time.UnixMilli(m.StoreTimestamp)))
}

// late answers a decision about a half message that is not open any more. The answer says what is known: it
// is nil when what the producer wants is what happened.
func (t *Transactions) late(req *EndRequest) error {
	key, _ := message.Property(req.half.Properties, message.PropertyUniqueKey)
	topic, _, _ := destination(req.half.Properties)
	if t.isStored(req, key, topic, ScheduleTopic, TimerTopic) {
		if req.Decision == Commit {
			return nil
		}
		return decidedBefore(Commit)
	}
	parked, _ := t.log.ByKey(TransCheckMaxTimeTopic, key, true, 1, 0, math.MaxInt64) // not found: it was rolled back
	if len(parked) > 0 {
		return refuse(IllegalOperation, "nobody decided about the transaction in time, it was moved to %s: "+
			"resume it with roquet transaction resume, or RESUME_CHECK_HALF_MESSAGE (323), and msgId %s",
			TransCheckMaxTimeTopic, message.OffsetMsgID(parked[0].StoreHost(), parked[0].LogOffset()))
	}
	if req.Decision == Rollback {
		return nil
	}
	return decidedBefore(Rollback)
}

// isStored reports whether the half message was committed: its real message is in one of topics. Who names none
// but the id means whatever half message of that id was committed, wherever that was then.
func (t *Transactions) isStored(req *EndRequest, key string, topics ...string) bool {
	for _, topic := range topics {
		recs, _ := t.log.ByKey(topic, key, true, maxSameKey, 0, math.MaxInt64) // what cannot be read is not found
		for _, rec := range recs {
			prepared := rec.PreparedTransactionOffset()
			if rec.SysFlag()&message.TransactionMask == message.TransactionCommit &&
				(req.LogOffset < 0 || prepared == req.half.LogOffset || prepared == req.LogOffset) {
				return true
			}
		}
	}
	return false
}
