// SPDX-License-Identifier: Apache-2.0

// Package store joins the commit log and the index into one message store: append, apply, arrival, fetch,
// query, retention, recovery.
//
// The log is the only truth. A [Write] (messages and state records, stored together or not at all) is laid
// down in the log; once its batch is durable, Apply turns the records into queue entries, keys and state in
// the index, in log order, whether the records come live from the committer or from a replay at start. Only
// then are the Write's Done called and waiters woken. So a message is never seen by [Store.Fetch] before it
// is durable, and everything but the log can be thrown away and is rebuilt.
//
//	Append ─→ commitlog.Append ─→ Encode: queue offset, store timestamp (append lock)
//	                          ─→ committer: write, fsync
//	                          ─→ applier: Apply ─→ index ─→ OnState hooks ─→ wake waiters ─→ Done ─→ OnSettled
//
// Queue offsets are counted per queue under the log's append lock, ahead of what is applied. When a batch
// fails the log calls Reset, and every counter is taken again from what the index has applied: no offset is
// lost or given twice.
//
// Who may call what: Open, then the On… registrations, then Run; all other methods of [Store] are safe for
// concurrent use from Open until Close. Lock order: applier.mu → the log's append lock →
// queueTable.mu → queue.waiters.mu; of the callbacks of the store's user only [Write.Assigned] is called with
// one of the last three held.
package store
