// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"cmp"
	"strings"
)

// MessageQueue names one queue of a topic on one broker. It is comparable and serves as map key.
type MessageQueue struct {
	BrokerName string
	QueueID    int32
	Topic      string
}

// Compare orders queues by topic, broker and id, as Apache's class does.
func (q MessageQueue) Compare(other MessageQueue) int {
	return cmp.Or(
		strings.Compare(q.Topic, other.Topic),
		strings.Compare(q.BrokerName, other.BrokerName),
		cmp.Compare(q.QueueID, other.QueueID),
	)
}

func (q *MessageQueue) fields(c *bodyCodec) {
	c.text("brokerName", &q.BrokerName)
	c.int32("queueId", &q.QueueID)
	c.text("topic", &q.Topic)
}

// TopicRouteData answers GET_ROUTEINFO_BY_TOPIC: where a topic's queues are. Addresses must hold no comma
// and, except before the port, no colon: the Go 4.x client splits the text of brokerAddrs at them.
type TopicRouteData struct {
	BrokerDatas               []BrokerData
	FilterServerTable         map[string][]string // by broker address; nobody fills it any more
	OrderTopicConf            string              // "broker-a:8;broker-b:8", or empty
	QueueDatas                []QueueData
	TopicQueueMappingByBroker map[string]TopicQueueMappingInfo // static topics; nil without
}

func (r *TopicRouteData) fields(c *bodyCodec) {
	list(c, "brokerDatas", &r.BrokerDatas, objectValue[BrokerData])
	table(c, "filterServerTable", &r.FilterServerTable, textKey{}, listValue(textValue))
	c.optText("orderTopicConf", &r.OrderTopicConf)
	list(c, "queueDatas", &r.QueueDatas, objectValue[QueueData])
	optTable(c, "topicQueueMappingByBroker", &r.TopicQueueMappingByBroker, textKey{},
		objectValue[TopicQueueMappingInfo])
}

// BrokerData is one broker group: the addresses ("host:port") of the brokers of one name by broker id. 0 is
// the master.
type BrokerData struct {
	BrokerAddrs        map[int64]string
	BrokerName         string
	Cluster            string
	EnableActingMaster bool
	ZoneName           string // may be empty
}

func (b *BrokerData) fields(c *bodyCodec) {
	table(c, "brokerAddrs", &b.BrokerAddrs, intKey[int64]{}, textValue)
	c.text("brokerName", &b.BrokerName)
	c.text("cluster", &b.Cluster)
	c.boolean("enableActingMaster", &b.EnableActingMaster)
	c.optText("zoneName", &b.ZoneName)
}

// QueueData is what one broker group has of a topic. Perm has the bits 4 read, 2 write, 1 inherit.
type QueueData struct {
	BrokerName     string
	Perm           int32
	ReadQueueNums  int32
	TopicSysFlag   int32 // bits 1 unit, 2 unit-sub
	WriteQueueNums int32
}

func (q *QueueData) fields(c *bodyCodec) {
	c.text("brokerName", &q.BrokerName)
	c.int32("perm", &q.Perm)
	c.int32("readQueueNums", &q.ReadQueueNums)
	c.int32("topicSysFlag", &q.TopicSysFlag)
	c.int32("writeQueueNums", &q.WriteQueueNums)
}

// ClusterInfo answers GET_BROKER_CLUSTER_INFO: broker groups by name, and the names of each cluster.
type ClusterInfo struct {
	BrokerAddrTable  map[string]BrokerData
	ClusterAddrTable map[string][]string
}

func (i *ClusterInfo) fields(c *bodyCodec) {
	table(c, "brokerAddrTable", &i.BrokerAddrTable, textKey{}, objectValue[BrokerData])
	table(c, "clusterAddrTable", &i.ClusterAddrTable, textKey{}, listValue(textValue))
}

// BrokerMemberGroup is the addresses of one broker group by broker id.
type BrokerMemberGroup struct {
	BrokerAddrs map[int64]string
	BrokerName  string
	Cluster     string
}

func (g *BrokerMemberGroup) fields(c *bodyCodec) {
	table(c, "brokerAddrs", &g.BrokerAddrs, intKey[int64]{}, textValue)
	c.text("brokerName", &g.BrokerName)
	c.text("cluster", &g.Cluster)
}

// GetBrokerMemberGroupResponseBody answers GET_BROKER_MEMBER_GROUP. The group is nil when it is unknown.
type GetBrokerMemberGroupResponseBody struct {
	BrokerMemberGroup *BrokerMemberGroup
}

func (b *GetBrokerMemberGroupResponseBody) fields(c *bodyCodec) {
	optObject(c, "brokerMemberGroup", &b.BrokerMemberGroup)
}

// TopicQueueMappingInfo says which logical queues of a static topic a broker holds, as physical ids by
// logical ids.
type TopicQueueMappingInfo struct {
	BrokerName  string
	CurrIDMap   map[int32]int32
	Dirty       bool
	Epoch       int64
	Scope       string
	Topic       string
	TotalQueues int32
}

// globalScope is MixAll.METADATA_SCOPE_GLOBAL.
const globalScope = "__global__"

func (i *TopicQueueMappingInfo) setDefaults() { *i = TopicQueueMappingInfo{Scope: globalScope} }

func (i *TopicQueueMappingInfo) fields(c *bodyCodec) {
	c.optText("bname", &i.BrokerName)
	table(c, "currIdMap", &i.CurrIDMap, intKey[int32]{}, int32Value)
	c.boolean("dirty", &i.Dirty)
	c.int64("epoch", &i.Epoch)
	c.optText("scope", &i.Scope)
	c.optText("topic", &i.Topic)
	c.int32("totalQueues", &i.TotalQueues)
}

// TopicQueueMappingDetail is TopicQueueMappingInfo with the history of each logical queue.
type TopicQueueMappingDetail struct {
	TopicQueueMappingInfo
	HostedQueues map[int32][]LogicQueueMappingItem
}

func (d *TopicQueueMappingDetail) fields(c *bodyCodec) {
	c.optText("bname", &d.BrokerName)
	table(c, "currIdMap", &d.CurrIDMap, intKey[int32]{}, int32Value)
	c.boolean("dirty", &d.Dirty)
	c.int64("epoch", &d.Epoch)
	table(c, "hostedQueues", &d.HostedQueues, intKey[int32]{}, listValue(objectValue[LogicQueueMappingItem]))
	c.optText("scope", &d.Scope)
	c.optText("topic", &d.Topic)
	c.int32("totalQueues", &d.TotalQueues)
}

// LogicQueueMappingItem is one stretch of a logical queue: offsets from LogicOffset lie in a physical queue
// from StartOffset to before EndOffset. -1 stands for not decided yet.
type LogicQueueMappingItem struct {
	BrokerName  string
	EndOffset   int64
	Gen         int32
	LogicOffset int64
	QueueID     int32
	StartOffset int64
	TimeOfEnd   int64
	TimeOfStart int64
}

func (i *LogicQueueMappingItem) setDefaults() {
	*i = LogicQueueMappingItem{EndOffset: -1, TimeOfEnd: -1, TimeOfStart: -1}
}

func (i *LogicQueueMappingItem) fields(c *bodyCodec) {
	c.optText("bname", &i.BrokerName)
	c.int64("endOffset", &i.EndOffset)
	c.int32("gen", &i.Gen)
	c.int64("logicOffset", &i.LogicOffset)
	c.int32("queueId", &i.QueueID)
	c.int64("startOffset", &i.StartOffset)
	c.int64("timeOfEnd", &i.TimeOfEnd)
	c.int64("timeOfStart", &i.TimeOfStart)
}
