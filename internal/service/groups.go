// SPDX-License-Identifier: Apache-2.0

package service

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/roquetmq/roquet/internal/broker"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
)

// groupRequests answers what administrators ask of consumer groups: UPDATE_AND_CREATE_SUBSCRIPTIONGROUP 200,
// …_LIST 225, DELETE_SUBSCRIPTIONGROUP 207, GET_ALL_SUBSCRIPTIONGROUP_CONFIG 201,
// GET_SUBSCRIPTIONGROUP_CONFIG 352, UPDATE_AND_GET_GROUP_FORBIDDEN 353. Changes are answered when they are
// durable.
// Source: AdminBrokerProcessor.java, SubscriptionGroupManager.java.
// Known difference: deleting a group always deletes its offsets with it (case C054).
type groupRequests struct{ *node }

func (s groupRequests) update(c *call, body *protocol.SubscriptionGroupConfig) {
	s.updateList(c, &protocol.SubscriptionGroupList{GroupConfigList: []protocol.SubscriptionGroupConfig{*body}})
}

func (s groupRequests) updateList(c *call, body *protocol.SubscriptionGroupList) {
	configs := make([]broker.GroupConfig, len(body.GroupConfigList))
	for i := range body.GroupConfigList {
		var err error
		if configs[i], err = groupOf(&body.GroupConfigList[i]); err != nil {
			c.Fail(err)
			return
		}
	}
	s.groups.PutAll(configs, replyTo(c))
}

func (s groupRequests) remove(c *call, h *protocol.DeleteSubscriptionGroupRequestHeader) {
	s.groups.Delete(h.GroupName, s.offsets, replyTo(c))
}

func (s groupRequests) configs(_ *call, h *protocol.GetAllSubscriptionGroupRequestHeader) (answer, error) {
	all := s.groups.All()
	total := int32(len(all))
	if h.MaxGroupNum.Present {
		all = page(all, h.GroupSeq, h.MaxGroupNum.Value)
	}
	body := &protocol.SubscriptionGroupWrapper{
		DataVersion: protocol.DataVersion(s.groups.Version()), ForbiddenTable: s.groups.ForbiddenTable(),
		SubscriptionGroupTable: make(map[string]protocol.SubscriptionGroupConfig, len(all)),
	}
	for _, cfg := range all {
		said, err := groupBody(cfg)
		if err != nil {
			return answer{}, err
		}
		body.SubscriptionGroupTable[cfg.Name] = *said
	}
	header := &protocol.GetAllSubscriptionGroupResponseHeader{TotalGroupNum: total}
	return answer{Header: header, Body: protocol.EncodeBody(body)}, nil
}

func (s groupRequests) config(_ *call, h *protocol.GetSubscriptionGroupConfigRequestHeader) (answer, error) {
	cfg, ok := s.groups.Lookup(h.Group)
	if !ok {
		return answer{}, broker.NoGroup(h.Group)
	}
	body, err := groupBody(cfg)
	if err != nil {
		return answer{}, err
	}
	return withBody(body)
}

func (s groupRequests) forbidden(c *call, h *protocol.UpdateGroupForbiddenRequestHeader) {
	said := protocol.GroupForbidden{Group: cloned(h.Group), Topic: cloned(h.Topic)}
	reply := func(err error) {
		said.Readable = s.groups.Forbidden(said.Group, said.Topic)&broker.PermRead == 0
		c.AnswerLater(answer{Body: protocol.EncodeBody(&said)}, err)
	}
	if !h.Readable.Present {
		reply(nil)
		return
	}
	s.groups.SetForbidden(said.Group, said.Topic, broker.PermRead, !h.Readable.Value, reply)
}

// groupOf and groupBody turn one form of a group's config into the other: both have the JSON that clients know.
func groupOf(g *protocol.SubscriptionGroupConfig) (cfg broker.GroupConfig, err error) {
	err = json.Unmarshal(protocol.EncodeBody(g), &cfg)
	if p := cfg.RetryPolicy.Customized; p != nil && len(p.Next) == 0 { // as CustomizedRetryPolicy.java has it
		p.Next = mapped(message.DefaultDelays(), time.Duration.Milliseconds)
	}
	return cfg, err
}

func groupBody(g *broker.GroupConfig) (*protocol.SubscriptionGroupConfig, error) {
	text, err := json.Marshal(g)
	if err != nil {
		return nil, fmt.Errorf("encode group %s: %w", g.Name, err)
	}
	return protocol.DecodeBody[protocol.SubscriptionGroupConfig](text)
}
