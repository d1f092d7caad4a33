// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"cmp"
	"iter"
	"math/bits"
	"strings"
	"time"
)

// Compare orders queues by topic, broker and id, as Apache's class does.
func (q MessageQueue) Compare(other MessageQueue) int {
	return cmp.Or(
		strings.Compare(q.Topic, other.Topic),
		strings.Compare(q.BrokerName, other.BrokerName),
		cmp.Compare(q.QueueID, other.QueueID),
	)
}

// globalScope is MixAll.METADATA_SCOPE_GLOBAL.
const globalScope = "__global__"

// The expression types of a subscription. The empty string means ExpressionTag.
const (
	ExpressionTag   = "TAG"
	ExpressionSQL92 = "SQL92"
)

// The types of a GroupRetryPolicy.
const (
	RetryCustomized  = "CUSTOMIZED"
	RetryExponential = "EXPONENTIAL"
)

// timeField writes a time as a number and, under a second name, as the date UtilAll.java makes of it.
func (c *bodyCodec) timeField(name, dateName string, millis *int64) {
	value(c, name, millis, int64Value)
	if !c.reading {
		value(c, dateName, new(localDate(time.UnixMilli(*millis))), textValue)
	}
}

func localDate(at time.Time) string {
	return at.Format("2006-01-02#15:04:05:") + at.Format(".000")[1:]
}

// BitSet is a set of small numbers, laid out as Java's BitSet.toByteArray: bit i is bit i%8 of byte i/8, no
// zero byte at the end.
type BitSet []byte

// All yields the set's numbers in ascending order.
func (s BitSet) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for at, b := range s {
			for ; b != 0; b &= b - 1 {
				if !yield(at*8 + bits.TrailingZeros8(b)) {
					return
				}
			}
		}
	}
}
