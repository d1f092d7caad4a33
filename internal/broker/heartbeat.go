// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"log/slog"
	"slices"
	"time"
)

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
// created is left out. Handle keeps hb until done, and sets Quiet in it. Heartbeats and the end of one channel take
// effect in the order they came.
func (h *Heartbeats) Handle(ch Channel, hb *Heartbeat, now time.Time, done func(HeartbeatResult, error)) {
	accepted := hb.Consumers[:0:0]
	end := func(result HeartbeatResult, err error) { done(result, err); h.clients.endTurn(ch.ID()) }
	var next func(i int)
	next = func(i int) {
		if i == len(hb.Consumers) {
			hb.Consumers = accepted
			end(h.clients.Heartbeat(ch, hb, now), nil)
			return
		}
		data := &hb.Consumers[i]
		h.ensure(data, func(err error) {
			switch {
			case err == nil:
				accepted = append(accepted, *data)
			case errors.Is(err, GroupNotExist), errors.Is(err, IllegalParameter):
				h.log.Warn("consumer group not registered", "group", data.Group, "client_id", hb.ClientID,
					"remote_addr", ch.RemoteAddr(), "error", err)
			default:
				end(HeartbeatResult{}, err)
				return
			}
			next(i + 1)
		})
	}
	h.clients.inTurn(ch.ID(), func() { next(0) })
}

// ensure creates a consumer's group, if that is allowed, and its retry topic.
func (h *Heartbeats) ensure(data *ConsumerData, done func(error)) {
	h.groups.Ensure(data.Group, func(cfg *GroupConfig, err error) {
		if err != nil {
			done(err)
			return
		}
		data.Quiet = !cfg.NotifyConsumerIDsChangedEnable
		order := slices.ContainsFunc(data.Subscriptions, func(sub SubscriptionData) bool {
			topic, ok := h.topics.Lookup(sub.Topic)
			return ok && topic.Order
		})
		h.topics.EnsureRetry(data.Group, cfg.RetryQueueNums, data.UnitMode, order, func(_ *TopicConfig, err error) {
			done(err)
		})
	})
}
