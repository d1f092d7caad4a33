// SPDX-License-Identifier: Apache-2.0

package protocol

import "testing"

// TestAllocations pins what the hot path allocates. Frames are copied because decoding changes them.
func TestAllocations(t *testing.T) {
	jsonSend, binarySend := sendFrame(t, SerializeJSON), sendFrame(t, SerializeROCKETMQ)
	buf := make([]byte, len(jsonSend)+len(binarySend))
	out := make([]byte, 0, 4096)
	var cmd, answer Command
	var send SendMessageRequestHeader
	answer.Flag = FlagResponse
	sent := &SendMessageResponseHeader{
		MsgID:         "7F00000100002A9F0000000000000000",
		TransactionID: "x",
		TraceOn:       Some(true),
	}
	pulled := &PullMessageResponseHeader{NextBeginOffset: 32, MaxOffset: 64}
	decode := func(frame []byte) func() {
		return func() {
			copy(buf, frame)
			if err := cmd.Decode(buf[:len(frame)]); err != nil {
				t.Error(err)
			}
			if err := send.DecodeExt(&cmd.Ext); err != nil {
				t.Error(err)
			}
		}
	}
	for _, tc := range []struct {
		name string
		max  float64
		run  func()
	}{
		{"decode a send, JSON", 0, decode(jsonSend)},
		{"decode a send, ROCKETMQ", 0, decode(binarySend)},
		{"answer a send", 0, func() { out = AppendFrame(out[:0], &answer, sent) }},
		{"answer a pull", 0, func() { out = AppendFrameHead(out[:0], &answer, pulled, 1<<20) }},
		{"answer without a header", 0, func() { out = AppendFrame(out[:0], &answer, nil, out[:0]) }},
		{"any other header", 1, func() { out = AppendFrame(out[:0], &answer, &send) }},
		{"frame size", 0, func() { _, _ = FrameSize(jsonSend) }},
	} {
		if got := testing.AllocsPerRun(200, tc.run); got > tc.max {
			t.Errorf("%s: %v allocations, limit %v", tc.name, got, tc.max)
		}
	}
}

// TestRefusalsAllocateLittle: a hostile frame costs its error and no more, whatever its lengths say.
func TestRefusalsAllocateLittle(t *testing.T) {
	for _, frame := range [][]byte{
		frameOf(SerializeROCKETMQ, binaryHeader(34, 0, 0x7fffffff, "", 0x7fffffff, ""), ""),
		frameOf(SerializeROCKETMQ, binaryHeader(34, 0, 0, "", 0x7fffffff, ""), ""),
		[]byte("\x00\xff\xff\xff{}"),
		frameOf(SerializeJSON, `{"extFields":{"a":1`, ""),
	} {
		var cmd Command
		if got := testing.AllocsPerRun(100, func() { _ = cmd.Decode(frame) }); got > 8 {
			t.Errorf("%.20q: %v allocations", frame, got)
		}
	}
}
