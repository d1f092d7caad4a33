// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
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

// defaultRests is how long a message rests between tries when its group says nothing. Source:
// CustomizedRetryPolicy.java.
var defaultRests = [...]time.Duration{
	time.Second,
	5 * time.Second,
	10 * time.Second,
	30 * time.Second,
	time.Minute,
	2 * time.Minute,
	3 * time.Minute,
	4 * time.Minute,
	5 * time.Minute,
	6 * time.Minute,
	7 * time.Minute,
	8 * time.Minute,
	9 * time.Minute,
	10 * time.Minute,
	20 * time.Minute,
	30 * time.Minute,
	time.Hour,
	2 * time.Hour,
}

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
		policy.Strategy = &v2.RetryPolicy_ExponentialBackoff{ExponentialBackoff: &v2.ExponentialBackoff{
			Initial: durationpb.New(g.Initial), Max: durationpb.New(g.Max), Multiplier: float32(g.Multiplier),
		}}
		return policy
	}
	rests := g.Rests
	if len(rests) == 0 {
		rests = defaultRests[:]
	}
	backoff := &v2.CustomizedBackoff{}
	for _, rest := range rests {
		backoff.Next = append(backoff.Next, durationpb.New(rest))
	}
	policy.Strategy = &v2.RetryPolicy_CustomizedBackoff{CustomizedBackoff: backoff}
	return policy
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
			Strategy: &v2.RetryPolicy_ExponentialBackoff{ExponentialBackoff: &v2.ExponentialBackoff{
				Initial: durationpb.New(
					producerInitial,
				),
				Max:        durationpb.New(producerMax),
				Multiplier: producerMultiplier,
			}},
		}
	}
	if sub := s.GetSubscription(); sub != nil {
		group := a.group(sub.GetGroup().GetName())
		sub.Fifo = proto.Bool(group.Orderly)
		sub.ReceiveBatchSize = proto.Int32(receiveBatchSize)
		sub.LongPollingTimeout = durationpb.New(longestPoll)
		s.BackoffPolicy = group.retryPolicy()
	}
	return s
}
