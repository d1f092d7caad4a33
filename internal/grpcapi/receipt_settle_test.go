// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

func TestForwardToDeadLetters(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	handle := "5 1 30000 0 0 broker-a 3 7 1007"
	forward := func(handle string) *v2.Status {
		answer, err := d.client.ForwardMessageToDeadLetterQueue(
			as(t, "c1"),
			&v2.ForwardMessageToDeadLetterQueueRequest{
				Group: resource("g"), Topic: resource("normal"), ReceiptHandle: handle, MessageId: "m",
			},
		)
		if err != nil {
			t.Fatal(err)
		}
		return answer.GetStatus()
	}
	wantCode(t, forward(handle), v2.Code_OK)
	h, _ := d.broker.seen(protocol.ConsumerSendMsgBack)[0].(*protocol.ForwardReceiptRequestHeader)
	if *h != (protocol.ForwardReceiptRequestHeader{ConsumerGroup: "g", Topic: "normal", Handle: handle}) {
		t.Errorf("header %+v", h)
	}
	d.broker.on(
		protocol.ConsumerSendMsgBack,
		func(c *remoting.Call) { c.Reply(remoting.Response{Code: protocol.NoMessage}) },
	)
	wantCode(t, forward(handle), v2.Code_INVALID_RECEIPT_HANDLE)
}

// renewing is a client with one message in work whose receipt ends in five seconds.
func renewing(
	t *testing.T, change func(*Config), renew func(*remoting.Call),
) (d *door, handle string, cancel context.CancelFunc) {
	t.Helper()
	d = newDoor(t, func(c *Config) {
		c.Limits.RenewPeriod = 5 * time.Millisecond
		if change != nil {
			change(c)
		}
	})
	d.gives(time.Now().Add(-55*time.Second), "one")
	d.acks()
	d.broker.on(protocol.ChangeMessageInvisibleTime, renew)
	ctx, cancel := context.WithCancel(as(t, "c1"))
	d.connect(ctx, consumer(v2.ClientType_PUSH_CONSUMER, "g", "normal"))
	got := d.receive(as(t, "c1"), receiveRequest(func(r *v2.ReceiveMessageRequest) { r.AutoRenew = true }))
	wantCode(t, got.status, v2.Code_OK)
	return d, got.messages[0].GetSystemProperties().GetReceiptHandle(), cancel
}

// The client's first handle stays good however often the receipt was renewed, also when the first try to
// acknowledge fails (case C105). After that it stands for nothing.
func TestReceiptsAreRenewed(t *testing.T) {
	t.Parallel()
	newest := time.Now().UnixMilli() + 60_000
	var renewed atomic.Int32
	d, handle, _ := renewing(t, nil, func(c *remoting.Call) {
		h, _ := c.Header.(*protocol.RenewReceiptRequestHeader)
		popTime := newest
		if renewed.Add(1) < 3 { // two renewals that are soon over
			popTime = time.Now().Add(-55 * time.Second).UnixMilli()
		}
		c.Reply(remoting.Response{Header: renewedReceipt(h, popTime, 60_000)})
		if h.ConsumerGroup != "g" || h.Topic != "normal" {
			t.Errorf("header %+v", h)
		}
	})
	eventually(t, "three renewals", func() bool { return renewed.Load() == 3 })
	var times []int64
	for _, h := range d.broker.seen(protocol.ChangeMessageInvisibleTime) {
		change, _ := h.(*protocol.RenewReceiptRequestHeader)
		times = append(times, change.InvisibleTime)
	}
	if !slices.Equal(times, []int64{60_000, 180_000, 300_000}) {
		t.Errorf("renewed for %v ms", times)
	}
	d.broker.on(
		protocol.BatchAckMessage,
		func(c *remoting.Call) { c.Reply(remoting.Response{Code: protocol.SystemError, Remark: "once"}) },
	)
	wantCode(t, d.ack(handle).GetStatus(), v2.Code_INTERNAL_SERVER_ERROR)
	d.acks()
	wantCode(t, d.ack(handle).GetStatus(), v2.Code_OK)
	seen := d.broker.seen(protocol.BatchAckMessage)
	for _, h := range seen {
		if ack, _ := h.(*protocol.AckReceiptsRequestHeader); !strings.HasPrefix(
			ack.Handles[0],
			fmt.Sprint("7 ", newest, " 60000 "),
		) {
			t.Errorf("acknowledged by %q", ack.Handles[0])
		}
	}
	wantCode(
		t,
		d.ack(handle).GetStatus(),
		v2.Code_OK,
	) // the broker has the last word about a handle that is not renewed
	seen = d.broker.seen(protocol.BatchAckMessage)
	if ack, _ := seen[len(seen)-1].(*protocol.AckReceiptsRequestHeader); ack.Handles[0] != handle {
		t.Errorf("acknowledged by %q", ack.Handles[0])
	}
}

// What a client has in work that is gone is soon seen by others.
func TestReceiptsOfGoneClientsGoBack(t *testing.T) {
	t.Parallel()
	d, _, cancel := renewing(t, func(c *Config) { c.Limits.SessionIdle = 100 * time.Millisecond },
		changedAt(time.Now().UnixMilli()))
	cancel()
	eventually(t, "the message goes back", func() bool {
		for _, h := range d.broker.seen(protocol.ChangeMessageInvisibleTime) {
			if change, _ := h.(*protocol.RenewReceiptRequestHeader); change.InvisibleTime == 1000 {
				return true
			}
		}
		return false
	})
}

// A receipt that is nobody's any more is not renewed for ever.
func TestLostReceiptsAreForgotten(t *testing.T) {
	t.Parallel()
	d, _, _ := renewing(t, nil, func(c *remoting.Call) { c.Reply(remoting.Response{Code: protocol.NoMessage}) })
	eventually(t, "the receipt is forgotten", func() bool { return d.peerOf("c1").receipts.len() == 0 })
}

func TestRenewedReceiptsAreBounded(t *testing.T) {
	t.Parallel()
	d, _, _ := renewing(
		t,
		func(c *Config) { c.Limits.MaxRenewed = 32 },
		changedAt(time.Now().Add(time.Hour).UnixMilli()),
	)
	got := d.receive(as(t, "c1"), receiveRequest(func(r *v2.ReceiveMessageRequest) { r.AutoRenew = true }))
	wantCode(t, got.status, v2.Code_TOO_MANY_REQUESTS)
}

// lazyConn takes its time for each write.
type lazyConn struct{ net.Conn }

func (c lazyConn) Write(p []byte) (int, error) {
	<-time.After(2 * drainTick)
	return c.Conn.Write(p)
}

// Stopping answers held receives, ends the telemetry streams, and then there is nothing left.
func TestStop(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	d.conn.Close()
	d.dialThrough(
		func(conn net.Conn) net.Conn { return lazyConn{conn} },
	) // answers are written after their handler's end
	held := make(chan struct{})
	d.broker.on(protocol.PopMessage, func(c *remoting.Call) {
		c.Suspend(nil)
		close(held)
	})
	telemetry, _ := d.connect(as(t, "c1"), consumer(v2.ClientType_SIMPLE_CONSUMER, "g", "normal"))
	stream, err := d.client.ReceiveMessage(as(t, "c1"), receiveRequest(nil))
	if err != nil {
		t.Fatal(err)
	}
	<-held
	d.stop()
	part, err := stream.Recv()
	if err != nil || part.GetStatus().GetCode() != v2.Code_MESSAGE_NOT_FOUND {
		t.Error(part, err)
	}
	if _, err := telemetry.Recv(); grpcstatus.Code(err) != codes.Unavailable {
		t.Error(err)
	}
	if err := <-d.ended; err != nil {
		t.Error(err)
	}
	d.ended <- nil
}

func TestTransactionsAndRecall(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	end := func(id string, r v2.TransactionResolution, src v2.TransactionSource) *v2.Status {
		answer, err := d.client.EndTransaction(as(t, "p1"), &v2.EndTransactionRequest{
			Topic: resource("transaction"), MessageId: "01TX", TransactionId: id, Resolution: r, Source: src,
		})
		if err != nil {
			t.Fatal(err)
		}
		return answer.GetStatus()
	}
	wantCode(t, end(" ", v2.TransactionResolution_COMMIT, 0), v2.Code_INVALID_TRANSACTION_ID)
	// Case C024: the source says little.
	for i, tc := range []struct {
		resolution v2.TransactionResolution
		source     v2.TransactionSource
		want       protocol.EndTransactionRequestHeader
	}{
		{v2.TransactionResolution_COMMIT, v2.TransactionSource_SOURCE_CLIENT, protocol.EndTransactionRequestHeader{CommitOrRollback: 8, FromTransactionCheck: protocol.Some(false)}},
		{v2.TransactionResolution_COMMIT, v2.TransactionSource_SOURCE_UNSPECIFIED, protocol.EndTransactionRequestHeader{CommitOrRollback: 8, FromTransactionCheck: protocol.Some(true)}},
		{v2.TransactionResolution_ROLLBACK, v2.TransactionSource_SOURCE_SERVER_CHECK, protocol.EndTransactionRequestHeader{CommitOrRollback: 12, FromTransactionCheck: protocol.Some(true)}},
		{v2.TransactionResolution_TRANSACTION_RESOLUTION_UNSPECIFIED, 0, protocol.EndTransactionRequestHeader{FromTransactionCheck: protocol.Some(true)}},
	} {
		wantCode(t, end("01TX", tc.resolution, tc.source), v2.Code_OK)
		want := tc.want
		want.Topic, want.MsgID, want.TransactionID = "transaction", "01TX", "01TX"
		want.CommitLogOffset, want.TranStateTableOffset = -1, -1
		if h, _ := d.broker.seen(protocol.EndTransaction)[i].(*protocol.EndTransactionRequestHeader); *h != want {
			t.Errorf("header %+v, want %+v", h, want)
		}
	}

	d.broker.on(protocol.EndTransaction, func(c *remoting.Call) {
		c.Reply(remoting.Response{Code: protocol.SystemError, Remark: "no such transaction"})
	})
	wantCode(t, end("01TX", v2.TransactionResolution_COMMIT, 0), v2.Code_INVALID_TRANSACTION_ID)

	recall := func(topic, handle string) *v2.RecallMessageResponse {
		answer, err := d.client.RecallMessage(
			as(t, "p1"),
			&v2.RecallMessageRequest{Topic: resource(topic), RecallHandle: handle},
		)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	d.broker.on(protocol.RecallMessage, func(c *remoting.Call) {
		c.Reply(remoting.Response{Header: &protocol.RecallMessageResponseHeader{MsgID: "01ABC"}})
	})
	answer := recall("delay", "handle")
	wantCode(t, answer.GetStatus(), v2.Code_OK)
	if answer.GetMessageId() != "01ABC" {
		t.Error(answer)
	}
	wantCode(t, recall("normal", "handle").GetStatus(), v2.Code_MESSAGE_PROPERTY_CONFLICT_WITH_TYPE)
	wantCode(t, recall("delay", "").GetStatus(), v2.Code_BAD_REQUEST)
}

func TestOffsets(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	ctx := as(t, "c1")
	queue := &v2.MessageQueue{Topic: resource("normal"), Id: 3}
	d.broker.on(protocol.QueryConsumerOffset, func(c *remoting.Call) {
		c.Reply(remoting.Response{Header: &protocol.QueryConsumerOffsetResponseHeader{Offset: 17}})
	})
	got, err := d.client.GetOffset(ctx, &v2.GetOffsetRequest{Group: resource("g"), MessageQueue: queue})
	if err != nil || got.GetStatus().GetCode() != v2.Code_OK || got.GetOffset() != 17 {
		t.Error(got, err)
	}
	d.broker.on(
		protocol.QueryConsumerOffset,
		func(c *remoting.Call) { c.Reply(remoting.Response{Code: protocol.QueryNotFound}) },
	)
	got, err = d.client.GetOffset(ctx, &v2.GetOffsetRequest{Group: resource("g"), MessageQueue: queue})
	if err != nil || got.GetStatus().GetCode() != v2.Code_OFFSET_NOT_FOUND {
		t.Error(got, err)
	}
	up, err := d.client.UpdateOffset(
		ctx,
		&v2.UpdateOffsetRequest{Group: resource("g"), MessageQueue: queue, Offset: 5},
	)
	if err != nil || up.GetStatus().GetCode() != v2.Code_OK {
		t.Error(up, err)
	}
	up, err = d.client.UpdateOffset(
		ctx,
		&v2.UpdateOffsetRequest{Group: resource("g"), MessageQueue: queue, Offset: -5},
	)
	if err != nil || up.GetStatus().GetCode() != v2.Code_ILLEGAL_OFFSET {
		t.Error(up, err)
	}
	d.broker.on(protocol.GetMinOffset, func(c *remoting.Call) {
		c.Reply(remoting.Response{Header: &protocol.GetMinOffsetResponseHeader{Offset: 1}})
	})
	d.broker.on(protocol.GetMaxOffset, func(c *remoting.Call) {
		c.Reply(remoting.Response{Header: &protocol.GetMaxOffsetResponseHeader{Offset: 9}})
	})
	d.broker.on(protocol.SearchOffsetByTimestamp, func(c *remoting.Call) {
		c.Reply(remoting.Response{Header: &protocol.SearchOffsetResponseHeader{Offset: 5}})
	})
	for policy, want := range map[v2.QueryOffsetPolicy]int64{0: 1, 1: 9, 2: 5} {
		got, err := d.client.QueryOffset(ctx, &v2.QueryOffsetRequest{MessageQueue: queue, QueryOffsetPolicy: policy})
		if err != nil || got.GetStatus().GetCode() != v2.Code_OK || got.GetOffset() != want {
			t.Error(policy, got, err)
		}
	}
	odd, err := d.client.QueryOffset(ctx, &v2.QueryOffsetRequest{MessageQueue: queue, QueryOffsetPolicy: 9})
	if err != nil || odd.GetStatus().GetCode() != v2.Code_BAD_REQUEST {
		t.Error(odd, err)
	}
	// Who asks is checked first, as in all other rpcs.
	odd, err = d.client.QueryOffset(t.Context(), &v2.QueryOffsetRequest{MessageQueue: queue, QueryOffsetPolicy: 9})
	if err != nil || odd.GetStatus().GetCode() != v2.Code_CLIENT_ID_REQUIRED {
		t.Error(odd, err)
	}
}

func TestPull(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	d.broker.on(protocol.PullMessage, func(c *remoting.Call) {
		c.Reply(remoting.Response{
			Header: &protocol.PullMessageResponseHeader{NextBeginOffset: 9},
			Bodies: [][]byte{stored("normal", 3, 7, "one", ""), stored("normal", 3, 8, "two", "")},
		})
	})
	stream, err := d.client.PullMessage(as(t, "c1"), &v2.PullMessageRequest{
		Group: resource(
			"g",
		),
		MessageQueue:       &v2.MessageQueue{Topic: resource("normal"), Id: 3},
		Offset:             7,
		BatchSize:          10,
		LongPollingTimeout: durationpb.New(time.Minute),
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch c := part.GetContent().(type) {
		case *v2.PullMessageResponse_Status:
			got = append(got, c.Status.GetCode().String())
		case *v2.PullMessageResponse_Message:
			got = append(got, string(c.Message.GetBody())+c.Message.GetSystemProperties().GetReceiptHandle())
		case *v2.PullMessageResponse_NextOffset:
			got = append(got, fmt.Sprint(c.NextOffset))
		}
	}
	if text(got) != "[OK one two 9]" {
		t.Error(got)
	}
	h, _ := d.broker.seen(protocol.PullMessage)[0].(*protocol.PullMessageRequestHeader)
	if h.SuspendTimeoutMillis != 20_000 || h.SysFlag != 6 || h.MaxMsgNums != 10 || h.QueueOffset != 7 ||
		h.QueueID != 3 {
		t.Errorf("header %+v", h)
	}
}
