// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"errors"
	"strconv"
	"strings"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/protocol"
)

// receiptHandle is a message that was given out, in the original's text of nine fields: those that native
// clients put together from a pop's answer, and where the message is in the log. Source: ReceiptHandle.java,
// ExtraInfoUtil.java.
type receiptHandle struct {
	startOffset int64
	popTime     int64 // ms
	invisible   int64 // ms
	reviveQueue int32
	retry       string // "0" the topic itself, "1" and "2" its retry topic in either naming
	broker      string
	queueID     int32
	offset      int64 // in the queue
	logOffset   int64 // -1 when the text has eight fields
}

func (h *receiptHandle) text() string {
	dst := make([]byte, 0, 96)
	for _, n := range [...]int64{h.startOffset, h.popTime, h.invisible, int64(h.reviveQueue)} {
		dst = append(strconv.AppendInt(dst, n, 10), ' ')
	}
	dst = append(append(dst, h.retry...), ' ')
	dst = append(append(dst, h.broker...), ' ')
	dst = append(strconv.AppendInt(dst, int64(h.queueID), 10), ' ')
	dst = strconv.AppendInt(dst, h.offset, 10)
	if h.logOffset >= 0 {
		dst = strconv.AppendInt(append(dst, ' '), h.logOffset, 10)
	}
	return string(dst)
}

// visibleAt is when others may see the message again, in ms.
func (h *receiptHandle) visibleAt() int64 { return h.popTime + h.invisible }

// maxHandleBytes bounds the text of a handle.
const maxHandleBytes = 512

// parseHandle reads a receipt handle. Error: INVALID_RECEIPT_HANDLE.
func parseHandle(text string) (receiptHandle, error) {
	h := receiptHandle{logOffset: -1}
	bad := refuse(v2.Code_INVALID_RECEIPT_HANDLE, "receipt handle is malformed")
	if len(text) > maxHandleBytes {
		return h, bad
	}
	fields := strings.Split(text, " ")
	if len(fields) != 8 && len(fields) != 9 {
		return h, bad
	}
	var failed error
	number := func(i, bits int) int64 {
		n, err := strconv.ParseInt(fields[i], 10, bits)
		if err != nil || n < 0 {
			failed = bad
		}
		return n
	}
	h.startOffset, h.popTime, h.invisible = number(0, 64), number(1, 64), number(2, 64)
	h.reviveQueue, h.queueID, h.offset = int32(number(3, 32)), int32(number(6, 32)), number(7, 64)
	h.retry, h.broker = fields[4], fields[5]
	if len(fields) == 9 {
		h.logOffset = number(8, 64)
	}
	return h, failed
}

// realTopic is the topic that the message is stored in. Source: ReceiptHandle.java getRealTopic, KeyBuilder.java.
func (h *receiptHandle) realTopic(topic, group string) string {
	switch h.retry {
	case "1":
		return "%RETRY%" + group + "_" + topic
	case "2":
		return "%RETRY%" + group + "+" + topic
	default:
		return topic
	}
}

// receiptError turns what can never succeed into INVALID_RECEIPT_HANDLE: clients repeat everything else for ever.
func receiptError(err error) error {
	var answered *protocol.Error
	if !errors.As(err, &answered) {
		return err
	}
	switch answered.Code {
	case protocol.MessageIllegal,
		protocol.TopicNotExist,
		protocol.SubscriptionGroupNotExist,
		protocol.InvalidParameter,
		protocol.NoMessage,
		protocol.IllegalOperation,
		protocol.QueryNotFound,
		protocol.BrokerNotExist:
		return refuse(v2.Code_INVALID_RECEIPT_HANDLE, answered.Remark)
	}
	return err
}
