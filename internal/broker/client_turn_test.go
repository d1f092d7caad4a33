// SPDX-License-Identifier: Apache-2.0

package broker

import "testing"

// What one channel says takes effect in the order it said it, although a heartbeat has to wait until its group is
// created: who leaves meanwhile is gone then, and the newest subscriptions are those of the last heartbeat.
func TestChannelsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	s := openTables(t, newMemJournal())
	clients := NewClients(ClientsConfig{Logger: quiet()})
	h := NewHeartbeats(s.topics, s.groups, clients, quiet())
	answered := 0
	beat := func(id uint64, topic string, groups ...string) {
		hb := &Heartbeat{ClientID: "c", Producers: []string{"p"}}
		for _, group := range groups {
			hb.Consumers = append(hb.Consumers, ConsumerData{
				Group: group, Model: Clustering, Subscriptions: []SubscriptionData{{Topic: topic}},
			})
		}
		h.Handle(channel(id), hb, at(0), func(_ HeartbeatResult, err error) {
			if answered++; err != nil {
				t.Error(err)
			}
		})
	}
	settle := func() {
		for s.journal.apply(t, nil) > 0 {
		}
	}
	beat(1, "a", "known")
	settle()

	beat(2, "a", "left", "stays")
	clients.Unregister(channel(2), "p", "left", at(1))
	beat(3, "a", "dead")
	clients.Disconnected(channel(3), at(1))
	beat(1, "a", "new", "known")
	beat(1, "b", "known")
	beat(4, "a", "again")
	clients.Disconnected(channel(4), at(1))
	clients.Unregister(channel(5), "", "known", at(1)) // of nobody
	settle()
	if answered != 6 || len(clients.mu.turns) != 0 {
		t.Errorf("%d heartbeats answered, %d channels have a turn", answered, len(clients.mu.turns))
	}
	for group, want := range map[string]bool{
		"known": true, "new": true, "stays": true, "left": false, "dead": false, "again": false,
	} {
		if _, ok := clients.Group(group); ok != want {
			t.Errorf("group %s has members: %v", group, ok)
		}
	}
	if known, _ := clients.Group("known"); known.Subscriptions["b"] == nil || known.Subscriptions["a"] != nil {
		t.Errorf("subscriptions of an older heartbeat: %v", known.Subscriptions)
	}
	clients.Disconnected(channel(1), at(2))
	clients.Disconnected(channel(2), at(2))
	if n := clients.consumers.Size(); n != 0 || len(clients.mu.groupsOf) != 0 {
		t.Errorf("%d groups have members after all are gone", n)
	}
}
