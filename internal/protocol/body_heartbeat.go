// SPDX-License-Identifier: Apache-2.0

package protocol

// ConsumeType is how a group gets its messages.
type ConsumeType string

// The consume types: pull consumers, push consumers, pop consumers.
const (
	ConsumeActively  ConsumeType = "CONSUME_ACTIVELY"
	ConsumePassively ConsumeType = "CONSUME_PASSIVELY"
	ConsumePop       ConsumeType = "CONSUME_POP"
)

// MessageModel is how a group shares its messages.
type MessageModel string

// The message models: every member gets every message, each message goes to one member, lite topics.
const (
	Broadcasting  MessageModel = "BROADCASTING"
	Clustering    MessageModel = "CLUSTERING"
	LiteSelective MessageModel = "LITE_SELECTIVE"
)

// ConsumeFromWhere is where a new group begins.
type ConsumeFromWhere string

// The beginnings; those after the third are deprecated by Apache and read as the first.
const (
	ConsumeFromLastOffset            ConsumeFromWhere = "CONSUME_FROM_LAST_OFFSET"
	ConsumeFromFirstOffset           ConsumeFromWhere = "CONSUME_FROM_FIRST_OFFSET"
	ConsumeFromTimestamp             ConsumeFromWhere = "CONSUME_FROM_TIMESTAMP"
	ConsumeFromLastOffsetAndMinFirst ConsumeFromWhere = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
	ConsumeFromMinOffset             ConsumeFromWhere = "CONSUME_FROM_MIN_OFFSET"
	ConsumeFromMaxOffset             ConsumeFromWhere = "CONSUME_FROM_MAX_OFFSET"
)

// The names in the order of Java's ordinals.
var (
	consumeTypes     = [...]string{string(ConsumeActively), string(ConsumePassively), string(ConsumePop)}
	messageModels    = [...]string{string(Broadcasting), string(Clustering), string(LiteSelective)}
	consumeFromWhere = [...]string{
		string(ConsumeFromLastOffset), string(ConsumeFromLastOffsetAndMinFirst), string(ConsumeFromMinOffset),
		string(ConsumeFromMaxOffset), string(ConsumeFromFirstOffset), string(ConsumeFromTimestamp),
	}
)

func (t *ConsumeType) field(c *bodyCodec)  { c.enum("consumeType", (*string)(t), consumeTypes[:]) }
func (m *MessageModel) field(c *bodyCodec) { c.enum("messageModel", (*string)(m), messageModels[:]) }

func (w *ConsumeFromWhere) field(c *bodyCodec) {
	c.enum("consumeFromWhere", (*string)(w), consumeFromWhere[:])
}

// The expression types of a subscription. The empty string means ExpressionTag.
const (
	ExpressionTag   = "TAG"
	ExpressionSQL92 = "SQL92"
)

// HeartbeatData is HEART_BEAT's body: a client process and the groups it is a member of. With WithoutSub the
// consumers come without subscriptions: those of the heartbeat with the same fingerprint still hold.
type HeartbeatData struct {
	ClientID             string
	ConsumerDataSet      []ConsumerData
	HeartbeatFingerprint int32 // 0: the client speaks the first version, which has none
	ProducerDataSet      []ProducerData
	WithoutSub           bool
}

func (h *HeartbeatData) fields(c *bodyCodec) {
	c.optText("clientID", &h.ClientID)
	list(c, "consumerDataSet", &h.ConsumerDataSet, objectValue[ConsumerData])
	c.int32("heartbeatFingerprint", &h.HeartbeatFingerprint)
	list(c, "producerDataSet", &h.ProducerDataSet, objectValue[ProducerData])
	c.boolean("withoutSub", &h.WithoutSub)
}

// ProducerData names a producer group.
type ProducerData struct {
	GroupName string
}

func (p *ProducerData) fields(c *bodyCodec) { c.optText("groupName", &p.GroupName) }

// ConsumerData is a consumer group and what this member subscribes to.
type ConsumerData struct {
	ConsumeFromWhere    ConsumeFromWhere
	ConsumeType         ConsumeType
	GroupName           string
	MessageModel        MessageModel
	SubscriptionDataSet []SubscriptionData
	UnitMode            bool
}

func (d *ConsumerData) fields(c *bodyCodec) {
	d.ConsumeFromWhere.field(c)
	d.ConsumeType.field(c)
	c.optText("groupName", &d.GroupName)
	d.MessageModel.field(c)
	list(c, "subscriptionDataSet", &d.SubscriptionDataSet, objectValue[SubscriptionData])
	c.boolean("unitMode", &d.UnitMode)
}

// SubscriptionData is a subscription to one topic. SubVersion is the client's clock in milliseconds when the
// subscription last changed; the highest wins.
type SubscriptionData struct {
	ClassFilterMode bool
	CodeSet         []int32 // Java's hashes of TagsSet
	ExpressionType  string  // ExpressionTag, ExpressionSQL92 or empty
	SubString       string  // "*", "a || b" or an SQL expression
	SubVersion      int64
	TagsSet         []string // empty for "*"
	Topic           string
}

func (s *SubscriptionData) setDefaults() { *s = SubscriptionData{ExpressionType: ExpressionTag} }

func (s *SubscriptionData) fields(c *bodyCodec) {
	c.boolean("classFilterMode", &s.ClassFilterMode)
	list(c, "codeSet", &s.CodeSet, int32Value)
	c.optText("expressionType", &s.ExpressionType)
	c.optText("subString", &s.SubString)
	c.int64("subVersion", &s.SubVersion)
	list(c, "tagsSet", &s.TagsSet, textValue)
	c.optText("topic", &s.Topic)
}

// CheckClientRequestBody is CHECK_CLIENT_CONFIG's body: may this client subscribe so?
type CheckClientRequestBody struct {
	ClientID         string
	Group            string
	Namespace        string
	SubscriptionData *SubscriptionData
}

func (b *CheckClientRequestBody) fields(c *bodyCodec) {
	c.optText("clientId", &b.ClientID)
	c.optText("group", &b.Group)
	c.optText("namespace", &b.Namespace)
	optObject(c, "subscriptionData", &b.SubscriptionData)
}

// GetConsumerListByGroupResponseBody answers GET_CONSUMER_LIST_BY_GROUP: the client ids of the group's
// members.
type GetConsumerListByGroupResponseBody struct {
	ConsumerIDList []string
}

func (b *GetConsumerListByGroupResponseBody) fields(c *bodyCodec) {
	list(c, "consumerIdList", &b.ConsumerIDList, textValue)
}

// LockBatchRequestBody is the body of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ (there Apache calls it
// UnlockBatchRequestBody): the queues that a client wants to consume in order, or no longer.
type LockBatchRequestBody struct {
	ClientID       string
	ConsumerGroup  string
	MQSet          []MessageQueue
	OnlyThisBroker bool // do not ask the other brokers of the group
}

func (b *LockBatchRequestBody) fields(c *bodyCodec) {
	c.optText("clientId", &b.ClientID)
	c.optText("consumerGroup", &b.ConsumerGroup)
	list(c, "mqSet", &b.MQSet, objectValue[MessageQueue])
	c.boolean("onlyThisBroker", &b.OnlyThisBroker)
}

// LockBatchResponseBody answers LOCK_BATCH_MQ: the queues that the client now holds.
type LockBatchResponseBody struct {
	LockOKMQSet []MessageQueue
}

func (b *LockBatchResponseBody) fields(c *bodyCodec) {
	list(c, "lockOKMQSet", &b.LockOKMQSet, objectValue[MessageQueue])
}
