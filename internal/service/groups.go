// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"

	"github.com/roquetmq/roquet/internal/broker"
	"github.com/roquetmq/roquet/internal/broker/offset"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// groupRequests answers what administrators ask of consumer groups: UPDATE_AND_CREATE_SUBSCRIPTIONGROUP 200,
// …_LIST 225, DELETE_SUBSCRIPTIONGROUP 207, GET_ALL_SUBSCRIPTIONGROUP_CONFIG 201,
// GET_SUBSCRIPTIONGROUP_CONFIG 352, UPDATE_AND_GET_GROUP_FORBIDDEN 353. Changes are answered when they are
// durable.
// Source: AdminBrokerProcessor.java, SubscriptionGroupManager.java.
// Known difference: deleting a group always deletes its offsets with it (case C054).
type groupRequests struct {
	groups  *broker.Groups
	offsets *offset.Table
}

func (s *groupRequests) update(_ context.Context, c *remoting.Call) {
	body, err := protocol.DecodeBody[protocol.SubscriptionGroupConfig](c.Body)
	if err != nil {
		c.Fail(err)
		return
	}
	s.groups.Put(groupOf(body), replyTo(c))
}

func (s *groupRequests) updateList(_ context.Context, c *remoting.Call) {
	body, err := protocol.DecodeBody[protocol.SubscriptionGroupList](c.Body)
	if err != nil {
		c.Fail(err)
		return
	}
	configs := make([]broker.GroupConfig, len(body.GroupConfigList))
	for i := range body.GroupConfigList {
		configs[i] = groupOf(&body.GroupConfigList[i])
	}
	s.groups.PutAll(configs, replyTo(c))
}

func (s *groupRequests) remove(
	_ context.Context,
	c *remoting.Call,
	h *protocol.DeleteSubscriptionGroupRequestHeader,
) {
	s.groups.Delete(h.GroupName, s.offsets, replyTo(c))
}

func (s *groupRequests) configs(
	_ context.Context, _ *remoting.Call, h *protocol.GetAllSubscriptionGroupRequestHeader,
) (remoting.Response, error) {
	all := s.groups.All()
	total := int32(len(all))
	if h.MaxGroupNum.Present {
		all = page(all, h.GroupSeq, h.MaxGroupNum.Value)
	}
	body := &protocol.SubscriptionGroupWrapper{
		DataVersion: versionBody(s.groups.Version()), ForbiddenTable: s.groups.ForbiddenTable(),
		SubscriptionGroupTable: make(map[string]protocol.SubscriptionGroupConfig, len(all)),
	}
	for _, cfg := range all {
		body.SubscriptionGroupTable[cfg.Name] = groupBody(cfg)
	}
	return remoting.Response{
		Header: &protocol.GetAllSubscriptionGroupResponseHeader{
			TotalGroupNum: total,
		},
		Body: protocol.EncodeBody(body),
	}, nil
}

func (s *groupRequests) config(
	_ context.Context, _ *remoting.Call, h *protocol.GetSubscriptionGroupConfigRequestHeader,
) (remoting.Response, error) {
	cfg, ok := s.groups.Lookup(h.Group)
	if !ok {
		return remoting.Response{}, groupNotExist(h.Group)
	}
	body := groupBody(cfg)
	return remoting.Response{Body: protocol.EncodeBody(&body)}, nil
}

func (s *groupRequests) forbidden(
	_ context.Context,
	c *remoting.Call,
	h *protocol.UpdateGroupForbiddenRequestHeader,
) {
	answer := protocol.GroupForbidden{Group: cloned(h.Group), Topic: cloned(h.Topic)}
	reply := func(err error) {
		if err != nil {
			c.FailLater(err)
			return
		}
		answer.Readable = s.groups.Forbidden(answer.Group, answer.Topic)&broker.PermRead == 0
		c.ReplyLater(remoting.Response{Body: protocol.EncodeBody(&answer)})
	}
	if !h.Readable.Present {
		reply(nil)
		return
	}
	s.groups.SetForbidden(answer.Group, answer.Topic, broker.PermRead, !h.Readable.Value, reply)
}

func groupOf(g *protocol.SubscriptionGroupConfig) broker.GroupConfig {
	cfg := broker.GroupConfig{
		Name:                           g.GroupName,
		ConsumeEnable:                  g.ConsumeEnable,
		ConsumeFromMinEnable:           g.ConsumeFromMinEnable,
		ConsumeBroadcastEnable:         g.ConsumeBroadcastEnable,
		ConsumeMessageOrderly:          g.ConsumeMessageOrderly,
		NotifyConsumerIDsChangedEnable: g.NotifyConsumerIDsChangedEnable,
		RetryQueueNums:                 g.RetryQueueNums,
		RetryMaxTimes:                  g.RetryMaxTimes,
		BrokerID:                       g.BrokerID,
		WhichBrokerWhenConsumeSlowly:   g.WhichBrokerWhenConsumeSlowly,
		SysFlag:                        g.GroupSysFlag,
		ConsumeTimeoutMinute:           g.ConsumeTimeoutMinute,
		Attributes:                     g.Attributes,
		RetryPolicy:                    broker.GroupRetryPolicy{Type: g.GroupRetryPolicy.Type},
	}
	if p := g.GroupRetryPolicy.CustomizedRetryPolicy; p != nil {
		cfg.RetryPolicy.Customized = &broker.CustomizedRetryPolicy{Next: p.NextMillis}
	}
	if p := g.GroupRetryPolicy.ExponentialRetryPolicy; p != nil {
		cfg.RetryPolicy.Exponential = &broker.ExponentialRetryPolicy{
			Initial: p.InitialMillis, Max: p.MaxMillis, Multiplier: p.Multiplier,
		}
	}
	for _, sub := range g.SubscriptionDataSet {
		cfg.Subscriptions = append(cfg.Subscriptions, broker.GroupSubscription{
			Topic: sub.Topic, ExpressionType: sub.ExpressionType, Expression: sub.Expression, Version: sub.Version,
		})
	}
	return cfg
}

func groupBody(g *broker.GroupConfig) protocol.SubscriptionGroupConfig {
	body := protocol.SubscriptionGroupConfig{
		GroupName:                      g.Name,
		ConsumeEnable:                  g.ConsumeEnable,
		ConsumeFromMinEnable:           g.ConsumeFromMinEnable,
		ConsumeBroadcastEnable:         g.ConsumeBroadcastEnable,
		ConsumeMessageOrderly:          g.ConsumeMessageOrderly,
		NotifyConsumerIDsChangedEnable: g.NotifyConsumerIDsChangedEnable,
		RetryQueueNums:                 g.RetryQueueNums,
		RetryMaxTimes:                  g.RetryMaxTimes,
		BrokerID:                       g.BrokerID,
		WhichBrokerWhenConsumeSlowly:   g.WhichBrokerWhenConsumeSlowly,
		GroupSysFlag:                   g.SysFlag,
		ConsumeTimeoutMinute:           g.ConsumeTimeoutMinute,
		Attributes:                     g.Attributes,
		GroupRetryPolicy:               protocol.GroupRetryPolicy{Type: g.RetryPolicy.Type},
	}
	if p := g.RetryPolicy.Customized; p != nil {
		body.GroupRetryPolicy.CustomizedRetryPolicy = &protocol.CustomizedRetryPolicy{NextMillis: p.Next}
	}
	if p := g.RetryPolicy.Exponential; p != nil {
		body.GroupRetryPolicy.ExponentialRetryPolicy = &protocol.ExponentialRetryPolicy{
			InitialMillis: p.Initial, MaxMillis: p.Max, Multiplier: p.Multiplier,
		}
	}
	for _, sub := range g.Subscriptions {
		body.SubscriptionDataSet = append(body.SubscriptionDataSet, protocol.SimpleSubscriptionData{
			Topic: sub.Topic, ExpressionType: sub.ExpressionType, Expression: sub.Expression, Version: sub.Version,
		})
	}
	return body
}
