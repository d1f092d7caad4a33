// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roquetmq/roquet/internal/config"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// wire is a running service and one native connection to it.
type wire struct {
	t      *testing.T
	svc    *Service
	addr   string
	client *remoting.Client
}

// startWire runs a whole service on one free loopback port until the test ends.
func startWire(t *testing.T, change func(*config.Config)) *wire {
	t.Helper()
	return startLogged(t, slog.New(slog.DiscardHandler), change)
}

func startLogged(t *testing.T, log *slog.Logger, change func(*config.Config)) *wire {
	t.Helper()
	port := freePort(t)
	cfg := config.New()
	cfg.Store.Dir = t.TempDir()
	cfg.Identity.BrokerName = "broker-a"
	cfg.Listen = config.Listen{
		BindAddress: "127.0.0.1", BrokerPort: port, MaxConns: 1000, MaxConnsPerIP: 1000, IdleTimeout: time.Minute,
	}
	cfg.Metrics.PromPort = 0
	if change != nil {
		change(cfg)
	}
	svc, err := New(cfg, "test", log, new(slog.LevelVar))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- svc.Run(ctx) }()
	w := &wire{t: t, svc: svc, addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	if cfg.Listen.BindAddress == "::1" {
		w.addr = net.JoinHostPort("::1", strconv.Itoa(port))
	}
	select {
	case <-svc.Listening():
	case err := <-ended:
		cancel()
		t.Fatal(err)
	}
	w.client = w.dial()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return w
}

// lastPort counts the ports that were given out.
var lastPort atomic.Int32

// freePort is a port for a server, below those that connections get, which could take it before it is bound.
func freePort(t *testing.T) int {
	t.Helper()
	for range 1000 {
		port := 10_000 + (64*os.Getpid()+int(lastPort.Add(1)))%22_000
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

// dial makes another connection; it is closed before the service stops.
func (w *wire) dial() *remoting.Client { return w.dialWith(nil) }

// dialWith makes a connection that answers requests of the server.
func (w *wire) dialWith(reg *remoting.Registry) *remoting.Client {
	w.t.Helper()
	c, err := remoting.NewClient(remoting.ClientConfig{Addr: w.addr, Registry: reg, Language: protocol.LanguageGo})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Close)
	return c
}

// call sends a request and returns the answer, whatever its code.
func (w *wire) call(code protocol.Code, h protocol.Header, body []byte) *protocol.Command {
	w.t.Helper()
	return w.callBy(w.client, code, h, body)
}

func (w *wire) callBy(c *remoting.Client, code protocol.Code, h protocol.Header, body []byte) *protocol.Command {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	answer, err := c.Invoke(ctx, code, h, body)
	if err != nil {
		w.t.Fatalf("%s: %v", code, err)
	}
	return answer
}

// ok is call for a request that must succeed.
func (w *wire) ok(code protocol.Code, h protocol.Header, body []byte) *protocol.Command {
	w.t.Helper()
	answer := w.call(code, h, body)
	if answer.Code != int32(protocol.Success) {
		w.t.Fatalf("%s: code %d %s", code, answer.Code, answer.Remark)
	}
	return answer
}

// refused is call for a request that must be answered with the code.
func (w *wire) refused(want protocol.ResponseCode, code protocol.Code, h protocol.Header, body []byte) string {
	w.t.Helper()
	answer := w.call(code, h, body)
	if answer.Code != int32(want) {
		w.t.Fatalf("%s: code %d %q, want %s", code, answer.Code, answer.Remark, want)
	}
	return answer.Remark
}

// body decodes an answer's body.
func body[T any, P interface {
	*T
	protocol.Body
}](t *testing.T, answer *protocol.Command) *T {
	t.Helper()
	value, err := protocol.DecodeBody[T, P](answer.Body)
	if err != nil {
		t.Fatalf("%v: %s", err, answer.Body)
	}
	return value
}

// topic creates a topic with the queues.
func (w *wire) topic(name string, queues int32) {
	w.t.Helper()
	w.ok(protocol.UpdateAndCreateTopic, &protocol.CreateTopicRequestHeader{
		Topic:           name,
		DefaultTopic:    "TBW102",
		ReadQueueNums:   queues,
		WriteQueueNums:  queues,
		Perm:            6,
		TopicFilterType: "SINGLE_TAG",
	}, nil)
}

// group creates a group with RocketMQ's defaults.
func (w *wire) group(name string) {
	w.t.Helper()
	w.ok(protocol.UpdateAndCreateSubscriptionGroup, nil, []byte(`{"groupName":"`+name+`"}`))
}

// send stores a message and returns the header of the answer.
func (w *wire) send(topic string, queue int32, props, text string) protocol.SendMessageResponseHeader {
	w.t.Helper()
	answer := w.ok(protocol.SendMessageV2, sendHeader(topic, queue, props), []byte(text))
	var h protocol.SendMessageResponseHeader
	if err := h.DecodeExt(&answer.Ext); err != nil {
		w.t.Fatal(err)
	}
	return h
}

func sendHeader(topic string, queue int32, props string) *protocol.SendMessageRequestHeaderV2 {
	return &protocol.SendMessageRequestHeaderV2{
		ProducerGroup: "p", Topic: topic, DefaultTopic: "TBW102", DefaultTopicQueueNums: 4, QueueID: queue,
		BornTimestamp: time.Now().UnixMilli(), Properties: props,
	}
}

// pull reads a queue once from an offset and returns the records.
func (w *wire) pull(
	group, topic string,
	queue int32,
	from int64,
	tags string,
) ([]message.Message, *protocol.Command) {
	w.t.Helper()
	answer := w.call(protocol.PullMessage, &protocol.PullMessageRequestHeader{
		ConsumerGroup:  group,
		Topic:          topic,
		QueueID:        queue,
		QueueOffset:    from,
		MaxMsgNums:     32,
		SysFlag:        4,
		Subscription:   tags,
		ExpressionType: "TAG",
	}, nil)
	var all []message.Message
	for rest := answer.Body; len(rest) > 0; {
		rec := message.Record(rest)
		m, err := message.Decode(rec[:rec.Size()])
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, m)
		rest = rest[rec.Size():]
	}
	return all, answer
}

// heartbeat registers a client in a group with a subscription to the topic.
func (w *wire) heartbeat(c *remoting.Client, clientID, group, topic string) {
	w.t.Helper()
	hb := &protocol.HeartbeatData{
		ClientID: clientID, ProducerDataSet: []protocol.ProducerData{{GroupName: "p"}},
		ConsumerDataSet: []protocol.ConsumerData{
			{
				GroupName:        group,
				ConsumeType:      protocol.ConsumePassively,
				MessageModel:     protocol.Clustering,
				ConsumeFromWhere: protocol.ConsumeFromFirstOffset,
				SubscriptionDataSet: []protocol.SubscriptionData{
					{Topic: topic, SubString: "*", ExpressionType: "TAG", SubVersion: 1},
				},
			},
		},
	}
	if answer := w.callBy(c, protocol.HeartBeat, nil, protocol.EncodeBody(hb)); answer.Code != 0 {
		w.t.Fatalf("heartbeat: code %d %s", answer.Code, answer.Remark)
	}
}
