// SPDX-License-Identifier: Apache-2.0

package protocol

// TopicStatsTable answers GET_TOPIC_STATS_INFO.
type TopicStatsTable struct {
	OffsetTable map[MessageQueue]TopicOffset
	TopicPutTPS float64
}

func (t *TopicStatsTable) fields(c *bodyCodec) {
	table(c, "offsetTable", &t.OffsetTable, queueKey{}, objectValue[TopicOffset])
	c.decimal("topicPutTps", &t.TopicPutTPS)
}

// TopicOffset is the bounds of a queue; its messages are those from MinOffset to before MaxOffset.
type TopicOffset struct {
	LastUpdateTimestampMillis int64
	MaxOffset                 int64
	MinOffset                 int64
}

func (o *TopicOffset) fields(c *bodyCodec) {
	c.int64("lastUpdateTimestamp", &o.LastUpdateTimestampMillis)
	c.int64("maxOffset", &o.MaxOffset)
	c.int64("minOffset", &o.MinOffset)
}

// ConsumeStats answers GET_CONSUME_STATS: how far a group is.
type ConsumeStats struct {
	ConsumeTPS  float64
	OffsetTable map[MessageQueue]OffsetWrapper
}

func (s *ConsumeStats) fields(c *bodyCodec) {
	c.decimal("consumeTps", &s.ConsumeTPS)
	table(c, "offsetTable", &s.OffsetTable, queueKey{}, objectValue[OffsetWrapper])
}

// OffsetWrapper is a queue's end, a group's committed and pulled offset, and when the last consumed message
// was stored.
type OffsetWrapper struct {
	BrokerOffset        int64
	ConsumerOffset      int64
	LastTimestampMillis int64
	PullOffset          int64
}

func (o *OffsetWrapper) fields(c *bodyCodec) {
	c.int64("brokerOffset", &o.BrokerOffset)
	c.int64("consumerOffset", &o.ConsumerOffset)
	c.int64("lastTimestamp", &o.LastTimestampMillis)
	c.int64("pullOffset", &o.PullOffset)
}

// ConsumeStatsList answers GET_BROKER_CONSUME_STATS: one map of one group for each group, with one
// ConsumeStats a topic.
type ConsumeStatsList struct {
	BrokerAddr        string
	ConsumeStatsList  []map[string][]ConsumeStats
	TotalDiff         int64
	TotalInflightDiff int64
}

func (l *ConsumeStatsList) fields(c *bodyCodec) {
	c.optText("brokerAddr", &l.BrokerAddr)
	list(c, "consumeStatsList", &l.ConsumeStatsList, tableValue(textKey{}, listValue(objectValue[ConsumeStats])))
	c.int64("totalDiff", &l.TotalDiff)
	c.int64("totalInflightDiff", &l.TotalInflightDiff)
}

// BrokerStatsData answers VIEW_BROKER_STATS_DATA.
type BrokerStatsData struct {
	StatsDay    BrokerStatsItem
	StatsHour   BrokerStatsItem
	StatsMinute BrokerStatsItem
}

func (d *BrokerStatsData) fields(c *bodyCodec) {
	c.statsField("statsDay", &d.StatsDay)
	c.statsField("statsHour", &d.StatsHour)
	c.statsField("statsMinute", &d.StatsMinute)
}

func (c *bodyCodec) statsField(name string, v *BrokerStatsItem) {
	if c.field(name) {
		c.object(v)
	}
}

// BrokerStatsItem is a counter over a span of time: its sum, its rate a second and the mean of one event.
type BrokerStatsItem struct {
	AvgPT float64
	Sum   int64
	TPS   float64
}

func (i *BrokerStatsItem) fields(c *bodyCodec) {
	c.decimal("avgpt", &i.AvgPT)
	c.int64("sum", &i.Sum)
	c.decimal("tps", &i.TPS)
}

// HARuntimeInfo answers GET_BROKER_HA_STATUS.
type HARuntimeInfo struct {
	HAClientRuntimeInfo      HAClientRuntimeInfo // a slave's view
	HAConnectionInfo         []HAConnectionRuntimeInfo
	InSyncSlaveNums          int32
	Master                   bool
	MasterCommitLogMaxOffset int64
}

func (i *HARuntimeInfo) fields(c *bodyCodec) {
	if c.field("haClientRuntimeInfo") {
		c.object(&i.HAClientRuntimeInfo)
	}
	list(c, "haConnectionInfo", &i.HAConnectionInfo, objectValue[HAConnectionRuntimeInfo])
	c.int32("inSyncSlaveNums", &i.InSyncSlaveNums)
	c.boolean("master", &i.Master)
	c.int64("masterCommitLogMaxOffset", &i.MasterCommitLogMaxOffset)
}

// HAConnectionRuntimeInfo is a master's view of one slave.
type HAConnectionRuntimeInfo struct {
	Addr                    string
	Diff                    int64
	InSync                  bool
	SlaveAckOffset          int64
	TransferFromWhere       int64
	TransferredByteInSecond int64
}

func (i *HAConnectionRuntimeInfo) fields(c *bodyCodec) {
	c.optText("addr", &i.Addr)
	c.int64("diff", &i.Diff)
	c.boolean("inSync", &i.InSync)
	c.int64("slaveAckOffset", &i.SlaveAckOffset)
	c.int64("transferFromWhere", &i.TransferFromWhere)
	c.int64("transferredByteInSecond", &i.TransferredByteInSecond)
}

// HAClientRuntimeInfo is a slave's view of its master.
type HAClientRuntimeInfo struct {
	LastReadTimestampMillis  int64
	LastWriteTimestampMillis int64
	MasterAddr               string
	MasterFlushOffset        int64
	MaxOffset                int64
	TransferredByteInSecond  int64
}

func (i *HAClientRuntimeInfo) fields(c *bodyCodec) {
	c.int64("lastReadTimestamp", &i.LastReadTimestampMillis)
	c.int64("lastWriteTimestamp", &i.LastWriteTimestampMillis)
	c.optText("masterAddr", &i.MasterAddr)
	c.int64("masterFlushOffset", &i.MasterFlushOffset)
	c.int64("maxOffset", &i.MaxOffset)
	c.int64("transferredByteInSecond", &i.TransferredByteInSecond)
}
