// SPDX-License-Identifier: Apache-2.0

package protocol

// Connection is one connected client.
type Connection struct {
	ClientAddr string // "ip:port"
	ClientID   string
	Language   LanguageCode
	Version    int32
}

func (n *Connection) fields(c *bodyCodec) {
	c.optText("clientAddr", &n.ClientAddr)
	c.optText("clientId", &n.ClientID)
	c.language("language", &n.Language)
	c.int32("version", &n.Version)
}

// ConsumerConnection answers GET_CONSUMER_CONNECTION_LIST: a group's members and its subscriptions by topic.
type ConsumerConnection struct {
	ConnectionSet     []Connection
	ConsumeFromWhere  ConsumeFromWhere
	ConsumeType       ConsumeType
	MessageModel      MessageModel
	SubscriptionTable map[string]SubscriptionData
	// Conflicts says how members do not fit together, a sentence each. Not the original's; left out when empty.
	Conflicts []string
}

func (n *ConsumerConnection) fields(c *bodyCodec) {
	list(c, "connectionSet", &n.ConnectionSet, objectValue[Connection])
	n.ConsumeFromWhere.field(c)
	n.ConsumeType.field(c)
	n.MessageModel.field(c)
	table(c, "subscriptionTable", &n.SubscriptionTable, textKey{}, objectValue[SubscriptionData])
	if c.when(len(n.Conflicts) > 0) {
		list(c, "conflicts", &n.Conflicts, textValue)
	}
}

// ProducerConnection answers GET_PRODUCER_CONNECTION_LIST.
type ProducerConnection struct {
	ConnectionSet []Connection
}

func (n *ProducerConnection) fields(c *bodyCodec) {
	list(c, "connectionSet", &n.ConnectionSet, objectValue[Connection])
}

// ProducerTableInfo answers GET_ALL_PRODUCER_INFO: the members of all producer groups by group.
type ProducerTableInfo struct {
	Data map[string][]ProducerInfo
}

func (i *ProducerTableInfo) fields(c *bodyCodec) {
	table(c, "data", &i.Data, textKey{}, listValue(objectValue[ProducerInfo]))
}

// ProducerInfo is one member of a producer group.
type ProducerInfo struct {
	ClientID                  string
	Language                  LanguageCode
	LastUpdateTimestampMillis int64
	RemoteIP                  string // "ip:port" all the same
	Version                   int32
}

func (i *ProducerInfo) fields(c *bodyCodec) {
	c.optText("clientId", &i.ClientID)
	c.language("language", &i.Language)
	c.int64("lastUpdateTimestamp", &i.LastUpdateTimestampMillis)
	c.optText("remoteIP", &i.RemoteIP)
	c.int32("version", &i.Version)
}

// ConsumerRunningInfo is a client's answer to GET_CONSUMER_RUNNING_INFO. A broker relays its text as it is.
type ConsumerRunningInfo struct {
	JStack           string // Java only, on request
	MQPopTable       map[MessageQueue]PopProcessQueueInfo
	MQTable          map[MessageQueue]ProcessQueueInfo
	Properties       map[string]string // such as PROP_CONSUME_TYPE
	StatusTable      map[string]ConsumeStatus
	SubscriptionSet  []SubscriptionData
	UserConsumerInfo map[string]string
}

func (i *ConsumerRunningInfo) fields(c *bodyCodec) {
	c.optText("jstack", &i.JStack)
	table(c, "mqPopTable", &i.MQPopTable, queueKey{}, objectValue[PopProcessQueueInfo])
	table(c, "mqTable", &i.MQTable, queueKey{}, objectValue[ProcessQueueInfo])
	table(c, "properties", &i.Properties, textKey{}, textValue)
	table(c, "statusTable", &i.StatusTable, textKey{}, objectValue[ConsumeStatus])
	list(c, "subscriptionSet", &i.SubscriptionSet, objectValue[SubscriptionData])
	table(c, "userConsumerInfo", &i.UserConsumerInfo, textKey{}, textValue)
}

// ProcessQueueInfo is a client's state of one queue it pulls from.
type ProcessQueueInfo struct {
	CachedMsgCount             int32
	CachedMsgMaxOffset         int64
	CachedMsgMinOffset         int64
	CachedMsgSizeInMiB         int32
	CommitOffset               int64
	Dropped                    bool // Apache spells it droped, the Go client dropped
	LastConsumeTimestampMillis int64
	LastLockTimestampMillis    int64
	LastPullTimestampMillis    int64
	Locked                     bool
	TransactionMsgCount        int32
	TransactionMsgMaxOffset    int64
	TransactionMsgMinOffset    int64
	TryUnlockTimes             int64
}

func (i *ProcessQueueInfo) fields(c *bodyCodec) {
	c.int32("cachedMsgCount", &i.CachedMsgCount)
	c.int64("cachedMsgMaxOffset", &i.CachedMsgMaxOffset)
	c.int64("cachedMsgMinOffset", &i.CachedMsgMinOffset)
	c.int32("cachedMsgSizeInMiB", &i.CachedMsgSizeInMiB)
	c.int64("commitOffset", &i.CommitOffset)
	c.rename("dropped", "droped")
	c.boolean("droped", &i.Dropped)
	c.int64("lastConsumeTimestamp", &i.LastConsumeTimestampMillis)
	c.int64("lastLockTimestamp", &i.LastLockTimestampMillis)
	c.int64("lastPullTimestamp", &i.LastPullTimestampMillis)
	c.boolean("locked", &i.Locked)
	c.int32("transactionMsgCount", &i.TransactionMsgCount)
	c.int64("transactionMsgMaxOffset", &i.TransactionMsgMaxOffset)
	c.int64("transactionMsgMinOffset", &i.TransactionMsgMinOffset)
	c.int64("tryUnlockTimes", &i.TryUnlockTimes)
}

// PopProcessQueueInfo is a client's state of one queue it pops from.
type PopProcessQueueInfo struct {
	Dropped                bool // Apache spells it droped
	LastPopTimestampMillis int64
	WaitAckCount           int32
}

func (i *PopProcessQueueInfo) fields(c *bodyCodec) {
	c.boolean("droped", &i.Dropped)
	c.int64("lastPopTimestamp", &i.LastPopTimestampMillis)
	c.int32("waitAckCount", &i.WaitAckCount)
}

// ConsumeStatus is a client's rates for one topic: times in milliseconds, rates a second, failures in the
// last hour.
type ConsumeStatus struct {
	ConsumeFailedMsgs int64
	ConsumeFailedTPS  float64
	ConsumeOKTPS      float64
	ConsumeRT         float64
	PullRT            float64
	PullTPS           float64
}

func (s *ConsumeStatus) fields(c *bodyCodec) {
	c.int64("consumeFailedMsgs", &s.ConsumeFailedMsgs)
	c.decimal("consumeFailedTPS", &s.ConsumeFailedTPS)
	c.decimal("consumeOKTPS", &s.ConsumeOKTPS)
	c.decimal("consumeRT", &s.ConsumeRT)
	c.decimal("pullRT", &s.PullRT)
	c.decimal("pullTPS", &s.PullTPS)
}

// CMResult is what came of consuming one message.
type CMResult string

// The results.
const (
	ConsumedSuccess        CMResult = "CR_SUCCESS"
	ConsumedLater          CMResult = "CR_LATER"
	ConsumedRollback       CMResult = "CR_ROLLBACK"
	ConsumedCommit         CMResult = "CR_COMMIT"
	ConsumedThrowException CMResult = "CR_THROW_EXCEPTION"
	ConsumedReturnNull     CMResult = "CR_RETURN_NULL"
)

// cmResults is in the order of Java's ordinals.
var cmResults = [...]string{
	string(ConsumedSuccess), string(ConsumedLater), string(ConsumedRollback), string(ConsumedCommit),
	string(ConsumedThrowException), string(ConsumedReturnNull),
}

// ConsumeMessageDirectlyResult is a client's answer to CONSUME_MESSAGE_DIRECTLY.
type ConsumeMessageDirectlyResult struct {
	AutoCommit      bool
	ConsumeResult   CMResult
	Order           bool
	Remark          string
	SpentTimeMillis int64
}

func (r *ConsumeMessageDirectlyResult) setDefaults() {
	*r = ConsumeMessageDirectlyResult{AutoCommit: true}
}

func (r *ConsumeMessageDirectlyResult) fields(c *bodyCodec) {
	c.boolean("autoCommit", &r.AutoCommit)
	c.enum("consumeResult", (*string)(&r.ConsumeResult), cmResults[:])
	c.boolean("order", &r.Order)
	c.optText("remark", &r.Remark)
	c.int64("spentTimeMills", &r.SpentTimeMillis)
}
