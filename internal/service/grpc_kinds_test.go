// SPDX-License-Identifier: Apache-2.0

package service

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/config"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
)

// Case C039: one message a frame, so that a client that takes 4 MiB at a time gets 32 messages of a MiB each.
func TestGRPCManyBigMessages(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	w.typedTopic("t", "NORMAL", 1)
	c := w.grpc("c1")
	body := bytes.Repeat([]byte("x"), 1<<20)
	for range 32 {
		m := outgoing("t", "", nil)
		m.Body = body
		c.send(v2.Code_OK, m)
	}
	c.consume("g", "t")
	for i, m := range c.receiveAll("g", "t", 32) {
		if !bytes.Equal(m.GetBody(), body) {
			t.Fatalf("message %d has %d bytes", i, len(m.GetBody()))
		}
	}
}

// Case C092: after a change of the invisible time the new handle is good and the old one is not. Case C100: the
// message comes again once, as the second attempt, from the same topic.
func TestGRPCChangeThenAck(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	w.typedTopic("t", "NORMAL", 1)
	c := w.grpc("c1")
	for i := range 10 {
		c.send(v2.Code_OK, outgoing("t", fmt.Sprint(i), nil))
	}
	c.consume("g", "t")
	got := c.receiveAll("g", "t", 10)
	old := handleOfMessage(got[4])
	changed := c.changeInvisible("g", "t", old, time.Second)
	wantStatus(t, changed.GetStatus(), v2.Code_OK)
	wantStatus(t, c.ack("g", "t", old).GetStatus(), v2.Code_INVALID_RECEIPT_HANDLE)
	wantStatus(t, c.changeInvisible("g", "t", old, time.Second).GetStatus(), v2.Code_INVALID_RECEIPT_HANDLE)
	again := c.receiveAll("g", "t", 1)
	sys := again[0].GetSystemProperties()
	if len(again) != 1 || string(again[0].GetBody()) != string(got[4].GetBody()) || sys.GetDeliveryAttempt() != 2 ||
		again[0].GetTopic().GetName() != "t" || handleOfMessage(again[0]) == changed.GetReceiptHandle() {
		t.Fatalf("%v", again)
	}
	wantStatus(t, c.ack("g", "t", changed.GetReceiptHandle()).GetStatus(), v2.Code_INVALID_RECEIPT_HANDLE)
	wantStatus(t, c.ack("g", "t", handleOfMessage(again[0])).GetStatus(), v2.Code_OK)
	wantStatus(t, c.ack("g", "t", handleOfMessage(again[0])).GetStatus(), v2.Code_INVALID_RECEIPT_HANDLE)
	// Case C097: any connection may acknowledge, also one without telemetry.
	stranger := w.grpc("stranger")
	var rest []string
	for i, m := range got {
		if i != 4 {
			rest = append(rest, handleOfMessage(m))
		}
	}
	answer := stranger.ack("g", "t", rest...)
	wantStatus(t, answer.GetStatus(), v2.Code_OK)
	if len(answer.GetEntries()) != 9 {
		t.Errorf("%d results", len(answer.GetEntries()))
	}
}

// A reset reaches gRPC clients, which keep no offsets, also where resets are pushed to those that do.
func TestGRPCResets(t *testing.T) {
	t.Parallel()
	w := startWire(t, func(cfg *config.Config) { cfg.Message.ServerSideReset = false })
	w.typedTopic("t", "NORMAL", 1)
	c := w.grpc("c1")
	c.send(v2.Code_OK, outgoing("t", "x", nil))
	c.consume("g", "t")
	wantStatus(t, c.ack("g", "t", handleOfMessage(c.receiveAll("g", "t", 1)[0])).GetStatus(), v2.Code_OK)
	w.ok(protocol.InvokeBrokerToResetOffset, &protocol.ResetOffsetRequestHeader{
		Topic: "t", Group: "g", QueueID: -1, IsForce: true,
	}, nil)
	c.receiveAll("g", "t", 1)
}

func TestGRPCMessageGroupsAreInOrder(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	w.typedTopic("t", "FIFO", 4)
	w.ok(protocol.UpdateAndCreateSubscriptionGroup, nil, []byte(`{"groupName":"g","consumeMessageOrderly":true}`))
	c := w.grpc("c1")
	for i := range 5 {
		c.send(v2.Code_OK, outgoing("t", fmt.Sprint(i), func(s *v2.SystemProperties) {
			s.MessageType, s.MessageGroup = v2.MessageType_FIFO, proto.String("one")
		}))
	}
	c.consume("g", "t")
	first := c.receive("g", "t", 30*time.Second)
	for i, m := range first {
		if string(m.GetBody()) != fmt.Sprint(i) || m.GetSystemProperties().GetMessageGroup() != "one" {
			t.Errorf("message %d is %v", i, m)
		}
	}
	// Another group is not blocked by the first, which is.
	c.send(v2.Code_OK, outgoing("t", "other", func(s *v2.SystemProperties) {
		s.MessageType, s.MessageGroup = v2.MessageType_FIFO, proto.String("two")
	}))
	if other := c.receive("g", "t", 30*time.Second); fmt.Sprint(bodies(other)) != "[other]" {
		t.Errorf("%v", bodies(other))
	}
}

func TestGRPCDeadLetters(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	w.typedTopic("t", "NORMAL", 1)
	c := w.grpc("c1")
	c.send(v2.Code_OK, outgoing("t", "poison", nil))
	c.consume("g", "t")
	m := c.receiveAll("g", "t", 1)[0]
	forward := func(handle string) *v2.Status {
		answer, err := c.ForwardMessageToDeadLetterQueue(c.ctx(), &v2.ForwardMessageToDeadLetterQueueRequest{
			Group: named(
				"g",
			),
			Topic:         named("t"),
			ReceiptHandle: handle,
			MessageId:     m.GetSystemProperties().GetMessageId(),
		})
		if err != nil {
			t.Fatal(err)
		}
		return answer.GetStatus()
	}
	wantStatus(t, forward(handleOfMessage(m)), v2.Code_OK)
	wantStatus(t, forward(handleOfMessage(m)), v2.Code_INVALID_RECEIPT_HANDLE)
	dead, _ := w.pull("reader", "%DLQ%g", 0, 0, "*")
	if len(dead) != 1 || string(dead[0].Body) != "poison" {
		t.Errorf("%d dead letters", len(dead))
	}
}

// A transaction through gRPC: hidden until it is committed, asked about when nobody decides, gone when it is
// rolled back.
func TestGRPCTransactions(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	w.typedTopic("t", "TRANSACTION", 1)
	p := w.grpc("p1")
	stream := p.produce("t")
	half := func(body string) *v2.SendResultEntry {
		return p.send(v2.Code_OK, outgoing("t", body, func(s *v2.SystemProperties) {
			s.MessageType = v2.MessageType_TRANSACTION
			if body == "asked" {
				s.OrphanedTransactionRecoveryDuration = durationpb.New(time.Second)
			}
		})).GetEntries()[0]
	}
	end := func(e *v2.SendResultEntry, r v2.TransactionResolution) {
		t.Helper()
		answer, err := p.EndTransaction(p.ctx(), &v2.EndTransactionRequest{
			Topic: named("t"), MessageId: e.GetMessageId(), TransactionId: e.GetTransactionId(), Resolution: r,
		})
		if err != nil {
			t.Fatal(err)
		}
		wantStatus(t, answer.GetStatus(), v2.Code_OK)
	}
	committed, rolledBack := half("committed"), half("rolled back")
	if _, high, _ := w.svc.node.store.Bounds("t", 0); high != 0 {
		t.Errorf("%d messages before the commit", high)
	}
	end(rolledBack, v2.TransactionResolution_ROLLBACK)
	end(committed, v2.TransactionResolution_COMMIT)
	end(committed, v2.TransactionResolution_COMMIT) // as a client does that lost the answer
	half("asked")
	cmd, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	check := cmd.GetRecoverOrphanedTransactionCommand()
	if string(check.GetMessage().GetBody()) != "asked" || check.GetMessage().GetTopic().GetName() != "t" {
		t.Fatalf("%v", cmd)
	}
	end(&v2.SendResultEntry{
		MessageId: check.GetMessage().GetSystemProperties().GetMessageId(), TransactionId: check.GetTransactionId(),
	}, v2.TransactionResolution_COMMIT)
	c := w.grpc("c1")
	c.consume("g", "t")
	if got := bodies(c.receiveAll("g", "t", 2)); fmt.Sprint(got) != "[asked committed]" {
		t.Errorf("%v", got)
	}
}

// Administrators see gRPC clients, and ask them, as any other.
func TestGRPCClientsAreSeen(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	w.typedTopic("t", "NORMAL", 1)
	c := w.grpc("c1")
	c.consume("g", "t")
	seen := body[protocol.ConsumerConnection](t, w.ok(protocol.GetConsumerConnectionList,
		&protocol.GetConsumerConnectionListRequestHeader{ConsumerGroup: "g"}, nil))
	if len(seen.ConnectionSet) != 1 || seen.ConnectionSet[0].ClientID != "c1" ||
		seen.ConnectionSet[0].Language != protocol.LanguageGo {
		t.Errorf("%+v", seen)
	}
	info := w.ok(
		protocol.GetConsumerRunningInfo,
		&protocol.GetConsumerRunningInfoRequestHeader{ConsumerGroup: "g", ClientID: "c1"},
		nil,
	)
	if !bytes.Contains(info.Body, []byte(`"topic":"t"`)) {
		t.Errorf("%s", info.Body)
	}
	answer, err := c.NotifyClientTermination(c.ctx(), &v2.NotifyClientTerminationRequest{Group: named("g")})
	if err != nil {
		t.Fatal(err)
	}
	wantStatus(t, answer.GetStatus(), v2.Code_OK)
	w.refused(protocol.ConsumerNotOnline, protocol.GetConsumerConnectionList,
		&protocol.GetConsumerConnectionListRequestHeader{ConsumerGroup: "g"}, nil)
}

// Native clients pop too: the same claims, the same handles.
func TestWirePopRequests(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	w.topic("t", 2)
	w.group("g")
	for i := range 4 {
		w.send("t", int32(i%2), "", fmt.Sprint(i))
	}
	popHeader := func(poll int64) *protocol.PopMessageRequestHeader {
		return &protocol.PopMessageRequestHeader{
			ConsumerGroup: "g", Topic: "t", QueueID: -1, MaxMsgNums: 32, InvisibleTime: 30_000, PollTime: poll,
			BornTime: time.Now().UnixMilli(), InitMode: 1, ExpType: "TAG", Exp: "*",
		}
	}
	answer := w.ok(protocol.PopMessage, popHeader(1000), nil)
	var h protocol.PopMessageResponseHeader
	if err := h.DecodeExt(&answer.Ext); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(len(strings.Split(h.StartOffsetInfo, ";")), len(strings.Split(h.MsgOffsetInfo, ";"))) != "2 2" ||
		h.InvisibleTime != 30_000 {
		t.Errorf("%+v", h)
	}
	handle := func(queue, offset int64) string {
		return fmt.Sprintf("0 %d 30000 %d 0 broker-a %d %d", h.PopTime, h.ReviveQID, queue, offset)
	}
	ack := func(queue int32, offset int64, text string) *protocol.AckMessageRequestHeader {
		return &protocol.AckMessageRequestHeader{
			ConsumerGroup: "g",
			Topic:         "t",
			QueueID:       queue,
			Offset:        offset,
			ExtraInfo:     text,
		}
	}
	w.ok(protocol.AckMessage, ack(0, 0, handle(0, 0)), nil)
	w.refused(protocol.NoMessage, protocol.AckMessage, ack(0, 0, handle(0, 0)), nil)
	w.refused(protocol.MessageIllegal, protocol.AckMessage, ack(1, 0, handle(0, 1)), nil)
	changed := w.ok(protocol.ChangeMessageInvisibleTime, &protocol.ChangeInvisibleTimeRequestHeader{
		ConsumerGroup: "g", Topic: "t", QueueID: 0, Offset: 1, ExtraInfo: handle(0, 1), InvisibleTime: 1,
	}, nil)
	var next protocol.ChangeInvisibleTimeResponseHeader
	if err := next.DecodeExt(&changed.Ext); err != nil || next.InvisibleTime != 1 {
		t.Errorf("%+v %v", next, err)
	}
	acks := &protocol.BatchAckMessageRequestBody{BrokerName: "broker-a", Acks: []protocol.BatchAck{{
		ConsumerGroup: "g", Topic: "t", Retry: "0", QueueID: 1, PopTimeMillis: h.PopTime, InvisibleTimeMillis: 30_000,
		ReviveQueueID: h.ReviveQID, BitSet: protocol.BitSet{0b11},
	}}}
	w.ok(protocol.BatchAckMessage, nil, protocol.EncodeBody(acks))
	again := w.ok(protocol.PopMessage, popHeader(10_000), nil)
	rec := message.Record(again.Body)
	if rec.Size() != len(rec) || rec.ReconsumeTimes() != 1 || rec.QueueOffset() != 1 {
		t.Errorf("%d bytes, one record of %d, attempt %d", len(rec), rec.Size(), rec.ReconsumeTimes())
	}
	w.refused(protocol.PollingTimeout, protocol.PopMessage, popHeader(100), nil)
	notice := w.ok(protocol.Notification, &protocol.NotificationRequestHeader{
		ConsumerGroup: "g", Topic: "t", QueueID: -1, PollTime: 100, BornTime: time.Now().UnixMilli(),
	}, nil)
	var hint protocol.NotificationResponseHeader
	if err := hint.DecodeExt(&notice.Ext); err != nil || hint.HasMsg {
		t.Errorf("%+v %v", hint, err)
	}
	w.ok(protocol.PollingInfo, &protocol.PollingInfoRequestHeader{ConsumerGroup: "g", Topic: "t", QueueID: -1}, nil)
}

func TestWireAssignments(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	w.topic("t", 4)
	w.group("g")
	other := w.dial()
	w.heartbeat(w.client, "c1", "g", "t")
	w.heartbeat(other, "c2", "g", "t")
	ask := func(id, strategy string) string {
		answer := body[protocol.QueryAssignmentResponseBody](
			t,
			w.ok(protocol.QueryAssignment, nil, protocol.EncodeBody(
				&protocol.QueryAssignmentRequestBody{
					ClientID:      id,
					ConsumerGroup: "g",
					Topic:         "t",
					MessageModel:  protocol.Clustering,
					StrategyName:  strategy,
				})),
		)
		if answer.MessageQueueAssignments == nil {
			return "keep"
		}
		var got []string
		for _, a := range answer.MessageQueueAssignments {
			got = append(got, fmt.Sprint(a.MessageQueue.QueueID, a.Mode))
		}
		slices.Sort(got)
		return fmt.Sprint(got)
	}
	for _, tc := range []struct{ id, strategy, want string }{
		{"c1", "AVG", "[0PULL 1PULL]"},
		{"c2", "AVG", "[2PULL 3PULL]"},
		{"c2", "AVG_BY_CIRCLE", "[1PULL 3PULL]"},
		{"stranger", "AVG", "[]"},
		{"c1", "ODD", "keep"},
	} {
		if got := ask(tc.id, tc.strategy); got != tc.want {
			t.Errorf("%s by %s: %s, want %s", tc.id, tc.strategy, got, tc.want)
		}
	}
	set := &protocol.SetMessageRequestModeRequestBody{ConsumerGroup: "g", Topic: "t", Mode: protocol.ModePop}
	w.ok(protocol.SetMessageRequestMode, nil, protocol.EncodeBody(set))
	if got := ask("c1", "AVG"); got != "[-1POP]" {
		t.Errorf("by pop: %s", got)
	}
	all := body[protocol.MessageRequestModeSerializeWrapper](t, w.ok(protocol.GetAllMessageRequestMode, nil, nil))
	if all.MessageRequestModeMap["t"]["g"].Mode != protocol.ModePop {
		t.Errorf("%+v", all)
	}
	set.Topic = "%RETRY%g"
	w.refused(protocol.NoPermission, protocol.SetMessageRequestMode, nil, protocol.EncodeBody(set))
	set.Topic = "nowhere"
	w.refused(protocol.TopicNotExist, protocol.SetMessageRequestMode, nil, protocol.EncodeBody(set))
}
