// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"strings"
	"testing"
)

// sendFrame returns a SEND_MESSAGE_V2 frame, without its length word, as a Java client sends it: properties
// with their separators escaped, a header of about 400 bytes.
func sendFrame(tb testing.TB, form SerializeType) []byte {
	tb.Helper()
	h := &SendMessageRequestHeaderV2{
		ProducerGroup:         "please_rename_unique_group_name",
		Topic:                 "orders",
		DefaultTopic:          "TBW102",
		DefaultTopicQueueNums: 4,
		QueueID:               3,
		BornTimestamp:         1795969806314,
		ReconsumeTimes:        Some[int32](0),
		UnitMode:              Some(false),
		Batch:                 Some(false),
		Properties:            "KEYS\x01order-4711\x02UNIQ_KEY\x017F000001C0DE18B4AAC26F3C9E5A0000\x02WAIT\x01true\x02TAGS\x01TagA\x02",
		BrokerName:            "broker-a",
	}
	cmd := &Command{Code: int32(SendMessageV2), Version: VersionCurrent, Opaque: 4711, Serialize: form}
	frame := AppendFrame(nil, cmd, h, []byte(strings.Repeat("x", 128)))
	return frame[FrameLengthBytes:]
}

func BenchmarkDecodeSendV2(b *testing.B) {
	for _, form := range []SerializeType{SerializeJSON, SerializeROCKETMQ} {
		b.Run(form.String(), func(b *testing.B) {
			frame := sendFrame(b, form)
			buf := make([]byte, len(frame))
			var cmd Command
			var h SendMessageRequestHeader
			b.SetBytes(int64(len(frame) - 128))
			b.ReportAllocs()
			for b.Loop() {
				copy(buf, frame)
				if err := cmd.Decode(buf); err != nil {
					b.Fatal(err)
				}
				if err := h.DecodeExt(&cmd.Ext); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecodeFrameOnly(b *testing.B) {
	frame := sendFrame(b, SerializeJSON)
	buf := make([]byte, len(frame))
	var cmd Command
	b.ReportAllocs()
	for b.Loop() {
		copy(buf, frame)
		if err := cmd.Decode(buf); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeFrameByValue(b *testing.B) {
	frame := sendFrame(b, SerializeJSON)
	buf := make([]byte, len(frame))
	b.ReportAllocs()
	for b.Loop() {
		copy(buf, frame)
		cmd, err := DecodeFrame(buf)
		if err != nil || cmd.Code != 310 {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendSendResponse(b *testing.B) {
	for _, form := range []SerializeType{SerializeJSON, SerializeROCKETMQ} {
		b.Run(form.String(), func(b *testing.B) {
			h := &SendMessageResponseHeader{
				MsgID: "7F00000100002A9F0000000000000000", QueueID: 3, QueueOffset: 123456,
				TransactionID: "7F000001C0DE18B4AAC26F3C9E5A0000", MsgRegion: "DefaultRegion", TraceOn: Some(true),
			}
			cmd := &Command{Code: 0, Flag: FlagResponse, Version: VersionCurrent, Opaque: 4711, Serialize: form}
			buf := make([]byte, 0, 1024)
			b.ReportAllocs()
			for b.Loop() {
				buf = AppendFrame(buf[:0], cmd, h)
			}
		})
	}
}

func BenchmarkDecodePull(b *testing.B) {
	h := &PullMessageRequestHeader{
		ConsumerGroup:        "please_rename_unique_group_name_4",
		Topic:                "orders",
		QueueID:              3,
		QueueOffset:          123456,
		MaxMsgNums:           32,
		SysFlag:              7,
		CommitOffset:         123400,
		SuspendTimeoutMillis: 15000,
		Subscription:         "*",
		SubVersion:           1795969806314,
		ExpressionType:       "TAG",
		MaxMsgBytes:          Some[int32](2147483647),
	}
	frame := AppendFrame(nil, &Command{Code: int32(PullMessage)}, h)[FrameLengthBytes:]
	buf := make([]byte, len(frame))
	var cmd Command
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	for b.Loop() {
		copy(buf, frame)
		if err := cmd.Decode(buf); err != nil {
			b.Fatal(err)
		}
		if err := h.DecodeExt(&cmd.Ext); err != nil {
			b.Fatal(err)
		}
	}
}
