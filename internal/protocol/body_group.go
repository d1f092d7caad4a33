// SPDX-License-Identifier: Apache-2.0

package protocol

// SubscriptionGroupConfig is a consumer group on one broker.
type SubscriptionGroupConfig struct {
	Attributes                     map[string]string
	BrokerID                       int64
	ConsumeBroadcastEnable         bool
	ConsumeEnable                  bool
	ConsumeFromMinEnable           bool
	ConsumeMessageOrderly          bool
	ConsumeTimeoutMinute           int32
	GroupName                      string
	GroupRetryPolicy               GroupRetryPolicy
	GroupSysFlag                   int32
	NotifyConsumerIDsChangedEnable bool
	RetryMaxTimes                  int32
	RetryQueueNums                 int32
	SubscriptionDataSet            []SimpleSubscriptionData // nil unless an administrator fixed the subscriptions
	WhichBrokerWhenConsumeSlowly   int64
}

func (g *SubscriptionGroupConfig) setDefaults() {
	*g = SubscriptionGroupConfig{
		ConsumeBroadcastEnable: true, ConsumeEnable: true, ConsumeFromMinEnable: true,
		ConsumeTimeoutMinute: 15, GroupRetryPolicy: GroupRetryPolicy{Type: RetryCustomized},
		NotifyConsumerIDsChangedEnable: true, RetryMaxTimes: 16, RetryQueueNums: 1, WhichBrokerWhenConsumeSlowly: 1,
	}
}

func (g *SubscriptionGroupConfig) fields(c *bodyCodec) {
	table(c, "attributes", &g.Attributes, textKey{}, textValue)
	c.int64("brokerId", &g.BrokerID)
	c.boolean("consumeBroadcastEnable", &g.ConsumeBroadcastEnable)
	c.boolean("consumeEnable", &g.ConsumeEnable)
	c.boolean("consumeFromMinEnable", &g.ConsumeFromMinEnable)
	c.boolean("consumeMessageOrderly", &g.ConsumeMessageOrderly)
	c.int32("consumeTimeoutMinute", &g.ConsumeTimeoutMinute)
	c.optText("groupName", &g.GroupName)
	if c.field("groupRetryPolicy") {
		c.object(&g.GroupRetryPolicy)
	}
	c.int32("groupSysFlag", &g.GroupSysFlag)
	c.boolean("notifyConsumerIdsChangedEnable", &g.NotifyConsumerIDsChangedEnable)
	c.int32("retryMaxTimes", &g.RetryMaxTimes)
	c.int32("retryQueueNums", &g.RetryQueueNums)
	optList(c, "subscriptionDataSet", &g.SubscriptionDataSet, objectValue[SimpleSubscriptionData])
	c.int64("whichBrokerWhenConsumeSlowly", &g.WhichBrokerWhenConsumeSlowly)
}

// SimpleSubscriptionData is a subscription that an administrator fixed for a group.
type SimpleSubscriptionData struct {
	Expression     string
	ExpressionType string
	Topic          string
	Version        int64
}

func (s *SimpleSubscriptionData) fields(c *bodyCodec) {
	c.optText("expression", &s.Expression)
	c.optText("expressionType", &s.ExpressionType)
	c.optText("topic", &s.Topic)
	c.int64("version", &s.Version)
}

// The types of a GroupRetryPolicy.
const (
	RetryCustomized  = "CUSTOMIZED"
	RetryExponential = "EXPONENTIAL"
)

// GroupRetryPolicy says how long a failed message rests before it comes again. A nil policy of the type
// stands for Apache's default: the table of the delay levels.
type GroupRetryPolicy struct {
	CustomizedRetryPolicy  *CustomizedRetryPolicy
	ExponentialRetryPolicy *ExponentialRetryPolicy
	Type                   string // RetryCustomized or RetryExponential
}

func (p *GroupRetryPolicy) setDefaults() { *p = GroupRetryPolicy{Type: RetryCustomized} }

func (p *GroupRetryPolicy) fields(c *bodyCodec) {
	optObject(c, "customizedRetryPolicy", &p.CustomizedRetryPolicy)
	optObject(c, "exponentialRetryPolicy", &p.ExponentialRetryPolicy)
	c.optText("type", &p.Type)
}

// CustomizedRetryPolicy is a table of rests.
type CustomizedRetryPolicy struct {
	NextMillis []int64
}

// setDefaults sets the table of the delay levels, 1s to 2h.
func (p *CustomizedRetryPolicy) setDefaults() {
	p.NextMillis = []int64{
		1_000, 5_000, 10_000, 30_000, 60_000, 120_000, 180_000, 240_000, 300_000, 360_000,
		420_000, 480_000, 540_000, 600_000, 1_200_000, 1_800_000, 3_600_000, 7_200_000,
	}
}

func (p *CustomizedRetryPolicy) fields(c *bodyCodec) { list(c, "next", &p.NextMillis, int64Value) }

// ExponentialRetryPolicy is a rest that grows by a factor from InitialMillis to MaxMillis.
type ExponentialRetryPolicy struct {
	InitialMillis int64
	MaxMillis     int64
	Multiplier    int64
}

func (p *ExponentialRetryPolicy) setDefaults() {
	*p = ExponentialRetryPolicy{InitialMillis: 5_000, MaxMillis: 7_200_000, Multiplier: 2}
}

func (p *ExponentialRetryPolicy) fields(c *bodyCodec) {
	c.int64("initial", &p.InitialMillis)
	c.int64("max", &p.MaxMillis)
	c.int64("multiplier", &p.Multiplier)
}

// SubscriptionGroupWrapper answers GET_ALL_SUBSCRIPTIONGROUP_CONFIG: groups by name, and what is forbidden to
// a group by topic, as bits.
type SubscriptionGroupWrapper struct {
	DataVersion            DataVersion
	ForbiddenTable         map[string]map[string]int32
	SubscriptionGroupTable map[string]SubscriptionGroupConfig
}

func (w *SubscriptionGroupWrapper) fields(c *bodyCodec) {
	c.versionField("dataVersion", &w.DataVersion)
	table(c, "forbiddenTable", &w.ForbiddenTable, textKey{}, tableValue(textKey{}, int32Value))
	table(c, "subscriptionGroupTable", &w.SubscriptionGroupTable, textKey{}, objectValue[SubscriptionGroupConfig])
}

// SubscriptionGroupList is UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST's body.
type SubscriptionGroupList struct {
	GroupConfigList []SubscriptionGroupConfig
}

func (l *SubscriptionGroupList) fields(c *bodyCodec) {
	list(c, "groupConfigList", &l.GroupConfigList, objectValue[SubscriptionGroupConfig])
}

// GroupForbidden answers UPDATE_AND_GET_GROUP_FORBIDDEN: may the group read the topic?
type GroupForbidden struct {
	Group    string
	Readable bool
	Topic    string
}

func (f *GroupForbidden) fields(c *bodyCodec) {
	c.optText("group", &f.Group)
	c.boolean("readable", &f.Readable)
	c.optText("topic", &f.Topic)
}
