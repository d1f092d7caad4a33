// SPDX-License-Identifier: Apache-2.0

package nameserver

import (
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"
)

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func at(seconds int) time.Time {
	return time.Unix(1_700_000_000, 0).Add(time.Duration(seconds) * time.Second)
}

func newTestRoutes(tb testing.TB) (*Routes, *KV) {
	tb.Helper()
	kv, err := OpenKV("")
	if err != nil {
		tb.Fatal(err)
	}
	return NewRoutes(quiet(), kv), kv
}

// topic is a topic of n queues, readable and writable.
func topic(name string, n int32) TopicConfig {
	return TopicConfig{Name: name, ReadQueueNums: n, WriteQueueNums: n, Perm: 6}
}

// master is the registration of a broker's master with topics, in version v.
func master(broker, addr string, v int64, topics ...TopicConfig) *Registration {
	return &Registration{
		Cluster: "C", BrokerName: broker, BrokerAddr: addr, Topics: topics, Connection: 1,
		Version: DataVersion{Counter: v}, HAServerAddr: addr + "-ha",
	}
}

func slave(broker, addr string, id int64, acting bool, topics ...TopicConfig) *Registration {
	reg := master(broker, addr, 1, topics...)
	reg.BrokerID, reg.EnableActingMaster = id, &acting
	return reg
}

func register(tb testing.TB, r *Routes, reg *Registration, seconds int) Registered {
	tb.Helper()
	result, err := r.Register(reg, at(seconds))
	if err != nil {
		tb.Fatal(err)
	}
	return result
}

func queueNums(route TopicRoute) map[string]int32 {
	found := map[string]int32{}
	for _, q := range route.Queues {
		found[q.BrokerName] = q.WriteQueueNums
	}
	return found
}

func TestRouteOfRegisteredBrokers(t *testing.T) {
	t.Parallel()
	r, _ := newTestRoutes(t)
	register(t, r, master("b", "10.0.0.2:10911", 1, topic("orders", 8), topic("others", 1)), 0)
	register(t, r, master("a", "10.0.0.1:10911", 1, topic("orders", 4), topic("TBW102", 8)), 0)

	route, ok := r.Route("orders")
	if !ok || !maps.Equal(queueNums(route), map[string]int32{"a": 4, "b": 8}) {
		t.Fatalf("route %+v", route)
	}
	if route.Brokers[0].BrokerName != "a" || route.Brokers[1].BrokerAddrs[0] != "10.0.0.2:10911" ||
		route.Queues[0].Perm != 6 {
		t.Errorf("brokers %+v", route.Brokers)
	}
	route.Brokers[0].BrokerAddrs[0] = "changed"
	if again, _ := r.Route("orders"); again.Brokers[0].BrokerAddrs[0] != "10.0.0.1:10911" {
		t.Error("the caller's copy is shared")
	}
	if _, ok := r.Route("nothing"); ok {
		t.Error("a route of nothing")
	}
	info := r.ClusterInfo()
	if !slices.Equal(info.Clusters["C"], []string{"a", "b"}) || info.Brokers["b"].BrokerAddrs[0] != "10.0.0.2:10911" {
		t.Errorf("cluster info %+v", info)
	}
	if got := r.Topics(); !slices.Equal(got, []string{"TBW102", "orders", "others"}) {
		t.Errorf("topics %v", got)
	}
	names, addr := r.SystemTopics()
	if !slices.Equal(names, []string{"C", "a", "b"}) || addr != "10.0.0.1:10911" {
		t.Errorf("system topics %v at %s", names, addr)
	}
	if got := r.Members("a"); !maps.Equal(got, map[int64]string{0: "10.0.0.1:10911"}) || len(r.Members("x")) != 0 {
		t.Errorf("members %v", got)
	}
}

func TestRegistrationsFollowTheVersion(t *testing.T) {
	t.Parallel()
	r, _ := newTestRoutes(t)
	register(t, r, master("a", "h:1", 1, topic("orders", 4), topic("gone", 1)), 0)
	register(t, r, master("a", "h:1", 1, topic("orders", 9), topic("new", 2)), 1)
	if route, _ := r.Route("orders"); queueNums(route)["a"] != 4 {
		t.Error("changed by a registration of the known version")
	}
	if _, ok := r.Route("new"); !ok {
		t.Error("an unknown topic of the known version is left out")
	}
	register(t, r, master("a", "h:1", 2, topic("orders", 9)), 2) // an increment
	if route, _ := r.Route("orders"); queueNums(route)["a"] != 9 {
		t.Error("not changed by a new version")
	}
	if _, ok := r.Route("gone"); !ok {
		t.Error("an increment took a topic away")
	}
	complete := master("a", "h:1", 3, topic("orders", 9))
	complete.Complete = true
	register(t, r, complete, 3)
	if got := r.Topics(); !slices.Equal(got, []string{"orders"}) {
		t.Errorf("after a complete registration: %v", got)
	}
	if changed, last, known := r.CompareVersion("C", "h:1", DataVersion{Counter: 3}, at(4)); changed || !known ||
		last.Counter != 3 {
		t.Errorf("compared: %v, %+v, %v", changed, last, known)
	}
	if changed, _, known := r.CompareVersion("C", "other:1", DataVersion{}, at(4)); !changed || known {
		t.Error("an unknown broker's version did not change")
	}
	if _, err := r.Register(master("b", "h:2", 1, topic("single", 1)), at(5)); !errors.Is(err, ErrNotRegistered) {
		t.Errorf("a single topic of an unknown broker: %v", err)
	}
	if info := r.ClusterInfo(); len(info.Brokers) != 1 || len(info.Clusters["C"]) != 1 {
		t.Errorf("left over: %+v", info)
	}
}

// TestC182AddressChanges: a broker that comes back under another address replaces the old one.
func TestC182AddressChanges(t *testing.T) {
	t.Parallel()
	r, _ := newTestRoutes(t)
	register(t, r, master("a", "10.0.0.1:10911", 5, topic("orders", 4), topic("x", 1)), 0)
	moved := master("a", "10.0.0.9:10911", 6, topic("orders", 4), topic("x", 1))
	moved.Connection = 2
	register(t, r, moved, 10)
	r.Disconnected(1) // the old connection dies later
	route, ok := r.Route("orders")
	if !ok || route.Brokers[0].BrokerAddrs[0] != "10.0.0.9:10911" {
		t.Fatalf("route %+v", route)
	}
	stale := master("a", "10.0.0.1:10911", 9, topic("orders", 1), topic("x", 1))
	moved.Version = DataVersion{StateVersion: 7}
	register(t, r, moved, 11)
	register(t, r, stale, 12)
	if route, _ := r.Route(
		"orders",
	); route.Brokers[0].BrokerAddrs[0] != "10.0.0.9:10911" ||
		queueNums(route)["a"] != 4 {
		t.Errorf("an older state took over: %+v", route)
	}
}

func TestSilentBrokersAreForgotten(t *testing.T) {
	t.Parallel()
	r, _ := newTestRoutes(t)
	quick := master("quick", "h:1", 1, topic("orders", 1), topic("x", 1))
	quick.Timeout = 10 * time.Second
	own := master("own", "h:2", 1, topic("orders", 1), topic("x", 1))
	own.Connection = 0
	register(t, r, quick, 0)
	register(t, r, own, 0)
	register(t, r, master("slow", "h:3", 1, topic("orders", 1), topic("y", 1)), 0)
	check := func(seconds int, want ...string) {
		t.Helper()
		r.Tick(at(seconds))
		if got := slices.Sorted(maps.Keys(r.ClusterInfo().Brokers)); !slices.Equal(got, want) {
			t.Errorf("after %d s: %v, want %v", seconds, got, want)
		}
	}
	check(10, "own", "quick", "slow")
	r.Heartbeat("C", "h:1", at(10))
	r.Heartbeat("C", "nobody", at(10))
	check(20, "own", "quick", "slow")
	check(21, "own", "slow")
	check(121, "own")
	if route, _ := r.Route("orders"); len(route.Queues) != 1 {
		t.Errorf("route %+v", route)
	}
	if _, ok := r.Route("y"); ok {
		t.Error("the topic of a forgotten broker has a route")
	}
	r.Unregister("C", "own", "h:2")
	r.Unregister("C", "own", "h:2")
	r.Unregister("C", "never", "h:9")
	if info := r.ClusterInfo(); len(info.Brokers) != 0 || len(info.Clusters) != 0 || len(r.Topics()) != 0 {
		t.Errorf("left over %+v", info)
	}
}

func TestMastersSlavesAndActingMasters(t *testing.T) {
	t.Parallel()
	r, _ := newTestRoutes(t)
	yes := true
	m := master("a", "m:1", 1, topic("orders", 4), topic("x", 1))
	m.EnableActingMaster = &yes
	register(t, r, m, 0)
	s := slave("a", "s:1", 1, true, topic("orders", 4), topic("x", 1))
	s.Connection = 2
	if got := register(t, r, s, 0); got.MasterAddr != "m:1" || got.HAServerAddr != "m:1-ha" {
		t.Errorf("the slave is told %+v", got)
	}
	r.Disconnected(1)
	route, _ := r.Route("orders")
	if route.Brokers[0].BrokerAddrs[0] != "s:1" || route.Queues[0].Perm != permRead {
		t.Errorf("without a master: %+v", route)
	}
	s = slave("a", "s:1", 0, true, topic("orders", 4), topic("x", 1)) // it becomes the master
	s.Version.Counter = 2
	register(t, r, s, 1)
	if got := r.Members("a"); !maps.Equal(got, map[int64]string{0: "s:1"}) {
		t.Errorf("members %v", got)
	}
	if route, _ := r.Route("orders"); route.Queues[0].Perm != 6 {
		t.Errorf("the new master's topic: %+v", route.Queues)
	}
}

func TestWritePermissionOfABroker(t *testing.T) {
	t.Parallel()
	r, _ := newTestRoutes(t)
	register(t, r, master("a", "h:1", 1, topic("orders", 4), topic("x", 1)), 0)
	register(t, r, master("b", "h:2", 1, topic("orders", 4), topic("y", 1)), 0)
	perms := func() []int32 {
		route, _ := r.Route("orders")
		return []int32{route.Queues[0].Perm, route.Queues[1].Perm}
	}
	if n := r.WipeWritePerm("a"); n != 2 || !slices.Equal(perms(), []int32{4, 6}) {
		t.Errorf("wiped %d: %v", n, perms())
	}
	register(t, r, master("a", "h:1", 1, topic("orders", 4), topic("x", 1)), 30) // nothing changed
	if !slices.Equal(perms(), []int32{4, 6}) {
		t.Error("undone by the next registration")
	}
	if n := r.AddWritePerm("a"); n != 2 || !slices.Equal(perms(), []int32{6, 6}) {
		t.Errorf("added %d: %v", n, perms())
	}
	if r.WipeWritePerm("nobody") != 0 {
		t.Error("wiped nobody's")
	}
}

func TestTopicsOfClustersAndUnits(t *testing.T) {
	t.Parallel()
	r, _ := newTestRoutes(t)
	flagged := func(name string, flags int32) TopicConfig {
		cfg := topic(name, 1)
		cfg.SysFlag = flags
		return cfg
	}
	register(
		t,
		r,
		master("a", "h:1", 1, topic("orders", 1), flagged("unit", 1), flagged("both", 3), flagged("sub", 2)),
		0,
	)
	other := master("z", "h:2", 1, topic("orders", 1), topic("z-only", 1))
	other.Cluster = "D"
	register(t, r, other, 0)
	for name, list := range map[string]struct{ got, want []string }{
		"cluster": {r.TopicsIn("D"), []string{"orders", "z-only"}},
		"nobody":  {r.TopicsIn("E"), []string{}},
		"unit":    {r.UnitTopics(), []string{"both", "unit"}},
		"sub":     {r.UnitSubTopics(), []string{"both", "sub"}},
		"only":    {r.UnitSubOnlyTopics(), []string{"sub"}},
	} {
		if !slices.Equal(list.got, list.want) {
			t.Errorf("%s: %v", name, list.got)
		}
	}
	r.RegisterTopic("made", []QueueData{{BrokerName: "a", WriteQueueNums: 3}})
	r.RegisterTopic("refused", []QueueData{{BrokerName: "a"}, {BrokerName: "nobody"}})
	if route, ok := r.Route("made"); !ok || queueNums(route)["a"] != 3 {
		t.Errorf("registered %+v", route)
	}
	if _, ok := r.Route("refused"); ok {
		t.Error("registered on an unknown broker")
	}
	r.DeleteTopicIn("orders", "D")
	if route, _ := r.Route("orders"); len(route.Queues) != 1 {
		t.Errorf("deleted in one cluster: %+v", route)
	}
	r.DeleteTopic("orders")
	if _, ok := r.Route("orders"); ok {
		t.Error("deleted topic has a route")
	}
}

func TestOrderTopicConf(t *testing.T) {
	t.Parallel()
	r, kv := newTestRoutes(t)
	reg := master("a", "h:1", 1, topic("orders", 1), topic("x", 1))
	reg.FilterServers = []string{"f:1"}
	register(t, r, reg, 0)
	if err := kv.Put(OrderNamespace, "orders", "a:4"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"orders": "a:4", "x": ""} {
		route, _ := r.Route(name)
		if route.OrderTopicConf != want || !slices.Equal(route.FilterServers["h:1"], []string{"f:1"}) {
			t.Errorf("%s: %+v", name, route)
		}
	}
}
