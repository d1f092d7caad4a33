// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/auth"
	"github.com/roquetmq/roquet/internal/protocol"
)

// signed adds what an SDK with credentials sends.
func signed(ctx context.Context, who Signer) context.Context {
	const date = "20261130T010203Z"
	if who == (Signer{}) {
		return ctx
	}
	sum, _ := base64.StdEncoding.DecodeString(auth.Sign(who.SecretKey, []byte(date)))
	return metadata.AppendToOutgoingContext(
		ctx,
		"x-mq-date-time",
		date,
		"authorization",
		"MQv2-HMAC-SHA1 Credential="+who.AccessKey+"//RocketMQ, SignedHeaders=x-mq-date-time, Signature="+hex.EncodeToString(
			sum,
		),
	)
}

type statused interface{ GetStatus() *v2.Status }

// C137 C141 by gRPC: every rpc × no credentials, a wrong secret, no rights, rights; a receive needs the group's right as
// by remoting, and a telemetry stream ends with a status.
func TestC137EveryRPCNeedsCredentialsAndRights(t *testing.T) {
	t.Parallel()
	const file = guardedFile + `
  - subject: User:bare
    policies: [{entries: [{resource: "Topic:t", actions: [Sub], decision: Allow}]}]
`
	w := startWire(t, guarded(t, file))
	w.wantCode(protocol.Success, root, protocol.UpdateAndCreateTopic, &protocol.CreateTopicRequestHeader{
		Topic:           "t",
		DefaultTopic:    "TBW102",
		ReadQueueNums:   1,
		WriteQueueNums:  1,
		Perm:            6,
		TopicFilterType: "SINGLE_TAG",
	}, nil)
	w.wantCode(
		protocol.Success,
		root,
		protocol.UpdateAndCreateSubscriptionGroup,
		nil,
		protocol.EncodeBody(
			&protocol.SubscriptionGroupConfig{GroupName: "g", ConsumeEnable: true, RetryMaxTimes: 16},
		),
	)
	c := w.grpc("client")
	settings := func(topic string) *v2.Settings {
		return &v2.Settings{ClientType: v2.ClientType_SIMPLE_CONSUMER.Enum(), PubSub: &v2.Settings_Subscription{
			Subscription: &v2.Subscription{
				Group:         named("g"),
				Subscriptions: []*v2.SubscriptionEntry{{Topic: named(topic)}},
			},
		}}
	}
	open := func(who Signer) v2.Code {
		stream, err := c.Telemetry(signed(c.ctx(), who))
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.Send(&v2.TelemetryCommand{Command: &v2.TelemetryCommand_Settings{Settings: settings("t")}})
		cmd, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return cmd.GetStatus().GetCode()
	}
	for _, s := range []struct {
		who  Signer
		want v2.Code
	}{{Signer{}, v2.Code_UNAUTHORIZED}, {wrong, v2.Code_UNAUTHORIZED}, {bare, v2.Code_FORBIDDEN}, {fit, v2.Code_OK}} {
		if got := open(s.who); got != s.want {
			t.Errorf("telemetry by %q: %s, want %s", s.who.AccessKey, got, s.want)
		}
	}
	queue := &v2.MessageQueue{Topic: named("t"), Broker: &v2.Broker{Name: "broker-a"}}
	one := func(r statused, err error) (*v2.Status, error) { return r.GetStatus(), err }
	handle := ""
	for _, rpc := range []struct {
		name   string
		denied v2.Code // what a user with Sub on the topic alone gets
		call   func(ctx context.Context) (*v2.Status, error)
	}{
		{"QueryRoute", v2.Code_OK, func(ctx context.Context) (*v2.Status, error) {
			return one(c.QueryRoute(ctx, &v2.QueryRouteRequest{Topic: named("t")}))
		}},
		{"QueryAssignment", v2.Code_FORBIDDEN, func(ctx context.Context) (*v2.Status, error) {
			return one(c.QueryAssignment(ctx, &v2.QueryAssignmentRequest{Topic: named("t"), Group: named("g")}))
		}},
		{"SendMessage", v2.Code_FORBIDDEN, func(ctx context.Context) (*v2.Status, error) {
			return one(c.SendMessage(ctx, &v2.SendMessageRequest{Messages: []*v2.Message{outgoing("t", "x", nil)}}))
		}},
		{"ReceiveMessage", v2.Code_FORBIDDEN, func(ctx context.Context) (*v2.Status, error) {
			stream, err := c.ReceiveMessage(ctx, &v2.ReceiveMessageRequest{
				Group: named("g"), MessageQueue: queue, BatchSize: 1, InvisibleDuration: durationpb.New(time.Minute),
				FilterExpression: &v2.FilterExpression{Expression: "*"}, LongPollingTimeout: durationpb.New(10 * time.Second),
			})
			var status *v2.Status
			for err == nil {
				var r *v2.ReceiveMessageResponse
				if r, err = stream.Recv(); err == nil && r.GetStatus() != nil {
					status = r.GetStatus()
				}
				if m := r.GetMessage(); m != nil {
					handle = handleOfMessage(m)
				}
			}
			return status, nil
		}},
		{"Heartbeat", v2.Code_FORBIDDEN, func(ctx context.Context) (*v2.Status, error) {
			return one(c.Heartbeat(ctx, &v2.HeartbeatRequest{ClientType: v2.ClientType_SIMPLE_CONSUMER, Group: named("g")}))
		}},
		{"ChangeInvisibleDuration", v2.Code_FORBIDDEN, func(ctx context.Context) (*v2.Status, error) {
			r, err := c.ChangeInvisibleDuration(ctx, &v2.ChangeInvisibleDurationRequest{
				Group: named("g"), Topic: named("t"), ReceiptHandle: handle, InvisibleDuration: durationpb.New(time.Minute),
			})
			if r.GetReceiptHandle() != "" {
				handle = r.GetReceiptHandle()
			}
			return one(r, err)
		}},
		{"AckMessage", v2.Code_FORBIDDEN, func(ctx context.Context) (*v2.Status, error) {
			return one(c.AckMessage(ctx, &v2.AckMessageRequest{
				Group: named("g"), Topic: named("t"), Entries: []*v2.AckMessageEntry{{ReceiptHandle: handle}},
			}))
		}},
		{"ForwardMessageToDeadLetterQueue", v2.Code_FORBIDDEN, func(ctx context.Context) (*v2.Status, error) {
			return one(c.ForwardMessageToDeadLetterQueue(ctx, &v2.ForwardMessageToDeadLetterQueueRequest{
				Group: named("g"), Topic: named("t"), ReceiptHandle: handle,
			}))
		}},
		{"EndTransaction", v2.Code_FORBIDDEN, func(ctx context.Context) (*v2.Status, error) {
			return one(c.EndTransaction(ctx, &v2.EndTransactionRequest{
				Topic: named("t"), MessageId: "0", TransactionId: "7F0000010000000000000000", Resolution: v2.TransactionResolution_COMMIT,
			}))
		}},
		{"UpdateOffset", v2.Code_FORBIDDEN, func(ctx context.Context) (*v2.Status, error) {
			return one(c.UpdateOffset(ctx, &v2.UpdateOffsetRequest{Group: named("g"), MessageQueue: queue}))
		}},
		{"GetOffset", v2.Code_FORBIDDEN, func(ctx context.Context) (*v2.Status, error) {
			return one(c.GetOffset(ctx, &v2.GetOffsetRequest{Group: named("g"), MessageQueue: queue}))
		}},
		{"QueryOffset", v2.Code_OK, func(ctx context.Context) (*v2.Status, error) {
			return one(c.QueryOffset(ctx, &v2.QueryOffsetRequest{MessageQueue: queue, QueryOffsetPolicy: v2.QueryOffsetPolicy_END}))
		}},
		{"NotifyClientTermination", v2.Code_FORBIDDEN, func(ctx context.Context) (*v2.Status, error) {
			return one(c.NotifyClientTermination(ctx, &v2.NotifyClientTerminationRequest{Group: named("g")}))
		}},
	} {
		for _, s := range []struct {
			who  Signer
			want v2.Code
		}{{Signer{}, v2.Code_UNAUTHORIZED}, {wrong, v2.Code_UNAUTHORIZED}, {bare, rpc.denied}} {
			status, err := rpc.call(signed(c.ctx(), s.who))
			if err != nil || status.GetCode() != s.want {
				t.Errorf("%s by %q: %v %v, want %s", rpc.name, s.who.AccessKey, status, err, s.want)
			}
		}
		status, err := rpc.call(signed(c.ctx(), fit))
		if code := status.GetCode(); err != nil || code == v2.Code_UNAUTHORIZED || code == v2.Code_FORBIDDEN {
			t.Errorf("%s by a user with rights: %v %v", rpc.name, status, err)
		}
	}
}
