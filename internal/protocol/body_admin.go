// SPDX-License-Identifier: Apache-2.0

package protocol

import "time"

// TopicList is a list of topics. BrokerAddr is set in a name server's answer to
// GET_SYSTEM_TOPIC_LIST_FROM_NS.
type TopicList struct {
	BrokerAddr string
	TopicList  []string
}

func (l *TopicList) fields(c *bodyCodec) {
	c.optText("brokerAddr", &l.BrokerAddr)
	list(c, "topicList", &l.TopicList, textValue)
}

// GroupList is a list of consumer groups.
type GroupList struct {
	GroupList []string
}

func (l *GroupList) fields(c *bodyCodec) { list(c, "groupList", &l.GroupList, textValue) }

// KVTable is a table of texts: runtime information, a namespace of the name server.
type KVTable struct {
	Table map[string]string
}

func (t *KVTable) fields(c *bodyCodec) { table(c, "table", &t.Table, textKey{}, textValue) }

// ResetOffsetBody answers INVOKE_BROKER_TO_RESET_OFFSET and is the body of RESET_CONSUMER_CLIENT_OFFSET: new
// offsets by queue.
type ResetOffsetBody struct {
	OffsetTable map[MessageQueue]int64
}

func (b *ResetOffsetBody) fields(c *bodyCodec) {
	table(c, "offsetTable", &b.OffsetTable, queueKey{}, int64Value)
}

// ResetOffsetBodyForC is ResetOffsetBody for clients whose language is LanguageCPP.
type ResetOffsetBodyForC struct {
	OffsetTable []MessageQueueForC
}

func (b *ResetOffsetBodyForC) fields(c *bodyCodec) {
	list(c, "offsetTable", &b.OffsetTable, objectValue[MessageQueueForC])
}

// MessageQueueForC is a queue and an offset.
type MessageQueueForC struct {
	BrokerName string
	Offset     int64
	QueueID    int32
	Topic      string
}

func (q *MessageQueueForC) fields(c *bodyCodec) {
	c.text("brokerName", &q.BrokerName)
	c.int64("offset", &q.Offset)
	c.int32("queueId", &q.QueueID)
	c.text("topic", &q.Topic)
}

// GetConsumerStatusBody is a client's answer to GET_CONSUMER_STATUS_FROM_CLIENT (its offsets by queue) and
// the answer to INVOKE_BROKER_TO_GET_CONSUMER_STATUS (the same by client id).
type GetConsumerStatusBody struct {
	ConsumerTable     map[string]map[MessageQueue]int64
	MessageQueueTable map[MessageQueue]int64
}

func (b *GetConsumerStatusBody) fields(c *bodyCodec) {
	table(c, "consumerTable", &b.ConsumerTable, textKey{}, tableValue(queueKey{}, int64Value))
	table(c, "messageQueueTable", &b.MessageQueueTable, queueKey{}, int64Value)
}

// QueryCorrectionOffsetBody answers QUERY_CORRECTION_OFFSET: offsets by queue id.
type QueryCorrectionOffsetBody struct {
	CorrectionOffsets map[int32]int64
}

func (b *QueryCorrectionOffsetBody) fields(c *bodyCodec) {
	table(c, "correctionOffsets", &b.CorrectionOffsets, intKey[int32]{}, int64Value)
}

// QuerySubscriptionResponseBody answers QUERY_SUBSCRIPTION_BY_CONSUMER. SubscriptionData is nil when the
// group has none to the topic.
type QuerySubscriptionResponseBody struct {
	Group            string
	SubscriptionData *SubscriptionData
	Topic            string
}

func (b *QuerySubscriptionResponseBody) fields(c *bodyCodec) {
	c.optText("group", &b.Group)
	optObject(c, "subscriptionData", &b.SubscriptionData)
	c.optText("topic", &b.Topic)
}

// QueryConsumeTimeSpanBody answers QUERY_CONSUME_TIME_SPAN.
type QueryConsumeTimeSpanBody struct {
	ConsumeTimeSpanSet []QueueTimeSpan
}

func (b *QueryConsumeTimeSpanBody) fields(c *bodyCodec) {
	list(c, "consumeTimeSpanSet", &b.ConsumeTimeSpanSet, objectValue[QueueTimeSpan])
}

// QueueTimeSpan is the store times of a queue's first, last and last consumed message, and how far
// consumption is behind. Its text also has the times as local dates.
type QueueTimeSpan struct {
	ConsumeTimeStampMillis int64
	DelayTimeMillis        int64
	MaxTimeStampMillis     int64
	MessageQueue           MessageQueue
	MinTimeStampMillis     int64
}

func (s *QueueTimeSpan) fields(c *bodyCodec) {
	c.timeField("consumeTimeStamp", "consumeTimeStampStr", &s.ConsumeTimeStampMillis)
	c.int64("delayTime", &s.DelayTimeMillis)
	c.timeField("maxTimeStamp", "maxTimeStampStr", &s.MaxTimeStampMillis)
	if c.field("messageQueue") {
		c.object(&s.MessageQueue)
	}
	c.timeField("minTimeStamp", "minTimeStampStr", &s.MinTimeStampMillis)
}

// timeField writes a time as a number and, under a second name, as the date UtilAll.java makes of it.
func (c *bodyCodec) timeField(name, dateName string, millis *int64) {
	c.int64(name, millis)
	if !c.reading {
		date := localDate(time.UnixMilli(*millis))
		c.text(dateName, &date)
	}
}

func localDate(at time.Time) string {
	return at.Format("2006-01-02#15:04:05:") + at.Format(".000")[1:]
}

// QueryConsumeQueueResponseBody answers QUERY_CONSUME_QUEUE: a stretch of a queue's entries and the bounds of
// the queue.
type QueryConsumeQueueResponseBody struct {
	FilterData       string
	MaxQueueIndex    int64
	MinQueueIndex    int64
	QueueData        []ConsumeQueueData // nil is not written
	SubscriptionData *SubscriptionData
}

func (b *QueryConsumeQueueResponseBody) fields(c *bodyCodec) {
	c.optText("filterData", &b.FilterData)
	c.int64("maxQueueIndex", &b.MaxQueueIndex)
	c.int64("minQueueIndex", &b.MinQueueIndex)
	optList(c, "queueData", &b.QueueData, objectValue[ConsumeQueueData])
	optObject(c, "subscriptionData", &b.SubscriptionData)
}

// ConsumeQueueData is one entry of a queue. Eval tells whether the group's filter takes it, Msg why not.
type ConsumeQueueData struct {
	BitMap         string
	Eval           bool
	ExtendDataJSON string
	Msg            string
	PhysicOffset   int64
	PhysicSize     int32
	TagsCode       int64
}

func (d *ConsumeQueueData) fields(c *bodyCodec) {
	c.optText("bitMap", &d.BitMap)
	c.boolean("eval", &d.Eval)
	c.optText("extendDataJson", &d.ExtendDataJSON)
	c.optText("msg", &d.Msg)
	c.int64("physicOffset", &d.PhysicOffset)
	c.int32("physicSize", &d.PhysicSize)
	c.int64("tagsCode", &d.TagsCode)
}
