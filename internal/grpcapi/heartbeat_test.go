// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"testing"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// A client that says goodbye while a heartbeat of it is under way is gone after that: the broker hears of the end again.
func TestTerminationDuringHeartbeat(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	ctx := as(t, "c1")
	d.connect(ctx, consumer(v2.ClientType_PUSH_CONSUMER, "g", "normal"))
	ends := func() int {
		d.broker.mu.Lock()
		defer d.broker.mu.Unlock()
		return len(d.broker.ended)
	}
	before := -1
	d.broker.on(protocol.HeartBeat, func(c *remoting.Call) {
		_, err := d.client.NotifyClientTermination(ctx, &v2.NotifyClientTerminationRequest{Group: resource("g")})
		if err != nil {
			t.Error(err)
		}
		before = ends()
		c.Reply(remoting.Response{})
	})
	if _, err := d.client.Heartbeat(ctx, &v2.HeartbeatRequest{Group: resource("g")}); err != nil {
		t.Fatal(err)
	}
	if after := ends(); before != 1 || after != 2 {
		t.Errorf("the broker heard of %d ends before the heartbeat was over, %d in all", before, after)
	}
}
