// SPDX-License-Identifier: Apache-2.0

package pop

import (
	"math"
	"strconv"

	"github.com/roquetmq/roquet/internal/message"
)

const (
	// OrderReviveQueueID is the reviveQid of handles that orderly receives gave out. Source: KeyBuilder.java
	// POP_ORDER_REVIVE_QUEUE.
	OrderReviveQueueID int32 = 999

	// NoLogOffset is the LogOffset of a handle that has none.
	NoLogOffset message.LogOffset = -1

	maxHandleBytes = 512
	handleFields   = 8 // and one more with the log offset
	brokerField    = 5
	maxDigits      = 18 // of a number, so that none overflows
)

// Handle is a receipt handle: which message was handed out, and by which claim. Its text is the original's,
// fields separated by a space:
//
//	startOffset popTime invisibleTime reviveQid retryFlag brokerName queueId queueOffset [commitLogOffset]
//
// Remoting clients have the first eight, gRPC clients all nine. Source: ExtraInfoUtil.java,
// ReceiptHandle.java.
type Handle struct {
	StartOffset   message.QueueOffset // the least offset the receive had of this queue
	PopTime       int64               // ms
	Invisible     int64               // ms
	ReviveQueueID int32
	RetryFlag     int32 // 0: of the topic itself; 1, 2: of a pop retry topic, which this broker does not have
	BrokerName    string
	QueueID       int32
	Offset        message.QueueOffset
	LogOffset     message.LogOffset // NoLogOffset when the text has eight fields
}

// ParseHandle reads the text of a handle. BrokerName aliases it. Errors: *HandleError with Malformed.
func ParseHandle(text string) (Handle, error) {
	h := Handle{LogOffset: NoLogOffset}
	var n [handleFields + 1]int64
	rest, fields, ok := text, 0, len(text) <= maxHandleBytes
	for more := true; ok && more; fields++ {
		i := 0
		switch {
		case fields == len(n):
			return h, malformed(text)
		case fields == brokerField:
			for ; i < len(rest) && rest[i] != ' '; i++ {
			}
			h.BrokerName = rest[:i]
		default:
			for ; i < len(rest) && i < maxDigits && rest[i]-'0' <= 9; i++ {
				n[fields] = n[fields]*10 + int64(rest[i]-'0')
			}
		}
		if more = i < len(rest); more {
			ok, rest = i > 0 && rest[i] == ' ', rest[i+1:]
		} else {
			ok = i > 0
		}
	}
	if !ok || fields < handleFields || max(n[3], n[4], n[6]) > math.MaxInt32 {
		return h, malformed(text)
	}
	h.StartOffset, h.PopTime, h.Invisible = message.QueueOffset(n[0]), n[1], n[2]
	h.ReviveQueueID, h.RetryFlag, h.QueueID = int32(n[3]), int32(n[4]), int32(n[6])
	h.Offset = message.QueueOffset(n[7])
	if fields > handleFields {
		h.LogOffset = message.LogOffset(n[8])
	}
	return h, nil
}

func malformed(text string) error {
	return &HandleError{Handle: text[:min(len(text), maxHandleBytes)], Reason: Malformed}
}

// AppendTo appends the text: nine fields when the handle has a LogOffset, else eight.
func (h *Handle) AppendTo(dst []byte) []byte {
	head := [...]int64{int64(h.StartOffset), h.PopTime, h.Invisible, int64(h.ReviveQueueID), int64(h.RetryFlag)}
	for _, n := range head {
		dst = append(strconv.AppendInt(dst, n, 10), ' ')
	}
	dst = append(append(dst, h.BrokerName...), ' ')
	dst = append(strconv.AppendInt(dst, int64(h.QueueID), 10), ' ')
	dst = strconv.AppendInt(dst, int64(h.Offset), 10)
	if h.LogOffset >= 0 {
		dst = strconv.AppendInt(append(dst, ' '), int64(h.LogOffset), 10)
	}
	return dst
}

// String returns the text.
func (h *Handle) String() string { return string(h.AppendTo(nil)) }

// Orderly tells whether an orderly receive gave the handle out.
func (h *Handle) Orderly() bool { return h.ReviveQueueID == OrderReviveQueueID }

// VisibleAt returns when others may see the message again, in ms. From then on the original's proxy refuses
// the handle.
func (h *Handle) VisibleAt() int64 {
	if h.PopTime > math.MaxInt64-h.Invisible {
		return math.MaxInt64
	}
	return h.PopTime + h.Invisible
}

// Ref returns the claim that the handle stands for.
func (h *Handle) Ref() Ref { return Ref{Offset: h.Offset, PopTime: h.PopTime, Invisible: h.Invisible} }

// Ref names a claim of a message of a queue.
type Ref struct {
	Offset    message.QueueOffset
	PopTime   int64 // ms
	Invisible int64 // ms
}

// HandleReason is why a handle was refused, in words.
type HandleReason string

// The reasons of a HandleError.
const (
	Malformed   HandleReason = "it is malformed"
	OtherBroker HandleReason = "another broker gave it out"
	NotGivenOut HandleReason = "nothing was given out under it"
	Stale       HandleReason = "its message was acknowledged, renewed or received again since, or its group was reset"
)

// HandleError says that a receipt handle was refused and why. Nothing was changed.
type HandleError struct {
	Handle string
	Reason HandleReason
}

// Error names the handle and the reason.
func (e *HandleError) Error() string {
	return "receipt handle [" + e.Handle + "] is refused: " + string(e.Reason)
}
