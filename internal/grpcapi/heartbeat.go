// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"
	"maps"
	"slices"
	"strings"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
)

// Heartbeat keeps a client registered: a producer for the topics in its settings, a consumer in its group. What
// the client is, its settings say and not the request. Source: ClientActivity.java heartbeat.
func (a *api) Heartbeat(ctx context.Context, req *v2.HeartbeatRequest) (*v2.HeartbeatResponse, error) {
	c, err := a.caller(ctx)
	var p *profile
	if err == nil {
		p, err = c.profile()
	}
	if err == nil && p.settings.GetSubscription() != nil && req.GetGroup().GetName() != "" {
		err = a.checkGroup(req.GetGroup())
	}
	if err == nil {
		err = a.register(ctx, &c)
	}
	return &v2.HeartbeatResponse{Status: ok()}, err
}

// profile is what the client's settings come to. Error: UNRECOGNIZED_CLIENT_TYPE for a client without settings,
// which then sends them again.
func (c *caller) profile() (*profile, error) {
	if c.session != nil {
		if p := c.session.profile.Load(); p != nil {
			return p, nil
		}
	}
	return nil, refuse(v2.Code_UNRECOGNIZED_CLIENT_TYPE, "cannot find client settings for this client")
}

// NotifyClientTermination forgets a client that is about to end. Source: ClientActivity.java
// notifyClientTermination.
func (a *api) NotifyClientTermination(
	ctx context.Context, req *v2.NotifyClientTerminationRequest,
) (*v2.NotifyClientTerminationResponse, error) {
	c, err := a.caller(ctx)
	var p *profile
	if err == nil {
		p, err = c.profile()
	}
	if err == nil && p.settings.GetSubscription() != nil {
		err = a.checkGroup(req.GetGroup())
	}
	if err == nil {
		err = a.unregister(ctx, &c, p)
	}
	return &v2.NotifyClientTerminationResponse{Status: ok()}, err
}

// register tells the broker of the caller, as its settings describe it.
func (a *api) register(ctx context.Context, c *caller) error {
	p := c.session.profile.Load()
	hb := &protocol.HeartbeatData{ClientID: c.clientID}
	switch sub := p.settings.GetSubscription(); {
	case sub != nil:
		data := protocol.ConsumerData{
			GroupName: p.group, ConsumeType: protocol.ConsumePassively, MessageModel: protocol.Clustering,
			ConsumeFromWhere: protocol.ConsumeFromLastOffset,
		}
		switch p.clientType {
		case v2.ClientType_SIMPLE_CONSUMER, v2.ClientType_PULL_CONSUMER:
			data.ConsumeType = protocol.ConsumeActively
		case v2.ClientType_PUSH_CONSUMER:
		default:
			return refuse(v2.Code_UNRECOGNIZED_CLIENT_TYPE, "%s", p.clientType)
		}
		for _, entry := range sub.GetSubscriptions() {
			one, err := subscriptionOf(entry, p.since)
			if err != nil {
				return err
			}
			data.SubscriptionDataSet = append(data.SubscriptionDataSet, one)
		}
		hb.ConsumerDataSet = []protocol.ConsumerData{data}
	case p.settings.GetPublishing() != nil:
		if p.clientType != v2.ClientType_PRODUCER {
			return refuse(v2.Code_UNRECOGNIZED_CLIENT_TYPE, "%s", p.clientType)
		}
		for _, topic := range c.session.producesAll(p) {
			hb.ProducerDataSet = append(hb.ProducerDataSet, protocol.ProducerData{GroupName: topic})
		}
		if len(hb.ProducerDataSet) == 0 {
			return nil // it has said nothing yet that the broker could use
		}
	}
	_, err := a.call(ctx, c, protocol.HeartBeat, nil, protocol.EncodeBody(hb))
	if a.sessions.find(c.clientID) != c.session { // it ended meanwhile
		a.cfg.OnEnd(c.session)
	}
	return err
}

// unregister takes the caller out of its groups and ends its session.
func (a *api) unregister(ctx context.Context, c *caller, p *profile) error {
	defer a.sessions.end(c.session)
	groups := make([]protocol.UnregisterClientRequestHeader, 0, 1)
	if p.group != "" {
		groups = append(groups, protocol.UnregisterClientRequestHeader{ClientID: c.clientID, ConsumerGroup: p.group})
	}
	for _, topic := range c.session.producesAll(p) {
		groups = append(groups, protocol.UnregisterClientRequestHeader{ClientID: c.clientID, ProducerGroup: topic})
	}
	a.returnAll(c.session)
	for i := range groups {
		if _, err := a.call(ctx, c, protocol.UnregisterClient, &groups[i], nil); err != nil {
			return err
		}
	}
	return nil
}

// produces notes that a producer sends transactions to a topic that its settings need not name, so that it can
// be asked about them.
func (a *api) produces(ctx context.Context, c *caller, topic string) {
	if c.session == nil || !c.session.addTopic(topic) {
		return
	}
	if err := a.register(ctx, c); err != nil {
		a.log.Warn("could not register a transaction producer", "topic", topic, "client_id", c.clientID, "error", err)
	}
}

// maxExtraTopics bounds the topics that a producer sends transactions to without having named them.
const maxExtraTopics = 1024

// addTopic reports whether the topic is new to the session.
func (s *session) addTopic(topic string) bool {
	if p := s.profile.Load(); p == nil || slices.Contains(p.topics, topic) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.topics[topic] || len(s.mu.topics) >= maxExtraTopics {
		return false
	}
	s.mu.topics[topic] = true
	return true
}

// producesAll is the topics that a producer's settings name and those it was seen to send transactions to.
func (s *session) producesAll(p *profile) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.AppendSeq(slices.Clone(p.topics), maps.Keys(s.mu.topics))
	slices.Sort(all)
	return slices.Compact(all)
}

// expression is a subscription's filter.
type expression struct {
	text, typ string
	tags      []string // empty for all
}

// expressionOf reads a filter. An empty one is for all tags. Error: ILLEGAL_FILTER_EXPRESSION. Source:
// FilterAPI.java build.
func expressionOf(f *v2.FilterExpression) (expression, error) {
	text := f.GetExpression()
	if f.GetType() == v2.FilterType_SQL {
		if isBlank(text) {
			return expression{}, refuse(v2.Code_ILLEGAL_FILTER_EXPRESSION, "the expression is empty")
		}
		return expression{text: text, typ: protocol.ExpressionSQL92}, nil
	}
	e := expression{text: text, typ: protocol.ExpressionTag}
	if text == "" || text == "*" {
		e.text = "*"
		return e, nil
	}
	for tag := range strings.SplitSeq(text, "||") {
		if tag = strings.TrimSpace(tag); tag != "" {
			e.tags = append(e.tags, tag)
		}
	}
	if len(e.tags) == 0 {
		return e, refuse(v2.Code_ILLEGAL_FILTER_EXPRESSION, "subString split error: %s", text)
	}
	return e, nil
}

func subscriptionOf(entry *v2.SubscriptionEntry, version int64) (protocol.SubscriptionData, error) {
	e, err := expressionOf(entry.GetExpression())
	if err != nil {
		return protocol.SubscriptionData{}, err
	}
	data := protocol.SubscriptionData{
		Topic: entry.GetTopic().GetName(), SubString: e.text, ExpressionType: e.typ, Tags: e.tags,
		SubVersion: version,
	}
	for _, tag := range e.tags {
		data.Codes = append(data.Codes, int32(message.TagsCode(tag)))
	}
	return data, nil
}
