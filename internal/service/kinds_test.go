// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roquetmq/roquet/internal/config"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// TestWireTimers: what waits for its time shows in every view that tools have of it.
func TestWireTimers(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	w.topic("t", 1)
	for range 3 {
		w.send("t", 0, "TIMER_DELAY_SEC\x013600\x02", "timer")
	}
	w.send("t", 0, "DELAY\x0118\x02", "level")
	offsets := body[protocol.DelayOffsetSerializeWrapper](t, w.ok(protocol.GetAllDelayOffset, nil, nil))
	if at, ok := offsets.OffsetTable[18]; !ok || at != 0 || len(offsets.OffsetTable) != 1 {
		t.Errorf("delay offsets %v", offsets.OffsetTable)
	}
	point := w.ok(protocol.GetTimerCheckPoint, nil, nil).Body
	if len(point) != 56 || binary.BigEndian.Uint64(point[16:]) != 3 {
		t.Errorf("check point %x", point)
	}
	if text := string(w.ok(protocol.GetTimerMetrics, nil, nil).Body); !strings.Contains(text, `"t":{"count":4,`) {
		t.Errorf("metrics %s", text)
	}
	info := body[protocol.KVTable](t, w.ok(protocol.GetBrokerRuntimeInfo, nil, nil)).Table
	for key, want := range map[string]string{
		"timerReadBehind": "0", "timerOffsetBehind": "0", "timerCongestNum": "4", "timerEnqueueTps": "0.0",
		"timerDequeueTps": "0.0", "scheduleMessageOffset_18": "0,1",
	} {
		if info[key] != want {
			t.Errorf("%s is %q, want %q", key, info[key], want)
		}
	}
	w.ok(protocol.DeleteExpiredCommitLog, nil, nil)
}

// TestWirePeek: who looks gets what a receive would get, and it stays.
func TestWirePeek(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	w.topic("t", 2)
	w.group("g")
	peek := &protocol.PeekMessageRequestHeader{Topic: "t", QueueID: -1, MaxMsgNums: 2, ConsumerGroup: "g"}
	if remark := w.refused(protocol.PullNotFound, protocol.PeekMessage, peek, nil); remark != "NO_MESSAGE_IN_QUEUE" {
		t.Errorf("remark %q", remark)
	}
	for i := range 3 {
		w.send("t", int32(i%2), "", fmt.Sprint("m", i))
	}
	for range 2 {
		answer := w.ok(protocol.PeekMessage, peek, nil)
		if all := records(t, answer.Body); len(all) != 2 || answer.Ext.Value("restNum") != "3" {
			t.Errorf("%d messages, %s in all", len(all), answer.Ext.Value("restNum"))
		}
	}
	if got := w.pop("t", "g", 0); len(got) != 3 {
		t.Errorf("%d messages are left to receive", len(got))
	}
	if answer := w.call(protocol.PeekMessage, peek, nil); answer.Code != int32(protocol.PullNotFound) {
		t.Errorf("received messages are seen: code %d", answer.Code)
	}
	peek.ConsumerGroup = "none"
	w.refused(protocol.SubscriptionGroupNotExist, protocol.PeekMessage, peek, nil)
}

// records takes an answer's body apart.
func records(t *testing.T, body []byte) (all []message.Message) {
	t.Helper()
	for len(body) > 0 {
		rec := message.Record(body)
		m, err := message.Decode(rec[:rec.Size()])
		if err != nil {
			t.Fatal(err)
		}
		all, body = append(all, m), body[rec.Size():]
	}
	return all
}

// TestWireResetsArePushed: with useServerSideResetOffset=false the clients that are online are told where to go on,
// C++ clients in their own form.
func TestWireResetsArePushed(t *testing.T) {
	t.Parallel()
	w := startWire(t, func(cfg *config.Config) { cfg.Message.ServerSideReset = false })
	w.topic("t", 1)
	w.group("g")
	for range 5 {
		w.send("t", 0, "", "x")
	}
	w.ok(protocol.UpdateConsumerOffset, &protocol.UpdateConsumerOffsetRequestHeader{
		ConsumerGroup: "g", Topic: "t", CommitOffset: 5,
	}, nil)
	reset := &protocol.ResetOffsetRequestHeader{Topic: "t", Group: "g", QueueID: -1, IsForce: true}
	w.refused(protocol.ConsumerNotOnline, protocol.InvokeBrokerToResetOffset, reset, nil)
	told := make(chan string, 2)
	lane := remoting.NewLane(remoting.LaneConfig{Name: "client"})
	reg, err := remoting.NewRegistry(remoting.RegistryConfig{}, []remoting.Route{
		{Code: protocol.ResetConsumerClientOffset, Lane: lane, Processor: remoting.Handle(
			func(c *remoting.Call, h *protocol.ResetOffsetRequestHeader) (remoting.Response, error) {
				told <- fmt.Sprintf("%s %s %v %s", h.Group, h.Topic, h.IsForce, c.Body)
				return remoting.Response{}, nil
			},
		)},
		{Code: protocol.NotifyConsumerIDsChanged, Lane: lane, Processor: remoting.HandleBody(
			func(*remoting.Call) (remoting.Response, error) { return remoting.Response{}, nil })},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.heartbeat(w.dialWith(reg), "c1", "g", "t")
	cpp, err := remoting.NewClient(remoting.ClientConfig{Addr: w.addr, Registry: reg, Language: protocol.LanguageCPP})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cpp.Close)
	w.heartbeat(cpp, "c2", "g", "t")
	answer := body[protocol.ResetOffsetBody](t, w.ok(protocol.InvokeBrokerToResetOffset, reset, nil))
	if at := answer.OffsetTable[protocol.MessageQueue{BrokerName: "broker-a", Topic: "t"}]; at != 0 {
		t.Errorf("told the administrator %v", answer.OffsetTable)
	}
	got := []string{<-told, <-told}
	slices.Sort(got)
	want := []string{
		`g t true {"offsetTable":[{"brokerName":"broker-a","offset":0,"queueId":0,"topic":"t"}]}`,
		`g t true {"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"t"}:0}}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("clients were told %q", got)
	}
}

// TestWireConflicts: members of a group that do not fit together show in the group's view.
func TestWireConflicts(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	view := func() []string {
		return body[protocol.ConsumerConnection](t, w.ok(protocol.GetConsumerConnectionList,
			&protocol.GetConsumerConnectionListRequestHeader{ConsumerGroup: "g"}, nil)).Conflicts
	}
	first, second := w.dial(), w.dial()
	w.heartbeat(first, "c1", "g", "t")
	if got := view(); len(got) != 0 {
		t.Errorf("alone: %q", got)
	}
	w.heartbeat(second, "c2", "g", "u")
	got := view()
	if len(got) != 1 || !strings.Contains(got[0], "subscriptions differ in topic t: c1 at") {
		t.Errorf("conflicts %q", got)
	}
	all, _ := parsePage(t, w.scrape())
	if n := valueOf(t, all, "roquet_group_conflicts", "consumer_group", "g", "conflict", "subscriptions differ",
		"topic", "t", "client_id", "c1", "other_client_id", "c2"); n != 1 {
		t.Errorf("C069: the metric is %v", n)
	}
	third := w.dial()
	w.heartbeat(third, "c3", "g", "v")
	all, _ = parsePage(t, w.scrape())
	told := slices.DeleteFunc(all, func(s series) bool { return s.name != "roquet_group_conflicts" })
	if n := len(view()); n != 2 || len(told) != 1 || told[0].labels["topic"] != "t" {
		t.Errorf("%d conflicts of one kind in the view, in metrics %v", n, told)
	}
	w.heartbeat(third, "c3", "g", "t")
	w.heartbeat(second, "c2", "g", "t")
	if got := view(); len(got) != 0 {
		t.Errorf("after they agree: %q", got)
	}
}

// TestWireNamespaces: a namespace is a prefix of every name, retry topics included; to the broker such names are
// plain names.
func TestWireNamespaces(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	w.topic("ns%t", 1)
	w.group("ns%g")
	w.send("ns%t", 0, "", "x")
	w.heartbeat(w.dial(), "c", "ns%g", "ns%t")
	all, _ := w.pull("ns%g", "ns%t", 0, 0, "*")
	if len(all) != 1 || all[0].Topic != "ns%t" {
		t.Fatalf("pulled %+v", all)
	}
	w.ok(protocol.ConsumerSendMsgBack, &protocol.ConsumerSendMsgBackRequestHeader{
		Group: "ns%g", Offset: int64(all[0].LogOffset), DelayLevel: 1, OriginTopic: "ns%t",
	}, nil)
	deadline := time.Now().Add(20 * time.Second)
	for time.Now().Before(deadline) {
		if again, _ := w.pull("ns%g", "%RETRY%ns%g", 0, 0, "*"); len(again) == 1 {
			if origin, _ := message.Property(again[0].Properties, message.PropertyRetryTopic); origin != "ns%t" {
				t.Errorf("comes again from %q", origin)
			}
			return
		}
		<-time.After(50 * time.Millisecond)
	}
	t.Error("the message did not come again")
}

// TestWireTraceTopic: the trace topic is there when it is asked for, and a refused trace disturbs nobody (as C140).
func TestWireTraceTopic(t *testing.T) {
	t.Parallel()
	const trace = "RMQ_SYS_TRACE_TOPIC"
	w := startWire(t, func(cfg *config.Config) { cfg.Topic.TraceTopic, cfg.Topic.AutoCreateTopic = true, false })
	w.topic("t", 1)
	w.send(trace, 0, "KEYS\x01k\x02", "Pub\x01…")
	if all, _ := w.pull("g", trace, 0, 0, "*"); len(all) != 1 {
		t.Errorf("%d traces", len(all))
	}
	off := startWire(t, func(cfg *config.Config) { cfg.Topic.AutoCreateTopic = false })
	off.topic("t", 1)
	off.refused(protocol.TopicNotExist, protocol.SendMessageV2, sendHeader(trace, 0, ""), []byte("Pub"))
	off.send("t", 0, "", "business")
	if all, _ := off.pull("g", "t", 0, 0, "*"); len(all) != 1 {
		t.Errorf("%d messages beside a refused trace", len(all))
	}
}

// TestWirePriority: the priority is the queue, and in a topic for priorities the higher ones are received first.
func TestWirePriority(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	w.typedTopic("p", "PRIORITY", 4)
	w.topic("plain", 4)
	w.group("g")
	const priority = "_SYS_MSG_PRIORITY_\x01"
	for _, p := range []string{"0", "2", "9", "x"} {
		w.send("p", 1, priority+p+"\x02", p)
	}
	var got []string
	for range 4 {
		answer := w.ok(protocol.PopMessage, &protocol.PopMessageRequestHeader{
			ConsumerGroup: "g", Topic: "p", QueueID: -1, MaxMsgNums: 1, InvisibleTime: 30_000,
			BornTime: time.Now().UnixMilli(), ExpType: "TAG", Exp: "*",
		}, nil)
		for _, m := range records(t, answer.Body) {
			got = append(got, fmt.Sprintf("%s in %d", m.Body, m.QueueID))
		}
	}
	if want := []string{"9 in 3", "2 in 2", "x in 1", "0 in 0"}; !slices.Equal(got, want) {
		t.Errorf("received %q, want %q", got, want)
	}
	// The message decides, in a topic of any type; with a message group or a time it has no priority.
	for _, tt := range []struct {
		props string
		queue int32
		kept  bool
	}{
		{priority + "2\x02", 2, true},
		{priority + "3\x02__SHARDINGKEY\x01a\x02", 1, false},
		{priority + "3\x02DELAY\x011\x02", 1, false},
	} {
		if at := w.send("plain", 1, tt.props, tt.props); at.QueueID != tt.queue {
			t.Errorf("%q is sent to queue %d", tt.props, at.QueueID)
		}
		deadline := time.Now().Add(20 * time.Second)
		var kept, found bool
		for !found && time.Now().Before(deadline) {
			all, _ := w.pull("g", "plain", tt.queue, 0, "*")
			for _, m := range all {
				if string(m.Body) == tt.props {
					found = true
					_, kept = message.Property(m.Properties, message.PropertyPriority)
				}
			}
			<-time.After(20 * time.Millisecond)
		}
		if !found || kept != tt.kept {
			t.Errorf("%q: in queue %d %v, with its priority %v", tt.props, tt.queue, found, kept)
		}
	}
	// A batch is as urgent as its most urgent message.
	batch := sendHeader("p", 0, "")
	batch.Batch = protocol.Some(true)
	answer := w.ok(protocol.SendBatchMessage, batch, message.AppendBatchEntry(
		message.AppendBatchEntry(nil, 0, []byte("a"), priority+"1\x02"), 0, []byte("b"), priority+"7\x02"))
	if queue := answer.Ext.Value("queueId"); queue != "3" {
		t.Errorf("the batch is in queue %s", queue)
	}
}

// TestWireResetsReachWhoWaits: a pull and a receive that wait at the end of a queue learn of a reset, and of a clone
// over offsets of their own, at once.
func TestWireResetsReachWhoWaits(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	w.topic("t", 1)
	for _, group := range []string{"pulls", "pops", "source"} {
		w.group(group)
	}
	for range 3 {
		w.send("t", 0, "", "x")
	}
	commit := func(group string, at int64) {
		w.ok(protocol.UpdateConsumerOffset, &protocol.UpdateConsumerOffsetRequestHeader{
			ConsumerGroup: group, Topic: "t", CommitOffset: at,
		}, nil)
	}
	commit("source", 2)
	w.ok(protocol.CloneGroupOffset, &protocol.CloneGroupOffsetRequestHeader{
		SrcGroup: "source", DestGroup: "source", Topic: "t",
	}, nil)
	commit("source", 1) // which a reset to its own offsets would have taken no more
	waiting := w.dial()
	for _, moved := range []struct {
		name string
		by   func(group string)
		to   int
	}{
		{"reset", func(group string) {
			w.ok(protocol.InvokeBrokerToResetOffset, &protocol.ResetOffsetRequestHeader{
				Topic: "t", Group: group, QueueID: -1, IsForce: true,
			}, nil)
		}, 0},
		{"cloned", func(group string) {
			w.ok(protocol.CloneGroupOffset, &protocol.CloneGroupOffsetRequestHeader{
				SrcGroup: "source", DestGroup: group, Topic: "t",
			}, nil)
		}, 1},
	} {
		for _, group := range []string{"pulls", "pops"} {
			commit(group, 3)
			answered := make(chan *protocol.Command, 1)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			go func() {
				code, h := protocol.PullMessage, protocol.Header(&protocol.PullMessageRequestHeader{
					ConsumerGroup: group, Topic: "t", QueueOffset: 3, MaxMsgNums: 32, SysFlag: 6,
					SuspendTimeoutMillis: 30_000, Subscription: "*", ExpressionType: "TAG",
				})
				if group == "pops" {
					code, h = protocol.PopMessage, &protocol.PopMessageRequestHeader{
						ConsumerGroup: group, Topic: "t", QueueID: -1, MaxMsgNums: 32, InvisibleTime: 30_000,
						PollTime: 30_000, BornTime: time.Now().UnixMilli(), ExpType: "TAG", Exp: "*",
					}
				}
				answer, err := waiting.Invoke(ctx, code, h, nil)
				if err != nil {
					t.Errorf("%s %s: %v", group, moved.name, err)
				}
				answered <- answer
			}()
			for w.svc.node.puller.Held()+w.svc.node.popper.PollingCount(group, "t", -1) == 0 && ctx.Err() == nil {
				<-time.After(time.Millisecond)
			}
			moved.by(group)
			answer := <-answered
			switch {
			case answer == nil:
			case group == "pops":
				if all := records(t, answer.Body); len(all) != 3-moved.to {
					t.Errorf("%s: %d messages received", moved.name, len(all))
				}
			case answer.Code != int32(protocol.PullOffsetMoved) ||
				answer.Ext.Value("nextBeginOffset") != fmt.Sprint(moved.to):
				t.Errorf("%s: code %d %s", moved.name, answer.Code, answer.Ext.Value("nextBeginOffset"))
			}
		}
	}
}
