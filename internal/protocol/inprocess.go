// SPDX-License-Identifier: Apache-2.0

package protocol

import "errors"

// errInProcess is what reading a header gives that never comes over a wire.
var errInProcess = errors.New("header exists inside the process only")

// AckReceiptsRequestHeader is BATCH_ACK_MESSAGE's header for doors inside the process, in place of a body:
// messages of one topic by their receipt handles. It is answered with AckReceiptsResponseHeader. It is never
// sent.
type AckReceiptsRequestHeader struct {
	ConsumerGroup string
	Topic         string
	Handles       []string
}

// DecodeExt fails: the header is never sent.
func (*AckReceiptsRequestHeader) DecodeExt(*Ext) error { return errInProcess }

// AppendExt writes nothing.
func (*AckReceiptsRequestHeader) AppendExt(*ExtWriter) {}

// AckReceiptsResponseHeader has an entry for each handle of an AckReceiptsRequestHeader: nil, or why it was
// refused.
type AckReceiptsResponseHeader struct {
	Refused []*Error
}

// DecodeExt fails: the header is never sent.
func (*AckReceiptsResponseHeader) DecodeExt(*Ext) error { return errInProcess }

// AppendExt writes nothing.
func (*AckReceiptsResponseHeader) AppendExt(*ExtWriter) {}

// MayAssignRequestHeader is QUERY_ASSIGNMENT's header for doors inside the process, which know what they assign and ask
// only whether the caller may consume: it is answered with nothing. It is never sent.
type MayAssignRequestHeader struct{ ConsumerGroup, Topic string }

// DecodeExt fails: the header is never sent.
func (*MayAssignRequestHeader) DecodeExt(*Ext) error { return errInProcess }

// AppendExt writes nothing.
func (*MayAssignRequestHeader) AppendExt(*ExtWriter) {}

// ForwardReceiptRequestHeader is CONSUMER_SEND_MSG_BACK's header for doors inside the process: the message of a
// receipt handle becomes a dead letter of its group. It is never sent.
type ForwardReceiptRequestHeader struct {
	ConsumerGroup string
	Topic         string
	Handle        string
}

// DecodeExt fails: the header is never sent.
func (*ForwardReceiptRequestHeader) DecodeExt(*Ext) error { return errInProcess }

// AppendExt writes nothing.
func (*ForwardReceiptRequestHeader) AppendExt(*ExtWriter) {}

// RenewReceiptRequestHeader is CHANGE_MESSAGE_INVISIBLETIME's header for doors inside the process: when others may
// see the message of a receipt handle. It is answered with ReceiptsResponseHeader. It is never sent.
type RenewReceiptRequestHeader struct {
	ConsumerGroup string
	Topic         string
	Handle        string
	InvisibleTime int64 // ms from now on; negative leaves it to the group's retry policy
	Suspend       bool  // the next delivery is no attempt
}

// DecodeExt fails: the header is never sent.
func (*RenewReceiptRequestHeader) DecodeExt(*Ext) error { return errInProcess }

// AppendExt writes nothing.
func (*RenewReceiptRequestHeader) AppendExt(*ExtWriter) {}

// ReceiptsResponseHeader answers POP_MESSAGE and CHANGE_MESSAGE_INVISIBLETIME to doors inside the process: a receipt
// handle for each message, in the order of the answer's bodies, of which each is one record.
type ReceiptsResponseHeader struct {
	Handles   []string
	VisibleAt int64 // ms, when others may see the messages
}

// DecodeExt fails: the header is never sent.
func (*ReceiptsResponseHeader) DecodeExt(*Ext) error { return errInProcess }

// AppendExt writes nothing.
func (*ReceiptsResponseHeader) AppendExt(*ExtWriter) {}
