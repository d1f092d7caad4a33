// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"maps"
	"slices"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	v1 "github.com/roquetmq/roquet/api/proto/roquet/v1"
	"github.com/roquetmq/roquet/internal/protocol"
)

// listGroups returns the groups from one on, count of them at most; count 0: all.
func (d *door) listGroups(ctx context.Context, from, count int32) (*v1.ListGroupsResponse, error) {
	h := &protocol.GetAllSubscriptionGroupRequestHeader{GroupSeq: from}
	if count > 0 {
		h.MaxGroupNum = protocol.Some(count)
	}
	answer, err := d.call(ctx, protocol.GetAllSubscriptionGroupConfig, h, nil)
	all, err := body[protocol.SubscriptionGroupWrapper](answer, err)
	if err != nil {
		return nil, err
	}
	out := &v1.ListGroupsResponse{}
	for _, name := range slices.Sorted(maps.Keys(all.SubscriptionGroupTable)) {
		out.Groups = append(out.Groups, groupOf(new(all.SubscriptionGroupTable[name])))
	}
	if r, ok := answer.Header.(*protocol.GetAllSubscriptionGroupResponseHeader); ok {
		out.Total = r.TotalGroupNum
	}
	out.NextPageToken = nextPage(from, len(out.GetGroups()), out.GetTotal())
	return out, nil
}

func groupOf(cfg *protocol.SubscriptionGroupConfig) *v1.Group {
	return &v1.Group{
		Name: cfg.GroupName, ConsumeEnabled: cfg.ConsumeEnable, Orderly: cfg.ConsumeMessageOrderly,
		RetryMaxTimes: cfg.RetryMaxTimes, BroadcastEnabled: cfg.ConsumeBroadcastEnable, Attributes: cfg.Attributes,
	}
}

func (d *door) ListGroups(ctx context.Context, in *v1.ListGroupsRequest) (*v1.ListGroupsResponse, error) {
	from, count, err := page(in.GetPageSize(), in.GetPageToken())
	if err != nil {
		return nil, err
	}
	return d.listGroups(ctx, from, count)
}

func (d *door) groupConfig(ctx context.Context, name string) (*protocol.SubscriptionGroupConfig, error) {
	h := &protocol.GetSubscriptionGroupConfigRequestHeader{Group: name}
	return body[protocol.SubscriptionGroupConfig](d.call(ctx, protocol.GetSubscriptionGroupConfig, h, nil))
}

func (d *door) GetGroup(ctx context.Context, in *v1.GetGroupRequest) (*v1.Group, error) {
	cfg, err := d.groupConfig(ctx, in.GetGroup())
	if err != nil {
		return nil, err
	}
	out := groupOf(cfg)
	online, err := d.ListGroupClients(ctx, &v1.ListGroupClientsRequest{Group: in.GetGroup()})
	if err == nil { // else who may only receive does not see what others do
		out.Conflicts = online.GetConflicts()
	}
	return out, nil
}

func (d *door) PutGroup(ctx context.Context, in *v1.PutGroupRequest) (*v1.Group, error) {
	cfg, err := d.groupConfig(ctx, in.GetGroup())
	if isMissing(err, protocol.SubscriptionGroupNotExist) {
		cfg, err = protocol.DecodeBody[protocol.SubscriptionGroupConfig]([]byte("{}")) // all defaults
	}
	if err != nil {
		return nil, err
	}
	cfg.GroupName, cfg.Attributes = in.GetGroup(), nil // attributes are changes, and there are none
	set(&cfg.ConsumeEnable, in.ConsumeEnabled)
	set(&cfg.ConsumeMessageOrderly, in.Orderly)
	set(&cfg.ConsumeBroadcastEnable, in.BroadcastEnabled)
	set(&cfg.RetryMaxTimes, in.RetryMaxTimes)
	_, err = d.change(ctx, protocol.UpdateAndCreateSubscriptionGroup, nil, protocol.EncodeBody(cfg))
	if err != nil {
		return nil, err
	}
	return d.GetGroup(ctx, &v1.GetGroupRequest{Group: in.GetGroup()})
}

func (d *door) DeleteGroup(ctx context.Context, in *v1.DeleteGroupRequest) (*v1.DeleteGroupResponse, error) {
	h := &protocol.DeleteSubscriptionGroupRequestHeader{GroupName: in.GetGroup(), CleanOffset: true}
	_, err := d.call(ctx, protocol.DeleteSubscriptionGroup, h, nil)
	return &v1.DeleteGroupResponse{}, err
}

// GetLag tells how far a group is behind. Its dead letters are not its backlog.
func (d *door) GetLag(ctx context.Context, in *v1.GetLagRequest) (*v1.Lag, error) {
	if _, err := d.groupConfig(ctx, in.GetGroup()); err != nil {
		return nil, err
	}
	h := &protocol.GetConsumeStatsRequestHeader{ConsumerGroup: in.GetGroup(), Topic: in.GetTopic()}
	stats, err := body[protocol.ConsumeStats](d.call(ctx, protocol.GetConsumeStats, h, nil))
	if err != nil {
		return nil, err
	}
	out := &v1.Lag{ConsumeRate: stats.ConsumeTPS}
	for _, q := range slices.SortedFunc(maps.Keys(stats.OffsetTable), protocol.MessageQueue.Compare) {
		at := stats.OffsetTable[q]
		if q.Topic == deadPrefix+in.GetGroup() {
			continue
		}
		lag := max(at.BrokerOffset-at.ConsumerOffset, 0)
		out.Total += lag
		out.Queues = append(out.Queues, &v1.QueueLag{
			Topic: q.Topic, QueueId: q.QueueID, MaxOffset: at.BrokerOffset,
			ConsumerOffset: at.ConsumerOffset, Lag: lag, LastConsumed: timeOf(at.LastTimestampMillis),
		})
	}
	return out, nil
}

// ListGroupClients lists a group's consumers; none when nobody is online.
func (d *door) ListGroupClients(
	ctx context.Context, in *v1.ListGroupClientsRequest,
) (*v1.ListClientsResponse, error) {
	h := &protocol.GetConsumerConnectionListRequestHeader{ConsumerGroup: in.GetGroup()}
	online, err := body[protocol.ConsumerConnection](d.call(ctx, protocol.GetConsumerConnectionList, h, nil))
	switch {
	case isMissing(err, protocol.ConsumerNotOnline):
		return &v1.ListClientsResponse{}, nil
	case err != nil:
		return nil, err
	}
	out := &v1.ListClientsResponse{}
	for _, conflict := range online.Conflicts {
		out.Conflicts = append(out.Conflicts, clean(conflict))
	}
	for _, c := range online.ConnectionSet {
		out.Clients = append(out.Clients, &v1.Client{
			ClientId: clean(c.ClientID), Address: c.ClientAddr, Language: c.Language.String(), Version: c.Version,
			Group: in.GetGroup(), Consumer: true,
		})
	}
	return out, nil
}

// atEnd as a time resets to the end of a queue.
const atEnd = -1

func (d *door) ResetOffsets(ctx context.Context, in *v1.ResetOffsetsRequest) (*v1.ResetOffsetsResponse, error) {
	h := &protocol.ResetOffsetRequestHeader{
		Group: in.GetGroup(), Topic: in.GetTopic(), QueueID: allQueues, IsForce: true,
	}
	set(&h.QueueID, in.QueueId)
	switch in.GetTo() {
	case v1.ResetTarget_EARLIEST:
	case v1.ResetTarget_LATEST:
		h.Timestamp = atEnd
	case v1.ResetTarget_TIMESTAMP:
		if h.Timestamp = millis(in.GetTimestamp(), atEnd); h.Timestamp < 0 {
			return nil, badRequest("timestamp is missing, or before 1970")
		}
	case v1.ResetTarget_OFFSET:
		if in.QueueId == nil || in.GetOffset() < 0 {
			return nil, refuse(v2.Code_ILLEGAL_OFFSET, "an offset is one of a queue: queueId, and offset from 0 on")
		}
		h.Offset = protocol.Some(in.GetOffset())
	default:
		return nil, badRequest("to is missing: EARLIEST, LATEST, TIMESTAMP or OFFSET")
	}
	reset, err := body[protocol.ResetOffsetBody](d.change(ctx, protocol.InvokeBrokerToResetOffset, h, nil))
	if err != nil {
		return nil, err
	}
	out := &v1.ResetOffsetsResponse{}
	for _, q := range slices.SortedFunc(maps.Keys(reset.OffsetTable), protocol.MessageQueue.Compare) {
		out.Queues = append(out.Queues, &v1.QueueOffset{QueueId: q.QueueID, Offset: reset.OffsetTable[q]})
	}
	return out, nil
}
