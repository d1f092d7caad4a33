// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// recode decodes a text as some type of body and encodes it again.
type recode func(data []byte) ([]byte, error)

func recoder[T any, P BodyOf[T]](data []byte) ([]byte, error) {
	b, err := DecodeBody[T, P](data)
	if err != nil {
		return nil, err
	}
	return EncodeBody(P(b)), nil
}

func listRecoder[T any, P BodyOf[T]](data []byte) ([]byte, error) {
	values, err := DecodeBodies[T, P](data)
	if err != nil {
		return nil, err
	}
	return EncodeBodies[T, P](values), nil
}

func recoders() map[string]recode {
	return map[string]recode{
		"AclInfo":                               recoder[AclInfo],
		"BatchAckMessageRequestBody":            recoder[BatchAckMessageRequestBody],
		"BrokerMemberGroup":                     recoder[BrokerMemberGroup],
		"BrokerStatsData":                       recoder[BrokerStatsData],
		"BrokerStatsItem":                       recoder[BrokerStatsItem],
		"CheckClientRequestBody":                recoder[CheckClientRequestBody],
		"ClusterInfo":                           recoder[ClusterInfo],
		"ConsumeMessageDirectlyResult":          recoder[ConsumeMessageDirectlyResult],
		"ConsumeStats":                          recoder[ConsumeStats],
		"ConsumeStatsList":                      recoder[ConsumeStatsList],
		"ConsumerConnection":                    recoder[ConsumerConnection],
		"ConsumerOffsetSerializeWrapper":        recoder[ConsumerOffsetSerializeWrapper],
		"ConsumerRunningInfo":                   recoder[ConsumerRunningInfo],
		"CreateTopicListRequestBody":            recoder[CreateTopicListRequestBody],
		"DataVersion":                           recoder[DataVersion],
		"DelayOffsetSerializeWrapper":           recoder[DelayOffsetSerializeWrapper],
		"GetBrokerMemberGroupResponseBody":      recoder[GetBrokerMemberGroupResponseBody],
		"GetConsumerListByGroupResponseBody":    recoder[GetConsumerListByGroupResponseBody],
		"GetConsumerStatusBody":                 recoder[GetConsumerStatusBody],
		"GroupForbidden":                        recoder[GroupForbidden],
		"GroupList":                             recoder[GroupList],
		"GroupRetryPolicy":                      recoder[GroupRetryPolicy],
		"HARuntimeInfo":                         recoder[HARuntimeInfo],
		"HeartbeatData":                         recoder[HeartbeatData],
		"KVTable":                               recoder[KVTable],
		"LockBatchRequestBody":                  recoder[LockBatchRequestBody],
		"LockBatchResponseBody":                 recoder[LockBatchResponseBody],
		"MessageQueue":                          recoder[MessageQueue],
		"MessageRequestModeSerializeWrapper":    recoder[MessageRequestModeSerializeWrapper],
		"ProducerConnection":                    recoder[ProducerConnection],
		"ProducerTableInfo":                     recoder[ProducerTableInfo],
		"QueryAssignmentRequestBody":            recoder[QueryAssignmentRequestBody],
		"QueryAssignmentResponseBody":           recoder[QueryAssignmentResponseBody],
		"QueryConsumeQueueResponseBody":         recoder[QueryConsumeQueueResponseBody],
		"QueryConsumeTimeSpanBody":              recoder[QueryConsumeTimeSpanBody],
		"QueryCorrectionOffsetBody":             recoder[QueryCorrectionOffsetBody],
		"QuerySubscriptionResponseBody":         recoder[QuerySubscriptionResponseBody],
		"RegisterBrokerBody":                    recoder[RegisterBrokerBody],
		"ResetOffsetBody":                       recoder[ResetOffsetBody],
		"ResetOffsetBodyForC":                   recoder[ResetOffsetBodyForC],
		"SetMessageRequestModeRequestBody":      recoder[SetMessageRequestModeRequestBody],
		"SubscriptionData":                      recoder[SubscriptionData],
		"SubscriptionGroupConfig":               recoder[SubscriptionGroupConfig],
		"SubscriptionGroupList":                 recoder[SubscriptionGroupList],
		"SubscriptionGroupWrapper":              recoder[SubscriptionGroupWrapper],
		"TopicConfig":                           recoder[TopicConfig],
		"TopicConfigAndMappingSerializeWrapper": recoder[TopicConfigAndMappingSerializeWrapper],
		"TopicConfigAndQueueMapping":            recoder[TopicConfigAndQueueMapping],
		"TopicList":                             recoder[TopicList],
		"TopicRouteData":                        recoder[TopicRouteData],
		"TopicStatsTable":                       recoder[TopicStatsTable],
		"UnlockBatchRequestBody":                recoder[LockBatchRequestBody],
		"UserInfo":                              recoder[UserInfo],
		"UserInfo/list":                         listRecoder[UserInfo],
	}
}

// capture is one text of testdata/bodies.
type capture struct{ name, text string }

func (c capture) class() string { class, _, _ := strings.Cut(c.name, "/"); return class }

func (c capture) recoder(t testing.TB) recode {
	all := recoders()
	if fn := all[c.name]; fn != nil {
		return fn
	}
	if fn := all[c.class()]; fn != nil {
		return fn
	}
	t.Fatalf("no type for %s", c.name)
	return nil
}

func captures(t testing.TB, file string) []capture {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "bodies", file))
	if err != nil {
		t.Fatal(err)
	}
	var all []capture
	for _, block := range strings.Split(string(raw), "-- ")[1:] {
		name, text, ok := strings.Cut(block, " --\n")
		if !ok {
			t.Fatalf("%s: no name in %q", file, block)
		}
		all = append(all, capture{name: name, text: strings.TrimSuffix(text, "\n")})
	}
	return all
}

func captured(t testing.TB, name string) []byte {
	t.Helper()
	for _, c := range captures(t, "rocketmq-5.5.0.txt") {
		if c.name == name {
			return []byte(c.text)
		}
	}
	t.Fatalf("nothing captured for %s", name)
	return nil
}

// quoteIntegerKeys makes our text of fastjson's.
func quoteIntegerKeys(text string) string {
	return regexp.MustCompile(`([{,])(-?\d+):`).ReplaceAllString(text, `$1"$2":`)
}

// TestCapturedBodies decodes what Apache 5.5.0 wrote and encodes it again.
func TestCapturedBodies(t *testing.T) {
	t.Parallel()
	dates := regexp.MustCompile(`"\d{4}-\d\d-\d\d#[0-9:]+"`) // in the writer's zone; see TestLocalDates
	for _, c := range captures(t, "rocketmq-5.5.0.txt") {
		if c.name == "RegisterBrokerBody/compressed" || c.name == "TopicConfigSerializeWrapper" ||
			c.name == "BrokerStatsItem/nan" {
			continue // tested below
		}
		t.Run(c.name, func(t *testing.T) {
			got, err := c.recoder(t)([]byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(dates.ReplaceAllString(quoteIntegerKeys(c.text), `""`),
				dates.ReplaceAllString(string(got), `""`)); diff != "" {
				t.Errorf("text differs (-Apache +ours):\n%s", diff)
			}
		})
	}
}

func TestLocalDates(t *testing.T) {
	t.Parallel()
	got := localDate(time.UnixMilli(1700000000999).UTC())
	if want := "2023-11-14#22:13:20:999"; got != want ||
		!strings.Contains(string(captured(t, "QueryConsumeTimeSpanBody")), want) {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestEveryTypeIsCaptured keeps the list of recoders and the captures together.
func TestEveryTypeIsCaptured(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{"DelayOffsetSerializeWrapper": true} // lives in Apache's broker module; P2
	for _, c := range captures(t, "rocketmq-5.5.0.txt") {
		seen[c.name], seen[c.class()] = true, true
	}
	for name := range recoders() {
		if !seen[name] {
			t.Errorf("no captured text for %s", name)
		}
	}
}

func TestDoublesThatAreNoNumbers(t *testing.T) {
	t.Parallel()
	text := captured(t, "BrokerStatsItem/nan")
	var zero BrokerStatsItem
	got, err := DecodeBody[BrokerStatsItem](text)
	if err != nil || *got != zero {
		t.Errorf("got %+v, %v", got, err)
	}
	if got := appendDouble(nil, 0*negativeInfinity()); string(got) != "null" {
		t.Errorf("NaN is written as %s", got)
	}
}

func negativeInfinity() float64 { f, _ := strconv.ParseFloat("-Inf", 64); return f }

// TestReferences reads what fastjson 1 makes of objects it meets twice.
func TestReferences(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"CreateTopicListRequestBody/attributes": `"topicName":"U"`,
		"CreateTopicListRequestBody/twice":      "",
	}
	for _, c := range captures(t, "rocketmq-5.3.2-references.txt") {
		got, err := c.recoder(t)([]byte(c.text))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if strings.Contains(string(got), "$ref") || !strings.Contains(string(got), want[c.name]) {
			t.Errorf("%s: got %s", c.name, got)
		}
	}
	lists := captures(t, "rocketmq-5.3.2-references.txt")
	attributes, err := DecodeBody[CreateTopicListRequestBody]([]byte(lists[0].text))
	if err != nil || attributes.TopicConfigList[1].Attributes["message.type"] != "FIFO" {
		t.Errorf("attributes: %+v, %v", attributes, err)
	}
	twice, err := DecodeBody[CreateTopicListRequestBody]([]byte(lists[1].text))
	if err != nil || len(twice.TopicConfigList) != 2 ||
		!cmp.Equal(twice.TopicConfigList[0], twice.TopicConfigList[1]) {
		t.Errorf("twice: %+v, %v", twice, err)
	}
	table, err := DecodeBody[GetConsumerStatusBody]([]byte(lists[2].text))
	if err != nil || table.MessageQueueTable[MessageQueue{BrokerName: "b", QueueID: 1, Topic: "T"}] != 6 {
		t.Errorf("table: %+v, %v", table, err)
	}
	key, err := DecodeBody[ConsumerRunningInfo]([]byte(lists[4].text))
	if err != nil || len(key.MQTable) != 0 || len(key.MQPopTable) != 1 {
		t.Errorf("key to nowhere: %+v, %v", key, err)
	}
}

func TestTopicConfigSerializeWrapperOf4x(t *testing.T) {
	t.Parallel()
	w, err := DecodeBody[TopicConfigAndMappingSerializeWrapper](captured(t, "TopicConfigSerializeWrapper"))
	if err != nil {
		t.Fatal(err)
	}
	want := TopicConfig{
		Attributes: map[string]string{
			"message.type": "FIFO",
		},
		Perm:            6,
		ReadQueueNums:   8,
		TopicFilterType: "SINGLE_TAG",
		TopicName:       "T",
		TopicSysFlag:    1,
		WriteQueueNums:  4,
	}
	if diff := cmp.Diff(want, w.TopicConfigTable["T"]); diff != "" || w.DataVersion.Counter != 3 {
		t.Errorf("version %+v, topic differs:\n%s", w.DataVersion, diff)
	}
}

// TestAbsentFields checks that what a peer leaves out has the defaults of Apache's classes.
func TestAbsentFields(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, text, want string }{
		{"TopicConfig/default", `{"topicName":"T"}`, "TopicConfig/default"},
		{"SubscriptionGroupConfig/default", `{"groupName":"g"}`, "SubscriptionGroupConfig/default"},
		{
			"SubscriptionGroupConfig/default",
			`{"groupName":"g","groupRetryPolicy":{}}`,
			"SubscriptionGroupConfig/default",
		},
		{"HARuntimeInfo/default", `{}`, "HARuntimeInfo/default"},
		{"TopicRouteData/empty", `{}`, "TopicRouteData/empty"},
		{
			"ConsumeMessageDirectlyResult",
			`{"consumeResult":"CR_SUCCESS","spentTimeMills":3}`,
			"ConsumeMessageDirectlyResult",
		},
	}
	for _, tt := range tests {
		got, err := capture{name: tt.name}.recoder(t)([]byte(tt.text))
		if err != nil || string(got) != string(captured(t, tt.want)) {
			t.Errorf("%s of %s:\ngot  %s, %v\nwant %s", tt.name, tt.text, got, err, captured(t, tt.want))
		}
	}
	policy, err := DecodeBody[GroupRetryPolicy](
		[]byte(`{"exponentialRetryPolicy":{"max":9}}`),
	)
	if err != nil || policy.ExponentialRetryPolicy.MaxMillis != 9 ||
		policy.ExponentialRetryPolicy.InitialMillis != 5000 {
		t.Errorf("retry policy: %+v, %v", policy, err)
	}
}

// TestC010StrictParsers reads routes and clusters with encoding/json, which knows no bare keys, and as the Go
// 4.x client does, which splits the text of brokerAddrs at commas and colons.
func TestC010StrictParsers(t *testing.T) {
	t.Parallel()
	addrs := map[int64]string{0: "10.0.0.1:10911", 1: "10.0.0.2:10911", 10: "10.0.0.3:10911"}
	data := BrokerData{BrokerAddrs: addrs, BrokerName: "broker-a", Cluster: "DefaultCluster"}
	route := TopicRouteData{
		BrokerDatas: []BrokerData{data},
		QueueDatas:  []QueueData{{BrokerName: "broker-a", Perm: 6, ReadQueueNums: 8, WriteQueueNums: 8}},
		TopicQueueMappingByBroker: map[string]TopicQueueMappingInfo{
			"broker-a": {BrokerName: "broker-a", CurrIDMap: map[int32]int32{0: 1}, Scope: globalScope, Topic: "T"},
		},
	}
	cluster := ClusterInfo{
		BrokerAddrTable:  map[string]BrokerData{"broker-a": data},
		ClusterAddrTable: map[string][]string{"DefaultCluster": {"broker-a"}},
	}
	type strictBroker struct {
		BrokerAddrs map[string]string `json:"brokerAddrs"`
		BrokerName  string            `json:"brokerName"`
	}
	var gotRoute struct {
		BrokerDatas []strictBroker `json:"brokerDatas"`
	}
	var gotCluster struct {
		BrokerAddrTable map[string]strictBroker `json:"brokerAddrTable"`
	}
	if err := json.Unmarshal(EncodeBody(&route), &gotRoute); err != nil {
		t.Fatalf("route: %v in %s", err, EncodeBody(&route))
	}
	if err := json.Unmarshal(EncodeBody(&cluster), &gotCluster); err != nil {
		t.Fatalf("cluster: %v in %s", err, EncodeBody(&cluster))
	}
	for _, broker := range []strictBroker{gotRoute.BrokerDatas[0], gotCluster.BrokerAddrTable["broker-a"]} {
		if broker.BrokerAddrs["0"] != addrs[0] || broker.BrokerAddrs["10"] != addrs[10] ||
			broker.BrokerName != "broker-a" {
			t.Errorf("got %+v", broker)
		}
	}
	_, rest, _ := strings.Cut(string(EncodeBody(&route)), `"brokerAddrs":{`)
	inner, _, _ := strings.Cut(rest, "}")
	split := map[int64]string{}
	for _, entry := range strings.Split(inner, ",") {
		id, addr, _ := strings.Cut(entry, ":")
		n, err := strconv.ParseInt(strings.Trim(id, `"`), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		split[n] = strings.Trim(addr, `"`)
	}
	if diff := cmp.Diff(addrs, split); diff != "" {
		t.Errorf("split at commas and colons:\n%s", diff)
	}
}

// TestClientBodies reads bodies of other clients than Apache's 5.5 for Java.
func TestClientBodies(t *testing.T) {
	t.Parallel()
	want := map[string]HeartbeatData{
		"HeartbeatData/go": {
			ClientID:        "10.0.0.9@4711",
			ProducerDataSet: []ProducerData{{GroupName: "p"}},
			ConsumerDataSet: []ConsumerData{
				{
					ConsumeFromWhere: ConsumeFromLastOffset,
					ConsumeType:      ConsumePassively,
					GroupName:        "g",
					MessageModel:     Clustering,
					SubscriptionDataSet: []SubscriptionData{
						{
							Codes: []int32{
								97,
								-98,
							},
							ExpressionType: ExpressionTag,
							SubString:      "a || b",
							SubVersion:     1795969806314,
							Tags:           []string{"a", "b"},
							Topic:          "T",
						},
					},
				},
			},
		},
		"HeartbeatData/cpp": {
			ClientID: "10.0.0.9@4711",
			ConsumerDataSet: []ConsumerData{
				{
					ConsumeType:  ConsumePassively,
					GroupName:    "g",
					MessageModel: Clustering,
					SubscriptionDataSet: []SubscriptionData{
						{
							Codes:          []int32{97},
							ExpressionType: ExpressionTag,
							SubString:      "a",
							SubVersion:     1795969806314,
							Tags:           []string{"a"},
							Topic:          "T",
						},
					},
				},
			},
		},
		"HeartbeatData/ordinals": {
			ConsumerDataSet: []ConsumerData{
				{
					ConsumeFromWhere: ConsumeFromTimestamp,
					ConsumeType:      ConsumePop,
					GroupName:        "7",
					MessageModel:     Broadcasting,
					UnitMode:         true,
				},
			},
		},
	}
	for _, c := range captures(t, "clients.txt") {
		got, err := DecodeBody[HeartbeatData]([]byte(c.text))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if diff := cmp.Diff(want[c.name], *got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s differs:\n%s", c.name, diff)
		}
	}
}

func TestRegisterBrokerBodyCompressed(t *testing.T) {
	t.Parallel()
	packed, err := base64.StdEncoding.DecodeString(string(captured(t, "RegisterBrokerBody/compressed")))
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeCompressedRegisterBody(packed)
	if err != nil {
		t.Fatal(err)
	}
	want, err := DecodeBody[RegisterBrokerBody](captured(t, "RegisterBrokerBody"))
	if err != nil {
		t.Fatal(err)
	}
	// What the compressed form does not carry.
	w := &want.TopicConfigSerializeWrapper
	w.MappingDataVersion, w.TopicQueueMappingDetailMap = DataVersion{}, nil
	for name, topic := range w.TopicConfigTable {
		topic.TopicSysFlag = 0
		w.TopicConfigTable[name] = topic
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("Apache's differs from its JSON:\n%s", diff)
	}
	again := got.EncodeCompressed()
	got, err = DecodeCompressedRegisterBody(again)
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" || err != nil {
		t.Errorf("ours: %v, differs:\n%s", err, diff)
	}
}

func TestBitSet(t *testing.T) {
	t.Parallel()
	s := BitSet{1 | 1<<3, 0, 1 << 1, 0, 0, 0, 0, 0, 1 << 6} // 0, 3, 17 and 70
	acks := BatchAckMessageRequestBody{BrokerName: "b", Acks: []BatchAck{
		{
			BitSet:              s,
			ConsumerGroup:       "g",
			InvisibleTimeMillis: 60000,
			PopTimeMillis:       1700000000000,
			QueueID:             2,
			Retry:               "0",
			ReviveQueueID:       1,
			StartOffset:         100,
			Topic:               "T",
		},
	}}
	if got, want := string(EncodeBody(&acks)), string(captured(t, "BatchAckMessageRequestBody")); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	long := `{"acks":[{"bitSet":[9,0,2,0,0,0,0,0,64],"consumerGroup":"g","topic":"T","retry":"0","startOffset":100,"queueId":2,` +
		`"reviveQueueId":1,"popTime":1700000000000,"invisibleTime":60000}],"brokerName":"b"}`
	got, err := DecodeBody[BatchAckMessageRequestBody]([]byte(long))
	if diff := cmp.Diff(&acks, got); diff != "" || err != nil {
		t.Errorf("long names: %v, differs:\n%s", err, diff)
	}
	var all []int
	for i := range s.All() {
		all = append(all, i)
	}
	if diff := cmp.Diff([]int{0, 3, 17, 70}, all); diff != "" {
		t.Error(diff)
	}
}
