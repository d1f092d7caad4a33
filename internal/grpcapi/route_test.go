// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"fmt"
	"net/netip"
	"testing"

	"google.golang.org/protobuf/proto"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

func TestQueryRoute(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	asked := endpoints("mq.example.com", 30081)
	topic := &v2.Resource{ResourceNamespace: "ns", Name: "mixed"}
	answer, err := d.client.QueryRoute(as(t, "c1"), &v2.QueryRouteRequest{Topic: topic, Endpoints: asked})
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, answer.GetStatus(), v2.Code_OK)
	var got []string
	for _, q := range answer.GetMessageQueues() {
		got = append(got, fmt.Sprint(q.GetId(), q.GetPermission()))
		if !proto.Equal(q.GetTopic(), topic) || q.GetBroker().GetName() != "broker-a" || q.GetBroker().GetId() != 0 ||
			!proto.Equal(
				q.GetBroker().GetEndpoints(),
				asked,
			) || text(q.GetAcceptMessageTypes()) != "[NORMAL FIFO DELAY TRANSACTION]" {
			t.Fatalf("queue %v", q)
		}
	}
	want := "[0 READ 1 READ 2 READ_WRITE 3 READ_WRITE 4 READ_WRITE 5 READ_WRITE 6 READ_WRITE 7 READ_WRITE]"
	if text(got) != want {
		t.Errorf("queues %v, want %v", got, want)
	}
	for name, want := range map[string]v2.Code{"nowhere": v2.Code_TOPIC_NOT_FOUND, "a b": v2.Code_ILLEGAL_TOPIC, "": v2.Code_ILLEGAL_TOPIC} {
		answer, err := d.client.QueryRoute(as(t, "c1"), &v2.QueryRouteRequest{Topic: resource(name)})
		if err != nil {
			t.Fatal(err)
		}
		wantCode(t, answer.GetStatus(), want)
	}
}

func TestMessageQueuesOfEachPermission(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		perm, read, write int32
		want              string
	}{
		{6, 2, 2, "[0 READ_WRITE 1 READ_WRITE]"},
		{6, 1, 3, "[0 WRITE 1 WRITE 2 READ_WRITE]"},
		{7, 1, 1, "[0 READ_WRITE]"},
		{4, 2, 3, "[0 READ 1 READ]"},
		{2, 2, 1, "[0 WRITE]"},
		{0, 2, 1, "[0 NONE 1 NONE]"},
		{0, 0, 0, "[0 NONE]"},
		{6, 0, 0, "[0 NONE]"},
	} {
		var got []string
		for _, q := range messageQueues(resource("t"), nil, protocol.QueueData{
			Perm: tc.perm, ReadQueueNums: tc.read, WriteQueueNums: tc.write,
		}, "") {
			got = append(got, fmt.Sprint(q.GetId(), q.GetPermission()))
		}
		if text(got) != tc.want {
			t.Errorf("%+v: %v", tc, got)
		}
	}
}

func TestAcceptedTypes(t *testing.T) {
	t.Parallel()
	for typ, want := range map[string]string{
		"": "[NORMAL]", "NORMAL": "[NORMAL]", "FIFO": "[FIFO]", "DELAY": "[DELAY]", "TRANSACTION": "[TRANSACTION]",
		"MIXED": "[NORMAL FIFO DELAY TRANSACTION]", "PRIORITY": "[PRIORITY]", "UNSPECIFIED": "[MESSAGE_TYPE_UNSPECIFIED]",
	} {
		if got := text(acceptedTypes(typ)); got != want {
			t.Errorf("%q: %s, want %s", typ, got, want)
		}
	}
}

// Cases C183, C185, C187: what a client is told to dial.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	a := &api{cfg: Config{BrokerName: "b"}}
	dialled := netip.MustParseAddrPort("192.168.0.7:8081")
	for _, tc := range []struct {
		name       string
		advertised string
		asked      *v2.Endpoints
		want       string
	}{
		{"what it says", "", endpoints("10.1.1.1", 30081), "IPv4 10.1.1.1:30081"},
		{"IPv6", "", endpoints("::1", 8081), "IPv6 ::1:8081"},
		{"nothing said", "", nil, "IPv4 192.168.0.7:8081"},
		{"scheme missing", "", &v2.Endpoints{Addresses: []*v2.Address{{Host: "x", Port: 1}}}, "IPv4 192.168.0.7:8081"},
		{"port missing", "", endpoints("x", 0), "IPv4 192.168.0.7:8081"},
		{"advertised by the listener", "mq.example.com:443", endpoints("10.1.1.1", 8081), "DOMAIN_NAME mq.example.com:443"},
		{"advertised IPv6", "[2001:db8::1]:443", nil, "IPv6 2001:db8::1:443"},
		{"two names", "", &v2.Endpoints{Scheme: v2.AddressScheme_DOMAIN_NAME, Addresses: []*v2.Address{
			{Host: "a", Port: 1}, {Host: "b", Port: 2},
		}}, "DOMAIN_NAME a:1"},
		{"two addresses", "", &v2.Endpoints{Scheme: v2.AddressScheme_IPv4, Addresses: []*v2.Address{
			{Host: "1.1.1.1", Port: 1}, {Host: "2.2.2.2", Port: 2},
		}}, "IPv4 1.1.1.1:1 2.2.2.2:2"},
	} {
		c := &caller{conn: &connInfo{local: dialled, via: &remoting.Listener{Advertised: tc.advertised}}}
		got := a.broker(c, tc.asked).GetEndpoints()
		said := got.GetScheme().String()
		for _, addr := range got.GetAddresses() {
			said += fmt.Sprintf(" %s:%d", addr.GetHost(), addr.GetPort())
		}
		if said != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, said, tc.want)
		}
	}
}

func TestQueryAssignment(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	d.broker.groups["orderly"] = Group{Orderly: true}
	ask := func(topic, group string) *v2.QueryAssignmentResponse {
		answer, err := d.client.QueryAssignment(as(t, "c1"), &v2.QueryAssignmentRequest{
			Topic: resource(topic), Group: resource(group), Endpoints: endpoints("h", 1),
		})
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	plain := ask("normal", "g")
	wantCode(t, plain.GetStatus(), v2.Code_OK)
	if n := len(plain.GetAssignments()); n != 1 || plain.GetAssignments()[0].GetMessageQueue().GetId() != -1 {
		t.Errorf("%v", plain)
	}
	orderly := ask("fifo", "orderly")
	if n := len(orderly.GetAssignments()); n != 8 || orderly.GetAssignments()[7].GetMessageQueue().GetId() != 7 {
		t.Errorf("%v", orderly)
	}
	wantCode(t, ask("nowhere", "g").GetStatus(), v2.Code_TOPIC_NOT_FOUND)
	wantCode(t, ask("normal", "$").GetStatus(), v2.Code_ILLEGAL_CONSUMER_GROUP)
	d.broker.on(protocol.GetRouteInfoByTopic, func(c *remoting.Call) {
		c.Reply(remoting.Response{Body: protocol.EncodeBody(&protocol.TopicRouteData{
			QueueDatas: []protocol.QueueData{{BrokerName: "broker-a", Perm: 2, ReadQueueNums: 4, WriteQueueNums: 4}},
		})})
	})
	wantCode(t, ask("normal", "g").GetStatus(), v2.Code_FORBIDDEN)
}
