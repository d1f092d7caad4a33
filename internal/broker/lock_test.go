// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"slices"
	"testing"
)

func queues(ids ...int32) []MessageQueue {
	var mqs []MessageQueue
	for _, id := range ids {
		mqs = append(mqs, MessageQueue{Topic: "orders", BrokerName: "broker-a", QueueID: id})
	}
	return mqs
}

// nobodyAlive is what Clients says when all connections are gone.
func nobodyAlive(string, string) bool { return false }

// TestC112QueueLocks: a lock is granted at once, renewed, refused to others, given back and outlived.
func TestC112QueueLocks(t *testing.T) {
	t.Parallel()
	l := NewQueueLocks(nobodyAlive, quiet())
	lock := func(client string, ch uint64, seconds float64, ids ...int32) []MessageQueue {
		return l.Lock("g", client, channel(ch), queues(ids...), at(seconds))
	}

	if got := lock("c1", 1, 0, 0, 1); !slices.Equal(got, queues(0, 1)) {
		t.Fatalf("first lock %v", got)
	}
	if got := lock("c2", 2, 1, 0, 1, 2); !slices.Equal(got, queues(2)) {
		t.Errorf("another client got %v", got)
	}
	if got := l.Lock("other", "c2", channel(2), queues(0), at(1)); len(got) != 1 {
		t.Error("groups are in each other's way")
	}
	lock("c1", 1, 50, 0)
	if got := lock("c2", 2, 70, 0, 1); !slices.Equal(got, queues(1)) {
		t.Errorf("after the life of one of two locks: %v", got)
	}
	l.Unlock("g", "c2", queues(0, 1, 9)) // 0 is not its own
	if got := lock("c3", 3, 71, 0, 1); !slices.Equal(got, queues(1)) {
		t.Errorf("after unlock: %v", got)
	}
	if !l.Locked("g", at(71)) || l.Locked("g", at(200)) || l.Locked("nobody", at(71)) {
		t.Error("Locked is wrong")
	}
	if freed := l.Sweep(at(200)); len(freed) != 0 || len(l.mu.groups) != 0 || len(l.mu.byChannel) != 0 {
		t.Errorf("after the sweep: freed %v, left %v", freed, l.mu.groups)
	}
}

// TestC009NoBrokerName: an absent broker name means this broker.
func TestC009NoBrokerName(t *testing.T) {
	t.Parallel()
	l := NewQueueLocks(nobodyAlive, quiet())
	l.Lock("g", "c1", channel(1), queues(0), at(0))
	unnamed := []MessageQueue{{Topic: "orders", QueueID: 0}}
	if got := l.Lock("g", "c1", channel(1), unnamed, at(1)); !slices.Equal(got, unnamed) {
		t.Errorf("renewed %v", got)
	}
	if got := l.Lock("g", "c2", channel(2), unnamed, at(1)); len(got) != 0 {
		t.Errorf("another client got %v", got)
	}
}

// TestC113KilledConsumerLosesItsLocks: within seconds when its connection closed, and its group is told; not
// while it is back on another connection; and within the lock life in any case.
func TestC113KilledConsumerLosesItsLocks(t *testing.T) {
	t.Parallel()
	var listened listener
	clients := NewClients(listened.config())
	l := NewQueueLocks(clients.Alive, quiet())
	for i, id := range []string{"c1", "c2"} {
		clients.Heartbeat(channel(uint64(i+1)), consumer(id, "g", "orders"), at(0))
	}
	l.Lock("g", "c1", channel(1), queues(0, 1), at(10))
	clients.Disconnected(channel(1), at(20))
	l.Disconnected(channel(1), at(20))
	if got := l.Lock("g", "c2", channel(2), queues(0), at(21)); len(got) != 0 {
		t.Error("lost at once: the client may be back in a moment")
	}
	if freed := l.Sweep(at(21)); len(freed) != 0 {
		t.Errorf("freed %v", freed)
	}
	if freed := l.Sweep(at(23)); !slices.Equal(freed, []string{"g"}) {
		t.Errorf("freed %v", freed)
	}
	if got := l.Lock("g", "c2", channel(2), queues(0, 1), at(23)); len(got) != 2 {
		t.Errorf("taken over %v", got)
	}

	clients.Disconnected(channel(2), at(30))
	l.Disconnected(channel(2), at(30))
	clients.Heartbeat(channel(3), consumer("c2", "g", "orders"), at(31))
	clients.Heartbeat(channel(4), consumer("c4", "g", "orders"), at(31))
	if freed := l.Sweep(at(40)); len(freed) != 0 {
		t.Errorf("freed %v though its holder is back", freed)
	}
	if got := l.Lock("g", "c4", channel(4), queues(0), at(40)); len(got) != 0 {
		t.Error("taken from a client that is back")
	}
	if got := l.Lock("g", "c2", channel(3), queues(0), at(41)); len(got) != 1 {
		t.Error("its holder cannot renew")
	}
	if got := l.Lock("g", "c4", channel(4), queues(1), at(84)); len(got) != 1 {
		t.Error("kept beyond the lock life")
	}
}
