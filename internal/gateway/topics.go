// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/roquetmq/roquet/api/proto/roquet/v1"
	"github.com/roquetmq/roquet/internal/protocol"
)

const (
	maxPage          = 1000
	defaultPage      = 100
	defaultQueues    = 8
	defaultTopic     = "TBW102" // whose permissions topics inherit that are created. Source: TopicValidator.java
	messageTypeName  = "message.type"
	permissionReadWr = int32(v1.Permission_READ_WRITE)
)

// page is which part of a list a request wants. Tokens are where it begins.
func page(size int32, token string) (from, count int32, err error) {
	count, err = limit("pageSize", size, defaultPage, maxPage)
	if token == "" || err != nil {
		return 0, count, err
	}
	n, err := strconv.ParseInt(token, 10, 32)
	if err != nil || n < 0 {
		err = badRequest("pageToken is none that a page before had")
	}
	return int32(n), count, err
}

// nextPage is the token of the page after one of n entries.
func nextPage(from int32, n int, total int32) string {
	if next := from + int32(n); n > 0 && next < total {
		return strconv.Itoa(int(next))
	}
	return ""
}

// listTopics returns the topics from one on, count of them at most; count 0: all.
func (d *door) listTopics(ctx context.Context, from, count int32) (*v1.ListTopicsResponse, error) {
	h := &protocol.GetAllTopicConfigRequestHeader{TopicSeq: from}
	if count > 0 {
		h.MaxTopicNum = protocol.Some(count)
	}
	answer, err := d.call(ctx, protocol.GetAllTopicConfig, h, nil)
	all, err := body[protocol.TopicConfigAndMappingSerializeWrapper](answer, err)
	if err != nil {
		return nil, err
	}
	system, err := body[protocol.TopicList](d.call(ctx, protocol.GetSystemTopicListFromBroker, nil, nil))
	if err != nil {
		return nil, err
	}
	out := &v1.ListTopicsResponse{}
	for _, name := range slices.Sorted(maps.Keys(all.TopicConfigTable)) {
		t := topicOf(new(all.TopicConfigTable[name]))
		t.System = slices.Contains(system.TopicList, name)
		out.Topics = append(out.Topics, t)
	}
	if r, ok := answer.Header.(*protocol.GetAllTopicConfigResponseHeader); ok {
		out.Total = r.TotalTopicNum.Or(0)
	}
	out.NextPageToken = nextPage(from, len(out.GetTopics()), out.GetTotal())
	return out, nil
}

func topicOf(cfg *protocol.TopicConfig) *v1.Topic {
	return &v1.Topic{
		Name: cfg.TopicName, ReadQueues: cfg.ReadQueueNums, WriteQueues: cfg.WriteQueueNums,
		Permission:  v1.Permission(cfg.Perm & permissionReadWr),
		MessageType: v1.MessageType(v1.MessageType_value[cfg.Attributes[messageTypeName]]),
		Attributes:  cfg.Attributes,
	}
}

func (d *door) ListTopics(ctx context.Context, in *v1.ListTopicsRequest) (*v1.ListTopicsResponse, error) {
	from, count, err := page(in.GetPageSize(), in.GetPageToken())
	if err != nil {
		return nil, err
	}
	return d.listTopics(ctx, from, count)
}

func (d *door) topicConfig(ctx context.Context, name string) (*protocol.TopicConfigAndQueueMapping, error) {
	h := &protocol.GetTopicConfigRequestHeader{Topic: name}
	return body[protocol.TopicConfigAndQueueMapping](d.call(ctx, protocol.GetTopicConfig, h, nil))
}

func (d *door) GetTopic(ctx context.Context, in *v1.GetTopicRequest) (*v1.Topic, error) {
	cfg, err := d.topicConfig(ctx, in.GetTopic())
	if err != nil {
		return nil, err
	}
	return topicOf(&cfg.TopicConfig), nil
}

// set takes over what a request says of a field, if it says anything.
func set[T any](field, said *T) {
	if said != nil {
		*field = *said
	}
}

// isMissing tells whether the broker said with the code that something is not there.
func isMissing(err error, code protocol.ResponseCode) bool {
	var answered *protocol.Error
	return errors.As(err, &answered) && answered.Code == code
}

func (d *door) PutTopic(ctx context.Context, in *v1.PutTopicRequest) (*v1.Topic, error) {
	cfg, err := d.topicConfig(ctx, in.GetTopic())
	if isMissing(err, protocol.TopicNotExist) {
		cfg, err = protocol.DecodeBody[protocol.TopicConfigAndQueueMapping]([]byte("{}")) // all defaults
		if in.Queues == nil && err == nil {
			cfg.ReadQueueNums, cfg.WriteQueueNums = defaultQueues, defaultQueues
		}
	}
	if err != nil {
		return nil, err
	}
	attributes, err := attributeChanges(cfg.Attributes, in)
	if err != nil {
		return nil, err
	}
	set(&cfg.ReadQueueNums, in.Queues)
	set(&cfg.WriteQueueNums, in.Queues)
	set(&cfg.ReadQueueNums, in.ReadQueues)
	set(&cfg.WriteQueueNums, in.WriteQueues)
	if p := in.GetPermission(); p != v1.Permission_PERMISSION_UNSPECIFIED {
		cfg.Perm = int32(p)
	}
	_, err = d.change(ctx, protocol.UpdateAndCreateTopic, &protocol.CreateTopicRequestHeader{
		Topic: in.GetTopic(), DefaultTopic: defaultTopic, ReadQueueNums: cfg.ReadQueueNums,
		WriteQueueNums: cfg.WriteQueueNums, Perm: cfg.Perm, TopicFilterType: cfg.TopicFilterType,
		TopicSysFlag: protocol.Some(cfg.TopicSysFlag), Order: cfg.Order, Attributes: attributes,
	}, nil)
	if err != nil {
		return nil, err
	}
	return d.GetTopic(ctx, &v1.GetTopicRequest{Topic: in.GetTopic()})
}

// attributeChanges are the attributes that a request sets and that are not so yet, as the native protocol has
// them: "+name=value,…".
func attributeChanges(now map[string]string, in *v1.PutTopicRequest) (string, error) {
	wanted := map[string]string{}
	maps.Copy(wanted, in.GetAttributes())
	typ, ok := v1.MessageType_name[int32(in.GetMessageType())]
	if _, known := v1.Permission_name[int32(in.GetPermission())]; !ok || !known {
		return "", badRequest("messageType or permission has a number that stands for nothing")
	}
	if in.GetMessageType() != v1.MessageType_MESSAGE_TYPE_UNSPECIFIED {
		wanted[messageTypeName] = typ
	}
	var changes []string
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if strings.ContainsAny(name+wanted[name], ",=") {
			return "", badRequest("attribute %s: names and values hold no comma and no equals sign", name)
		}
		if now[name] != wanted[name] {
			changes = append(changes, "+"+name+"="+wanted[name])
		}
	}
	return strings.Join(changes, ","), nil
}

func (d *door) DeleteTopic(ctx context.Context, in *v1.DeleteTopicRequest) (*v1.DeleteTopicResponse, error) {
	_, err := d.call(ctx, protocol.DeleteTopicInBroker, &protocol.DeleteTopicRequestHeader{Topic: in.GetTopic()}, nil)
	return &v1.DeleteTopicResponse{}, err
}

func (d *door) GetTopicStats(ctx context.Context, in *v1.GetTopicStatsRequest) (*v1.TopicStats, error) {
	h := &protocol.GetTopicStatsInfoRequestHeader{Topic: in.GetTopic()}
	table, err := body[protocol.TopicStatsTable](d.call(ctx, protocol.GetTopicStatsInfo, h, nil))
	if err != nil {
		return nil, err
	}
	out := &v1.TopicStats{Topic: in.GetTopic(), PublishRate: table.TopicPutTPS}
	for _, q := range slices.SortedFunc(maps.Keys(table.OffsetTable), protocol.MessageQueue.Compare) {
		at := table.OffsetTable[q]
		out.Messages += at.MaxOffset - at.MinOffset
		out.Queues = append(out.Queues, &v1.QueueStats{
			QueueId: q.QueueID, MinOffset: at.MinOffset, MaxOffset: at.MaxOffset,
			LastStored: timeOf(at.LastUpdateTimestampMillis),
		})
	}
	return out, nil
}

// timeOf is a time that may not be there.
func timeOf(millis int64) *timestamppb.Timestamp {
	if millis <= 0 {
		return nil
	}
	return timestamppb.New(time.UnixMilli(millis))
}
