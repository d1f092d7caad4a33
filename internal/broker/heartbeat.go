// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"log/slog"
	"time"
)

// unitSubFlag is the topicSysFlag of retry topics of consumers in unit mode. Source: TopicSysFlag.java.
const unitSubFlag int32 = 2

// Heartbeats takes heartbeats over into the tables. Source: ClientManageProcessor.java heartBeat.
type Heartbeats struct {
	topics  *Topics
	groups  *Groups
	clients *Clients
	log     *slog.Logger
}

// NewHeartbeats returns the rules of heartbeats over the tables.
func NewHeartbeats(topics *Topics, groups *Groups, clients *Clients, log *slog.Logger) *Heartbeats {
	return &Heartbeats{topics: topics, groups: groups, clients: clients, log: log}
}

// Handle creates what the client's consumer groups need, the group if that is allowed and its retry topic,
// and then registers the client. done is called exactly once, at once when there was nothing to create, else
// when it is durable; with an error, which is the store's, nothing is registered. A group that may not be
// created is left out. Handle keeps hb until done, and sets Quiet in it.
func (h *Heartbeats) Handle(ch Channel, hb *Heartbeat, now time.Time, done func(HeartbeatResult, error)) {
	p := &heartbeat{owner: h, channel: ch, hb: hb, now: now, done: done, accepted: hb.Consumers[:0:0]}
	p.next(0)
}

// heartbeat is one call of Handle, on its way through the consumer groups.
type heartbeat struct {
	owner    *Heartbeats
	channel  Channel
	hb       *Heartbeat
	now      time.Time
	done     func(HeartbeatResult, error)
	accepted []ConsumerData
}

// next goes on with the consumer group i.
func (p *heartbeat) next(i int) {
	if i == len(p.hb.Consumers) {
		p.hb.Consumers = p.accepted
		p.done(p.owner.clients.Heartbeat(p.channel, p.hb, p.now), nil)
		return
	}
	data := &p.hb.Consumers[i]
	p.owner.groups.Ensure(data.Group, func(cfg *GroupConfig, err error) {
		switch {
		case errors.Is(err, GroupNotExist), errors.Is(err, IllegalParameter):
			p.owner.log.Warn("consumer group not registered", "group", data.Group, "client_id", p.hb.ClientID,
				"remote_addr", p.channel.RemoteAddr(), "error", err)
			p.next(i + 1)
		case err != nil:
			p.done(HeartbeatResult{}, err)
		default:
			p.retryTopic(i, cfg)
		}
	})
}

func (p *heartbeat) retryTopic(i int, cfg *GroupConfig) {
	data := &p.hb.Consumers[i]
	var sysFlag int32
	if data.UnitMode {
		sysFlag = unitSubFlag
	}
	order := false
	for j := range data.Subscriptions {
		topic, ok := p.owner.topics.Lookup(data.Subscriptions[j].Topic)
		order = order || ok && topic.Order
	}
	created := func(_ *TopicConfig, err error) {
		if err != nil {
			p.done(HeartbeatResult{}, err)
			return
		}
		data.Quiet = !cfg.NotifyConsumerIDsChangedEnable
		p.accepted = append(p.accepted, *data)
		p.next(i + 1)
	}
	p.owner.topics.EnsureRetry(data.Group, cfg.RetryQueueNums, sysFlag, order, created)
}
