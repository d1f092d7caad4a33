// SPDX-License-Identifier: Apache-2.0

package pop

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"github.com/roquetmq/roquet/internal/broker/due"
	"github.com/roquetmq/roquet/internal/message"
)

// never is the time of what does not happen.
const never = math.MaxInt64

// Marks of an entry.
const (
	suspended uint8 = 1 << iota // the next delivery counts as the same attempt
	dying                       // on its way to become a dead letter; not stored
	forwarded                   // that at the wish of its consumer, who has nothing more to say of it; not stored
)

// claim is who has a message, and for how long.
type claim struct {
	popTime   int64  // ms
	invisible int64  // ms
	firstPop  int64  // ms, not after popTime
	attempt   uint64 // hash of the attempt id; 0 for none
	times     int32  // reconsumeTimes as told
	marks     uint8
}

// visibleAt returns when the claim ends. It lasts a millisecond at least: so no two claims of a message have
// the same popTime and invisible time, but for renewals by one holder.
func (c *claim) visibleAt() int64 {
	wait := max(c.invisible, 1)
	if c.popTime > never-wait {
		return never
	}
	return c.popTime + wait
}

// entry is a message of a span that is not finished.
type entry struct {
	offset message.QueueOffset
	claim
	key   uint32 // order key, 0 for none
	round uint32 // the Step that claimed it last
	after int64  // ms: not to be looked at before; 0 for no such time. Not stored
}

// visibleAt returns from when on others may have the message.
func (e *entry) visibleAt() int64 { return max(e.claim.visibleAt(), e.after) }

// span is a stretch of the queue that one receive took over.
type span struct {
	from, to message.QueueOffset
	entries  []entry // not finished, ascending

	due.Slot      // in Queue.deadlines: when the next of its messages becomes visible
	ripe     bool // in Queue.ripe: a message of it is visible
	dirty    bool // in Queue.dirty: its record has to be written
}

// Forms of a record's value.
const (
	formPlain = 1
	formKeyed = 2

	flagSuspended = 1
	flagAttempt   = 2
)

// FormatError says that a stored span cannot be read.
type FormatError struct{ Reason string }

// Error gives the reason.
func (e *FormatError) Error() string { return "pop span record: " + e.Reason }

// appendValue appends the value of the span's record. See the package comment.
func (s *span) appendValue(dst []byte) []byte {
	form := byte(formPlain)
	var room [8]claim
	claims := room[:0]
	for i := range s.entries {
		e := &s.entries[i]
		if e.key != 0 {
			form = formKeyed
		}
		if c := e.stored(); len(claims) == 0 || !slices.Contains(claims, c) {
			claims = append(claims, c)
		}
	}
	dst = append(dst, form)
	dst = binary.AppendUvarint(dst, uint64(s.to-s.from))
	dst = binary.AppendUvarint(dst, uint64(len(claims)))
	for i := range claims {
		dst = claims[i].appendTo(dst)
	}
	dst = binary.AppendUvarint(dst, uint64(len(s.entries)))
	before := s.from
	for i := range s.entries {
		e := &s.entries[i]
		dst = binary.AppendUvarint(dst, uint64(e.offset-before))
		before = e.offset
		if len(claims) > 1 {
			dst = binary.AppendUvarint(dst, uint64(slices.Index(claims, e.stored())))
		}
		if form == formKeyed {
			dst = binary.BigEndian.AppendUint32(dst, e.key)
		}
	}
	return dst
}

// stored is the claim without what is not stored.
func (c *claim) stored() claim {
	kept := *c
	kept.marks &= suspended
	return kept
}

func (c *claim) appendTo(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(c.popTime))
	dst = binary.AppendUvarint(dst, uint64(c.invisible))
	dst = binary.AppendUvarint(dst, uint64(c.popTime-c.firstPop))
	dst = binary.AppendUvarint(dst, uint64(uint32(c.times)))
	var flags byte
	if c.marks&suspended != 0 {
		flags |= flagSuspended
	}
	if c.attempt == 0 {
		return append(dst, flags)
	}
	return binary.BigEndian.AppendUint64(append(dst, flags|flagAttempt), c.attempt)
}

// decodeSpan reads the record of the span that begins at from.
func decodeSpan(from message.QueueOffset, value []byte) (*span, error) {
	r := reader{rest: value}
	form := r.byte()
	if form != formPlain && form != formKeyed {
		return nil, &FormatError{Reason: "unknown form"}
	}
	s := &span{from: from}
	s.to = from + message.QueueOffset(r.number(never-uint64(max(from, 0))))
	claims := make([]claim, r.count())
	for i := range claims {
		claims[i] = r.claim()
	}
	s.entries = make([]entry, r.count())
	before := from
	for i := range s.entries {
		e := &s.entries[i]
		step := message.QueueOffset(r.number(uint64(s.to - before)))
		if i > 0 && step == 0 {
			r.bad = true
		}
		e.offset = before + step
		before = e.offset
		which := uint64(0)
		if len(claims) > 1 {
			which = r.number(uint64(len(claims) - 1))
		}
		if form == formKeyed {
			e.key = r.uint32()
		}
		if r.bad || len(claims) == 0 || e.offset >= s.to {
			return nil, &FormatError{Reason: "its messages do not fit"}
		}
		e.claim = claims[which]
	}
	if r.bad || len(r.rest) != 0 || from < 0 {
		return nil, &FormatError{Reason: "its length does not fit"}
	}
	return s, nil
}

// reader takes numbers from the front of a value; bad is set when one is not there or out of its range.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) number(limit uint64) uint64 {
	v, n := binary.Uvarint(r.rest)
	if r.bad || n <= 0 || v > limit {
		r.bad = true
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// count is a number of things that take a byte each at least.
func (r *reader) count() int { return int(r.number(uint64(len(r.rest)))) }

func (r *reader) take(n int) []byte {
	if r.bad || len(r.rest) < n {
		r.bad = true
		return make([]byte, n)
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) byte() byte     { return r.take(1)[0] }
func (r *reader) uint32() uint32 { return binary.BigEndian.Uint32(r.take(4)) }

func (r *reader) claim() claim {
	c := claim{popTime: int64(r.number(never)), invisible: int64(r.number(never))}
	c.firstPop = c.popTime - int64(r.number(uint64(c.popTime)))
	c.times = int32(uint32(r.number(math.MaxUint32)))
	flags := r.byte()
	if flags&flagSuspended != 0 {
		c.marks = suspended
	}
	if flags&flagAttempt != 0 {
		c.attempt = binary.BigEndian.Uint64(r.take(8))
	}
	if flags&^(flagSuspended|flagAttempt) != 0 {
		r.bad = true
	}
	return c
}

// find returns the index of the entry of offset, -1 when there is none.
func (s *span) find(offset message.QueueOffset) int {
	i, ok := slices.BinarySearchFunc(s.entries, offset, func(e entry, offset message.QueueOffset) int {
		return cmp.Compare(e.offset, offset)
	})
	if !ok {
		return -1
	}
	return i
}
