// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	v1 "github.com/roquetmq/roquet/api/proto/roquet/v1"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// bench is a load of the native protocol, and how it went.
type bench struct {
	*call
	broker, topic                              string
	size, connections, inFlight, queues, count int
	keep                                       bool
	clients                                    []*remoting.Client
	starts                                     []int64      // by queue, before the load
	begun                                      atomic.Int64 // sends
}

var errNothing = errors.New("no message went through")

// benchResult is one line of what bench writes. Latencies are what one call took, in milliseconds.
type benchResult struct {
	Phase     string  `json:"phase"`
	Messages  int     `json:"messages"`
	PerSecond float64 `json:"perSecond"`
	P50       float64 `json:"p50Millis"`
	P99       float64 `json:"p99Millis"`
	Max       float64 `json:"maxMillis"`
}

func benchCommand(r *remote) *cobra.Command {
	b := &bench{}
	short := "Send messages and read them back, and tell how fast it went"
	cmd := r.verb("bench", short, cobra.NoArgs, func(c *call) error {
		b.call = c
		return b.run()
	})
	cmd.Long = "Send messages to a topic of its own over the native protocol, each acknowledged when it is\n" +
		"durable, and read them back. The client costs CPU too: for the server's own limits run it on another machine."
	flags := cmd.Flags()
	flags.StringVar(&b.broker, "broker", "", "host:port of the broker; what clients are told when left out")
	flags.StringVar(&b.topic, "topic", "roquet-bench", "topic; deleted afterwards if it is made here")
	flags.IntVar(&b.count, "count", 100_000, "how many messages")
	flags.IntVar(&b.size, "size", 128, "bytes of a body")
	flags.IntVar(&b.connections, "connections", 4, "connections")
	flags.IntVar(&b.inFlight, "in-flight", 32, "messages on their way, on each connection")
	flags.IntVar(&b.queues, "queues", 8, "queues of the topic, if it is made here")
	flags.BoolVar(&b.keep, "keep", false, "do not delete the topic")
	r.addFlags(flags)
	return cmd
}

func (b *bench) run() (err error) {
	if min(b.count, b.size, b.connections, b.inFlight, b.queues) < 1 {
		return errors.New("--count, --size, --connections, --in-flight and --queues are 1 at least")
	}
	made, err := b.prepare()
	if made && !b.keep {
		defer func() {
			_, gone := b.DeleteTopic(context.WithoutCancel(b), &v1.DeleteTopicRequest{Topic: b.topic})
			err = errors.Join(err, gone)
		}()
	}
	if err != nil {
		return err
	}
	for range b.connections {
		c, err := b.dial(b.broker)
		if err != nil {
			return err
		}
		defer c.Close()
		b.clients = append(b.clients, c)
	}
	results := make([]benchResult, 2)
	if results[0], err = b.phase("send", b.connections*b.inFlight, b.sendOne); err != nil {
		return err
	}
	if results[1], err = b.phase("receive", len(b.starts), b.pullOne); err != nil {
		return err
	}
	return b.show(results, "phase messages perSecond p50Millis p99Millis maxMillis")
}

// prepare finds the broker, makes the topic if there is none, and notes where its queues end.
func (b *bench) prepare() (made bool, err error) {
	if b.broker == "" {
		cluster, err := b.GetCluster(b, &v1.GetClusterRequest{})
		if err != nil {
			return false, err
		}
		if len(cluster.GetBrokers()) == 0 {
			return false, errors.New("the server knows no broker: name one with --broker")
		}
		b.broker = cluster.GetBrokers()[0].GetAddresses()["0"]
	}
	if _, err := b.GetTopic(b, &v1.GetTopicRequest{Topic: b.topic}); isNotFound(err) {
		if _, err := b.PutTopic(b, &v1.PutTopicRequest{Topic: b.topic, Queues: new(int32(b.queues))}); err != nil {
			return false, err
		}
		made = true
	} else if err != nil {
		return false, err
	}
	stats, err := b.GetTopicStats(b, &v1.GetTopicStatsRequest{Topic: b.topic})
	for _, q := range stats.GetQueues() {
		b.starts = append(b.starts, q.GetMaxOffset())
	}
	return made, err
}

// phase runs workers, each of which calls again and again until all messages are through: work is given the worker's
// number and tells how many messages a call was for.
func (b *bench) phase(name string, workers int, work func(worker int) (int, error)) (benchResult, error) {
	bar, done, began := b.progress(int64(b.count), name), atomic.Int64{}, time.Now()
	took := make([][]time.Duration, workers)
	var g errgroup.Group
	for w := range workers {
		g.Go(func() error {
			for done.Load() < int64(b.count) {
				at := time.Now()
				n, err := work(w)
				if n == 0 || err != nil {
					return err
				}
				took[w] = append(took[w], time.Since(at))
				done.Add(int64(n))
				bar.add(n)
			}
			return nil
		})
	}
	err := g.Wait()
	rate := float64(done.Load()) / time.Since(began).Seconds()
	bar.end()
	all := slices.Sorted(slices.Values(slices.Concat(took...)))
	if err != nil || len(all) == 0 {
		return benchResult{}, fmt.Errorf("%s: %w", name, cmp.Or(err, errNothing))
	}
	millis := func(of int) float64 {
		return float64(all[(len(all)-1)*of/1000].Round(10*time.Microsecond)) / float64(time.Millisecond)
	}
	return benchResult{name, int(done.Load()), math.Round(rate), millis(500), millis(990), millis(1000)}, nil
}

func (b *bench) invoke(worker int, code protocol.Code, h protocol.Header, body []byte) (*protocol.Command, error) {
	ctx, cancel := context.WithTimeout(b, b.Timeout)
	defer cancel()
	answer, err := b.native(ctx, b.clients[worker%len(b.clients)], code, h, body)
	if err == nil && answer.Code != int32(protocol.Success) && answer.Code != int32(protocol.PullNotFound) {
		err = fmt.Errorf("%s answered %s: %s", b.broker, protocol.ResponseCode(answer.Code), answer.Remark)
	}
	return answer, err
}

func (b *bench) sendOne(worker int) (int, error) {
	if b.begun.Add(1) > int64(b.count) {
		return 0, nil
	}
	_, err := b.invoke(worker, protocol.SendMessageV2, &protocol.SendMessageRequestHeader{
		ProducerGroup: "roquet-bench", Topic: b.topic, DefaultTopic: "TBW102", DefaultTopicQueueNums: 8,
		QueueID: int32(worker % len(b.starts)), BornTimestamp: time.Now().UnixMilli(),
	}, make([]byte, b.size))
	return 1, err
}

// pullOne reads on in the worker's queue; 0 when it ends.
func (b *bench) pullOne(queue int) (int, error) {
	answer, err := b.invoke(queue, protocol.PullMessage, &protocol.PullMessageRequestHeader{
		ConsumerGroup: "TOOLS_CONSUMER", Topic: b.topic, QueueID: int32(queue), QueueOffset: b.starts[queue],
		MaxMsgNums: 32, SysFlag: 4, Subscription: "*", ExpressionType: protocol.ExpressionTag,
	}, nil)
	if err != nil || answer.Code == int32(protocol.PullNotFound) {
		return 0, err
	}
	var h protocol.PullMessageResponseHeader
	if err := h.DecodeExt(&answer.Ext); err != nil {
		return 0, err
	}
	n := h.NextBeginOffset - b.starts[queue]
	b.starts[queue] = h.NextBeginOffset
	return int(n), nil
}
