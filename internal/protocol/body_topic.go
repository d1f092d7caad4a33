// SPDX-License-Identifier: Apache-2.0

package protocol

import "cmp"

// DataVersion tells two states of a table apart: it grows with every change. TimestampMillis is the time of
// the change.
type DataVersion struct {
	Counter         int64
	StateVersion    int64 // of the controller; 0 without
	TimestampMillis int64
}

// Compare orders versions as Apache's class does: by state version, counter, timestamp.
func (v DataVersion) Compare(other DataVersion) int {
	return cmp.Or(
		cmp.Compare(v.StateVersion, other.StateVersion),
		cmp.Compare(v.Counter, other.Counter),
		cmp.Compare(v.TimestampMillis, other.TimestampMillis),
	)
}

func (v *DataVersion) fields(c *bodyCodec) {
	c.int64("counter", &v.Counter)
	c.int64("stateVersion", &v.StateVersion)
	c.int64("timestamp", &v.TimestampMillis)
}

// TopicConfig is a topic on one broker.
type TopicConfig struct {
	Attributes      map[string]string // such as message.type
	Order           bool
	Perm            int32 // bits 8 priority, 4 read, 2 write, 1 inherit
	ReadQueueNums   int32
	TopicFilterType string // SINGLE_TAG or MULTI_TAG
	TopicName       string
	TopicSysFlag    int32 // bits 1 unit, 2 unit-sub
	WriteQueueNums  int32
}

func (t *TopicConfig) setDefaults() {
	*t = TopicConfig{Perm: 6, ReadQueueNums: 16, WriteQueueNums: 16, TopicFilterType: "SINGLE_TAG"}
}

func (t *TopicConfig) fields(c *bodyCodec) {
	table(c, "attributes", &t.Attributes, textKey{}, textValue)
	t.otherFields(c)
}

func (t *TopicConfig) otherFields(c *bodyCodec) {
	c.boolean("order", &t.Order)
	c.int32("perm", &t.Perm)
	c.int32("readQueueNums", &t.ReadQueueNums)
	c.optText("topicFilterType", &t.TopicFilterType)
	c.optText("topicName", &t.TopicName)
	c.int32("topicSysFlag", &t.TopicSysFlag)
	c.int32("writeQueueNums", &t.WriteQueueNums)
}

// TopicConfigAndQueueMapping answers GET_TOPIC_CONFIG. MappingDetail is nil except for static topics.
type TopicConfigAndQueueMapping struct {
	TopicConfig
	MappingDetail *TopicQueueMappingDetail
}

func (t *TopicConfigAndQueueMapping) fields(c *bodyCodec) {
	table(c, "attributes", &t.Attributes, textKey{}, textValue)
	optObject(c, "mappingDetail", &t.MappingDetail)
	t.otherFields(c)
}

// CreateTopicListRequestBody is UPDATE_AND_CREATE_TOPIC_LIST's body.
type CreateTopicListRequestBody struct {
	TopicConfigList []TopicConfig
}

func (b *CreateTopicListRequestBody) fields(c *bodyCodec) {
	list(c, "topicConfigList", &b.TopicConfigList, objectValue[TopicConfig])
}

// TopicConfigAndMappingSerializeWrapper answers GET_ALL_TOPIC_CONFIG and is part of a registration: topics by
// name. Brokers and tools of 4.x know only the data version and the topics (TopicConfigSerializeWrapper).
type TopicConfigAndMappingSerializeWrapper struct {
	DataVersion                DataVersion
	MappingDataVersion         DataVersion
	TopicConfigTable           map[string]TopicConfig
	TopicQueueMappingDetailMap map[string]TopicQueueMappingDetail
	TopicQueueMappingInfoMap   map[string]TopicQueueMappingInfo
}

func (w *TopicConfigAndMappingSerializeWrapper) fields(c *bodyCodec) {
	c.versionField("dataVersion", &w.DataVersion)
	c.versionField("mappingDataVersion", &w.MappingDataVersion)
	table(c, "topicConfigTable", &w.TopicConfigTable, textKey{}, objectValue[TopicConfig])
	table(c, "topicQueueMappingDetailMap", &w.TopicQueueMappingDetailMap, textKey{},
		objectValue[TopicQueueMappingDetail])
	table(c, "topicQueueMappingInfoMap", &w.TopicQueueMappingInfoMap, textKey{}, objectValue[TopicQueueMappingInfo])
}

func (c *bodyCodec) versionField(name string, v *DataVersion) {
	if c.field(name) {
		c.object(v)
	}
}

// ConsumerOffsetSerializeWrapper answers GET_ALL_CONSUMER_OFFSET: offsets by queue id by "topic@group".
type ConsumerOffsetSerializeWrapper struct {
	DataVersion DataVersion
	OffsetTable map[string]map[int32]int64
}

func (w *ConsumerOffsetSerializeWrapper) fields(c *bodyCodec) {
	c.versionField("dataVersion", &w.DataVersion)
	table(c, "offsetTable", &w.OffsetTable, textKey{}, tableValue(intKey[int32]{}, int64Value))
}

// DelayOffsetSerializeWrapper answers GET_ALL_DELAY_OFFSET: offsets by delay level.
type DelayOffsetSerializeWrapper struct {
	DataVersion DataVersion
	OffsetTable map[int32]int64
}

func (w *DelayOffsetSerializeWrapper) fields(c *bodyCodec) {
	c.versionField("dataVersion", &w.DataVersion)
	table(c, "offsetTable", &w.OffsetTable, intKey[int32]{}, int64Value)
}
