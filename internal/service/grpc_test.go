// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
)

// grpcClient is a 5.x client of a running service.
type grpcClient struct {
	t    *testing.T
	id   string
	conn *grpc.ClientConn
	v2.MessagingServiceClient
}

// grpcIDs numbers the messages of all tests.
var grpcIDs atomic.Int64

func (w *wire) grpc(id string) *grpcClient {
	w.t.Helper()
	conn, err := grpc.NewClient(w.addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(64<<20)))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	return &grpcClient{t: w.t, id: id, conn: conn, MessagingServiceClient: v2.NewMessagingServiceClient(conn)}
}

func (c *grpcClient) ctx() context.Context {
	ctx, cancel := context.WithTimeout(c.t.Context(), 40*time.Second)
	c.t.Cleanup(cancel)
	return metadata.AppendToOutgoingContext(
		ctx,
		"x-mq-client-id",
		c.id,
		"x-mq-language",
		"GO",
		"x-mq-client-version",
		"5.1.0",
	)
}

func named(name string) *v2.Resource { return &v2.Resource{Name: name} }

// typedTopic creates a topic for messages of a type.
func (w *wire) typedTopic(name, typ string, queues int32) {
	w.t.Helper()
	w.ok(protocol.UpdateAndCreateTopic, &protocol.CreateTopicRequestHeader{
		Topic:           name,
		DefaultTopic:    "TBW102",
		ReadQueueNums:   queues,
		WriteQueueNums:  queues,
		Perm:            6,
		TopicFilterType: "SINGLE_TAG",
		Attributes:      "+message.type=" + typ,
	}, nil)
}

// start opens the telemetry stream and waits for the settings.
func (c *grpcClient) start(settings *v2.Settings) v2.MessagingService_TelemetryClient {
	c.t.Helper()
	stream, err := c.Telemetry(c.ctx())
	if err != nil {
		c.t.Fatal(err)
	}
	if err := stream.Send(
		&v2.TelemetryCommand{Command: &v2.TelemetryCommand_Settings{Settings: settings}},
	); err != nil {
		c.t.Fatal(err)
	}
	if answer, err := stream.Recv(); err != nil || answer.GetStatus().GetCode() != v2.Code_OK {
		c.t.Fatal(answer, err)
	}
	return stream
}

func (c *grpcClient) consume(group, topic string) {
	c.t.Helper()
	c.start(&v2.Settings{ClientType: v2.ClientType_SIMPLE_CONSUMER.Enum(), PubSub: &v2.Settings_Subscription{
		Subscription: &v2.Subscription{Group: named(group), Subscriptions: []*v2.SubscriptionEntry{{
			Topic: named(topic), Expression: &v2.FilterExpression{Type: v2.FilterType_TAG, Expression: "*"},
		}}},
	}})
}

func (c *grpcClient) produce(topics ...string) v2.MessagingService_TelemetryClient {
	c.t.Helper()
	p := &v2.Publishing{}
	for _, topic := range topics {
		p.Topics = append(p.Topics, named(topic))
	}
	return c.start(
		&v2.Settings{ClientType: v2.ClientType_PRODUCER.Enum(), PubSub: &v2.Settings_Publishing{Publishing: p}},
	)
}

func outgoing(topic, body string, change func(*v2.SystemProperties)) *v2.Message {
	m := &v2.Message{Topic: named(topic), Body: []byte(body), SystemProperties: &v2.SystemProperties{
		MessageId: fmt.Sprintf(
			"01%032X",
			grpcIDs.Add(1),
		),
		MessageType:   v2.MessageType_NORMAL,
		BodyEncoding:  v2.Encoding_IDENTITY,
		BornTimestamp: timestamppb.Now(),
		BornHost:      "test",
	}}
	if change != nil {
		change(m.GetSystemProperties())
	}
	return m
}

// send sends messages and returns the answer, which must have the code.
func (c *grpcClient) send(want v2.Code, messages ...*v2.Message) *v2.SendMessageResponse {
	c.t.Helper()
	answer, err := c.SendMessage(c.ctx(), &v2.SendMessageRequest{Messages: messages})
	if err != nil {
		c.t.Fatal(err)
	}
	if answer.GetStatus().GetCode() != want {
		c.t.Fatalf("send: %v, want %s", answer.GetStatus(), want)
	}
	return answer
}

// receive receives once, waiting for at most five seconds.
func (c *grpcClient) receive(group, topic string, invisible time.Duration) []*v2.Message {
	c.t.Helper()
	stream, err := c.ReceiveMessage(c.ctx(), &v2.ReceiveMessageRequest{
		Group: named(group), MessageQueue: &v2.MessageQueue{Topic: named(topic)}, BatchSize: 32,
		InvisibleDuration: durationpb.New(invisible), LongPollingTimeout: durationpb.New(5 * time.Second),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	var got []*v2.Message
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			c.t.Fatal(err)
		}
		if st := part.GetStatus(); st != nil && st.GetCode() != v2.Code_OK &&
			st.GetCode() != v2.Code_MESSAGE_NOT_FOUND {
			c.t.Fatalf("receive: %v", st)
		}
		if m := part.GetMessage(); m != nil {
			got = append(got, m)
		}
	}
}

// receiveAll receives until there are n messages.
func (c *grpcClient) receiveAll(group, topic string, n int) []*v2.Message {
	c.t.Helper()
	var got []*v2.Message
	for misses := 0; misses < 3; {
		more := c.receive(group, topic, 30*time.Second)
		if got = append(got, more...); len(got) >= n {
			return got
		}
		if len(more) == 0 {
			misses++
		}
	}
	c.t.Fatalf("%d messages, want %d", len(got), n)
	return nil
}

func handleOfMessage(m *v2.Message) string { return m.GetSystemProperties().GetReceiptHandle() }

func (c *grpcClient) ack(group, topic string, handles ...string) *v2.AckMessageResponse {
	c.t.Helper()
	req := &v2.AckMessageRequest{Group: named(group), Topic: named(topic)}
	for _, h := range handles {
		req.Entries = append(req.Entries, &v2.AckMessageEntry{ReceiptHandle: h})
	}
	answer, err := c.AckMessage(c.ctx(), req)
	if err != nil {
		c.t.Fatal(err)
	}
	return answer
}

func (c *grpcClient) changeInvisible(
	group, topic, handle string,
	by time.Duration,
) *v2.ChangeInvisibleDurationResponse {
	c.t.Helper()
	answer, err := c.ChangeInvisibleDuration(c.ctx(), &v2.ChangeInvisibleDurationRequest{
		Group: named(group), Topic: named(topic), ReceiptHandle: handle, InvisibleDuration: durationpb.New(by),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return answer
}

func bodies(messages []*v2.Message) []string {
	var all []string
	for _, m := range messages {
		all = append(all, string(m.GetBody()))
	}
	slices.Sort(all)
	return all
}

func wantStatus(t *testing.T, got *v2.Status, want v2.Code) {
	t.Helper()
	if got.GetCode() != want {
		t.Fatalf("%v, want %s", got, want)
	}
}

// What one door stores the other gives out, and both say the same of it.
func TestGRPCAcrossDoors(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	w.typedTopic("t", "NORMAL", 1)
	c := w.grpc("c1")
	w.send("t", 0, "KEYS\x01k1 k2\x02TAGS\x01red\x02color\x01blue\x02UNIQ_KEY\x01U1\x02", "by remoting")
	sent := c.send(v2.Code_OK, outgoing("t", "by gRPC", func(s *v2.SystemProperties) {
		s.Tag, s.Keys, s.MessageId = proto.String("green"), []string{"k3"}, "U2"
	}))
	if e := sent.GetEntries()[0]; e.GetMessageId() != "U2" || e.GetOffset() != 1 {
		t.Errorf("entry %v", e)
	}
	c.consume("g", "t")
	got := c.receiveAll("g", "t", 2)
	if text := fmt.Sprint(bodies(got)); text != "[by gRPC by remoting]" {
		t.Fatal(text)
	}
	for _, m := range got {
		sys := m.GetSystemProperties()
		if string(m.GetBody()) == "by remoting" && (sys.GetMessageId() != "U1" || sys.GetTag() != "red" ||
			fmt.Sprint(sys.GetKeys()) != "[k1 k2]" || m.GetUserProperties()["color"] != "blue" || len(m.GetUserProperties()) != 1) {
			t.Errorf("%v", m)
		}
		if sys.GetDeliveryAttempt() != 1 || sys.GetBodyDigest().GetChecksum() == "" || sys.GetBornTimestamp() == nil {
			t.Errorf("%v", m)
		}
		wantStatus(t, c.ack("g", "t", handleOfMessage(m)).GetStatus(), v2.Code_OK)
	}
	pulled, _ := w.pull("g2", "t", 0, 1, "green")
	if len(pulled) != 1 || string(pulled[0].Body) != "by gRPC" {
		t.Fatalf("%v", pulled)
	}
	for name, want := range map[string]string{"UNIQ_KEY": "U2", "TAGS": "green", "KEYS": "k3", "PGROUP": "t", "__BORNHOST": "test"} {
		if value, _ := message.Property(pulled[0].Properties, name); value != want {
			t.Errorf("%s is %q, want %q", name, value, want)
		}
	}
}

func TestGRPCRoutes(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	w.typedTopic("fifo", "FIFO", 4)
	c := w.grpc("c1")
	ask := func(topic string) *v2.QueryRouteResponse {
		answer, err := c.QueryRoute(c.ctx(), &v2.QueryRouteRequest{Topic: named(topic)})
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	answer := ask("fifo")
	wantStatus(t, answer.GetStatus(), v2.Code_OK)
	q := answer.GetMessageQueues()
	addr := q[0].GetBroker().GetEndpoints().GetAddresses()[0]
	if len(q) != 4 || fmt.Sprint(q[0].GetAcceptMessageTypes()) != "[FIFO]" ||
		q[0].GetBroker().GetName() != "broker-a" ||
		net.JoinHostPort(addr.GetHost(), fmt.Sprint(addr.GetPort())) != w.addr {
		t.Errorf("%v", answer)
	}
	wantStatus(t, ask("nowhere").GetStatus(), v2.Code_TOPIC_NOT_FOUND)
	wantStatus(t, ask("TBW102").GetStatus(), v2.Code_ILLEGAL_TOPIC)
	wantStatus(t, ask("a$b").GetStatus(), v2.Code_ILLEGAL_TOPIC)
	// Case C018: one alphabet everywhere.
	w.typedTopic("a|b", "NORMAL", 1)
	wantStatus(t, ask("a|b").GetStatus(), v2.Code_OK)
	c.send(v2.Code_OK, outgoing("a|b", "x", nil))
	// Case C181: more queues are seen at once.
	w.typedTopic("fifo", "FIFO", 8)
	if n := len(ask("fifo").GetMessageQueues()); n != 8 {
		t.Errorf("%d queues after the topic grew to 8", n)
	}
}

// Cases C016, C017: what is refused leaves nothing behind.
func TestGRPCRefusedIsNotStored(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	w.typedTopic("t", "TRANSACTION", 1)
	c := w.grpc("c1")
	c.send(v2.Code_MESSAGE_BODY_EMPTY, outgoing("t", "", nil))
	c.send(v2.Code_MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, outgoing("t", "x", func(s *v2.SystemProperties) {
		s.MessageType, s.DeliveryTimestamp = v2.MessageType_TRANSACTION, timestamppb.New(time.Now().Add(time.Hour))
	}))
	c.send(v2.Code_TOPIC_NOT_FOUND, outgoing("nowhere", "x", nil))
	for _, topic := range []string{"t", "RMQ_SYS_TRANS_HALF_TOPIC"} {
		if _, high, _ := w.svc.node.store.Bounds(topic, 0); high != 0 {
			t.Errorf("%d messages in %s", high, topic)
		}
	}
}

// Case C037: the limit is the same on both doors, exact, and named with the size that was over it.
func TestGRPCBodyLimit(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	w.typedTopic("t", "NORMAL", 1)
	c := w.grpc("c1")
	const limit = 4 << 20
	body := make([]byte, limit+1)
	if _, err := rand.Read(body); err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int]v2.Code{
		limit - 1: v2.Code_OK, limit: v2.Code_OK, limit + 1: v2.Code_MESSAGE_BODY_TOO_LARGE,
	} {
		m := outgoing("t", "", nil)
		m.Body = body[:n]
		answer := c.send(want, m)
		if want != v2.Code_OK && !strings.Contains(answer.GetStatus().GetMessage(), "max 4194304, it has 4194305") {
			t.Errorf("%q", answer.GetStatus().GetMessage())
		}
		native := w.call(protocol.SendMessageV2, sendHeader("t", 0, ""), body[:n])
		if (native.Code == 0) != (want == v2.Code_OK) {
			t.Errorf("%d bytes by remoting: code %d %s", n, native.Code, native.Remark)
		}
	}
}
