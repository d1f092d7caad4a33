// SPDX-License-Identifier: Apache-2.0

package pop

import (
	"math"
	"strconv"
	"strings"

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
	rest, fields, ok := text, 0, len(text) <= maxHandleBytes
	for ; ok && rest != ""; fields++ {
		var field string
		var more bool
		field, rest, more = strings.Cut(rest, " ")
		ok = (rest != "" || !more) && h.set(fields, field)
	}
	if !ok || fields < handleFields {
		return h, &HandleError{Handle: text[:min(len(text), maxHandleBytes)], Reason: Malformed}
	}
	return h, nil
}

// set takes one field over.
func (h *Handle) set(i int, field string) bool {
	if i == 5 {
		h.BrokerName = field
		return field != ""
	}
	n, err := strconv.ParseInt(field, 10, 64)
	if err != nil || n < 0 || field[0] == '+' {
		return false
	}
	if (i == 3 || i == 4 || i == 6) && n > math.MaxInt32 {
		return false
	}
	switch i {
	case 0:
		h.StartOffset = message.QueueOffset(n)
	case 1:
		h.PopTime = n
	case 2:
		h.Invisible = n
	case 3:
		h.ReviveQueueID = int32(n)
	case 4:
		h.RetryFlag = int32(n)
	case 6:
		h.QueueID = int32(n)
	case 7:
		h.Offset = message.QueueOffset(n)
	case 8:
		h.LogOffset = message.LogOffset(n)
	default:
		return false
	}
	return true
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
	Stale       HandleReason = "its message was acknowledged, renewed or received again since"
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
