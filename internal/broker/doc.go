// SPDX-License-Identifier: Apache-2.0

// Package broker holds the rules of a message broker: what may be sent, read, created and deleted, by whom
// and in which order. It knows no wire format: doors and admin commands call the same methods and get the
// same errors.
//
// Tables. [Topics] and [Groups] are configurations; each is a state record of the log, and a table shows what
// the log's applier applied, in log order. Readers take no lock. A change is computed from the newest
// proposed value and appended under the table's lock, and its done function is called when it is durable.
// Offsets (package offset) change in memory and are flushed every few seconds. [Clients], [QueueLocks] and
// [Stats] are memory alone: clients say again who they are, lock again, and counters begin at zero.
//
// Waiting. A message that waits for its time ([Delays]) or for a decision ([Transactions]) is stored in a topic
// of the system, and a state record lives as long as it waits. What ends the wait, the message's copy for its
// own topic and the end of that record, is one Write. Each has a Run; both are found again by their records.
//
// Time comes in: the owner calls Tick, Sweep and Expire with the current time; no table starts a goroutine or
// a timer.
//
// Lock order, outer before inner; a lock that is not listed is a leaf, held for a few lines of memory access:
//
//	popShare.turn (one at a time)
//	table.mu (one in Topics, two in Groups, never two at once)
//	popShare.mu
//	offset.Table.mu
//	the log's append lock (inside store.Append)
//
//	Clients.mu
//	QueueLocks.mu → Clients readers, without a lock (alive)
//	Delays.mu → readAhead.mu
//
// Functions that were given in (done, OnChange, Notify, Conflict) are called with none of these held; those
// that the store's applier calls must not block it.
package broker
