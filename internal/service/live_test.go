// SPDX-License-Identifier: Apache-2.0

package service

import (
	"strconv"
	"strings"
	"testing"

	"github.com/roquetmq/roquet/internal/broker"
	"github.com/roquetmq/roquet/internal/config"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
	"github.com/roquetmq/roquet/internal/store"
)

// TestLiveSettingsHaveAnEffect: every setting that UPDATE_BROKER_CONFIG takes changes what the running broker does;
// what it cannot change is refused, and nothing of the request is taken then.
func TestLiveSettingsHaveAnEffect(t *testing.T) {
	t.Parallel()
	checks := make(chan int64, 100)
	w := startWire(t, func(cfg *config.Config) { cfg.Store.SegmentBytes = 1 << 20 })
	w.topic("t", 1)
	w.topic("quiet", 1)
	w.group("g")
	lane := remoting.NewLane(remoting.LaneConfig{Name: "client"})
	reg, err := remoting.NewRegistry(remoting.RegistryConfig{}, []remoting.Route{
		{Code: protocol.CheckTransactionState, Lane: lane, Processor: remoting.Handle(
			func(_ *remoting.Call, h *protocol.CheckTransactionStateRequestHeader) (remoting.Response, error) {
				checks <- h.TranStateTableOffset
				return remoting.Response{}, nil
			},
		)},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.heartbeat(w.dialWith(reg), "producer", "other", "t")
	set := func(text string) {
		t.Helper()
		w.ok(protocol.UpdateBrokerConfig, nil, []byte(strings.ReplaceAll(text, " ", "\n")))
	}
	send := func(want protocol.ResponseCode, topic, props, text string) {
		t.Helper()
		if answer := w.call(
			protocol.SendMessageV2,
			sendHeader(topic, 0, props),
			[]byte(text),
		); answer.Code != int32(
			want,
		) {
			t.Errorf("send: code %d %s, want %s", answer.Code, answer.Remark, want)
		}
	}
	pull := func(want protocol.ResponseCode, group string) {
		t.Helper()
		if _, answer := w.pull(group, "quiet", 0, 0, "*"); answer.Code != int32(want) {
			t.Errorf("pull: code %d %s, want %s", answer.Code, answer.Remark, want)
		}
	}
	retains := func(key, value, back string) {
		t.Helper()
		for range 40 {
			w.send("t", 0, "", strings.Repeat("x", 64<<10))
		}
		w.ok(protocol.DeleteExpiredCommitLog, nil, nil)
		before := w.svc.node.store.First()
		set(key + "=" + value)
		w.ok(protocol.DeleteExpiredCommitLog, nil, nil)
		if first := w.svc.node.store.First(); first <= before {
			t.Errorf("%s=%s drops nothing: the log begins at %d, and did at %d", key, value, first, before)
		}
		set(key + "=" + back)
	}
	elsewhere := func() {}
	undecided := func() {
		set("transactionTimeOut=20 transactionCheckInterval=20 transactionCheckMax=3")
		half := w.send("t", 0, "TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01U1\x02", "half")
		for range 3 {
			if at := <-checks; at != half.QueueOffset {
				t.Errorf("asked about %d, want %d", at, half.QueueOffset)
			}
		}
		parked := make(chan struct{})
		waiter := &store.Waiter{Wake: func(*store.Waiter) { close(parked) }}
		if w.svc.node.store.Await(broker.TransCheckMaxTimeTopic, 0, 0, waiter) {
			<-parked
		}
	}
	effects := map[string]func(){
		"autoCreateTopicEnable": func() {
			set("autoCreateTopicEnable=false")
			send(protocol.TopicNotExist, "new", "", "x")
			set("autoCreateTopicEnable=true")
			send(protocol.Success, "new", "", "x")
		},
		"autoCreateSubscriptionGroup": func() {
			set("autoCreateSubscriptionGroup=false")
			pull(protocol.SubscriptionGroupNotExist, "unknown")
			set("autoCreateSubscriptionGroup=true")
		},
		"brokerPermission": func() { w.permissions(set, pull) },
		"rejectTransactionMessage": func() {
			set("rejectTransactionMessage=true")
			send(protocol.NoPermission, "t", "TRAN_MSG\x01true\x02", "x")
			set("rejectTransactionMessage=false")
		},
		"maxMessageSize": func() {
			set("maxMessageSize=1024")
			send(protocol.MessageIllegal, "t", "", strings.Repeat("x", 1025))
			set("maxMessageSize=4194304")
		},
		"enablePropertyFilter": elsewhere, // TestWireClients
		"recallMessageEnable": func() {
			recall := &protocol.RecallMessageRequestHeader{Topic: "t", RecallHandle: "x"}
			w.refused(protocol.IllegalOperation, protocol.RecallMessage, recall, nil)
			set("recallMessageEnable=false")
			w.refused(protocol.NoPermission, protocol.RecallMessage, recall, nil)
		},
		"defaultQueryMaxNum":       elsewhere, // TestWireQueries
		"useServerSideResetOffset": elsewhere, // TestWireResetsArePushed
		"transactionTimeOut":       undecided,
		"transactionCheckInterval": elsewhere, // with transactionTimeOut
		"transactionCheckMax":      elsewhere, // with transactionTimeOut
		"logLevel":                 elsewhere,
		"slowCallMillis":           elsewhere,
		"maxStoreSize":             func() { retains("maxStoreSize", "1048576", "0") },
		"fileReservedTime":         func() { retains("fileReservedTime", "1ms", "72") },
		"diskMaxUsedSpaceRatio":    elsewhere, // as the others of retention
	}
	for _, s := range config.New().Settings() {
		switch effect := effects[s.Key]; {
		case s.Dynamic && effect == nil:
			t.Errorf("nothing shows that %s has an effect at run time", s.Key)
		case !s.Dynamic && effect != nil:
			t.Errorf("%s cannot be changed at run time", s.Key)
		case s.Dynamic:
			effect()
		}
	}
	remark := w.refused(protocol.NoPermission, protocol.UpdateBrokerConfig, nil,
		[]byte("maxMessageSize=2048\nlongPollingEnable=false\n"))
	if !strings.Contains(remark, "longPollingEnable cannot be changed at run time: set it in the file and restart") {
		t.Errorf("remark %q", remark)
	}
	send(protocol.Success, "t", "", strings.Repeat("x", 2049))
}

// permissions shows what brokerPermission does: routes and answers.
func (w *wire) permissions(set func(string), pull func(protocol.ResponseCode, string)) {
	w.t.Helper()
	for _, tc := range []struct {
		perm int32
		read protocol.ResponseCode
		send protocol.ResponseCode // to an ordered topic
	}{
		{4, protocol.PullNotFound, protocol.NoPermission},
		{2, protocol.NoPermission, protocol.Success},
		{6, protocol.PullNotFound, protocol.Success},
	} {
		set("brokerPermission=" + strconv.Itoa(int(tc.perm)))
		route := body[protocol.TopicRouteData](w.t, w.ok(protocol.GetRouteInfoByTopic,
			&protocol.GetRouteInfoRequestHeader{Topic: "t"}, nil))
		if perm := route.QueueDatas[0].Perm; perm != tc.perm {
			w.t.Errorf("brokerPermission=%d: the route says %d", tc.perm, perm)
		}
		pull(tc.read, "g")
		ordered := &protocol.CreateTopicRequestHeader{
			Topic: "ordered", DefaultTopic: "TBW102", ReadQueueNums: 1, WriteQueueNums: 1, Perm: 6,
			TopicFilterType: "SINGLE_TAG", Order: true,
		}
		w.ok(protocol.UpdateAndCreateTopic, ordered, nil)
		if a := w.call(protocol.SendMessageV2, sendHeader("ordered", 0, ""), []byte("x")); a.Code != int32(tc.send) {
			w.t.Errorf("brokerPermission=%d: send: code %d %s, want %s", tc.perm, a.Code, a.Remark, tc.send)
		}
		if t, _ := (door{w.svc.node}).Topic("t"); t.Writable != (tc.perm&broker.PermWrite != 0) {
			w.t.Errorf("brokerPermission=%d: writable for gRPC: %v", tc.perm, t.Writable)
		}
	}
}

// TestRoutesOfTopicsThatChangeTogether: the version of the topics is one for all changes of a write, and for what
// brokerPermission takes away while another topic changes. Each of them reaches the routes all the same.
func TestRoutesOfTopicsThatChangeTogether(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	wants := func(perm int32, topics ...string) {
		t.Helper()
		for _, topic := range topics {
			route := body[protocol.TopicRouteData](t, w.ok(protocol.GetRouteInfoByTopic,
				&protocol.GetRouteInfoRequestHeader{Topic: topic}, nil))
			if got := route.QueueDatas[0].Perm; got != perm {
				t.Errorf("the route of %s says %d, want %d", topic, got, perm)
			}
		}
	}
	put := func(perm int32, topics ...string) {
		t.Helper()
		list := &protocol.CreateTopicListRequestBody{}
		for _, topic := range topics {
			list.TopicConfigList = append(list.TopicConfigList, protocol.TopicConfig{
				TopicName: topic, ReadQueueNums: 1, WriteQueueNums: 1, Perm: perm, TopicFilterType: "SINGLE_TAG",
			})
		}
		w.ok(protocol.UpdateAndCreateTopicList, nil, protocol.EncodeBody(list))
		wants(perm, topics...)
	}
	put(6, "a", "b", "c")
	put(4, "a", "b", "c")
	put(6, "a", "b", "c")
	w.svc.node.topics.SetDenied(broker.PermWrite)
	w.svc.registrar.topicsChanged([]string{"a"}) // another change comes between
	w.svc.registrar.topicsChanged(nil)
	wants(4, "a", "b", "c")
}
