// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"crypto/md5"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/message"
)

// delivery is what a receive adds to a stored message.
type delivery struct {
	topic  *v2.Resource // as the client named it
	handle string       // empty: none
	framed bool         // it goes into a ReceiveMessageResponse in its frame
}

// delivered makes a client's message of a stored one; see appendDelivered. d is nil for a message that is shown
// and not received. Errors: *message.FormatError.
func delivered(rec message.Record, d *delivery) (*v2.Message, error) {
	encoded, body, err := appendDelivered(nil, rec, d)
	if err != nil {
		return nil, err
	}
	m := &v2.Message{}
	return m, proto.Unmarshal(append(encoded, body...), m)
}

// Field numbers of Message, Resource, SystemProperties, Digest, Timestamp, DeadLetterQueue and map entries.
const (
	messageTopic, messageUser, messageSystem, messageBody = 1, 2, 3, 4

	resourceNamespace, resourceName = 1, 2
	entryKey, entryValue            = 1, 2
	digestType, digestChecksum      = 1, 2
	timeSeconds, timeNanos          = 1, 2
	deadTopic, deadID               = 1, 2

	systemTag, systemKeys, systemID, systemDigest, systemEncoding = 1, 2, 3, 4, 5
	systemType, systemBorn, systemBornHost, systemStored          = 6, 7, 8, 9
	systemStoreHost, systemDelivery, systemHandle, systemQueueID  = 10, 11, 12, 13
	systemOffset, systemAttempt, systemGroup, systemTrace         = 14, 16, 17, 18
	systemDead, systemLite, systemPriority                        = 20, 21, 22
)

// parcel is a message that is being encoded.
type parcel struct {
	user, system []byte // encoded
	delivered    bool   // its delivery time is known

	transaction, delayed, grouped, prioritised, lite bool

	id, bornHost, deadTopic, deadID string
}

// parcels are reused: every message that is delivered needs one.
var parcels = sync.Pool{New: func() any { return new(parcel) }}

// appendDelivered appends a Message for a client, made of a stored one: straight into its wire form, since this
// is done for every message. What is compressed is inflated, because some clients cannot and others know but
// one of the four ways that are in use; what cannot be inflated goes out as it is. Errors:
// *message.FormatError.
// Source: GrpcConverter.java buildMessage. Known differences: the original hands out some of its own properties
// among the user's, and fails with a property that is not UTF-8, which is mended here; there a message that asked for
// seconds says that it is due so many seconds after it was received.
func appendDelivered(dst []byte, rec message.Record, d *delivery) (encoded, body []byte, err error) {
	stored, err := message.Decode(rec)
	if err != nil {
		return dst, nil, err
	}
	p, _ := parcels.Get().(*parcel) // it is one
	defer parcels.Put(p)
	*p = parcel{user: p.user[:0], system: p.system[:0]}
	for name, value := range message.Properties(stored.Properties) {
		p.property(name, value)
	}
	body = stored.Body
	encoding := v2.Encoding_IDENTITY
	if stored.SysFlag&message.SysFlagCompressed != 0 {
		encoding = v2.Encoding_GZIP
		if plain, ok := inflate(body, stored.SysFlag); ok {
			body, encoding = plain, v2.Encoding_IDENTITY
		}
	}
	p.rest(&stored, body, encoding, d)
	name, namespace := stored.Topic, ""
	if d != nil {
		name, namespace = d.topic.GetName(), d.topic.GetResourceNamespace()
	}
	resource := sizeOf(namespace) + sizeOf(name)
	size := 3 + protowire.SizeBytes(resource) + len(p.user) + protowire.SizeBytes(len(p.system)) +
		protowire.SizeBytes(len(body))
	dst = slices.Grow(dst, size-len(body)+16)
	if d != nil && d.framed {
		dst = appendReceivedHead(dst, size)
	}
	dst = protowire.AppendTag(dst, messageTopic, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(resource))
	dst = appendText(dst, resourceNamespace, namespace)
	dst = appendText(dst, resourceName, name)
	dst = append(dst, p.user...)
	dst = protowire.AppendTag(dst, messageSystem, protowire.BytesType)
	dst = protowire.AppendBytes(dst, p.system)
	dst = protowire.AppendTag(dst, messageBody, protowire.BytesType)
	return protowire.AppendVarint(dst, uint64(len(body))), body, nil
}

// sizeOf is the size of a text field whose number is below 16.
func sizeOf(text string) int {
	if text == "" {
		return 0
	}
	return 1 + protowire.SizeBytes(len(text))
}

// valid is a text as proto3 wants it.
func valid(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// appendText appends a text field; an empty text is left out.
func appendText(dst []byte, field protowire.Number, text string) []byte {
	if text == "" {
		return dst
	}
	dst = protowire.AppendTag(dst, field, protowire.BytesType)
	return protowire.AppendString(dst, valid(text))
}

// appendNumber appends a number field, also when it is 0.
func appendNumber(dst []byte, field protowire.Number, n int64) []byte {
	dst = protowire.AppendTag(dst, field, protowire.VarintType)
	return protowire.AppendVarint(dst, uint64(n))
}

// appendTime appends a Timestamp.
func appendTime(dst []byte, field protowire.Number, millis int64) []byte {
	seconds, nanos := millis/1000, (millis%1000)*int64(time.Millisecond)
	if nanos < 0 {
		seconds, nanos = seconds-1, nanos+int64(time.Second)
	}
	size := 2 + protowire.SizeVarint(uint64(seconds)) + protowire.SizeVarint(uint64(nanos))
	dst = protowire.AppendTag(dst, field, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(size))
	dst = appendNumber(dst, timeSeconds, seconds)
	return appendNumber(dst, timeNanos, nanos)
}

// appendPair appends a message of two texts, such as a map's entry.
func appendPair(dst []byte, field, first, second protowire.Number, a, b string) []byte {
	a, b = valid(a), valid(b)
	dst = protowire.AppendTag(dst, field, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(sizeOf(a)+sizeOf(b)))
	dst = appendText(dst, first, a)
	return appendText(dst, second, b)
}

// property takes one of the message's properties over, into the field that is for it or among the user's.
//
//lint:long one case a property
func (p *parcel) property(name, value string) {
	switch name {
	case message.PropertyTags:
		p.system = appendText(p.system, systemTag, value)
	case message.PropertyKeys:
		for key := range strings.FieldsSeq(value) {
			p.system = appendText(p.system, systemKeys, key)
		}
	case message.PropertyUniqueKey:
		p.id = value
	case message.PropertyTransactionPrepared:
		p.transaction = value == "true"
	case message.PropertyDelayLevel, message.PropertyTimerDelayMillis, message.PropertyTimerDelaySeconds:
		p.delayed = true
	case message.PropertyTimerDeliverMillis, message.PropertyTimerOutMillis:
		p.delayed = true
		if millis, err := strconv.ParseInt(value, 10, 64); err == nil && millis >= 0 {
			p.delivery(millis)
		}
	case message.PropertyShardingKey:
		p.grouped = true
		p.system = appendText(p.system, systemGroup, value)
	case message.PropertyPriority:
		if n, err := strconv.ParseInt(value, 10, 32); err == nil && n >= 0 {
			p.prioritised = true
			p.system = appendNumber(p.system, systemPriority, n)
		}
	case message.PropertyLiteTopic:
		p.lite = true
		p.system = appendText(p.system, systemLite, value)
	case message.PropertyTraceContext:
		p.system = appendText(p.system, systemTrace, value)
	case message.PropertyBornHost:
		p.bornHost = value
	case message.PropertyDLQOriginTopic:
		p.deadTopic = value
	case message.PropertyDLQOriginMessageID:
		p.deadID = value
	default:
		if !message.IsInternal(name) {
			p.user = appendPair(p.user, messageUser, entryKey, entryValue, name, value)
		}
	}
}

// delivery appends the delivery time. The first property that says when decides.
func (p *parcel) delivery(millis int64) {
	if !p.delivered {
		p.delivered = true
		p.system = appendTime(p.system, systemDelivery, millis)
	}
}

// rest appends the system properties that are not properties of the stored message.
func (p *parcel) rest(stored *message.Message, body []byte, encoding v2.Encoding, d *delivery) {
	if p.id == "" {
		p.id = message.OffsetMsgID(stored.StoreHost, stored.LogOffset)
	}
	dst := appendText(p.system, systemID, p.id)
	dst = appendDigest(dst, body)
	dst = appendNumber(dst, systemEncoding, int64(encoding))
	dst = appendNumber(dst, systemType, int64(p.typ()))
	dst = appendTime(dst, systemBorn, stored.BornTimestamp)
	var host [64]byte
	if p.bornHost == "" && stored.BornHost.IsValid() {
		dst = protowire.AppendTag(dst, systemBornHost, protowire.BytesType)
		dst = protowire.AppendBytes(dst, stored.BornHost.Addr().AppendTo(host[:0]))
	}
	dst = appendText(dst, systemBornHost, p.bornHost)
	dst = appendTime(dst, systemStored, stored.StoreTimestamp)
	dst = protowire.AppendTag(dst, systemStoreHost, protowire.BytesType)
	dst = protowire.AppendBytes(dst, stored.StoreHost.AppendTo(host[:0]))
	if d != nil {
		dst = appendText(dst, systemHandle, d.handle)
	}
	dst = appendNumber(dst, systemQueueID, int64(stored.QueueID))
	dst = appendNumber(dst, systemOffset, int64(stored.QueueOffset))
	dst = appendNumber(dst, systemAttempt, int64(stored.ReconsumeTimes)+1)
	if p.deadTopic != "" && p.deadID != "" {
		dst = appendPair(dst, systemDead, deadTopic, deadID, p.deadTopic, p.deadID)
	}
	p.system = dst
}

// typ is the message's type, as its properties say.
func (p *parcel) typ() v2.MessageType {
	switch {
	case p.transaction:
		return v2.MessageType_TRANSACTION
	case p.delayed:
		return v2.MessageType_DELAY
	case p.grouped:
		return v2.MessageType_FIFO
	case p.prioritised:
		return v2.MessageType_PRIORITY
	case p.lite:
		return v2.MessageType_LITE
	default:
		return v2.MessageType_NORMAL
	}
}

// digestBytes is the size of an encoded digest: a type, and 32 characters.
const digestBytes = 2 + 2 + 2*md5.Size

// appendDigest appends the MD5 of the body as clients compare it: upper-case hexadecimal.
func appendDigest(dst, body []byte) []byte {
	dst = protowire.AppendTag(dst, systemDigest, protowire.BytesType)
	dst = protowire.AppendVarint(dst, digestBytes)
	dst = appendNumber(dst, digestType, int64(v2.DigestType_MD5))
	dst = protowire.AppendTag(dst, digestChecksum, protowire.BytesType)
	dst = protowire.AppendVarint(dst, 2*md5.Size)
	sum := md5.Sum(body)
	start := len(dst)
	dst = hex.AppendEncode(dst, sum[:])
	for i, c := range dst[start:] {
		if c >= 'a' {
			dst[start+i] = c - ('a' - 'A')
		}
	}
	return dst
}
