// SPDX-License-Identifier: Apache-2.0

// Package offset keeps how far each consumer group has come in each queue.
//
// A commit changes memory alone; every few seconds Flush appends what changed to the log, one state record
// for a topic and group, so that thousands of commits cost one record. What is lost by a crash is a few
// seconds of commits: their messages come again. A reset is different: an operator was told that it happened,
// so it is in the log before that.
//
// State record, space 3: the key is topic@group; the value is
//
//	byte     1, the form of what follows
//	uvarint  number of queues, then for each, ordered by queue id:
//	uvarint  queue id
//	uvarint  committed offset + 1; 0 when there is none
//	uvarint  offset of a pending reset + 1; 0 when there is none
package offset
