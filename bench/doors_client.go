// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
)

const (
	consumers    = 8
	receiveMax   = 32
	shortPoll    = 5 * time.Second // the least that a server grants
	longPoll     = 20 * time.Second
	invisible    = time.Minute // longer than a run: nothing comes back meanwhile
	consumeGroup = "door-group"
)

// tally is what one worker, or all together, did. It is not safe for use by several at once.
type tally struct {
	messages, failed int
	rounds           []time.Duration // of each request, or receive and its ack
	took             time.Duration
}

func (t *tally) add(o tally) {
	t.messages, t.failed = t.messages+o.messages, t.failed+o.failed
	t.rounds = append(t.rounds, o.rounds...)
}

func (t *tally) result() map[string]float64 {
	slices.Sort(t.rounds)
	at := func(q float64) float64 {
		if len(t.rounds) == 0 {
			return 0
		}
		return t.rounds[int(q*float64(len(t.rounds)-1))].Seconds() * 1e3
	}
	return map[string]float64{
		"msgs": float64(t.messages), "msgs_per_s": float64(t.messages) / t.took.Seconds(),
		"p50_ms": at(0.5), "p99_ms": at(0.99), "p999_ms": at(0.999), "failed": float64(t.failed),
	}
}

// together runs n workers until they end and adds up what they did; each must end at the context's end.
func together(ctx context.Context, n int, work func(context.Context, int) (tally, error)) (tally, error) {
	var mu sync.Mutex
	var all tally
	began := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for i := range n {
		g.Go(func() error {
			one, err := work(ctx, i)
			mu.Lock()
			defer mu.Unlock()
			all.add(one)
			return err
		})
	}
	err := g.Wait()
	all.took = time.Since(began)
	if err == nil && all.messages == 0 {
		err = errors.New("no message came through")
	}
	return all, err
}

// consumer is one gRPC client of a topic: what its calls carry, and its requests.
type consumer struct {
	client  v2.MessagingServiceClient
	headers metadata.MD
	group   *v2.Resource
	topic   *v2.Resource
}

func dialGRPC(addr string) (*grpc.ClientConn, error) {
	return grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

func newConsumer(conn *grpc.ClientConn, id, topic string) *consumer {
	return &consumer{
		client: v2.NewMessagingServiceClient(conn), group: &v2.Resource{Name: consumeGroup},
		topic: &v2.Resource{Name: topic},
		headers: metadata.Pairs("x-mq-client-id", id, "x-mq-language", "GO", "x-mq-protocol", "v2",
			"x-mq-client-version", "5.1.0", "x-mq-date-time", "20260101T000000Z"),
	}
}

// announce sends the settings and waits for their answer. The stream lives as long as the context.
func (c *consumer) announce(ctx context.Context) error {
	stream, err := c.client.Telemetry(metadata.NewOutgoingContext(ctx, c.headers))
	if err != nil {
		return err
	}
	all := &v2.FilterExpression{Type: v2.FilterType_TAG, Expression: "*"}
	settings := &v2.Settings{
		ClientType: v2.ClientType_SIMPLE_CONSUMER.Enum(), RequestTimeout: durationpb.New(3 * time.Second),
		PubSub: &v2.Settings_Subscription{Subscription: &v2.Subscription{
			Group: c.group, LongPollingTimeout: durationpb.New(longPoll),
			Subscriptions: []*v2.SubscriptionEntry{{Topic: c.topic, Expression: all}},
		}},
	}
	command := &v2.TelemetryCommand{Command: &v2.TelemetryCommand_Settings{Settings: settings}}
	if err := stream.Send(command); err != nil {
		return err
	}
	_, err = stream.Recv()
	return err
}

// receive returns the handles of what came, none when nothing did within the time.
func (c *consumer) receive(ctx context.Context, poll time.Duration) ([]string, error) {
	stream, err := c.client.ReceiveMessage(metadata.NewOutgoingContext(ctx, c.headers), &v2.ReceiveMessageRequest{
		Group: c.group, BatchSize: receiveMax, InvisibleDuration: durationpb.New(invisible),
		MessageQueue: &v2.MessageQueue{Topic: c.topic}, LongPollingTimeout: durationpb.New(poll),
		FilterExpression: &v2.FilterExpression{Type: v2.FilterType_TAG, Expression: "*"},
	})
	if err != nil {
		return nil, err
	}
	handles := make([]string, 0, receiveMax)
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return handles, nil
		}
		if err != nil {
			return handles, err
		}
		switch code := part.GetStatus().GetCode(); code {
		case v2.Code_CODE_UNSPECIFIED, v2.Code_OK, v2.Code_MESSAGE_NOT_FOUND:
		default:
			return handles, fmt.Errorf("receive: %s", part.GetStatus())
		}
		if m := part.GetMessage(); m != nil {
			handles = append(handles, m.GetSystemProperties().GetReceiptHandle())
		}
	}
}

// ack acknowledges and returns how many were not.
func (c *consumer) ack(ctx context.Context, handles []string) (int, error) {
	req := &v2.AckMessageRequest{Group: c.group, Topic: c.topic}
	for _, h := range handles {
		req.Entries = append(req.Entries, &v2.AckMessageEntry{ReceiptHandle: h})
	}
	answer, err := c.client.AckMessage(metadata.NewOutgoingContext(ctx, c.headers), req)
	failed := 0
	for _, e := range answer.GetEntries() {
		if e.GetStatus().GetCode() != v2.Code_OK {
			failed++
		}
	}
	if err == nil && len(answer.GetEntries()) != len(handles) {
		err = fmt.Errorf("ack: %s", answer.GetStatus())
	}
	return failed, err
}

// receiveAll receives and acknowledges with several consumers for a time, or until there is no more.
func receiveAll(ctx context.Context, addr, topic string, long time.Duration) (tally, error) {
	end := time.Now().Add(long)
	return together(ctx, consumers, func(ctx context.Context, i int) (tally, error) {
		ctx, cancel := context.WithDeadline(ctx, end.Add(longPoll)) // a last request may end
		defer cancel()
		conn, err := dialGRPC(addr)
		if err != nil {
			return tally{}, err
		}
		defer conn.Close()
		c := newConsumer(conn, fmt.Sprintf("door@1@%d", i), topic)
		if err := c.announce(ctx); err != nil {
			return tally{}, err
		}
		return c.drain(ctx, end)
	})
}

func (c *consumer) drain(ctx context.Context, end time.Time) (t tally, err error) {
	for time.Now().Before(end) {
		began := time.Now()
		handles, err := c.receive(ctx, shortPoll)
		if err != nil {
			return t, err
		}
		if len(handles) == 0 {
			return t, nil
		}
		failed, err := c.ack(ctx, handles)
		if err != nil {
			return t, err
		}
		t.rounds = append(t.rounds, time.Since(began))
		t.messages, t.failed = t.messages+len(handles)-failed, t.failed+failed
	}
	return t, nil
}

// held is many clients that wait for a message.
type held struct {
	receives, failed atomic.Int64
	cancel           context.CancelFunc
	conns            []*grpc.ClientConn
	clients          sync.WaitGroup
}

// hold announces n clients over some connections and starts a receive for each, asked again whenever it ends.
// The first polls have different lengths, so that the later ones do not all end at the same time. The caller
// closes it.
func hold(ctx context.Context, addr, topic string, n, conns int) (*held, error) {
	h := &held{}
	ctx, h.cancel = context.WithCancel(ctx)
	for range conns {
		conn, err := dialGRPC(addr)
		if err != nil {
			h.close()
			return nil, err
		}
		h.conns = append(h.conns, conn)
	}
	var starts errgroup.Group
	starts.SetLimit(conns)
	for i := range n {
		starts.Go(func() error {
			c := newConsumer(h.conns[i%conns], fmt.Sprintf("held@1@%d", i), topic)
			if err := c.announce(ctx); err != nil {
				return err
			}
			first := shortPoll + (longPoll-shortPoll)*time.Duration(i)/time.Duration(n)
			h.clients.Go(func() { h.poll(ctx, c, first) })
			return nil
		})
	}
	if err := starts.Wait(); err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

// poll receives until the context ends or a receive fails.
func (h *held) poll(ctx context.Context, c *consumer, long time.Duration) {
	for ; ctx.Err() == nil; long = longPoll {
		h.receives.Add(1)
		if _, err := c.receive(ctx, long); err != nil {
			if ctx.Err() == nil {
				h.failed.Add(1)
			}
			return
		}
	}
}

// close ends all receives and waits for them.
func (h *held) close() {
	h.cancel()
	h.clients.Wait()
	for _, conn := range h.conns {
		_ = conn.Close()
	}
}

// restPost is a request that publishes messages.
type restPost struct {
	base, path, contentType string
	body                    []byte
	messages                int // in a request
}

// postAll repeats the request on some kept connections for a time.
func postAll(ctx context.Context, p restPost, long time.Duration) (tally, error) {
	end := time.Now().Add(long)
	client := &http.Client{
		Timeout:   10 * time.Second,
		Transport: &http.Transport{MaxConnsPerHost: restConns, MaxIdleConnsPerHost: restConns},
	}
	defer client.CloseIdleConnections()
	return together(ctx, restConns, func(ctx context.Context, _ int) (t tally, err error) {
		var answer bytes.Buffer
		for time.Now().Before(end) {
			began := time.Now()
			stored, err := p.once(ctx, client, &answer)
			if err != nil {
				return t, err
			}
			t.rounds = append(t.rounds, time.Since(began))
			t.messages, t.failed = t.messages+stored, t.failed+p.messages-stored
		}
		return t, nil
	})
}

// once posts and returns how many messages were stored.
func (p restPost) once(ctx context.Context, client *http.Client, answer *bytes.Buffer) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.base+p.path, bytes.NewReader(p.body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", p.contentType)
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	answer.Reset()
	if _, err := answer.ReadFrom(resp.Body); err != nil {
		return 0, err
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusCreated {
		return 0, fmt.Errorf("%s: %s: %.200s", p.path, resp.Status, answer.Bytes())
	}
	return bytes.Count(answer.Bytes(), []byte(`"messageId"`)) - bytes.Count(answer.Bytes(), []byte(`"error"`)), nil
}
