// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
)

// grpcDoor is a 5.x client: one producer, and one consumer for each group, with a session each.
type grpcDoor struct {
	t      testing.TB
	id     string
	conn   *grpc.ClientConn
	client v2.MessagingServiceClient
	ids    newID
	ctx    context.Context //nolint:containedctx // the sessions live as long as the door
	cancel context.CancelFunc

	mu       sync.Mutex
	sessions map[string]bool // of consumers, by client id
}

var _ door = (*grpcDoor)(nil)

func newGRPC(t testing.TB, addr, id string) *grpcDoor {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	d := &grpcDoor{
		t: t, id: id + "-" + rand.Text()[:8], conn: conn, client: v2.NewMessagingServiceClient(conn),
		ids: newID{prefix: rand.Text()[:8] + "5"}, sessions: map[string]bool{},
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

func (d *grpcDoor) name() string { return "gRPC" }

func (d *grpcDoor) close() {
	d.cancel()
	_ = d.conn.Close() // a second time is an error and no harm
}

// as is a context of the door's client of a role.
func (d *grpcDoor) as(role string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(d.ctx, 2*patience)
	return d.identified(ctx, role), cancel
}

func (d *grpcDoor) identified(ctx context.Context, role string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "x-mq-client-id", d.id+"@"+role, "x-mq-language", "GO",
		"x-mq-client-version", "5.1.0")
}

func resource(name string) *v2.Resource { return &v2.Resource{Name: name} }

// join opens a consumer's session, which it keeps.
func (d *grpcDoor) join(group, topic string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	role := group + "/" + topic
	if d.sessions[role] {
		return nil
	}
	stream, err := d.client.Telemetry(d.identified(d.ctx, role))
	if err != nil {
		return err
	}
	err = stream.Send(&v2.TelemetryCommand{Command: &v2.TelemetryCommand_Settings{Settings: &v2.Settings{
		ClientType: v2.ClientType_SIMPLE_CONSUMER.Enum(), PubSub: &v2.Settings_Subscription{
			Subscription: &v2.Subscription{Group: resource(group), Subscriptions: []*v2.SubscriptionEntry{{
				Topic: resource(topic), Expression: &v2.FilterExpression{Type: v2.FilterType_TAG, Expression: "*"},
			}}},
		},
	}}})
	if err != nil {
		return err
	}
	answer, err := stream.Recv()
	if status.Code(err) == codes.InvalidArgument { // what cannot be settled ends the stream
		err = &refusal{badRequest, err.Error()}
	}
	if err == nil && answer.GetStatus().GetCode() != v2.Code_OK {
		err = statusRefusal(answer.GetStatus().GetCode(), answer.GetStatus().GetMessage())
	}
	d.sessions[role] = err == nil
	return err
}

// forget makes the next receive send the settings again.
func (d *grpcDoor) forget(group, topic string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.sessions, group+"/"+topic)
}

func checked(s *v2.Status, err error) error {
	if err != nil || s.GetCode() == v2.Code_OK {
		return err
	}
	return statusRefusal(s.GetCode(), s.GetMessage())
}

func (d *grpcDoor) message(m *outgoing, half bool) *v2.Message {
	s := &v2.SystemProperties{
		MessageId: d.ids.next(), MessageType: v2.MessageType_NORMAL, BodyEncoding: v2.Encoding_IDENTITY,
		BornTimestamp: timestamppb.Now(), BornHost: "here", Keys: m.keys,
	}
	if m.tag != "" {
		s.Tag = &m.tag
	}
	if m.group != "" {
		s.MessageType, s.MessageGroup = v2.MessageType_FIFO, &m.group
	}
	if m.delay > 0 {
		s.MessageType, s.DeliveryTimestamp = v2.MessageType_DELAY, timestamppb.New(time.Now().Add(m.delay))
	}
	if m.priority > 0 {
		s.MessageType, s.Priority = v2.MessageType_PRIORITY, &m.priority
	}
	if half {
		s.MessageType = v2.MessageType_TRANSACTION
	}
	return &v2.Message{
		Topic: resource(m.topic), Body: []byte(m.body), UserProperties: m.props, SystemProperties: s,
	}
}

func (d *grpcDoor) send(messages ...*outgoing) ([]sent, error) { return d.sendAs(messages, false) }

func (d *grpcDoor) prepare(m *outgoing) (sent, error) {
	all, err := d.sendAs([]*outgoing{m}, true)
	if err != nil {
		return sent{}, err
	}
	return all[0], nil
}

func (d *grpcDoor) sendAs(messages []*outgoing, half bool) ([]sent, error) {
	req := &v2.SendMessageRequest{}
	for _, m := range messages {
		req.Messages = append(req.Messages, d.message(m, half))
	}
	ctx, cancel := d.as("producer")
	defer cancel()
	answer, err := d.client.SendMessage(ctx, req)
	if err := checked(answer.GetStatus(), err); err != nil {
		return nil, err
	}
	if n := len(answer.GetEntries()); n != len(messages) {
		return nil, fmt.Errorf("%d results for %d messages", n, len(messages))
	}
	var all []sent
	for _, e := range answer.GetEntries() {
		all = append(all, sent{
			id:          e.GetMessageId(),
			offset:      e.GetOffset(),
			recall:      e.GetRecallHandle(),
			transaction: e.GetTransactionId(),
		})
	}
	return all, nil
}

func (d *grpcDoor) end(m *outgoing, s sent, commit bool) error {
	req := &v2.EndTransactionRequest{
		Topic: resource(m.topic), MessageId: s.id, TransactionId: s.transaction,
		Resolution: v2.TransactionResolution_ROLLBACK,
	}
	if commit {
		req.Resolution = v2.TransactionResolution_COMMIT
	}
	ctx, cancel := d.as("producer")
	defer cancel()
	answer, err := d.client.EndTransaction(ctx, req)
	return checked(answer.GetStatus(), err)
}

func (d *grpcDoor) recall(topic string, s sent) error {
	ctx, cancel := d.as("producer")
	defer cancel()
	answer, err := d.client.RecallMessage(
		ctx,
		&v2.RecallMessageRequest{Topic: resource(topic), RecallHandle: s.recall},
	)
	return checked(answer.GetStatus(), err)
}

// receive waits at least as long as the server has clients wait: 5 s.
func (d *grpcDoor) receive(r *receiving) ([]received, error) {
	if err := d.join(r.group, r.topic); err != nil {
		return nil, err
	}
	req := &v2.ReceiveMessageRequest{
		Group: resource(r.group), MessageQueue: &v2.MessageQueue{Topic: resource(r.topic)}, BatchSize: int32(r.count),
		InvisibleDuration: durationpb.New(r.invisible), LongPollingTimeout: durationpb.New(r.wait),
	}
	if r.attempt != "" {
		req.AttemptId = proto.String(r.attempt)
	}
	if r.tag != "" {
		req.FilterExpression = &v2.FilterExpression{Type: v2.FilterType_TAG, Expression: r.tag}
	}
	if r.sql != "" {
		req.FilterExpression = &v2.FilterExpression{Type: v2.FilterType_SQL, Expression: r.sql}
	}
	ctx, cancel := d.as(r.group + "/" + r.topic)
	defer cancel()
	stream, err := d.client.ReceiveMessage(ctx, req)
	if err != nil {
		return nil, err
	}
	var all []received
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		if s := part.GetStatus(); s != nil && s.GetCode() != v2.Code_MESSAGE_NOT_FOUND {
			if err := checked(s, nil); err != nil {
				return nil, err
			}
		}
		if m := part.GetMessage(); m != nil {
			all = append(all, delivered(m))
		}
	}
}

// delivered makes a message of one that the door gave out.
func delivered(m *v2.Message) received {
	s := m.GetSystemProperties()
	out := received{
		id:      s.GetMessageId(),
		topic:   m.GetTopic().GetName(),
		typ:     s.GetMessageType().String(),
		body:    string(m.GetBody()),
		tag:     s.GetTag(),
		group:   s.GetMessageGroup(),
		keys:    s.GetKeys(),
		props:   m.GetUserProperties(),
		attempt: int(s.GetDeliveryAttempt()),
		queue:   s.GetQueueId(),
		offset:  s.GetQueueOffset(),
		timed:   s.GetDeliveryTimestamp() != nil,
		handle:  s.GetReceiptHandle(),
	}
	return out
}

func (d *grpcDoor) ack(group, topic, handle string) error {
	ctx, cancel := d.as(group + "/" + topic)
	defer cancel()
	answer, err := d.client.AckMessage(ctx, &v2.AckMessageRequest{
		Group: resource(group), Topic: resource(topic), Entries: []*v2.AckMessageEntry{{ReceiptHandle: handle}},
	})
	return checked(answer.GetStatus(), err)
}

func (d *grpcDoor) change(group, topic, handle string, invisible time.Duration) (string, error) {
	ctx, cancel := d.as(group + "/" + topic)
	defer cancel()
	answer, err := d.client.ChangeInvisibleDuration(ctx, &v2.ChangeInvisibleDurationRequest{
		Group: resource(
			group,
		),
		Topic:             resource(topic),
		ReceiptHandle:     handle,
		InvisibleDuration: durationpb.New(invisible),
	})
	return answer.GetReceiptHandle(), checked(answer.GetStatus(), err)
}

func (d *grpcDoor) bury(group, topic string, m *received) error {
	ctx, cancel := d.as(group + "/" + topic)
	defer cancel()
	answer, err := d.client.ForwardMessageToDeadLetterQueue(ctx, &v2.ForwardMessageToDeadLetterQueueRequest{
		Group: resource(group), Topic: resource(topic), ReceiptHandle: m.handle, MessageId: m.id,
	})
	return checked(answer.GetStatus(), err)
}
