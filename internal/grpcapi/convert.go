// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"crypto/md5"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/message"
)

// delivery is what a receive adds to a stored message.
type delivery struct {
	topic    *v2.Resource // as the client named it
	handle   string
	attempts int32 // reconsumeTimes if over 0, else the record's
}

// parcel is a message for a client in one allocation.
type parcel struct {
	m            v2.Message
	system       v2.SystemProperties
	topic        v2.Resource
	digest       v2.Digest
	born, stored timestamppb.Timestamp
	offset       int64
	attempt      int32
}

// delivered makes a client's message of a stored one. What is compressed is inflated, since some clients cannot
// and others know but one of the four ways that are in use; what cannot be inflated goes out as it is. The
// message aliases rec. d is nil for a message that is shown and not received. Errors: *message.FormatError.
// Source: GrpcConverter.java buildMessage.
// Known difference: the original hands out some of its own properties among the user's.
func delivered(rec message.Record, d *delivery) (*v2.Message, error) {
	stored, err := message.Decode(rec)
	if err != nil {
		return nil, err
	}
	p := &parcel{}
	p.system.MessageType = v2.MessageType_NORMAL
	p.properties(stored.Properties)
	p.m.Body, p.system.BodyEncoding = stored.Body, v2.Encoding_IDENTITY
	if stored.SysFlag&message.SysFlagCompressed != 0 {
		if plain, ok := inflate(stored.Body, stored.SysFlag); ok {
			p.m.Body = plain
		} else {
			p.system.BodyEncoding = v2.Encoding_GZIP
		}
	}
	p.digest.Type, p.digest.Checksum = v2.DigestType_MD5, md5Text(p.m.Body)
	setTime(&p.born, stored.BornTimestamp)
	setTime(&p.stored, stored.StoreTimestamp)
	p.offset, p.attempt = int64(stored.QueueOffset), stored.ReconsumeTimes
	p.topic.Name = stored.Topic
	p.m.Topic = &p.topic
	sys := &p.system
	if d != nil {
		p.m.Topic = d.topic
		if d.attempts > 0 {
			p.attempt = d.attempts
		}
		sys.ReceiptHandle = &d.handle
	}
	p.attempt++
	sys.BodyDigest, sys.BornTimestamp, sys.StoreTimestamp = &p.digest, &p.born, &p.stored
	sys.QueueId, sys.QueueOffset, sys.DeliveryAttempt = stored.QueueID, &p.offset, &p.attempt
	sys.StoreHost = stored.StoreHost.String()
	if sys.GetBornHost() == "" && stored.BornHost.IsValid() {
		sys.BornHost = stored.BornHost.Addr().String()
	}
	if sys.GetMessageId() == "" {
		sys.MessageId = message.OffsetMsgID(stored.StoreHost, stored.LogOffset)
	}
	p.m.SystemProperties = sys
	return &p.m, nil
}

// properties takes a message's properties over, into the fields that are for them or among the user's.
//
//lint:long one case a property
func (p *parcel) properties(encoded string) {
	sys := &p.system
	var transaction, delayed, grouped, prioritised, lite bool
	var originTopic, originID string
	for name, value := range message.Properties(encoded) {
		switch name {
		case message.PropertyTags:
			sys.Tag = &value
		case message.PropertyKeys:
			sys.Keys = strings.Fields(value)
		case message.PropertyUniqueKey:
			sys.MessageId = value
		case message.PropertyTransactionPrepared:
			transaction = value == "true"
		case message.PropertyDelayLevel, message.PropertyTimerDelayMillis:
			delayed = true
		case message.PropertyTimerDelaySeconds:
			delayed = true
			if seconds, err := strconv.ParseInt(value, 10, 64); err == nil {
				sys.DeliveryTimestamp = timestamppb.New(time.Now().Add(time.Duration(seconds) * time.Second))
			}
		case message.PropertyTimerDeliverMillis:
			delayed = true
			if millis, err := strconv.ParseInt(value, 10, 64); err == nil && sys.GetDeliveryTimestamp() == nil {
				sys.DeliveryTimestamp = timestamppb.New(time.UnixMilli(millis))
			}
		case message.PropertyShardingKey:
			grouped = true
			sys.MessageGroup = &value
		case message.PropertyPriority:
			if n, err := strconv.ParseInt(value, 10, 32); err == nil && n >= 0 {
				prioritised = true
				priority := int32(n)
				sys.Priority = &priority
			}
		case message.PropertyLiteTopic:
			lite = true
			sys.LiteTopic = &value
		case message.PropertyTraceContext:
			sys.TraceContext = &value
		case message.PropertyBornHost:
			sys.BornHost = value
		case message.PropertyDLQOriginTopic:
			originTopic = value
		case message.PropertyDLQOriginMessageID:
			originID = value
		default:
			p.user(name, value)
		}
	}
	switch {
	case transaction:
		sys.MessageType = v2.MessageType_TRANSACTION
	case delayed:
		sys.MessageType = v2.MessageType_DELAY
	case grouped:
		sys.MessageType = v2.MessageType_FIFO
	case prioritised:
		sys.MessageType = v2.MessageType_PRIORITY
	case lite:
		sys.MessageType = v2.MessageType_LITE
	}
	if originTopic != "" && originID != "" {
		sys.DeadLetterQueue = &v2.DeadLetterQueue{Topic: originTopic, MessageId: originID}
	}
}

func (p *parcel) user(name, value string) {
	if internal(name) {
		return
	}
	if p.m.UserProperties == nil {
		p.m.UserProperties = make(map[string]string, 4)
	}
	p.m.UserProperties[name] = value
}

func setTime(t *timestamppb.Timestamp, millis int64) {
	t.Seconds = millis / 1000
	t.Nanos = int32(millis%1000) * int32(time.Millisecond)
}

// md5Text is the digest as clients compare it: upper-case hexadecimal.
func md5Text(body []byte) string {
	sum := md5.Sum(body)
	var text [2 * md5.Size]byte
	hex.Encode(text[:], sum[:])
	for i, c := range text {
		if c >= 'a' {
			text[i] = c - ('a' - 'A')
		}
	}
	return string(text[:])
}
