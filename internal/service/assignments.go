// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/roquetmq/roquet/internal/broker"
	"github.com/roquetmq/roquet/internal/nested"
	"github.com/roquetmq/roquet/internal/protocol"
)

// assignmentRequests shares queues out to native consumers that leave that to the broker: QUERY_ASSIGNMENT 400,
// SET_MESSAGE_REQUEST_MODE 401, GET_ALL_MESSAGE_REQUEST_MODE 402. Source: QueryAssignmentProcessor.java.
type assignmentRequests struct{ *node }

// routeTimeout bounds how long a name server is asked for a route.
const routeTimeout = 3 * time.Second

// query answers which queues a member has. Nothing at all, not even an empty list, means: keep what you have.
func (s assignmentRequests) query(c *call, body *protocol.QueryAssignmentRequestBody) (answer, error) {
	mode, _ := s.requestModes.Lookup(body.ConsumerGroup, body.Topic)
	said := &protocol.QueryAssignmentResponseBody{}
	if queues, ok := s.share(c.Context(), body, mode); ok {
		said.MessageQueueAssignments = mapped(queueBodies(queues),
			func(q protocol.MessageQueue) protocol.MessageQueueAssignment {
				return protocol.MessageQueueAssignment{MessageQueue: q, Mode: modeBody(mode)}
			})
	}
	return withBody(said)
}

// may answers a door that knows what it assigns: whoever gets here may consume.
func (s assignmentRequests) may(c *call, _ *protocol.MayAssignRequestHeader) { c.Reply(answer{}) }

func modeBody(mode broker.RequestMode) protocol.MessageRequestMode {
	if mode.Pop {
		return protocol.ModePop
	}
	return protocol.ModePull
}

func (s assignmentRequests) share(
	ctx context.Context, body *protocol.QueryAssignmentRequestBody, mode broker.RequestMode,
) ([]broker.MessageQueue, bool) {
	queues := s.queues(ctx, body.Topic)
	switch {
	case queues == nil:
		return nil, false
	case body.MessageModel == protocol.Broadcasting:
		return queues, true
	}
	group, ok := s.clients.Group(body.ConsumerGroup)
	if !ok {
		return nil, false
	}
	allocate := broker.AllocateAveragely
	switch body.StrategyName {
	case "AVG":
	case "AVG_BY_CIRCLE":
		allocate = broker.AllocateByCircle
	default:
		return nil, false
	}
	if mode.Pop {
		return broker.AllocatePop(body.ClientID, queues, group.ClientIDs(), mode.ShareQueueNum, allocate), true
	}
	return allocate(body.ClientID, queues, group.ClientIDs()), true
}

// queues are a topic's queues to read on all brokers, ordered; nil when the topic is nowhere.
func (s assignmentRequests) queues(ctx context.Context, topic string) []broker.MessageQueue {
	var queues []broker.MessageQueue
	for _, q := range s.route(ctx, topic) {
		if q.Perm&broker.PermRead == 0 {
			continue
		}
		for id := range q.ReadQueueNums {
			queues = append(queues, broker.MessageQueue{Topic: topic, BrokerName: q.BrokerName, QueueID: id})
		}
	}
	slices.SortFunc(queues, func(a, b broker.MessageQueue) int {
		return cmp.Or(cmp.Compare(a.BrokerName, b.BrokerName), cmp.Compare(a.QueueID, b.QueueID))
	})
	return queues
}

func (s assignmentRequests) route(ctx context.Context, topic string) []protocol.QueueData {
	if s.routes != nil {
		route, _ := s.routes.Route(topic)
		return queueDatas(route.Queues)
	}
	ctx, cancel := context.WithTimeout(ctx, routeTimeout)
	defer cancel()
	for _, remote := range s.registrar.remotes {
		answer, err := remote.client.Invoke(ctx, protocol.GetRouteInfoByTopic,
			remote.as.Sign(&protocol.GetRouteInfoRequestHeader{Topic: topic}, nil), nil)
		if err != nil || answer.Code != int32(protocol.Success) {
			continue
		}
		if route, err := protocol.DecodeBody[protocol.TopicRouteData](answer.Body); err == nil {
			return route.QueueDatas
		}
	}
	if cfg, ok := s.topics.Lookup(topic); ok && len(s.registrar.remotes) == 0 {
		perm := cfg.Perm &^ s.topics.Denied()
		return []protocol.QueueData{{BrokerName: s.self.brokerName, Perm: perm, ReadQueueNums: cfg.ReadQueueNums}}
	}
	return nil
}

func (s assignmentRequests) setMode(c *call, body *protocol.SetMessageRequestModeRequestBody) {
	if broker.IsRetryTopic(body.Topic) {
		c.Fail(&protocol.Error{Code: protocol.NoPermission, Remark: "retry topic is not allowed to set mode"})
		return
	}
	if _, ok := s.topics.Lookup(body.Topic); !ok {
		c.Fail(broker.NoTopic(body.Topic))
		return
	}
	s.groups.Ensure(body.ConsumerGroup, func(_ *broker.GroupConfig, err error) {
		if err != nil {
			c.FailLater(err)
			return
		}
		mode := broker.RequestMode{Pop: body.Mode == protocol.ModePop, ShareQueueNum: body.PopShareQueueNum}
		s.requestModes.Put(body.ConsumerGroup, body.Topic, mode, replyTo(c))
	})
}

func (s assignmentRequests) allModes(*call) (answer, error) {
	modes := nested.Map[string, string, protocol.SetMessageRequestModeRequestBody]{}
	s.requestModes.All(func(group, topic string, mode broker.RequestMode) {
		modes.Put(topic, group, protocol.SetMessageRequestModeRequestBody{
			ConsumerGroup: group, Topic: topic, Mode: modeBody(mode), PopShareQueueNum: mode.ShareQueueNum,
		})
	})
	return withBody(&protocol.MessageRequestModeSerializeWrapper{MessageRequestModeMap: modes})
}
