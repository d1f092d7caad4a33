// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/roquetmq/roquet/internal/broker/transaction"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// CarryForward appends again every open half message that lies in front of cut, so that the log in front of
// cut can be dropped. What producers know of where it was stays good. It returns when all that is durable. A
// half message that cannot be read is given up, with an error in the log.
func (t *Transactions) CarryForward(ctx context.Context, cut message.LogOffset) error {
	t.mu.Lock()
	offsets := t.mu.core.Offsets()
	t.mu.Unlock()
	slices.Sort(offsets)
	for len(offsets) > 0 {
		n, done, err := t.carrySome(ctx, offsets, cut)
		if err != nil {
			return fmt.Errorf("carry half messages forward: %w", err)
		}
		if done {
			return nil
		}
		offsets = offsets[n:]
	}
	return nil
}

// carrySome carries the first n of offsets forward; done says that all others lie behind cut.
func (t *Transactions) carrySome(ctx context.Context, offsets []message.QueueOffset, cut message.LogOffset) (
	n int, done bool, err error,
) {
	w := &store.Write{Assigned: setMoved, Reserve: true}
	var held []message.QueueOffset
	var givenUp []message.State
	defer func() {
		for _, offset := range held {
			t.finished(offset, outcomeOf(err))
		}
	}()
	for size := 0; n < len(offsets) && n < maxCarryCount && size < maxCarryBytes; n++ {
		m, _, _, readErr := t.read(offsets[n])
		if readErr == nil && m.LogOffset >= cut {
			done = true
			break
		}
		half, ok, holdErr := t.hold(ctx, offsets[n])
		switch {
		case holdErr != nil:
			return n, false, holdErr
		case !ok: // decided meanwhile
			continue
		}
		held = append(held, half.Offset)
		if readErr != nil {
			t.logger.Error("half message cannot be read and is given up: its part of the log is dropped",
				"topic", half.Topic, "queue_offset", half.Offset, "error", readErr)
			givenUp = append(givenUp, closedState(half.Offset))
			continue
		}
		size += m.EncodedLen()
		w.Messages = append(w.Messages, m)
		w.State = append(w.State, moved(half, &m), closedState(half.Offset))
	}
	if len(held) == 0 {
		return n, done, nil
	}
	w.State = append(w.State, givenUp...)
	return n, done, store.AppendAndWait(t.log, w)
}

// moved is the state record of a half message that is appended again. It comes before the one that ends the
// old one, so that who waits for the old one finds the new one.
func moved(half transaction.Half, m *message.Message) message.State {
	if !half.Moved {
		half.Moved, half.Origin, half.OriginPos = true, m.QueueOffset, m.LogOffset
	}
	return openState(&half)
}

// setMoved writes into each state record where its half message is now. It runs under the log's append lock.
func setMoved(w *store.Write) {
	for i := range w.Messages {
		transaction.SetKey(w.State[2*i].Key, w.Messages[i].QueueOffset)
	}
}

// hold waits until it holds the half message; ok is false when that is not open any more.
func (t *Transactions) hold(ctx context.Context, offset message.QueueOffset) (
	half transaction.Half, ok bool, err error,
) {
	held := make(chan *transaction.Half, 1) // nil: it is gone
	t.claim(offset, func(h transaction.Half, granted bool) {
		if granted {
			held <- &h
		}
		close(held)
	})
	select {
	case h := <-held:
		if h == nil {
			return half, false, nil
		}
		return *h, true, nil
	case <-ctx.Done():
	}
	go func() { // gives it back when its turn comes
		if <-held != nil {
			t.finished(offset, transaction.Failed)
		}
	}()
	return half, false, ctx.Err()
}

// Resume makes a half message again of one that was parked, which begins at pos: its producer is asked as if
// it had just been sent. may, if there is one, tells with an error that the caller has no right to the
// topic that it was going to. done is called exactly once, at once or later by the store's applier. Errors:
// *Refusal when it is not parked or was resumed before, those of may, of reading the message and of
// store.Append. Source: AdminBrokerProcessor.java resumeCheckHalfMessage. Known difference: not twice.
func (t *Transactions) Resume(pos message.LogOffset, may func(topic string) error, done func(error)) {
	if err := t.resume(pos, may, done); err != nil {
		done(err)
	}
}

func (t *Transactions) resume(pos message.LogOffset, may func(topic string) error, done func(error)) error {
	rec, err := t.log.Record(pos)
	if err != nil {
		return err
	}
	if string(rec.Topic()) != TransCheckMaxTimeTopic {
		return refuse(Failed, "the message is not in %s: it is in %s", TransCheckMaxTimeTopic, rec.Topic())
	}
	m, err := message.Decode(rec)
	if err != nil {
		return err
	}
	topic, queueID, ok := destination(m.Properties)
	if !ok {
		return errNotAHalf
	}
	if may != nil {
		if err := may(topic); err != nil {
			return err
		}
	}
	key, _ := message.Property(m.Properties, message.PropertyUniqueKey)
	before, err := t.log.ByKey(TransHalfTopic, key, true, maxSameKey, 0, math.MaxInt64)
	for _, half := range before {
		if half.PreparedTransactionOffset() == pos {
			return refuse(IllegalOperation, "the message was resumed before: as half message %d", half.QueueOffset())
		}
	}
	if err != nil {
		return errors.Join(errors.New("look for an earlier resumption"), err)
	}
	immunity := transaction.NoImmunity
	if value, ok := message.Property(m.Properties, message.PropertyCheckImmunityTimeInSeconds); ok {
		immunity = immunitySeconds(value)
	}
	m.Topic, m.QueueID, m.PreparedTransactionOffset = topic, queueID, pos
	m.Properties = withCheckTimes(m.Properties, 0)
	w := &store.Write{Messages: []message.Message{m}}
	prepare(w, &w.Messages[0], key, immunity)
	w.Done = func(_ *store.Write, err error) { done(err) }
	return t.log.Append(w)
}
