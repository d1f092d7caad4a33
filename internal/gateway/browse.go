// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	v1 "github.com/roquetmq/roquet/api/proto/roquet/v1"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

const (
	toolsGroup       = "TOOLS_CONSUMER" // reads without a group of its own. Source: MixAll.java
	traceTopic       = "RMQ_SYS_TRACE_TOPIC"
	pullSubscription = 4 // sysFlag: the subscription comes with the pull. Source: PullSysFlag.java
)

// show makes a message of a stored one. Texts that are no UTF-8 are repaired, or no JSON could hold them.
func (d *door) show(rec message.Record) (*v1.Message, error) {
	in, err := d.cfg.Rules.Incoming(rec)
	if err != nil {
		return nil, err
	}
	sys := in.GetSystemProperties()
	m := &v1.Message{
		MessageId: clean(sys.GetMessageId()), Topic: clean(in.GetTopic().GetName()), QueueId: sys.GetQueueId(),
		Offset: sys.GetQueueOffset(), Tag: clean(sys.GetTag()), Group: clean(sys.GetMessageGroup()),
		MessageType: v1.MessageType(sys.GetMessageType()), DeliverAt: sys.GetDeliveryTimestamp(),
		Born: sys.GetBornTimestamp(), BornHost: clean(sys.GetBornHost()), Stored: sys.GetStoreTimestamp(),
		DeliveryAttempt: sys.GetDeliveryAttempt(), Priority: sys.Priority, Properties: map[string]string{},
	}
	if isGroupTopic(m.GetTopic()) {
		origin, _ := message.Property(rec.Properties(), message.PropertyRetryTopic)
		id, _ := message.Property(rec.Properties(), message.PropertyOriginMessageID)
		m.OriginTopic, m.OriginMessageId = clean(origin), clean(id)
	}
	if host, err := netip.ParseAddrPort(sys.GetStoreHost()); err == nil {
		m.OffsetMessageId = message.OffsetMsgID(host, rec.LogOffset())
	}
	for _, key := range sys.GetKeys() {
		m.Keys = append(m.Keys, clean(key))
	}
	for name, value := range in.GetUserProperties() {
		m.Properties[clean(name)] = clean(value)
	}
	if body := in.GetBody(); utf8.Valid(body) {
		m.Payload = &v1.Message_Text{Text: string(body)}
	} else {
		m.Payload = &v1.Message_Body{Body: body}
	}
	return m, nil
}

func clean(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// head lays down what belongs to a raw body. What HTTP cannot carry is left out.
func head(h http.Header, m *v1.Message) {
	parts := map[string]string{
		"Receipt-Handle": m.GetReceiptHandle(), "Message-Id": m.GetMessageId(), "Topic": m.GetTopic(),
		"Queue-Id": fmt.Sprint(m.GetQueueId()), "Offset": fmt.Sprint(m.GetOffset()), "Tag": m.GetTag(),
		"Keys": strings.Join(m.GetKeys(), " "), "Group": m.GetGroup(),
		"Delivery-Attempt": fmt.Sprint(m.GetDeliveryAttempt()),
	}
	if m.Priority != nil {
		parts["Priority"] = fmt.Sprint(m.GetPriority())
	}
	for name, value := range m.GetProperties() {
		parts["Property-"+name] = value
	}
	for name, value := range parts {
		if value != "" && !strings.ContainsFunc(value, unprintable) && !strings.ContainsFunc(name, noTokenRune) {
			h.Set(headerPrefix+name, value)
		}
	}
	h.Set("Content-Type", typeRaw)
}

func unprintable(r rune) bool { return r < ' ' || r > '~' }

func noTokenRune(r rune) bool {
	return r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
}

// showAll makes messages of an answer's records.
func (d *door) showAll(answer remoting.Response) (all []*v1.Message, err error) {
	err = message.EachRecord(answer.Body, answer.Bodies, func(rec message.Record) error {
		m, err := d.show(rec)
		all = append(all, m)
		return err
	})
	return all, err
}

// limit is how many a request wants: 1 to most, or none of its own.
func limit(name string, n, none, most int32) (int32, error) {
	if n < 0 || n > most {
		return 0, badRequest("%s %d, wanted 1 to %d", name, n, most)
	}
	return cmp.Or(n, none), nil
}

// read reads a queue at an offset; before its first message that one's.
func (d *door) read(
	ctx context.Context, topic string, queueID int32, offset int64, count int32,
) (remoting.Response, *protocol.PullMessageResponseHeader, error) {
	for range 2 {
		answer, err := d.call(ctx, protocol.PullMessage, &protocol.PullMessageRequestHeader{
			ConsumerGroup: toolsGroup, Topic: topic, QueueID: queueID, QueueOffset: offset, MaxMsgNums: count,
			SysFlag: pullSubscription, Subscription: "*", ExpressionType: protocol.ExpressionTag,
		}, nil)
		h, ok := answer.Header.(*protocol.PullMessageResponseHeader)
		switch {
		case err == nil && ok:
			return answer, h, nil
		case !ok || answer.Code == protocol.NoPermission:
			return answer, nil, err
		case answer.Code != protocol.PullOffsetMoved || h.NextBeginOffset <= offset:
			return remoting.Response{}, h, nil // there is nothing
		}
		offset = h.NextBeginOffset
	}
	return remoting.Response{}, nil, errors.New("the queue's messages were dropped while it was read")
}

func (d *door) browse(
	ctx context.Context, topic string, queueID int32, offset int64, most int32,
) (*v1.BrowseResponse, error) {
	most, err := limit("max", most, maxReceive, maxReceive)
	if err != nil {
		return nil, err
	}
	answer, h, err := d.read(ctx, topic, queueID, max(offset, 0), most)
	if err != nil {
		return nil, err
	}
	out := &v1.BrowseResponse{NextOffset: h.NextBeginOffset, MinOffset: h.MinOffset, MaxOffset: h.MaxOffset}
	out.Messages, err = d.showAll(answer)
	return out, err
}

func (d *door) BrowseQueue(ctx context.Context, in *v1.BrowseQueueRequest) (*v1.BrowseResponse, error) {
	return d.browse(ctx, in.GetTopic(), in.GetQueueId(), in.GetOffset(), in.GetMax())
}

func (d *door) FindMessages(ctx context.Context, in *v1.FindMessagesRequest) (*v1.FindMessagesResponse, error) {
	if in.GetKey() == "" {
		return nil, refuse(v2.Code_ILLEGAL_MESSAGE_KEY, "key is missing: ?key=")
	}
	most, err := limit("max", in.GetMax(), maxReceive, maxReceive)
	if err != nil {
		return nil, err
	}
	found, err := d.find(ctx, &protocol.QueryMessageRequestHeader{
		Topic: in.GetTopic(), Key: in.GetKey(), MaxNum: most, BeginTimestamp: millis(in.GetBegin(), 0),
		EndTimestamp: millis(in.GetEnd(), math.MaxInt64),
	})
	return &v1.FindMessagesResponse{Messages: found}, err
}

func millis(t *timestamppb.Timestamp, none int64) int64 {
	if t == nil {
		return none
	}
	return t.AsTime().UnixMilli()
}

// find looks messages up by a key; none is no error.
func (d *door) find(ctx context.Context, h *protocol.QueryMessageRequestHeader) ([]*v1.Message, error) {
	answer, err := d.call(ctx, protocol.QueryMessage, h, nil)
	if err != nil && answer.Code != protocol.QueryNotFound {
		return nil, err
	}
	return d.showAll(answer)
}

// GetMessage looks for a message by the id its producer gave it, and by its place in the log.
func (d *door) GetMessage(ctx context.Context, in *v1.GetMessageRequest) (*v1.Message, error) {
	id, text := in.GetId(), "no message "+in.GetId()
	var found []*v1.Message
	var err error
	if in.GetTopic() == "" {
		text += "; a messageId is looked for in a topic: ?topic="
	} else {
		found, err = d.find(ctx, &protocol.QueryMessageRequestHeader{
			Topic: in.GetTopic(), Key: id, MaxNum: 1, EndTimestamp: math.MaxInt64,
			UniqueKeyQuery: protocol.Some(true),
		})
	}
	if _, offset, bad := message.ParseOffsetMsgID(id); bad == nil && err == nil && len(found) == 0 {
		var answer remoting.Response
		answer, err = d.call(ctx, protocol.ViewMessageByID,
			&protocol.ViewMessageRequestHeader{Offset: int64(offset)}, nil)
		if err == nil || answer.Code == protocol.SystemError { // nothing is there
			found, err = d.showAll(answer)
		}
		if len(found) > 0 && !strings.EqualFold(found[0].GetOffsetMessageId(), id) {
			found = nil
		}
	}
	if err == nil && len(found) == 0 {
		err = refuse(v2.Code_MESSAGE_NOT_FOUND, "%s", text)
	}
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

// TraceMessage returns what clients wrote to the trace topic about a message.
func (d *door) TraceMessage(ctx context.Context, in *v1.TraceMessageRequest) (*v1.FindMessagesResponse, error) {
	return d.FindMessages(ctx, &v1.FindMessagesRequest{Topic: traceTopic, Key: in.GetId()})
}
