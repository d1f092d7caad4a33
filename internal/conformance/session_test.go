// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/protocol"
)

// TestC217ClientsOutliveTheServer: a 5.x client whose server was killed and is back has to send its settings again,
// and no more than that, to go on over the connection that its library makes anew; what it held it still holds.
func TestC217ClientsOutliveTheServer(t *testing.T) {
	t.Parallel()
	srv := startChild(t, t.TempDir())
	srv.topic("t", normal, 1)
	srv.group("g", false, 16)
	d := newGRPC(t, srv.addr, "client")
	defer d.close()
	for i := range 2 {
		if _, err := d.send(&outgoing{topic: "t", body: fmt.Sprint("m", i)}); err != nil {
			t.Fatal(err)
		}
	}
	r := &receiving{group: "g", topic: "t", count: 1, invisible: time.Minute, wait: 5 * time.Second}
	first, err := d.receive(r)
	if err != nil || len(first) != 1 {
		t.Fatal(first, err)
	}
	srv.kill()
	srv.start()
	beat := func() v2.Code {
		t.Helper()
		ctx, cancel := d.as("g/t")
		defer cancel()
		answer, err := d.client.Heartbeat(ctx, &v2.HeartbeatRequest{
			Group: resource("g"), ClientType: v2.ClientType_SIMPLE_CONSUMER,
		}, grpc.WaitForReady(true))
		if err != nil {
			t.Fatal(err)
		}
		return answer.GetStatus().GetCode()
	}
	if code := beat(); code != v2.Code_UNRECOGNIZED_CLIENT_TYPE {
		t.Errorf("before the settings: %s", code)
	}
	if _, err := d.receive(r); kindOf(err) != v2.Code_UNRECOGNIZED_CLIENT_TYPE.String() {
		t.Errorf("received before the settings: %v", err)
	}
	d.forget("g", "t")
	second, err := d.receive(r)
	if err != nil || len(second) != 1 || second[0].body != "m1" {
		t.Fatal(second, err)
	}
	if code := beat(); code != v2.Code_OK {
		t.Errorf("after the settings: %s", code)
	}
	for _, m := range []received{first[0], second[0]} {
		if err := d.ack("g", "t", m.handle); err != nil {
			t.Errorf("%s: %v", m.body, err)
		}
	}
}

// TestC110OrderedFilterMovesOn: in an orderly group what its subscription does not want is passed over, and its offset
// moves on.
func TestC110OrderedFilterMovesOn(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	for _, d := range doors(t, srv.addr) {
		topic, group := "t-"+d.name(), "g-"+d.name()
		srv.topic(topic, fifo, 1)
		srv.group(group, true, 16)
		for i := range 101 {
			tag := "unwanted"
			if i == 100 {
				tag = "wanted"
			}
			if _, err := d.send(
				&outgoing{topic: topic, body: fmt.Sprint("a/", i), group: "a", tag: tag},
			); err != nil {
				t.Fatal(err)
			}
		}
		got, err := d.receive(&receiving{
			group:     group,
			topic:     topic,
			count:     32,
			invisible: time.Minute,
			wait:      5 * time.Second,
			tag:       "wanted",
			orderly:   true,
		})
		if err != nil || len(got) != 1 || got[0].body != "a/100" {
			t.Fatalf("%s: %+v %v", d.name(), got, err)
		}
		if err := d.ack(group, topic, got[0].handle); err != nil {
			t.Fatal(err)
		}
		answer := srv.must(protocol.QueryConsumerOffset, &protocol.QueryConsumerOffsetRequestHeader{
			ConsumerGroup: group, Topic: topic,
		}, nil)
		if n, err := strconv.Atoi(answer.Ext.Value("offset")); err != nil || n != 101 {
			t.Errorf("%s: the group's offset is %d, want 101", d.name(), n)
		}
	}
}
