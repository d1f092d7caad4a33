// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/roquetmq/roquet/internal/protocol"
)

// popped is one message of a receive: its place and its receipt handle.
type popped struct {
	offset int64
	handle string
}

// pop receives from queue 0 and composes the handles as the Java client does.
func (w *wire) pop(topic, group string, wait time.Duration) []popped {
	w.t.Helper()
	answer := w.call(protocol.PopMessage, &protocol.PopMessageRequestHeader{
		ConsumerGroup: group, Topic: topic, QueueID: -1, MaxMsgNums: 32, InvisibleTime: 30_000,
		PollTime: wait.Milliseconds(), BornTime: time.Now().UnixMilli(), ExpType: "TAG", Exp: "*",
	}, nil)
	if answer.Code == int32(protocol.PollingTimeout) {
		return nil
	}
	var h protocol.PopMessageResponseHeader
	if err := h.DecodeExt(&answer.Ext); err != nil || answer.Code != 0 {
		w.t.Fatalf("pop: code %d %s, %v", answer.Code, answer.Remark, err)
	}
	var out []popped
	for part := range strings.SplitSeq(h.MsgOffsetInfo, ";") {
		var retry string
		var queue int
		var offsets string
		if _, err := fmt.Sscan(part, &retry, &queue, &offsets); err != nil {
			w.t.Fatalf("msgOffsetInfo %q: %v", part, err)
		}
		for text := range strings.SplitSeq(offsets, ",") {
			var at int64
			if _, err := fmt.Sscan(text, &at); err != nil {
				w.t.Fatal(err)
			}
			start := strings.Fields(strings.Split(h.StartOffsetInfo, ";")[0])[2]
			out = append(
				out,
				popped{
					at,
					fmt.Sprintf("%s %d %d %d %s broker-a %d %d", start, h.PopTime, h.InvisibleTime, h.ReviveQID,
						retry, queue, at),
				},
			)
		}
	}
	return out
}

func TestWirePops(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	w.topic("t", 1)
	w.group("g")
	for i := range 3 {
		w.send("t", 0, "", fmt.Sprint("m", i))
	}
	ready := w.ok(protocol.Notification, &protocol.NotificationRequestHeader{
		ConsumerGroup: "g", Topic: "t", QueueID: -1, PollTime: 1000, BornTime: time.Now().UnixMilli(),
	}, nil)
	if ready.Ext.Value("hasMsg") != "true" {
		t.Errorf("hasMsg %q", ready.Ext.Value("hasMsg"))
	}
	got := w.pop("t", "g", 0)
	if len(got) != 3 {
		t.Fatalf("received %+v, want 3 messages", got)
	}
	ack := func(p popped) *protocol.AckMessageRequestHeader {
		return &protocol.AckMessageRequestHeader{
			ConsumerGroup: "g",
			Topic:         "t",
			Offset:        p.offset,
			ExtraInfo:     p.handle,
		}
	}
	w.ok(protocol.AckMessage, ack(got[0]), nil)
	changed := w.ok(protocol.ChangeMessageInvisibleTime, &protocol.ChangeInvisibleTimeRequestHeader{
		ConsumerGroup: "g", Topic: "t", Offset: got[1].offset, ExtraInfo: got[1].handle, InvisibleTime: 60_000,
	}, nil)
	w.refused(protocol.NoMessage, protocol.AckMessage, ack(got[1]), nil) // case C092: the old handle
	f := strings.Fields(got[1].handle)
	f[1], f[2], f[3] = changed.Ext.Value(
		"popTime",
	), changed.Ext.Value(
		"invisibleTime",
	), changed.Ext.Value(
		"reviveQid",
	)
	w.ok(protocol.AckMessage, ack(popped{got[1].offset, strings.Join(f, " ")}), nil)

	f = strings.Fields(got[2].handle)
	batch := &protocol.BatchAckMessageRequestBody{BrokerName: "broker-a"}
	one := protocol.BatchAck{ConsumerGroup: "g", Topic: "t", Retry: "0", QueueID: 0}
	for field, to := range map[string]*int64{f[0]: &one.StartOffset, f[1]: &one.PopTimeMillis, f[2]: &one.InvisibleTimeMillis} {
		if _, err := fmt.Sscan(field, to); err != nil {
			t.Fatal(err)
		}
	}
	one.BitSet = protocol.BitSet{1 << (got[2].offset - one.StartOffset)}
	batch.Acks = []protocol.BatchAck{one}
	w.ok(protocol.BatchAckMessage, nil, protocol.EncodeBody(batch))
	if again := w.pop("t", "g", 0); len(again) != 0 {
		t.Errorf("received %+v after everything was acknowledged", again)
	}
	polling := w.ok(
		protocol.PollingInfo,
		&protocol.PollingInfoRequestHeader{ConsumerGroup: "g", Topic: "t", QueueID: -1},
		nil,
	)
	if polling.Ext.Value("pollingNum") != "0" {
		t.Errorf("pollingNum %q", polling.Ext.Value("pollingNum"))
	}
	mode := &protocol.SetMessageRequestModeRequestBody{Topic: "t", ConsumerGroup: "g", Mode: protocol.ModePop}
	w.ok(protocol.SetMessageRequestMode, nil, protocol.EncodeBody(mode))
	all := body[protocol.MessageRequestModeSerializeWrapper](t, w.ok(protocol.GetAllMessageRequestMode, nil, nil))
	if all.MessageRequestModeMap["t"]["g"].Mode != protocol.ModePop {
		t.Errorf("modes %+v", all)
	}
}
