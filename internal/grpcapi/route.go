// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"strconv"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/protocol"
)

// Permission bits of a topic. Source: PermName.java.
const (
	permWrite = 2
	permRead  = 4
)

// QueryRoute answers where a topic's queues are: here. Source: RouteActivity.java queryRoute. Known
// difference: the original's proxy serves the queues of every broker; this door serves those of its own
// broker and leaves the others' to theirs.
func (a *api) QueryRoute(ctx context.Context, req *v2.QueryRouteRequest) (*v2.QueryRouteResponse, error) {
	c, err := a.caller(ctx, a.checkTopic(req.GetTopic()))
	var queues protocol.QueueData
	if err == nil {
		queues, err = a.queuesOf(ctx, &c, req.GetTopic().GetName())
	}
	if err != nil {
		return nil, err
	}
	topic, _ := a.cfg.Metadata.Topic(req.GetTopic().GetName())
	return &v2.QueryRouteResponse{
		Status:        ok(),
		MessageQueues: messageQueues(req.GetTopic(), a.broker(&c, req.GetEndpoints()), queues, topic.MessageType),
	}, nil
}

// queuesOf asks for the queues that this broker has of a topic. Error: TOPIC_NOT_FOUND.
func (a *api) queuesOf(ctx context.Context, c *caller, topic string) (protocol.QueueData, error) {
	if !a.registry.Supports(protocol.GetRouteInfoByTopic) {
		return a.queuesByConfig(ctx, c, topic)
	}
	answer, err := a.call(
		ctx, c, protocol.GetRouteInfoByTopic, &protocol.GetRouteInfoRequestHeader{Topic: topic}, nil,
	)
	if err != nil {
		return protocol.QueueData{}, err
	}
	route, err := protocol.DecodeBody[protocol.TopicRouteData](answer.Body)
	if err != nil {
		return protocol.QueueData{}, err
	}
	for _, q := range route.QueueDatas {
		if q.BrokerName == a.cfg.BrokerName {
			return q, nil
		}
	}
	return protocol.QueueData{}, refuse(v2.Code_TOPIC_NOT_FOUND, "broker %s has no topic %s", a.cfg.BrokerName, topic)
}

// queuesByConfig is queuesOf where no name server runs in this process.
func (a *api) queuesByConfig(ctx context.Context, c *caller, topic string) (protocol.QueueData, error) {
	answer, err := a.call(ctx, c, protocol.GetTopicConfig, &protocol.GetTopicConfigRequestHeader{Topic: topic}, nil)
	if err != nil {
		return protocol.QueueData{}, err
	}
	cfg, err := protocol.DecodeBody[protocol.TopicConfigAndQueueMapping](answer.Body)
	if err != nil {
		return protocol.QueueData{}, err
	}
	return protocol.QueueData{
		BrokerName: a.cfg.BrokerName, Perm: cfg.Perm, ReadQueueNums: cfg.ReadQueueNums,
		WriteQueueNums: cfg.WriteQueueNums,
	}, nil
}

// messageQueues is one entry a queue: those that can be read only, those that can be written only, those that
// can be both, numbered on from 0. A topic that can be neither shows its queues without permission, so that
// the list is never empty, which clients do not survive.
func messageQueues(
	topic *v2.Resource, broker *v2.Broker, q protocol.QueueData, messageType string,
) []*v2.MessageQueue {
	var read, write, both, none int32
	switch q.Perm & (permRead | permWrite) {
	case permRead | permWrite:
		both = min(q.ReadQueueNums, q.WriteQueueNums)
		read, write = q.ReadQueueNums-both, q.WriteQueueNums-both
	case permRead:
		read = q.ReadQueueNums
	case permWrite:
		write = q.WriteQueueNums
	}
	if read+write+both == 0 {
		none = max(1, q.ReadQueueNums, q.WriteQueueNums)
	}
	types := acceptedTypes(messageType)
	queues := make([]*v2.MessageQueue, 0, read+write+both+none)
	add := func(count int32, permission v2.Permission) {
		for range count {
			queues = append(queues, &v2.MessageQueue{
				Topic: topic, Id: int32(len(queues)),
				Permission: permission, Broker: broker, AcceptMessageTypes: types,
			})
		}
	}
	add(read, v2.Permission_READ)
	add(write, v2.Permission_WRITE)
	add(both, v2.Permission_READ_WRITE)
	add(none, v2.Permission_NONE)
	return queues
}

// acceptedTypes is what a topic's message.type lets clients send. Source: RouteActivity.java
// parseTopicMessageType.
func acceptedTypes(messageType string) []v2.MessageType {
	switch messageType {
	case "", typeNormal:
		return []v2.MessageType{v2.MessageType_NORMAL}
	case typeMixed:
		return []v2.MessageType{
			v2.MessageType_NORMAL, v2.MessageType_FIFO, v2.MessageType_DELAY, v2.MessageType_TRANSACTION,
		}
	default:
		return []v2.MessageType{v2.MessageType(v2.MessageType_value[messageType])}
	}
}

// QueryAssignment answers which queues a client should receive from: all of them at once, or, in an orderly
// group, each. Who gets which message is decided when it is received. Source: RouteActivity.java
// queryAssignment.
func (a *api) QueryAssignment(
	ctx context.Context, req *v2.QueryAssignmentRequest,
) (*v2.QueryAssignmentResponse, error) {
	c, err := a.caller(ctx, a.checkTopicAndGroup(req.GetTopic(), req.GetGroup()))
	if err == nil {
		may := &protocol.MayAssignRequestHeader{
			ConsumerGroup: req.GetGroup().GetName(), Topic: req.GetTopic().GetName(),
		}
		_, err = a.call(ctx, &c, protocol.QueryAssignment, may, nil)
	}
	var queues protocol.QueueData
	if err == nil {
		queues, err = a.queuesOf(ctx, &c, req.GetTopic().GetName())
	}
	if err == nil && (queues.Perm&permRead == 0 || queues.ReadQueueNums <= 0) {
		err = refuse(v2.Code_FORBIDDEN, "no readable queue")
	}
	if err != nil {
		return nil, err
	}
	group, _ := a.cfg.Metadata.Group(req.GetGroup().GetName())
	broker := a.broker(&c, req.GetEndpoints())
	permission := v2.Permission_READ
	if queues.Perm&permWrite != 0 {
		permission = v2.Permission_READ_WRITE
	}
	first, count := int32(-1), int32(1)
	if group.Orderly {
		first, count = 0, queues.ReadQueueNums
	}
	answer := &v2.QueryAssignmentResponse{Status: ok()}
	for i := range count {
		answer.Assignments = append(answer.Assignments, &v2.Assignment{MessageQueue: &v2.MessageQueue{
			Topic: req.GetTopic(), Id: first + i, Permission: permission, Broker: broker,
		}})
	}
	return answer, nil
}

// broker is this broker as a client reaches it: at the address that its listener advertises; else where the
// client says it reaches us, which holds behind port mappings and translations too; else at the address it
// dialled.
func (a *api) broker(c *caller, asked *v2.Endpoints) *v2.Broker {
	b := &v2.Broker{Name: a.cfg.BrokerName, Endpoints: usable(asked)}
	if c.conn.via != nil && c.conn.via.Advertised != "" {
		if host, port, err := net.SplitHostPort(c.conn.via.Advertised); err == nil {
			n, _ := strconv.ParseUint(port, 10, 16) // the listener was checked at the start
			b.Endpoints = endpoints(host, uint16(n))
		}
	}
	if b.Endpoints == nil {
		b.Endpoints = endpoints(c.conn.local.Addr().String(), c.conn.local.Port())
	}
	return b
}

func endpoints(host string, port uint16) *v2.Endpoints {
	scheme := v2.AddressScheme_DOMAIN_NAME
	if ip, err := netip.ParseAddr(host); err == nil {
		scheme = v2.AddressScheme_IPv4
		if ip.Is6() {
			scheme = v2.AddressScheme_IPv6
		}
	}
	return &v2.Endpoints{Scheme: scheme, Addresses: []*v2.Address{{Host: host, Port: int32(port)}}}
}

// maxAddresses bounds what is echoed to a client.
const maxAddresses = 16

// usable returns the endpoints as far as a client can dial them, or nil. A name goes with one address only.
func usable(asked *v2.Endpoints) *v2.Endpoints {
	known := asked.GetScheme() >= v2.AddressScheme_IPv4 && asked.GetScheme() <= v2.AddressScheme_DOMAIN_NAME
	if !known || len(asked.GetAddresses()) == 0 {
		return nil
	}
	for _, addr := range asked.GetAddresses() {
		if addr.GetHost() == "" || addr.GetPort() < 1 || addr.GetPort() > 65535 {
			return nil
		}
	}
	most := maxAddresses
	if asked.GetScheme() == v2.AddressScheme_DOMAIN_NAME {
		most = 1
	}
	if len(asked.GetAddresses()) <= most {
		return asked
	}
	return &v2.Endpoints{Scheme: asked.GetScheme(), Addresses: asked.GetAddresses()[:most]}
}

// checkTopic refuses a topic's name.
func (a *api) checkTopic(topic *v2.Resource) error {
	if err := a.cfg.Names.CheckTopic(topic.GetName()); err != nil {
		return refuse(v2.Code_ILLEGAL_TOPIC, "%s", err)
	}
	return nil
}

// checkGroup refuses a consumer group's name.
func (a *api) checkGroup(group *v2.Resource) error {
	if err := a.cfg.Names.CheckGroup(group.GetName()); err != nil {
		return refuse(v2.Code_ILLEGAL_CONSUMER_GROUP, "%s", err)
	}
	return nil
}

func (a *api) checkTopicAndGroup(topic, group *v2.Resource) error {
	return cmp.Or(a.checkTopic(topic), a.checkGroup(group))
}
