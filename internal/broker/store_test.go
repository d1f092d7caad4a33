// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"testing"

	"github.com/roquetmq/roquet/internal/broker/offset"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// durable is the tables over a real store on disk.
type durable struct {
	store   *store.Store
	topics  *Topics
	groups  *Groups
	offsets *offset.Table
	stop    func()
}

func openDurable(t *testing.T, dir string) *durable {
	t.Helper()
	st, err := store.Open(store.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	d := &durable{store: st}
	if d.offsets, err = offset.New(st, quiet()); err != nil {
		t.Fatal(err)
	}
	names := SystemNames{Cluster: "DefaultCluster", Broker: "broker-a"}
	if d.topics, err = NewTopics(TopicsConfig{System: names, Logger: quiet()}, st, d.offsets); err != nil {
		t.Fatal(err)
	}
	if d.groups, err = NewGroups(GroupsConfig{Logger: quiet()}, st); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- st.Run(ctx) }()
	d.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
		if err := st.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	return d
}

// wait runs a change to its end.
func wait(t *testing.T, change func(done func(error))) {
	t.Helper()
	ended := make(chan error, 1)
	change(func(err error) { ended <- err })
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// TestC133C164TablesOnDisk: topics, groups and offsets are there after a restart; what was deleted is not,
// and a recreated topic begins anew.
func TestC133C164TablesOnDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDurable(t, dir)
	ensure := func(d *durable) {
		wait(t, func(done func(error)) {
			d.topics.EnsureForSend("orders", AutoCreateTopic, 4, 0, func(_ *TopicConfig, err error) { done(err) })
		})
	}
	ensure(d)
	wait(t, func(done func(error)) { d.groups.Ensure("g", func(_ *GroupConfig, err error) { done(err) }) })
	wait(t, func(done func(error)) { d.groups.SetForbidden("g", "secret", PermRead, true, done) })
	w := &store.Write{}
	m := w.Single()
	m.Topic, m.Body = "orders", []byte("hello")
	wait(t, func(done func(error)) {
		w.Done = func(_ *store.Write, err error) { done(err) }
		if err := d.store.Append(w); err != nil {
			done(err)
		}
	})
	d.offsets.Commit("g", "orders", 0, 1)
	wait(t, d.offsets.Flush)
	wait(t, func(done func(error)) {
		d.offsets.Reset("h", "orders", map[int32]message.QueueOffset{0: 0}, done)
	})
	version := d.topics.Version()
	d.stop()

	d = openDurable(t, dir)
	if cfg, ok := d.topics.Lookup("orders"); !ok || cfg.WriteQueueNums != 4 || d.topics.Version() != version {
		t.Errorf("topic %+v, version %+v", cfg, d.topics.Version())
	}
	if _, ok := d.groups.Lookup("g"); !ok || d.groups.Forbidden("g", "secret") != PermRead {
		t.Error("the group is gone, or what it is forbidden")
	}
	off, _ := d.offsets.Query("g", "orders", 0)
	if reset := !d.offsets.Commit(
		"h",
		"orders",
		0,
		5,
	); off != 1 ||
		!reset { // while one is pending nothing is committed
		t.Errorf("offset %d, or no reset", off)
	}
	if _, high, ok := d.store.Bounds("orders", 0); !ok || high != 1 {
		t.Errorf("queue ends at %d, %v", high, ok)
	}
	wait(t, func(done func(error)) { d.topics.Delete("orders", done) })
	if _, high, ok := d.store.Bounds("orders", 0); ok && high != 0 {
		t.Errorf("the deleted topic's queue ends at %d", high)
	}
	ensure(d)
	d.stop()

	d = openDurable(t, dir)
	defer d.stop()
	if _, ok := d.topics.Lookup("orders"); !ok {
		t.Error("the recreated topic is gone")
	}
	_, ok := d.offsets.Query("g", "orders", 0)
	if _, reset := d.offsets.TakeReset("h", "orders", 0); ok || reset {
		t.Error("the recreated topic has offsets")
	}
}
