// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/message"
)

// What clients are told to do. Source: ProxyConfig.java.
const (
	producerAttempts      = 3
	producerInitial       = 10 * time.Millisecond
	producerMax           = time.Second
	producerMultiplier    = 2
	receiveBatchSize      = 32
	longestPoll           = 20 * time.Second
	shortestPoll          = 5 * time.Second
	defaultRetryMaxTimes  = 16
	defaultRequestTimeout = 3 * time.Second
)

// group returns the configuration of a consumer group, RocketMQ's defaults for one that does not exist.
func (a *api) group(name string) Group {
	if g, ok := a.cfg.Metadata.Group(name); ok {
		return g
	}
	return Group{RetryMaxTimes: defaultRetryMaxTimes}
}

// maxAttempts is how often a message is delivered to a group before it is a dead letter.
func (g *Group) maxAttempts() int32 { return g.RetryMaxTimes + 1 }

func (g *Group) retryPolicy() *v2.RetryPolicy {
	policy := &v2.RetryPolicy{MaxAttempts: g.maxAttempts()}
	if g.Multiplier != 0 {
		policy.Strategy = exponential(g.Initial, g.Max, float32(g.Multiplier))
		return policy
	}
	backoff, rests := &v2.CustomizedBackoff{}, g.Rests
	if len(rests) == 0 {
		rests = message.DefaultDelays()
	}
	for _, rest := range rests {
		backoff.Next = append(backoff.Next, durationpb.New(rest))
	}
	policy.Strategy = &v2.RetryPolicy_CustomizedBackoff{CustomizedBackoff: backoff}
	return policy
}

func exponential(initial, longest time.Duration, multiplier float32) *v2.RetryPolicy_ExponentialBackoff {
	return &v2.RetryPolicy_ExponentialBackoff{ExponentialBackoff: &v2.ExponentialBackoff{
		Initial: durationpb.New(initial), Max: durationpb.New(longest), Multiplier: multiplier,
	}}
}

// merged is a client's settings with what the server decides. Source: GrpcClientSettingsManager.java.
func (a *api) merged(sent *v2.Settings) *v2.Settings {
	s, ok := proto.Clone(sent).(*v2.Settings)
	if !ok {
		return sent
	}
	s.Metric = &v2.Metric{}
	if p := s.GetPublishing(); p != nil {
		p.MaxBodySize = int32(a.cfg.MaxBodyBytes())
		p.ValidateMessageType = true
		s.BackoffPolicy = &v2.RetryPolicy{
			MaxAttempts: producerAttempts,
			Strategy:    exponential(producerInitial, producerMax, producerMultiplier),
		}
	}
	if sub := s.GetSubscription(); sub != nil {
		group := a.group(sub.GetGroup().GetName())
		ordered := group.Orderly
		for _, entry := range sub.GetSubscriptions() {
			topic, _ := a.cfg.Metadata.Topic(entry.GetTopic().GetName())
			ordered = ordered || topic.MessageType == typeFIFO // case C111
		}
		sub.Fifo = &ordered
		sub.ReceiveBatchSize = proto.Int32(receiveBatchSize)
		sub.LongPollingTimeout = durationpb.New(longestPoll)
		s.BackoffPolicy = group.retryPolicy()
	}
	return s
}
