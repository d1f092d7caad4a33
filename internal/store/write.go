// SPDX-License-Identifier: Apache-2.0

package store

import (
	"iter"

	"github.com/roquetmq/roquet/internal/message"
)

// Journal is what tables in memory need of a Store: changes are appended to it as state records, come back through
// OnState in log order, and are found by States after a restart.
type Journal interface {
	Append(w *Write) error
	OnState(space message.Space, fn func(message.State))
	States(space message.Space, prefix []byte) iter.Seq2[message.State, error]
}

// AppendAndWait appends w, whose Done it sets, and waits until that is durable.
func AppendAndWait(to interface{ Append(w *Write) error }, w *Write) error {
	done := make(chan error, 1)
	w.Done = func(_ *Write, err error) { done <- err }
	if err := to.Append(w); err != nil {
		return err
	}
	return <-done
}

// Write is one group of records that is stored in one log entry: after a crash either all of it is there or
// nothing.
//
// Fill it in, give it to [Store.Append], and leave it alone until Done is called; the store keeps no
// reference after that, so it may be used again. Embedding a Write in the request that needs it makes one
// allocation of both.
type Write struct {
	// Messages are appended in this order. The store fills in QueueOffset, StoreTimestamp, StoreHost and,
	// before Done, LogOffset. Everything else is the caller's, and is read until Done. For one message use
	// Single: no slice is allocated.
	Messages []message.Message
	// State are state changes that go with the messages. They are applied after the messages of the same
	// Write.
	State []message.State
	// Assigned, when set, is called once the queue offsets and the store timestamp are chosen and before
	// anything is encoded. It may overwrite bytes of State keys and values, keeping their lengths: a key
	// can so contain the queue offset. It runs under the log's append lock: it must be short, and must not
	// call the store.
	Assigned func(w *Write)
	// Done is called exactly once, in log order, from the applier: with nil after the Write is durable and
	// applied, or with the reason why nothing of it is stored. It must not block. It is not called when
	// Append returned an error.
	Done func(w *Write, err error)
	// Reserve says that the Write makes room, as those of OnRetain do: it is not refused when the disk is over its
	// marks, only when there is really no room.
	Reserve bool
	// Owner is the caller's, for Done and Assigned to find their request without a closure.
	Owner any

	one [1]message.Message
	grp group
}

// Single makes the Write hold exactly one message, and returns it to be filled in. The message lives inside
// the Write.
func (w *Write) Single() *message.Message {
	w.Messages = w.one[:]
	return &w.one[0]
}
