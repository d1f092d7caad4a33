// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// gives makes the broker answer receives with messages popped at a time.
func (d *door) gives(popTime time.Time, bodies ...string) {
	d.broker.on(protocol.PopMessage, func(c *remoting.Call) {
		h, _ := c.Header.(*protocol.PopMessageRequestHeader)
		receipts := &protocol.ReceiptsResponseHeader{VisibleAt: popTime.UnixMilli() + h.InvisibleTime}
		r := remoting.Response{Header: receipts}
		for i, body := range bodies {
			r.Bodies = append(r.Bodies, stored(h.Topic, 3, int64(7+i), body, props("UNIQ_KEY", "id-"+body)))
			receipts.Handles = append(receipts.Handles,
				fmt.Sprintf("7 %d %d 0 0 broker-a 3 %d %d", popTime.UnixMilli(), h.InvisibleTime, 7+i, 1007+i))
		}
		c.Reply(r)
	})
}

// acks makes the broker accept acknowledgements, but for handles that are none, are there twice, or that
// refused names.
func (d *door) acks(refused ...string) {
	d.broker.on(protocol.BatchAckMessage, func(c *remoting.Call) {
		h, _ := c.Header.(*protocol.AckReceiptsRequestHeader)
		answer := &protocol.AckReceiptsResponseHeader{Refused: make([]*protocol.Error, len(h.Handles))}
		for i, handle := range h.Handles {
			if strings.Count(handle, " ") != 8 || slices.Contains(refused, handle) ||
				slices.Contains(h.Handles[:i], handle) {
				answer.Refused[i] = &protocol.Error{Code: protocol.NoMessage, Remark: "stale"}
			}
		}
		c.Reply(remoting.Response{Header: answer})
	})
}

// received is what came over a receive's stream.
type received struct {
	status   *v2.Status
	messages []*v2.Message
	ended    bool // with the delivery timestamp
}

func (d *door) receive(ctx context.Context, req *v2.ReceiveMessageRequest) received {
	d.t.Helper()
	stream, err := d.client.ReceiveMessage(ctx, req)
	if err != nil {
		d.t.Fatal(err)
	}
	var r received
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return r
		}
		if err != nil {
			d.t.Fatal(err)
		}
		switch c := part.GetContent().(type) {
		case *v2.ReceiveMessageResponse_Status:
			if r.status != nil || len(r.messages) > 0 {
				d.t.Fatal("the status does not come first")
			}
			r.status = c.Status
		case *v2.ReceiveMessageResponse_Message:
			r.messages = append(r.messages, c.Message)
		case *v2.ReceiveMessageResponse_DeliveryTimestamp:
			r.ended = true
		}
	}
}

func receiveRequest(change func(*v2.ReceiveMessageRequest)) *v2.ReceiveMessageRequest {
	req := &v2.ReceiveMessageRequest{
		Group: resource(
			"g",
		),
		MessageQueue:       &v2.MessageQueue{Topic: &v2.Resource{ResourceNamespace: "ns", Name: "normal"}, Id: 2},
		BatchSize:          32,
		InvisibleDuration:  durationpb.New(30 * time.Second),
		LongPollingTimeout: durationpb.New(10 * time.Second),
	}
	if change != nil {
		change(req)
	}
	return req
}

func TestReceive(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	popTime := time.Now()
	d.gives(popTime, "one", "two")
	d.connect(as(t, "c1"), consumer(v2.ClientType_SIMPLE_CONSUMER, "g", "normal"))
	got := d.receive(as(t, "c1"), receiveRequest(func(r *v2.ReceiveMessageRequest) {
		r.AttemptId = proto.String("attempt")
		r.FilterExpression = &v2.FilterExpression{Type: v2.FilterType_TAG, Expression: "a || b"}
	}))
	wantCode(t, got.status, v2.Code_OK)
	if len(got.messages) != 2 || !got.ended {
		t.Fatalf("%+v", got)
	}
	for i, body := range []string{"one", "two"} {
		m := got.messages[i]
		handle := fmt.Sprintf("7 %d 30000 0 0 broker-a 3 %d %d", popTime.UnixMilli(), 7+i, 1007+i)
		if string(m.GetBody()) != body || m.GetSystemProperties().GetReceiptHandle() != handle ||
			m.GetTopic().GetResourceNamespace() != "ns" || m.GetSystemProperties().GetDeliveryAttempt() != 1 {
			t.Errorf("%v, want handle %q", m, handle)
		}
	}
	h, _ := d.broker.seen(protocol.PopMessage)[0].(*protocol.PopMessageRequestHeader)
	if h.QueueID != -1 || h.MaxMsgNums != 32 || h.InvisibleTime != 30_000 || h.PollTime != 10_000 ||
		h.InitMode != 1 ||
		h.Exp != "a || b" ||
		h.ExpType != "TAG" ||
		h.AttemptID != "attempt" ||
		h.Order.Present ||
		h.ConsumerGroup != "g" {
		t.Errorf("header %+v", h)
	}
}

// What a receive is refused for, and what it is when there is nothing. Case C021.
func TestReceiveIsChecked(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	d.gives(time.Now())
	d.connect(as(t, "c1"), consumer(v2.ClientType_SIMPLE_CONSUMER, "g", "normal"))
	for _, tc := range []struct {
		name   string
		change func(*v2.ReceiveMessageRequest)
		want   v2.Code
	}{
		{"nothing", nil, v2.Code_MESSAGE_NOT_FOUND},
		{"topic", func(r *v2.ReceiveMessageRequest) { r.MessageQueue.Topic = resource("$") }, v2.Code_ILLEGAL_TOPIC},
		{"group", func(r *v2.ReceiveMessageRequest) { r.Group = resource("$") }, v2.Code_ILLEGAL_CONSUMER_GROUP},
		{"no invisible time", func(r *v2.ReceiveMessageRequest) { r.InvisibleDuration = nil }, v2.Code_ILLEGAL_INVISIBLE_TIME},
		{
			"no invisible time, renewed", func(r *v2.ReceiveMessageRequest) { r.InvisibleDuration, r.AutoRenew = nil, true },
			v2.Code_MESSAGE_NOT_FOUND,
		},
		{
			"invisible for 10 s", func(r *v2.ReceiveMessageRequest) { r.InvisibleDuration = durationpb.New(10 * time.Second) },
			v2.Code_MESSAGE_NOT_FOUND,
		},
		{
			"invisible for less", func(r *v2.ReceiveMessageRequest) { r.InvisibleDuration = durationpb.New(9999 * time.Millisecond) },
			v2.Code_ILLEGAL_INVISIBLE_TIME,
		},
		{
			"invisible for 12 h", func(r *v2.ReceiveMessageRequest) { r.InvisibleDuration = durationpb.New(12 * time.Hour) },
			v2.Code_MESSAGE_NOT_FOUND,
		},
		{
			"invisible for more", func(r *v2.ReceiveMessageRequest) { r.InvisibleDuration = durationpb.New(12*time.Hour + 1e6) },
			v2.Code_ILLEGAL_INVISIBLE_TIME,
		},
		{"filter", func(r *v2.ReceiveMessageRequest) {
			r.FilterExpression = &v2.FilterExpression{Type: v2.FilterType_TAG, Expression: " || "}
		}, v2.Code_ILLEGAL_FILTER_EXPRESSION},
		{"SQL filter empty", func(r *v2.ReceiveMessageRequest) {
			r.FilterExpression = &v2.FilterExpression{Type: v2.FilterType_SQL}
		}, v2.Code_ILLEGAL_FILTER_EXPRESSION},
	} {
		got := d.receive(as(t, "c1"), receiveRequest(tc.change))
		if got.status.GetCode() != tc.want || !got.ended || len(got.messages) > 0 {
			t.Errorf("%s: %v", tc.name, got.status)
		}
	}
	got := d.receive(as(t, "stranger"), receiveRequest(nil))
	wantCode(t, got.status, v2.Code_UNRECOGNIZED_CLIENT_TYPE)
	for code, want := range map[protocol.ResponseCode]v2.Code{
		protocol.PollingTimeout: v2.Code_MESSAGE_NOT_FOUND, protocol.PullNotFound: v2.Code_MESSAGE_NOT_FOUND,
		protocol.PollingFull: v2.Code_TOO_MANY_REQUESTS, protocol.SystemBusy: v2.Code_TOO_MANY_REQUESTS,
		protocol.SubscriptionGroupNotExist: v2.Code_CONSUMER_GROUP_NOT_FOUND, protocol.TopicNotExist: v2.Code_TOPIC_NOT_FOUND,
	} {
		d.broker.on(protocol.PopMessage, func(c *remoting.Call) { c.Reply(remoting.Response{Code: code}) })
		got := d.receive(as(t, "c1"), receiveRequest(nil))
		if got.status.GetCode() != want || !got.ended {
			t.Errorf("%s: %v", code, got.status)
		}
	}
}

func TestPollTime(t *testing.T) {
	t.Parallel()
	p := newProfile(&v2.Settings{RequestTimeout: durationpb.New(2 * time.Second)})
	sec := func(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
	for _, tc := range []struct {
		asked, deadline time.Duration // 0: none
		version         string
		want            time.Duration
		code            v2.Code
	}{
		{sec(10), 0, "5.0.7", sec(10), v2.Code_OK},
		{sec(1), 0, "5.0.7", sec(5), v2.Code_OK},
		{sec(100), 0, "5.0.7", sec(20), v2.Code_OK},
		{0, 0, "5.0.7", sec(20), v2.Code_OK},
		{0, sec(12), "5.0.7", sec(11), v2.Code_OK},
		{sec(15), sec(13), "5.0.7", sec(12.5), v2.Code_OK},
		{0, sec(5.5), "5.0.7", sec(5), v2.Code_OK},
		{sec(12), sec(12.2), "5.0.7", sec(11.7), v2.Code_OK},
		{sec(10), sec(5.1), "5.0.7", sec(5), v2.Code_OK},
		{sec(10), sec(4), "5.0.7", 0, v2.Code_ILLEGAL_POLLING_TIME},
		{sec(10), sec(4), "5.0.3", 0, v2.Code_ILLEGAL_POLLING_TIME},
		{sec(10), sec(4), "5.0.2", 0, v2.Code_BAD_REQUEST},
		{sec(10), sec(4), "", 0, v2.Code_BAD_REQUEST},
	} {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(keyClientVersion, tc.version))
		if tc.deadline > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, tc.deadline)
			defer cancel()
		}
		req := &v2.ReceiveMessageRequest{}
		if tc.asked > 0 {
			req.LongPollingTimeout = durationpb.New(tc.asked)
		}
		got, err := pollTime(ctx, p, req)
		code := v2.Code_OK
		if err != nil {
			code = statusOf(err).GetCode()
		}
		if code != tc.code || got > tc.want || got < tc.want-200*time.Millisecond {
			t.Errorf("%+v: %v %v", tc, got, err)
		}
	}
}

// A client that goes away while its receive is held takes nothing with it.
func TestHeldReceiveIsCancelled(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	held, cancelled := make(chan struct{}), make(chan struct{})
	d.broker.on(protocol.PopMessage, func(c *remoting.Call) {
		c.Suspend(func() { close(cancelled) })
		close(held)
	})
	d.connect(as(t, "c1"), consumer(v2.ClientType_SIMPLE_CONSUMER, "g", "normal"))
	ctx, cancel := context.WithCancel(as(t, "c1"))
	stream, err := d.client.ReceiveMessage(ctx, receiveRequest(nil))
	if err != nil {
		t.Fatal(err)
	}
	<-held
	cancel()
	<-cancelled
	if _, err := stream.Recv(); grpcstatus.Code(err) != codes.Canceled {
		t.Error(err)
	}
}

func (d *door) ack(handles ...string) *v2.AckMessageResponse {
	d.t.Helper()
	req := &v2.AckMessageRequest{Group: resource("g"), Topic: resource("normal")}
	for i, h := range handles {
		req.Entries = append(req.Entries, &v2.AckMessageEntry{MessageId: fmt.Sprint("m", i), ReceiptHandle: h})
	}
	answer, err := d.client.AckMessage(as(d.t, "c1"), req)
	if err != nil {
		d.t.Fatal(err)
	}
	return answer
}

func TestAck(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	one, two, stale := "7 1 30000 0 0 broker-a 3 7 1007", "7 1 30000 0 0 broker-a 3 8 1008", "7 1 30000 0 0 broker-a 3 9 1009"
	d.acks(stale)
	codesOf := func(a *v2.AckMessageResponse) string {
		all := a.GetStatus().GetCode().String() + ":"
		for i, e := range a.GetEntries() {
			all += " " + e.GetMessageId() + " " + e.GetStatus().GetCode().String()
			if e.GetMessageId() != fmt.Sprint("m", i) || e.GetStatus().GetMessage() == "" {
				t.Errorf("entry %v", e)
			}
		}
		return all
	}
	for _, tc := range []struct {
		handles []string
		want    string
	}{
		{[]string{one}, "OK: m0 OK"},
		{[]string{two, one}, "OK: m0 OK m1 OK"},
		{[]string{stale}, "INVALID_RECEIPT_HANDLE: m0 INVALID_RECEIPT_HANDLE"},
		{[]string{two, stale, one}, "MULTIPLE_RESULTS: m0 OK m1 INVALID_RECEIPT_HANDLE m2 OK"},
		{[]string{"junk"}, "INVALID_RECEIPT_HANDLE: m0 INVALID_RECEIPT_HANDLE"},
		{[]string{"junk", two}, "MULTIPLE_RESULTS: m0 INVALID_RECEIPT_HANDLE m1 OK"},
		{[]string{two, two}, "MULTIPLE_RESULTS: m0 OK m1 INVALID_RECEIPT_HANDLE"},
		{nil, "BAD_REQUEST:"},
	} {
		if got := codesOf(d.ack(tc.handles...)); got != tc.want {
			t.Errorf("%v: %s, want %s", tc.handles, got, tc.want)
		}
	}
	d.broker.on(
		protocol.BatchAckMessage,
		func(c *remoting.Call) { c.Reply(remoting.Response{Code: protocol.SystemBusy}) },
	)
	if got := codesOf(d.ack(one)); got != "TOO_MANY_REQUESTS: m0 TOO_MANY_REQUESTS" {
		t.Error(got)
	}
}

// changes makes the broker give new handles, with the time as their popTime.
func (d *door) changes(popTime int64) {
	d.broker.on(protocol.ChangeMessageInvisibleTime, changedAt(popTime))
}

func changedAt(popTime int64) func(*remoting.Call) {
	return func(c *remoting.Call) {
		h, _ := c.Header.(*protocol.RenewReceiptRequestHeader)
		c.Reply(remoting.Response{Header: renewedReceipt(h, popTime, h.InvisibleTime)})
	}
}

// renewedReceipt is the receipt after a renewal.
func renewedReceipt(
	h *protocol.RenewReceiptRequestHeader,
	popTime, invisible int64,
) *protocol.ReceiptsResponseHeader {
	fields := strings.Split(h.Handle, " ")
	fields[1], fields[2] = fmt.Sprint(popTime), fmt.Sprint(invisible)
	return &protocol.ReceiptsResponseHeader{
		Handles:   []string{strings.Join(fields, " ")},
		VisibleAt: popTime + invisible,
	}
}

func TestChangeInvisibleDuration(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	d.changes(99)
	handle := "5 1 30000 0 0 broker-a 3 7 1007"
	change := func(by time.Duration, suspend bool) *v2.ChangeInvisibleDurationResponse {
		answer, err := d.client.ChangeInvisibleDuration(as(t, "c1"), &v2.ChangeInvisibleDurationRequest{
			Group: resource(
				"g",
			),
			Topic:             resource("normal"),
			ReceiptHandle:     handle,
			InvisibleDuration: durationpb.New(by),
			Suspend:           &suspend,
		})
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	answer := change(5*time.Second, true)
	wantCode(t, answer.GetStatus(), v2.Code_OK)
	if want := "5 99 5000 0 0 broker-a 3 7 1007"; answer.GetReceiptHandle() != want {
		t.Errorf("handle %q, want %q", answer.GetReceiptHandle(), want)
	}
	h, _ := d.broker.seen(protocol.ChangeMessageInvisibleTime)[0].(*protocol.RenewReceiptRequestHeader)
	if h.Handle != handle || !h.Suspend || h.ConsumerGroup != "g" || h.Topic != "normal" {
		t.Errorf("header %+v", h)
	}
	wantCode(t, change(0, false).GetStatus(), v2.Code_OK)
	wantCode(t, change(-time.Second, false).GetStatus(), v2.Code_ILLEGAL_INVISIBLE_TIME)
	wantCode(t, change(13*time.Hour, false).GetStatus(), v2.Code_ILLEGAL_INVISIBLE_TIME)
	d.broker.on(
		protocol.ChangeMessageInvisibleTime,
		func(c *remoting.Call) { c.Reply(remoting.Response{Code: protocol.NoMessage}) },
	)
	wantCode(t, change(time.Second, false).GetStatus(), v2.Code_INVALID_RECEIPT_HANDLE)
	d.broker.on(
		protocol.ChangeMessageInvisibleTime,
		func(c *remoting.Call) { c.Reply(remoting.Response{Code: protocol.SystemBusy}) },
	)
	answer = change(time.Second, false)
	wantCode(t, answer.GetStatus(), v2.Code_TOO_MANY_REQUESTS)
	if answer.GetReceiptHandle() != handle {
		t.Errorf("a busy broker costs the handle: %q", answer.GetReceiptHandle())
	}
}
