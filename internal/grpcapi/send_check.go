// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/message"
)

// What a message may have. Source: ProxyConfig.java.
const (
	maxUserProperties    = 128
	maxUserPropertyBytes = 16 << 10 // of user properties, tag and keys together
	messageGroupBytes    = 64       // a message group is shorter than this
	maxRecovery          = 3600 * time.Second
)

// Message types as the attribute message.type spells them. Source: TopicMessageType.java.
const (
	typeNormal      = "NORMAL"
	typeFIFO        = "FIFO"
	typeDelay       = "DELAY"
	typeTransaction = "TRANSACTION"
	typePriority    = "PRIORITY"
	typeLite        = "LITE"
	typeMixed       = "MIXED"
)

// outgoing is a message on its way from a client's request into a call.
type outgoing struct {
	*v2.Message

	system  *v2.SystemProperties
	typ     string // as its properties say
	encoded []byte // its properties
}

// hasControl tells whether a text holds an ISO control character: U+0000 to U+001F, U+007F to U+009F.
func hasControl(text string) bool { return strings.ContainsFunc(text, unicode.IsControl) }

// isBlank tells whether a text that is there consists of white space only.
func isBlank(text string) bool { return strings.TrimSpace(text) == "" }

// check refuses what may not be sent, in the order in which the original looks. Source:
// SendMessageActivity.java buildMessage, buildMessageProperty.
func (m *outgoing) check(a *api, now time.Time) error {
	switch n, limit := len(m.GetBody()), a.cfg.MaxBodyBytes(); {
	case n == 0:
		return refuse(v2.Code_MESSAGE_BODY_EMPTY, "message body cannot be empty")
	case n > limit:
		return refuse(v2.Code_MESSAGE_BODY_TOO_LARGE,
			"message body cannot exceed the max %d, it has %d bytes", limit, n)
	}
	if err := m.checkProperties(); err != nil {
		return err
	}
	switch id := m.system.GetMessageId(); {
	case isBlank(id):
		return refuse(v2.Code_ILLEGAL_MESSAGE_ID, "message id cannot be empty")
	case hasControl(id):
		return refuse(v2.Code_ILLEGAL_MESSAGE_ID, "message id cannot contain control character")
	}
	if m.system.GetMessageType() == v2.MessageType_TRANSACTION {
		if d := m.system.GetOrphanedTransactionRecoveryDuration(); d.AsDuration() > maxRecovery {
			return refuse(v2.Code_BAD_REQUEST,
				"the max transaction recovery time of message is too large, max is %d", int(maxRecovery.Seconds()))
		}
	}
	if p := m.system.GetPriority(); p < 0 {
		return refuse(v2.Code_BAD_REQUEST, "the priority of message is %d, wanted 0 or more", p)
	}
	at := m.system.GetDeliveryTimestamp()
	if delay := at.AsTime().Sub(now); at != nil && delay > a.cfg.MaxDelay {
		return refuse(v2.Code_ILLEGAL_DELIVERY_TIME,
			"the max delay time of message is too large, max is %d ms, asked for %d ms",
			a.cfg.MaxDelay.Milliseconds(), at.AsTime().UnixMilli()-now.UnixMilli())
	} else if at.GetSeconds() < 0 {
		return refuse(v2.Code_ILLEGAL_DELIVERY_TIME,
			"the delivery time of message is negative: %d ms", at.AsTime().UnixMilli())
	}
	if err := m.checkGroups(); err != nil {
		return err
	}
	return m.settleType()
}

func (m *outgoing) checkProperties() error {
	if n := len(m.GetUserProperties()); n > maxUserProperties {
		return refuse(v2.Code_MESSAGE_PROPERTIES_TOO_LARGE,
			"too many user properties, max is %d, it has %d", maxUserProperties, n)
	}
	size := 0
	for name, value := range m.GetUserProperties() {
		switch {
		case message.IsReserved(name):
			return refuse(v2.Code_ILLEGAL_MESSAGE_PROPERTY_KEY, "property is used by system: %s", name)
		case name == "":
			return refuse(v2.Code_ILLEGAL_MESSAGE_PROPERTY_KEY, "the key of property cannot be empty")
		case hasControl(name):
			return refuse(v2.Code_ILLEGAL_MESSAGE_PROPERTY_KEY,
				"the key of property cannot contain control character")
		case hasControl(value):
			return refuse(v2.Code_ILLEGAL_MESSAGE_PROPERTY_KEY,
				"the value of property cannot contain control character")
		}
		size += len(name) + len(value)
	}
	if err := checkTag(m.system.GetTag()); err != nil {
		return err
	}
	size += len(m.system.GetTag())
	for _, key := range m.system.GetKeys() {
		if err := checkText(v2.Code_ILLEGAL_MESSAGE_KEY, "key", key); err != nil {
			return err
		}
		size += len(key)
	}
	if size > maxUserPropertyBytes {
		return refuse(v2.Code_MESSAGE_PROPERTIES_TOO_LARGE,
			"the total size of user property is too large, max is %d, it has %d bytes", maxUserPropertyBytes, size)
	}
	return nil
}

func checkTag(tag string) error {
	if strings.Contains(tag, "|") {
		return refuse(v2.Code_ILLEGAL_MESSAGE_TAG, "tag cannot contain '|'")
	}
	return checkText(v2.Code_ILLEGAL_MESSAGE_TAG, "tag", tag)
}

// checkText refuses a text that is there and says nothing, or holds control characters.
func checkText(code v2.Code, what, text string) error {
	switch {
	case text != "" && isBlank(text):
		return refuse(code, "%s cannot be the char sequence of whitespace", what)
	case hasControl(text):
		return refuse(code, "%s cannot contain control character", what)
	}
	return nil
}

// checkGroups refuses a message group, and a lite topic's name.
func (m *outgoing) checkGroups() error {
	group := m.system.GetMessageGroup()
	if len(group) >= messageGroupBytes && !isBlank(group) {
		return refuse(v2.Code_ILLEGAL_MESSAGE_GROUP,
			"message group exceed the max size %d, it has %d bytes", messageGroupBytes, len(group))
	}
	if err := checkText(v2.Code_ILLEGAL_MESSAGE_GROUP, "message group", group); err != nil {
		return err
	}
	if m.system.LiteTopic != nil && !liteTopicName.MatchString(m.system.GetLiteTopic()) {
		return refuse(v2.Code_ILLEGAL_LITE_TOPIC,
			"lite topic %q: wanted 1 to 64 letters, digits, hyphens and underscores", m.system.GetLiteTopic())
	}
	if strings.ContainsAny(m.system.GetTraceContext()+m.system.GetBornHost(), "\x01\x02") {
		return refuse(v2.Code_MESSAGE_CORRUPTED,
			"trace context and born host cannot contain the characters U+0001 and U+0002")
	}
	return nil
}

var liteTopicName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// settleType finds the message's type: what it says it is must be what its properties make it. Known
// difference: the original looks at the properties alone, and takes a transaction that is delayed for a
// transaction (case C017).
func (m *outgoing) settleType() error {
	var types []string
	if m.system.GetMessageType() == v2.MessageType_TRANSACTION {
		types = append(types, typeTransaction)
	}
	if m.system.GetDeliveryTimestamp() != nil {
		types = append(types, typeDelay)
	}
	if m.system.GetMessageGroup() != "" || m.GetUserProperties()[message.PropertyShardingKey] != "" {
		types = append(types, typeFIFO)
	}
	if m.system.Priority != nil {
		types = append(types, typePriority)
	}
	if m.system.LiteTopic != nil {
		types = append(types, typeLite)
	}
	m.typ = typeNormal
	if len(types) > 0 {
		m.typ = types[0]
	}
	declared := m.system.GetMessageType().String()
	switch {
	case len(types) > 1:
		return refuse(v2.Code_MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
			"the properties of the message make it %s at once", strings.Join(types, " and "))
	case m.system.GetMessageType() != v2.MessageType_MESSAGE_TYPE_UNSPECIFIED && declared != m.typ:
		return refuse(v2.Code_MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
			"the message says that it is %s, but its properties make it %s", declared, m.typ)
	}
	return nil
}

// encode lays the properties down as they are stored. producerGroup is the group that is asked about open
// transactions: the topic's name, since producers have no groups here.
func (m *outgoing) encode(producerGroup, remote string) error {
	dst := make([]byte, 0, 384)
	for name, value := range m.GetUserProperties() {
		dst = message.AppendProperty(dst, name, value)
	}
	put := func(name, value string) {
		if value != "" {
			dst = message.AppendProperty(dst, name, value)
		}
	}
	put(message.PropertyTags, m.system.GetTag())
	put(message.PropertyKeys, strings.Join(m.system.GetKeys(), message.KeySeparator))
	put(message.PropertyUniqueKey, m.system.GetMessageId())
	switch m.typ {
	case typeTransaction:
		put(message.PropertyTransactionPrepared, "true")
		if d := m.system.GetOrphanedTransactionRecoveryDuration(); d != nil {
			put(message.PropertyCheckImmunityTimeInSeconds, strconv.FormatInt(int64(d.AsDuration()/time.Second), 10))
		}
	case typeDelay:
		put(message.PropertyTimerDeliverMillis,
			strconv.FormatInt(m.system.GetDeliveryTimestamp().AsTime().UnixMilli(), 10))
	case typePriority:
		put(message.PropertyPriority, strconv.FormatInt(int64(m.system.GetPriority()), 10))
	case typeLite:
		put(message.PropertyLiteTopic, m.system.GetLiteTopic())
	}
	put(message.PropertyProducerGroup, producerGroup)
	put(message.PropertyShardingKey, m.system.GetMessageGroup())
	put(message.PropertyTraceContext, m.system.GetTraceContext())
	host := m.system.GetBornHost()
	if isBlank(host) {
		host = remote
	}
	put(message.PropertyBornHost, host)
	if born := m.system.GetBornTimestamp(); born != nil {
		put(message.PropertyBornTimestamp, strconv.FormatInt(born.AsTime().UnixMilli(), 10))
	}
	m.encoded = dst
	if len(dst) > message.MaxPropertiesBytes {
		return refuse(v2.Code_MESSAGE_PROPERTIES_TOO_LARGE,
			"properties of %d bytes, max is %d", len(dst), message.MaxPropertiesBytes)
	}
	return nil
}
