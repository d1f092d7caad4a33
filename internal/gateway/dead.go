// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"strings"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	v1 "github.com/roquetmq/roquet/api/proto/roquet/v1"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
)

// Prefixes of the topics that the server makes for a group. Source: MixAll.java.
const (
	deadPrefix  = "%DLQ%"
	retryPrefix = "%RETRY%"
)

func isGroupTopic(name string) bool {
	return strings.HasPrefix(name, deadPrefix) || strings.HasPrefix(name, retryPrefix)
}

// deadLetters finds where the dead letters of a group are to be read: from what the group has committed in its
// own dead letter topic on. topic is "" when it has none.
func (d *door) deadLetters(ctx context.Context, group string) (topic string, next int64, err error) {
	if _, err := d.groupConfig(ctx, group); err != nil {
		return "", 0, err
	}
	topic = deadPrefix + group
	answer, err := d.call(ctx, protocol.GetTopicConfig, &protocol.GetTopicConfigRequestHeader{Topic: topic}, nil)
	if answer.Code == protocol.TopicNotExist {
		return "", 0, nil
	}
	if err == nil {
		answer, err = d.call(ctx, protocol.QueryConsumerOffset, &protocol.QueryConsumerOffsetRequestHeader{
			ConsumerGroup: group, Topic: topic, SetZeroIfNotFound: protocol.Some(false),
		}, nil)
	}
	if answer.Code == protocol.QueryNotFound {
		return topic, 0, nil
	}
	if h, ok := answer.Header.(*protocol.QueryConsumerOffsetResponseHeader); ok {
		next = h.Offset
	}
	return topic, next, err
}

func (d *door) BrowseDeadLetters(ctx context.Context, in *v1.BrowseDeadLettersRequest) (*v1.BrowseResponse, error) {
	topic, next, err := d.deadLetters(ctx, in.GetGroup())
	if err != nil || topic == "" {
		return &v1.BrowseResponse{}, err
	}
	set(&next, in.Offset)
	return d.browse(ctx, topic, 0, next, in.GetMax())
}

// RedriveDeadLetters publishes dead letters again, one after the other, and then notes how far it came: after a
// crash in between, the last ones are published twice.
func (d *door) RedriveDeadLetters(
	ctx context.Context, in *v1.RedriveDeadLettersRequest,
) (*v1.RedriveDeadLettersResponse, error) {
	left, err := limit("max", in.GetMax(), maxReceive, maxPage)
	if err != nil {
		return nil, err
	}
	out := &v1.RedriveDeadLettersResponse{}
	topic, next, err := d.deadLetters(ctx, in.GetGroup())
	if err != nil || topic == "" {
		return out, err
	}
	for more := true; more && left > 0; {
		answer, h, err := d.read(ctx, topic, 0, next, min(left, maxReceive))
		if err != nil {
			return nil, err
		}
		more = false
		err = message.EachRecord(answer.Body, answer.Bodies, func(rec message.Record) error {
			result := &v1.RedriveResult{Offset: int64(rec.QueueOffset())}
			out.Results = append(out.Results, result)
			err := d.redrive(ctx, rec, result)
			if more = err == nil; more {
				next, left = result.GetOffset()+1, left-1
			} else {
				_, result.Error = d.errorOf(err)
			}
			return err
		})
		out.Remaining = max(h.MaxOffset-next, 0)
		more = more && err == nil
	}
	_, err = d.call(ctx, protocol.UpdateConsumerOffset, &protocol.UpdateConsumerOffsetRequestHeader{
		ConsumerGroup: in.GetGroup(), Topic: topic, CommitOffset: next,
	}, nil)
	return out, err
}

// redrive publishes one dead letter again.
func (d *door) redrive(ctx context.Context, rec message.Record, result *v1.RedriveResult) error {
	properties := rec.Properties()
	origin, ok := message.Property(properties, message.PropertyRetryTopic)
	if !ok {
		return refuse(v2.Code_MESSAGE_CORRUPTED, "the dead letter does not say where it came from")
	}
	result.Topic = clean(origin)
	answer, err := d.call(ctx, protocol.SendMessageV2, &protocol.SendMessageRequestHeader{
		ProducerGroup: origin, Topic: origin, DefaultTopic: defaultTopic, DefaultTopicQueueNums: defaultQueues,
		QueueID: allQueues, BornTimestamp: rec.BornTimestamp(), Flag: rec.Flag(),
		SysFlag:    rec.SysFlag() & (message.SysFlagCompressed | message.CompressionMask),
		Properties: message.WithoutProperty(properties, message.DLQProperties()...),
	}, rec.Body())
	if h, ok := answer.Header.(*protocol.SendMessageResponseHeader); ok {
		result.MessageId = clean(h.TransactionID)
	}
	return err
}
