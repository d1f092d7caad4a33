// SPDX-License-Identifier: Apache-2.0

package service

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

func TestWireTopics(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	list := &protocol.CreateTopicListRequestBody{TopicConfigList: []protocol.TopicConfig{
		{
			TopicName:      "a",
			ReadQueueNums:  2,
			WriteQueueNums: 2,
			Perm:           6,
		},
		{TopicName: "b", ReadQueueNums: 1, WriteQueueNums: 1, Perm: 4},
	}}
	w.ok(protocol.UpdateAndCreateTopicList, nil, protocol.EncodeBody(list))
	w.refused(protocol.InvalidParameter, protocol.UpdateAndCreateTopicList, nil, []byte(`{"topicConfigList":[]}`))
	cfg := body[protocol.TopicConfigAndQueueMapping](
		t,
		w.ok(protocol.GetTopicConfig, &protocol.GetTopicConfigRequestHeader{Topic: "b"}, nil),
	)
	if cfg.Perm != 4 || cfg.WriteQueueNums != 1 {
		t.Errorf("b is %+v", cfg.TopicConfig)
	}
	all := body[protocol.TopicConfigAndMappingSerializeWrapper](t, w.ok(protocol.GetAllTopicConfig, nil, nil))
	if _, ok := all.TopicConfigTable["a"]; !ok || all.DataVersion.Counter == 0 {
		t.Errorf("all topics: %+v", all)
	}
	page := body[protocol.TopicConfigAndMappingSerializeWrapper](t, w.ok(protocol.GetAllTopicConfig,
		&protocol.GetAllTopicConfigRequestHeader{TopicSeq: 1, MaxTopicNum: protocol.Some(int32(2))}, nil))
	if len(page.TopicConfigTable) != 2 {
		t.Errorf("a page of 2 has %d topics", len(page.TopicConfigTable))
	}
	system := body[protocol.TopicList](t, w.ok(protocol.GetSystemTopicListFromBroker, nil, nil))
	if !slices.Contains(system.TopicList, "SCHEDULE_TOPIC_XXXX") || slices.Contains(system.TopicList, "a") {
		t.Errorf("system topics %q", system.TopicList)
	}
	w.ok(protocol.CleanUnusedTopic, nil, nil)
	w.ok(protocol.CleanExpiredConsumeQueue, nil, nil)
	w.ok(protocol.DeleteTopicInBroker, &protocol.DeleteTopicRequestHeader{Topic: "a"}, nil)
	w.refused(protocol.TopicNotExist, protocol.GetTopicConfig, &protocol.GetTopicConfigRequestHeader{Topic: "a"}, nil)
	w.refused(
		protocol.TopicNotExist,
		protocol.GetTopicStatsInfo,
		&protocol.GetTopicStatsInfoRequestHeader{Topic: "a"},
		nil,
	)
}

func TestWireGroups(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	w.ok(protocol.UpdateAndCreateSubscriptionGroupList, nil, []byte(`{"groupConfigList":[{"groupName":"g1"},`+
		`{"groupName":"g3","groupRetryPolicy":{"type":"CUSTOMIZED","customizedRetryPolicy":{}}},`+
		`{"groupName":"g2","retryMaxTimes":3,"groupRetryPolicy":{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":1000}}}]}`))
	g2 := body[protocol.SubscriptionGroupConfig](t, w.ok(protocol.GetSubscriptionGroupConfig,
		&protocol.GetSubscriptionGroupConfigRequestHeader{Group: "g2"}, nil))
	policy := g2.GroupRetryPolicy.ExponentialRetryPolicy
	if g2.RetryMaxTimes != 3 || policy == nil || policy.InitialMillis != 1000 || policy.MaxMillis != 7_200_000 {
		t.Errorf("g2 is %+v", g2)
	}
	g3 := body[protocol.SubscriptionGroupConfig](t, w.ok(protocol.GetSubscriptionGroupConfig,
		&protocol.GetSubscriptionGroupConfigRequestHeader{Group: "g3"}, nil))
	if rests := g3.GroupRetryPolicy.CustomizedRetryPolicy.NextMillis; len(rests) != 18 || rests[17] != 7_200_000 {
		t.Errorf("g3 rests %v", rests)
	}
	w.refused(protocol.SubscriptionGroupNotExist, protocol.GetSubscriptionGroupConfig,
		&protocol.GetSubscriptionGroupConfigRequestHeader{Group: "none"}, nil)
	w.topic("t", 1)
	forbid := func(readable protocol.Optional[bool]) bool {
		h := &protocol.UpdateGroupForbiddenRequestHeader{Group: "g1", Topic: "t", Readable: readable}
		return body[protocol.GroupForbidden](t, w.ok(protocol.UpdateAndGetGroupForbidden, h, nil)).Readable
	}
	if !forbid(protocol.Optional[bool]{}) || forbid(protocol.Some(false)) || forbid(protocol.Optional[bool]{}) ||
		!forbid(protocol.Some(true)) {
		t.Error("forbidding and allowing a topic for a group does not show")
	}
	w.send("t", 0, "", "x")
	commit := &protocol.UpdateConsumerOffsetRequestHeader{ConsumerGroup: "g1", Topic: "t", CommitOffset: 1}
	w.ok(protocol.UpdateConsumerOffset, commit, nil)
	all := body[protocol.ConsumerOffsetSerializeWrapper](t, w.ok(protocol.GetAllConsumerOffset, nil, nil))
	if all.OffsetTable["t@g1"][0] != 1 {
		t.Errorf("offsets %v", all.OffsetTable)
	}
	of := body[protocol.TopicList](
		t,
		w.ok(protocol.QueryTopicsByConsumer, &protocol.QueryTopicsByConsumerRequestHeader{Group: "g1"}, nil),
	)
	if !slices.Equal(of.TopicList, []string{"t"}) {
		t.Errorf("topics of g1: %q", of.TopicList)
	}
	fix := body[protocol.QueryCorrectionOffsetBody](t, w.ok(protocol.QueryCorrectionOffset,
		&protocol.QueryCorrectionOffsetHeader{CompareGroup: "g2", Topic: "t"}, nil))
	if fix.CorrectionOffsets[0] != 1 {
		t.Errorf("correction %v", fix.CorrectionOffsets)
	}
	w.ok(protocol.DeleteSubscriptionGroup, &protocol.DeleteSubscriptionGroupRequestHeader{GroupName: "g1"}, nil)
	all = body[protocol.ConsumerOffsetSerializeWrapper](t, w.ok(protocol.GetAllConsumerOffset, nil, nil))
	if len(all.OffsetTable) != 0 {
		t.Errorf("C054: offsets of a deleted group: %v", all.OffsetTable)
	}
}

func TestWireNames(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	w.topic("here", 1)
	version := protocol.DataVersion{Counter: 7, Timestamp: 1}
	reg := &protocol.RegisterBrokerBody{}
	reg.TopicConfigSerializeWrapper.DataVersion = version
	reg.TopicConfigSerializeWrapper.TopicConfigTable = map[string]protocol.TopicConfig{
		"there": {TopicName: "there", ReadQueueNums: 3, WriteQueueNums: 3, Perm: 6, TopicSysFlag: 1},
	}
	text := protocol.EncodeBody(reg)
	header := &protocol.RegisterBrokerRequestHeader{
		BrokerName:  "broker-b",
		BrokerAddr:  "10.0.0.9:10911",
		ClusterName: "C2",
		BodyCRC32:   protocol.Some(protocol.BodyCRC32(text)),
	}
	w.ok(protocol.RegisterBroker, header, text)
	header.BodyCRC32 = protocol.Some(protocol.BodyCRC32(text) + 1)
	if remark := w.refused(
		protocol.SystemError,
		protocol.RegisterBroker,
		header,
		text,
	); !strings.Contains(
		remark,
		"crc32",
	) {
		t.Errorf("wrong checksum: %q", remark)
	}
	known := &protocol.QueryDataVersionRequestHeader{
		BrokerName:  "broker-b",
		BrokerAddr:  "10.0.0.9:10911",
		ClusterName: "C2",
	}
	answer := w.ok(protocol.QueryDataVersion, known, protocol.EncodeBody(&version))
	if answer.Ext.Value("changed") != "false" {
		t.Errorf("the same version counts as changed: %q", answer.Ext.Value("changed"))
	}
	w.ok(protocol.BrokerHeartbeat, &protocol.BrokerHeartbeatRequestHeader{
		ClusterName: "C2", BrokerAddr: "10.0.0.9:10911", BrokerName: "broker-b",
	}, nil)
	members := body[protocol.GetBrokerMemberGroupResponseBody](t, w.ok(protocol.GetBrokerMemberGroup,
		&protocol.GetBrokerMemberGroupRequestHeader{ClusterName: "C2", BrokerName: "broker-b"}, nil))
	if members.BrokerMemberGroup.BrokerAddrs[0] != "10.0.0.9:10911" {
		t.Errorf("members %+v", members.BrokerMemberGroup)
	}
	checkLists(t, w)
	checkPermissions(t, w)
	w.ok(protocol.UpdateNamesrvConfig, nil, []byte("logLevel=info\n"))
	w.refused(protocol.NoPermission, protocol.UpdateNamesrvConfig, nil, []byte("listenPort=1\n"))
	w.ok(protocol.UnregisterBroker, &protocol.UnRegisterBrokerRequestHeader{
		BrokerName: "broker-b", BrokerAddr: "10.0.0.9:10911", ClusterName: "C2",
	}, nil)
	w.refused(
		protocol.TopicNotExist,
		protocol.GetRouteInfoByTopic,
		&protocol.GetRouteInfoRequestHeader{Topic: "there"},
		nil,
	)
}

func checkLists(t *testing.T, w *wire) {
	t.Helper()
	for code, want := range map[protocol.Code]string{
		protocol.GetUnitTopicList: "there", protocol.GetAllTopicListFromNameserver: "there", protocol.GetSystemTopicListFromNS: "C2",
	} {
		list := body[protocol.TopicList](t, w.ok(code, nil, nil))
		if !slices.Contains(list.TopicList, want) {
			t.Errorf("%s: %q has no %s", code, list.TopicList, want)
		}
	}
	for _, code := range []protocol.Code{protocol.GetHasUnitSubTopicList, protocol.GetHasUnitSubUnunitTopicList} {
		if list := body[protocol.TopicList](t, w.ok(code, nil, nil)); len(list.TopicList) != 0 {
			t.Errorf("%s: %q", code, list.TopicList)
		}
	}
	list := body[protocol.TopicList](
		t,
		w.ok(protocol.GetTopicsByCluster, &protocol.GetTopicsByClusterRequestHeader{Cluster: "C2"}, nil),
	)
	if !slices.Equal(list.TopicList, []string{"there"}) {
		t.Errorf("topics of C2: %q", list.TopicList)
	}
	w.ok(protocol.PutKVConfig, &protocol.PutKVConfigRequestHeader{Namespace: "n", Key: "k", Value: "v"}, nil)
	if v := w.ok(
		protocol.GetKVConfig,
		&protocol.GetKVConfigRequestHeader{Namespace: "n", Key: "k"},
		nil,
	); v.Ext.Value(
		"value",
	) != "v" {
		t.Errorf("value %q", v.Ext.Value("value"))
	}
	table := body[protocol.KVTable](
		t,
		w.ok(protocol.GetKVListByNamespace, &protocol.GetKVListByNamespaceRequestHeader{Namespace: "n"}, nil),
	)
	if table.Table["k"] != "v" {
		t.Errorf("namespace %v", table.Table)
	}
	w.ok(protocol.DeleteKVConfig, &protocol.DeleteKVConfigRequestHeader{Namespace: "n", Key: "k"}, nil)
	w.refused(
		protocol.QueryNotFound,
		protocol.GetKVConfig,
		&protocol.GetKVConfigRequestHeader{Namespace: "n", Key: "k"},
		nil,
	)
	w.refused(
		protocol.QueryNotFound,
		protocol.GetKVListByNamespace,
		&protocol.GetKVListByNamespaceRequestHeader{Namespace: "m"},
		nil,
	)
}

func checkPermissions(t *testing.T, w *wire) {
	t.Helper()
	perm := func(topic string) int32 {
		route := body[protocol.TopicRouteData](
			t,
			w.ok(protocol.GetRouteInfoByTopic, &protocol.GetRouteInfoRequestHeader{Topic: topic}, nil),
		)
		return route.QueueDatas[0].Perm
	}
	wiped := w.ok(
		protocol.WipeWritePermOfBroker,
		&protocol.WipeWritePermOfBrokerRequestHeader{BrokerName: "broker-b"},
		nil,
	)
	if wiped.Ext.Value("wipeTopicCount") != "1" || perm("there") != 4 {
		t.Errorf("wiped %q, perm %d", wiped.Ext.Value("wipeTopicCount"), perm("there"))
	}
	w.ok(protocol.AddWritePermOfBroker, &protocol.AddWritePermOfBrokerRequestHeader{BrokerName: "broker-b"}, nil)
	if perm("there") != 6 {
		t.Errorf("perm %d after adding write", perm("there"))
	}
	route := &protocol.TopicRouteData{QueueDatas: []protocol.QueueData{
		{BrokerName: "broker-b", ReadQueueNums: 1, WriteQueueNums: 1, Perm: 2},
	}}
	w.ok(
		protocol.RegisterTopicInNamesrv,
		&protocol.RegisterTopicRequestHeader{Topic: "set"},
		protocol.EncodeBody(route),
	)
	if perm("set") != 2 {
		t.Errorf("perm %d of a registered topic", perm("set"))
	}
	w.ok(protocol.DeleteTopicInNamesrv, &protocol.DeleteTopicFromNamesrvRequestHeader{Topic: "set"}, nil)
	w.refused(
		protocol.TopicNotExist,
		protocol.GetRouteInfoByTopic,
		&protocol.GetRouteInfoRequestHeader{Topic: "set"},
		nil,
	)
}

func TestWireObserves(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	w.topic("t", 1)
	before := time.Now().UnixMilli()
	w.send("t", 0, "", "one")
	w.send("t", 0, "", "two")
	w.heartbeat(w.client, "c1", "g", "t")
	w.ok(
		protocol.UpdateConsumerOffset,
		&protocol.UpdateConsumerOffsetRequestHeader{ConsumerGroup: "g", Topic: "t", CommitOffset: 1},
		nil,
	)
	span := body[protocol.QueryConsumeTimeSpanBody](t, w.ok(protocol.QueryConsumeTimeSpan,
		&protocol.QueryConsumeTimeSpanRequestHeader{Topic: "t", Group: "g"}, nil)).ConsumeTimeSpanSet[0]
	if span.MinTimeStampMillis < before || span.MaxTimeStampMillis < span.MinTimeStampMillis ||
		span.ConsumeTimeStampMillis != span.MinTimeStampMillis {
		t.Errorf("time span %+v", span)
	}
	sub := body[protocol.QuerySubscriptionResponseBody](t, w.ok(protocol.QuerySubscriptionByConsumer,
		&protocol.QuerySubscriptionByConsumerRequestHeader{Group: "g", Topic: "t"}, nil))
	if sub.SubscriptionData == nil || sub.SubscriptionData.SubString != "*" {
		t.Errorf("subscription %+v", sub)
	}
	ha := body[protocol.HARuntimeInfo](t, w.ok(protocol.GetBrokerHAStatus, nil, nil))
	if !ha.Master || ha.MasterCommitLogMaxOffset == 0 {
		t.Errorf("ha %+v", ha)
	}
	stats := body[protocol.ConsumeStats](
		t,
		w.ok(protocol.GetConsumeStats, &protocol.GetConsumeStatsRequestHeader{ConsumerGroup: "g"}, nil),
	)
	got := stats.OffsetTable[protocol.MessageQueue{BrokerName: "broker-a", Topic: "t"}]
	if got.BrokerOffset != 2 || got.ConsumerOffset != 1 {
		t.Errorf("progress %+v", got)
	}
	w.refused(protocol.ConsumerNotOnline, protocol.GetConsumerConnectionList,
		&protocol.GetConsumerConnectionListRequestHeader{ConsumerGroup: "nobody"}, nil)
}

func TestWireClients(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	check := func(expression, kind string) []byte {
		return protocol.EncodeBody(
			&protocol.CheckClientRequestBody{ClientID: "c", Group: "g", SubscriptionData: &protocol.SubscriptionData{
				Topic: "t", SubString: expression, ExpressionType: kind,
			}},
		)
	}
	w.ok(protocol.CheckClientConfig, nil, check("a || b", "TAG"))
	w.ok(protocol.CheckClientConfig, nil, check("a > 3 AND b IN ('x')", "SQL92"))
	remark := w.refused(protocol.SubscriptionParseFailed, protocol.CheckClientConfig, nil,
		check("(a is not null and a between 0 3)", "SQL92"))
	if !strings.Contains(remark, "line 1, column 32: expected AND") {
		t.Errorf("C067: remark %q", remark)
	}
	w.refused(protocol.SubscriptionParseFailed, protocol.CheckClientConfig, nil, check("", "SQL92"))
	w.ok(protocol.UpdateBrokerConfig, nil, []byte("enablePropertyFilter=false\n"))
	remark = w.refused(protocol.SystemError, protocol.CheckClientConfig, nil, check("a > 3", "SQL92"))
	if remark != "The broker does not support consumer to filter message by SQL92" {
		t.Errorf("switched off: remark %q", remark)
	}
	w.ok(protocol.UpdateBrokerConfig, nil, []byte("enablePropertyFilter=true\n"))
	w.topic("t", 1)
	w.heartbeat(w.client, "c1", "g", "t")
	ids := body[protocol.GetConsumerListByGroupResponseBody](t, w.ok(protocol.GetConsumerListByGroup,
		&protocol.GetConsumerListByGroupRequestHeader{ConsumerGroup: "g"}, nil))
	if !slices.Equal(ids.ConsumerIDList, []string{"c1"}) {
		t.Errorf("members %q", ids.ConsumerIDList)
	}
	leave := &protocol.UnregisterClientRequestHeader{ClientID: "c1", ProducerGroup: "p", ConsumerGroup: "g"}
	for range 2 { // case C014
		w.ok(protocol.UnregisterClient, leave, nil)
	}
	w.ok(
		protocol.UnregisterClient,
		&protocol.UnregisterClientRequestHeader{ClientID: "never", ConsumerGroup: "seen"},
		nil,
	)
	w.refused(protocol.SystemError, protocol.GetConsumerListByGroup,
		&protocol.GetConsumerListByGroupRequestHeader{ConsumerGroup: "g"}, nil)
}

// TestWireRelays: what an administrator asks of a client goes to its connection and its answer comes back.
func TestWireRelays(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	w.topic("t", 1)
	id := w.send("t", 0, "", "consume me").MsgID
	lane := remoting.NewLane(remoting.LaneConfig{Name: "client"})
	queue := protocol.MessageQueue{BrokerName: "broker-a", Topic: "t"}
	consumed := make(chan string, 1)
	reg, err := remoting.NewRegistry(remoting.RegistryConfig{}, []remoting.Route{
		{Code: protocol.GetConsumerStatusFromClient, Lane: lane, Processor: remoting.HandleBody(
			func(*remoting.Call) (remoting.Response, error) {
				body := &protocol.GetConsumerStatusBody{MessageQueueTable: map[protocol.MessageQueue]int64{queue: 42}}
				return remoting.Response{Body: protocol.EncodeBody(body)}, nil
			})},
		{Code: protocol.ConsumeMessageDirectly, Lane: lane, Processor: remoting.HandleBody(
			func(c *remoting.Call) (remoting.Response, error) {
				consumed <- string(c.Body)
				body := &protocol.ConsumeMessageDirectlyResult{ConsumeResult: protocol.ConsumedSuccess}
				return remoting.Response{Body: protocol.EncodeBody(body)}, nil
			})},
		{Code: protocol.NotifyConsumerIDsChanged, Lane: lane, Processor: remoting.HandleBody(
			func(*remoting.Call) (remoting.Response, error) { return remoting.Response{}, nil })},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.heartbeat(w.dialWith(reg), "c1", "g", "t")
	status := body[protocol.GetConsumerStatusBody](t, w.ok(protocol.InvokeBrokerToGetConsumerStatus,
		&protocol.GetConsumerStatusRequestHeader{Topic: "t", Group: "g"}, nil))
	if status.ConsumerTable["c1"][queue] != 42 {
		t.Errorf("status %+v", status.ConsumerTable)
	}
	result := body[protocol.ConsumeMessageDirectlyResult](t, w.ok(protocol.ConsumeMessageDirectly,
		&protocol.ConsumeMessageDirectlyResultRequestHeader{ConsumerGroup: "g", ClientID: "c1", MsgID: id}, nil))
	if got := <-consumed; result.ConsumeResult != protocol.ConsumedSuccess || !strings.Contains(got, "consume me") {
		t.Errorf("result %+v of %q", result, got)
	}
	w.refused(protocol.SystemError, protocol.GetConsumerRunningInfo,
		&protocol.GetConsumerRunningInfoRequestHeader{ConsumerGroup: "g", ClientID: "nobody"}, nil)
}
