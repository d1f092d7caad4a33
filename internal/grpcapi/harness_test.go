// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// fakeBroker answers calls as the test says and remembers them.
type fakeBroker struct {
	mu      sync.Mutex
	calls   []*remoting.Call
	headers []protocol.Header
	answers map[protocol.Code]func(c *remoting.Call)
	topics  map[string]Topic
	groups  map[string]Group
	ended   []uint64
}

func (b *fakeBroker) CheckTopic(name string) error {
	switch {
	case strings.TrimSpace(name) == "":
		return errors.New("The specified topic is blank.")
	case strings.ContainsAny(name, " $"):
		return errors.New("The specified topic contains illegal characters")
	case name == "TBW102":
		return errors.New("cannot access system topic")
	}
	return nil
}

func (b *fakeBroker) CheckGroup(name string) error {
	if name == "" || strings.ContainsAny(name, " $") {
		return errors.New("The specified group is no good")
	}
	return nil
}

func (b *fakeBroker) Topic(name string) (Topic, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t, ok := b.topics[name]
	return t, ok
}

func (b *fakeBroker) Group(name string) (Group, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g, ok := b.groups[name]
	return g, ok
}

func (b *fakeBroker) handle(_ context.Context, c *remoting.Call) {
	b.mu.Lock()
	b.calls = append(b.calls, c)
	b.headers = append(b.headers, c.Header)
	answer := b.answers[c.Code]
	b.mu.Unlock()
	if answer == nil {
		c.Reply(remoting.Response{})
		return
	}
	answer(c)
}

// seen returns the headers of the calls of a code.
func (b *fakeBroker) seen(code protocol.Code) []protocol.Header {
	b.mu.Lock()
	defer b.mu.Unlock()
	var found []protocol.Header
	for i, c := range b.calls {
		if c.Code == code {
			found = append(found, b.headers[i])
		}
	}
	return found
}

func (b *fakeBroker) on(code protocol.Code, answer func(c *remoting.Call)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answers[code] = answer
}

// served are what the fake broker serves.
var served = []protocol.Code{
	protocol.SendMessageV2,
	protocol.SendBatchMessage,
	protocol.HeartBeat,
	protocol.UnregisterClient,
	protocol.PopMessage,
	protocol.AckMessage,
	protocol.BatchAckMessage,
	protocol.ChangeMessageInvisibleTime,
	protocol.ConsumerSendMsgBack,
	protocol.EndTransaction,
	protocol.RecallMessage,
	protocol.GetRouteInfoByTopic,
	protocol.QueryAssignment,
	protocol.PullMessage,
	protocol.UpdateConsumerOffset,
	protocol.QueryConsumerOffset,
	protocol.GetMinOffset,
	protocol.GetMaxOffset,
	protocol.SearchOffsetByTimestamp,
}

// door is a running server over a fake broker, and a client.
type door struct {
	t      *testing.T
	broker *fakeBroker
	server *Server
	client v2.MessagingServiceClient
	conn   *grpc.ClientConn
	stop   context.CancelFunc
	ended  chan error
}

func newDoor(t *testing.T, change func(*Config)) *door {
	t.Helper()
	b := &fakeBroker{
		answers: map[protocol.Code]func(*remoting.Call){}, topics: map[string]Topic{}, groups: map[string]Group{},
	}
	for _, typ := range []string{typeNormal, typeFIFO, typeDelay, typeTransaction, typeMixed} {
		b.topics[strings.ToLower(typ)] = Topic{MessageType: typ, WriteQueueNums: 8, Writable: true}
	}
	b.topics["readonly"] = Topic{WriteQueueNums: 8}
	b.on(protocol.GetRouteInfoByTopic, b.route)
	lane := remoting.NewLane(remoting.LaneConfig{Name: "all"})
	routes := make([]remoting.Route, len(served))
	for i, code := range served {
		routes[i] = remoting.Route{Code: code, Lane: lane, Processor: b.handle}
	}
	registry, err := remoting.NewRegistry(remoting.RegistryConfig{Logger: slog.New(slog.DiscardHandler)}, routes)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Names:        b,
		Metadata:     b,
		BrokerName:   "broker-a",
		Limits:       DefaultLimits(),
		MaxDelay:     40 * 24 * time.Hour,
		MaxBodyBytes: func() int { return 4 << 20 },
		Ready:        func() error { return nil },
		OnEnd: func(p remoting.Peer) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.ended = append(b.ended, p.ID())
		},
		Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&cfg)
	}
	server := New(cfg, registry)
	ctx, cancel := context.WithCancel(context.Background())
	d := &door{t: t, broker: b, server: server, stop: cancel, ended: make(chan error, 1)}
	go func() { d.ended <- server.Run(ctx) }()
	d.dialThrough(func(conn net.Conn) net.Conn { return conn })
	t.Cleanup(func() {
		cancel()
		if err := <-d.ended; err != nil {
			t.Error(err)
		}
		d.conn.Close()
	})
	return d
}

// dialThrough connects a client in memory, with something around the server's end.
func (d *door) dialThrough(around func(net.Conn) net.Conn) {
	d.t.Helper()
	conn, err := grpc.NewClient("passthrough:///door", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			theirs, ours := net.Pipe()
			go d.server.Deliver(around(ours))
			return theirs, nil
		}), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
	if err != nil {
		d.t.Fatal(err)
	}
	d.conn, d.client = conn, v2.NewMessagingServiceClient(conn)
}

func (b *fakeBroker) route(c *remoting.Call) {
	h, _ := c.Header.(*protocol.GetRouteInfoRequestHeader)
	if _, ok := b.Topic(h.Topic); !ok {
		c.Reply(remoting.Response{Code: protocol.TopicNotExist, Remark: "No topic route info"})
		return
	}
	body := &protocol.TopicRouteData{QueueDatas: []protocol.QueueData{
		{BrokerName: "another", Perm: 6, ReadQueueNums: 9, WriteQueueNums: 9},
		{BrokerName: "broker-a", Perm: 6, ReadQueueNums: 8, WriteQueueNums: 6},
	}}
	c.Reply(remoting.Response{Body: protocol.EncodeBody(body)})
}

// as is a context of a client with that id.
func as(t *testing.T, clientID string) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return metadata.AppendToOutgoingContext(
		ctx,
		keyClientID,
		clientID,
		keyLanguage,
		"JAVA",
		keyClientVersion,
		"5.0.7",
	)
}

func resource(name string) *v2.Resource { return &v2.Resource{Name: name} }

// connect opens a telemetry stream and settles the client.
func (d *door) connect(
	ctx context.Context,
	settings *v2.Settings,
) (v2.MessagingService_TelemetryClient, *v2.TelemetryCommand) {
	d.t.Helper()
	stream, err := d.client.Telemetry(ctx)
	if err != nil {
		d.t.Fatal(err)
	}
	if err := stream.Send(
		&v2.TelemetryCommand{Command: &v2.TelemetryCommand_Settings{Settings: settings}},
	); err != nil {
		d.t.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil {
		d.t.Fatal(err)
	}
	return stream, answer
}

func consumer(typ v2.ClientType, group, topic string) *v2.Settings {
	return &v2.Settings{
		ClientType: typ.Enum(),
		PubSub: &v2.Settings_Subscription{Subscription: &v2.Subscription{
			Group: resource(group), Subscriptions: []*v2.SubscriptionEntry{{
				Topic: resource(topic), Expression: &v2.FilterExpression{Type: v2.FilterType_TAG, Expression: "*"},
			}},
		}},
	}
}

func producer(topics ...string) *v2.Settings {
	p := &v2.Publishing{}
	for _, topic := range topics {
		p.Topics = append(p.Topics, resource(topic))
	}
	return &v2.Settings{ClientType: v2.ClientType_PRODUCER.Enum(), PubSub: &v2.Settings_Publishing{Publishing: p}}
}

// stored makes a message record.
func stored(topic string, queueID int32, offset int64, body, props string) message.Record {
	m := message.Message{
		Topic:          topic,
		QueueID:        queueID,
		QueueOffset:    message.QueueOffset(offset),
		LogOffset:      message.LogOffset(1000 + offset),
		BornTimestamp:  1_700_000_000_123,
		StoreTimestamp: 1_700_000_000_456,
		BornHost:       mustAddr("10.0.0.1:5000"),
		StoreHost:      mustAddr("10.0.0.2:10911"),
		Body:           []byte(body),
		Properties:     props,
	}
	return m.AppendTo(nil)
}

func props(pairs ...string) string {
	var b []byte
	for i := 0; i < len(pairs); i += 2 {
		b = message.AppendProperty(b, pairs[i], pairs[i+1])
	}
	return string(b)
}

func wantCode(t *testing.T, got *v2.Status, want v2.Code) {
	t.Helper()
	if got.GetCode() != want {
		t.Fatalf("status %s %q, want %s", got.GetCode(), got.GetMessage(), want)
	}
	if got.GetMessage() == "" {
		t.Fatalf("status %s has no message", got.GetCode())
	}
}

// eventually waits until cond holds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-deadline.C:
			t.Fatal("never happened: " + what)
		case <-tick.C:
		}
	}
}

func mustAddr(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func text(v any) string { return fmt.Sprint(v) }
