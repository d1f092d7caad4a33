// SPDX-License-Identifier: Apache-2.0

// Package pop holds the rules by which a consumer group shares the messages of a queue: which message goes to
// whom, for how long nobody else sees it, when it comes back, and in which order.
//
// [Queue] is what one group has of one queue of a topic. It is pure: [Queue.Step] takes what happened and
// when, and returns what must be done. It does no I/O and reads no clock. The owner appends the state records
// that Step asks for, in the order in which it called Step, and answers clients once they are durable; when
// they cannot be stored it throws the Queue away and makes a new one out of what is stored.
//
// A message is new while its offset is at or behind the frontier ([Queue.Next]). A receive moves the frontier
// on over what it looked at: it claims what it hands out, and passes over what the group does not want. A
// claim is known by the time of the receive (popTime) and the invisible time; both are in the receipt handle,
// and a handle is good as long as its claim is the message's newest. A claim ends by an acknowledgement; by a
// renewal, which makes a new claim; or, after the invisible time, by the next receive, which makes a new
// claim with one reconsumption more. A message that was reconsumed as often as its group allows becomes a
// dead letter instead.
//
// Order. Messages may have an order key; those of equal keys are handed out one receive at a time: while any
// of them is claimed, or waits behind one that is, no other of the key is handed out. With one key for the
// whole queue that is the original's orderly pop; with the message group as key the groups of a queue are
// independent. A receive that repeats its attempt id gets again what it holds, as the same attempt: that is a
// client that lost the answer. A Free receive minds no keys, but notes those of its messages, so that order can begin
// while they are claimed.
//
// State. A span is what one receive took over: the stretch [from, to) of the queue, with those of its
// messages that are not finished. The record of a span is written anew when one of its messages changes
// hands, and deleted when all are finished; the last span's record stays, because it says where the frontier
// is. So every offset below the frontier that no record mentions is finished. The value of a record, whose
// key ends with from, is
//
//	byte     1, the form of what follows; 2 when messages have order keys
//	uvarint  to − from
//	uvarint  number of claims, then for each:
//	uvarint  popTime, ms
//	uvarint  invisible time, ms
//	uvarint  popTime − time of the first pop, ms
//	uvarint  reconsumeTimes, as told to the consumer
//	byte     bit 0: the next delivery counts as the same attempt; bit 1: an attempt follows
//	u64      attempt, a hash of the attempt id; only with bit 1
//	uvarint  number of messages that are not finished, then for each, in order:
//	uvarint  queue offset − the one before (the first: − from)
//	uvarint  number of its claim; only if there is more than one
//	u32      order key; only in form 2
package pop
