// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/roquetmq/roquet/api/proto/roquet/v1"
	"github.com/roquetmq/roquet/internal/protocol"
)

func (d *door) GetCluster(ctx context.Context, _ *v1.GetClusterRequest) (*v1.Cluster, error) {
	info, err := body[protocol.ClusterInfo](d.call(ctx, protocol.GetBrokerClusterInfo, nil, nil))
	if err != nil {
		return nil, err
	}
	out := &v1.Cluster{}
	for _, name := range slices.Sorted(maps.Keys(info.BrokerAddrTable)) {
		b := info.BrokerAddrTable[name]
		one := &v1.ClusterBroker{Cluster: b.Cluster, Name: b.BrokerName, Addresses: map[string]string{}}
		for id, addr := range b.BrokerAddrs {
			one.Addresses[strconv.FormatInt(id, 10)] = addr
		}
		out.Brokers = append(out.Brokers, one)
	}
	return out, nil
}

func (d *door) ListBrokers(ctx context.Context, _ *v1.ListBrokersRequest) (*v1.ListBrokersResponse, error) {
	info, err := body[protocol.KVTable](d.call(ctx, protocol.GetBrokerRuntimeInfo, nil, nil))
	if err != nil {
		return nil, err
	}
	return &v1.ListBrokersResponse{Brokers: []*v1.Broker{{Name: d.cfg.BrokerName, Runtime: info.Table}}}, nil
}

func (d *door) ListClients(ctx context.Context, _ *v1.ListClientsRequest) (*v1.ListClientsResponse, error) {
	producers, err := body[protocol.ProducerTableInfo](d.call(ctx, protocol.GetAllProducerInfo, nil, nil))
	if err != nil {
		return nil, err
	}
	out := &v1.ListClientsResponse{}
	for _, group := range slices.Sorted(maps.Keys(producers.Data)) {
		for _, p := range producers.Data[group] {
			out.Clients = append(out.Clients, &v1.Client{
				ClientId: clean(p.ClientID), Address: p.RemoteIP, Language: p.Language.String(), Version: p.Version,
				Group: clean(group),
			})
		}
	}
	all, err := d.listGroups(ctx, 0, 0)
	for _, group := range all.GetGroups() {
		online, err := d.ListGroupClients(ctx, &v1.ListGroupClientsRequest{Group: group.GetName()})
		if err != nil {
			return nil, err
		}
		out.Clients = append(out.Clients, online.GetClients()...)
		out.Conflicts = append(out.Conflicts, online.GetConflicts()...)
	}
	return out, err
}

func (d *door) GetConfig(ctx context.Context, _ *v1.GetConfigRequest) (*v1.Config, error) {
	answer, err := d.call(ctx, protocol.GetBrokerConfig, nil, nil)
	if err != nil {
		return nil, err
	}
	out := &v1.Config{Values: map[string]string{}}
	for line := range strings.Lines(string(answer.Body)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			out.Values[name] = value
		}
	}
	return out, nil
}

func (d *door) UpdateConfig(ctx context.Context, in *v1.UpdateConfigRequest) (*v1.Config, error) {
	var text strings.Builder
	for name, value := range in.GetValues() {
		if name == "" || strings.ContainsAny(name, "=:#! ") || strings.ContainsAny(name+value, "\r\n\\") {
			return nil, badRequest("setting %q cannot be written down", name)
		}
		text.WriteString(name + "=" + value + "\n")
	}
	if _, err := d.call(ctx, protocol.UpdateBrokerConfig, nil, []byte(text.String())); err != nil {
		return nil, err
	}
	return d.GetConfig(ctx, nil)
}

func (d *door) GetDefinitions(ctx context.Context, _ *v1.GetDefinitionsRequest) (*v1.Definitions, error) {
	all, err := d.listTopics(ctx, 0, 0)
	if err != nil {
		return nil, err
	}
	out := &v1.Definitions{}
	for _, t := range all.GetTopics() {
		if !t.GetSystem() && !isGroupTopic(t.GetName()) {
			out.Topics = append(out.Topics, t)
		}
	}
	list, err := d.listGroups(ctx, 0, 0)
	out.Groups = list.GetGroups()
	return out, err
}

func (d *door) PutDefinitions(ctx context.Context, in *v1.PutDefinitionsRequest) (*v1.PutDefinitionsResponse, error) {
	for _, t := range in.GetDefinitions().GetTopics() {
		_, err := d.PutTopic(ctx, &v1.PutTopicRequest{
			Topic: t.GetName(), ReadQueues: orUnset(t.GetReadQueues()), WriteQueues: orUnset(t.GetWriteQueues()),
			Permission: t.GetPermission(), MessageType: t.GetMessageType(), Attributes: t.GetAttributes(),
		})
		if err != nil {
			return nil, err
		}
	}
	for _, g := range in.GetDefinitions().GetGroups() {
		_, err := d.PutGroup(ctx, &v1.PutGroupRequest{
			Group: g.GetName(), ConsumeEnabled: &g.ConsumeEnabled, Orderly: &g.Orderly,
			BroadcastEnabled: &g.BroadcastEnabled, RetryMaxTimes: &g.RetryMaxTimes,
		})
		if err != nil {
			return nil, err
		}
	}
	return &v1.PutDefinitionsResponse{
		Topics: int32(len(in.GetDefinitions().GetTopics())), Groups: int32(len(in.GetDefinitions().GetGroups())),
	}, nil
}

// orUnset is n, but nil for 0.
func orUnset(n int32) *int32 {
	if n == 0 {
		return nil
	}
	return &n
}
