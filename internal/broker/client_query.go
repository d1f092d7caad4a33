// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Group returns a consumer group that has members. It takes no lock and does not allocate.
func (c *Clients) Group(name string) (*ConsumerGroup, bool) {
	group, ok := c.consumers.Load(name)
	if !ok {
		return nil, false
	}
	view := group.view.Load()
	return view, view != nil
}

// Subscription returns what the group wants of topic. It takes no lock and does not allocate.
func (c *Clients) Subscription(group, topic string) (*SubscriptionData, bool) {
	g, ok := c.Group(group)
	if !ok {
		return nil, false
	}
	sub, ok := g.Subscriptions[topic]
	return sub, ok
}

// Groups calls fn with every consumer group that has members, in no order.
func (c *Clients) Groups(fn func(name string, group *ConsumerGroup)) {
	for name, group := range c.consumers.All() {
		if view := group.view.Load(); view != nil {
			fn(name, view)
		}
	}
}

// GroupsOf returns the consumer groups with members that subscribe topic, in order.
// Source: ConsumerManager.java queryTopicConsumeByWho.
func (c *Clients) GroupsOf(topic string) []string {
	var names []string
	for name, group := range c.consumers.All() {
		if view := group.view.Load(); view != nil && view.Subscriptions[topic] != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Members returns the members of a consumer group, in the order in which they came.
func (c *Clients) Members(group string) []Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return public(c.membersLocked(group))
}

func (c *Clients) membersLocked(group string) map[uint64]*member {
	if g, ok := c.consumers.Load(group); ok {
		return g.members
	}
	return nil
}

// Member returns the newest connection of the client in a consumer group.
func (c *Clients) Member(group, clientID string) (Member, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var newest *member
	for _, m := range c.membersLocked(group) {
		if m.clientID == clientID && (newest == nil || m.order > newest.order) {
			newest = m
		}
	}
	if newest == nil {
		return Member{}, false
	}
	return newest.public(), true
}

// Alive tells whether a connection of the client is in the consumer group.
func (c *Clients) Alive(group, clientID string) bool {
	g, ok := c.Group(group)
	if !ok {
		return false
	}
	_, found := slices.BinarySearch(g.clientIDs, clientID)
	return found
}

// Producers returns the members of a producer group, in the order in which they came.
func (c *Clients) Producers(group string) []Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return public(c.mu.producers[group])
}

// ProducerGroups returns all producer groups with their members.
func (c *Clients) ProducerGroups() map[string][]Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[string][]Member, len(c.mu.producers))
	for group, members := range c.mu.producers {
		all[group] = public(members)
	}
	return all
}

// Conflicts returns how many conflicts were told since the start, for a metric.
func (c *Clients) Conflicts() int64 { return c.conflicts.Load() }

func public(members map[uint64]*member) []Member {
	found := make([]Member, 0, len(members))
	for _, m := range ordered(members) {
		found = append(found, m.public())
	}
	return found
}

// ordered returns members in the order in which they came.
func ordered(members map[uint64]*member) []*member {
	return slices.SortedFunc(maps.Values(members), func(a, b *member) int { return cmp.Compare(a.order, b.order) })
}

// Expire takes out everyone who was not heard of for ChannelExpiredTimeout and returns the channels that are
// in no group any more for that reason: they can be closed.
func (c *Clients) Expire(now time.Time) []Channel {
	var silent []Channel
	deadline := now.Add(-c.cfg.ChannelExpiredTimeout).UnixMilli()
	c.locked(func(after *effects) {
		for id, groups := range c.mu.groupsOf {
			if ch := c.expireLocked(id, groups, deadline, now, after); ch != nil && c.mu.groupsOf[id] == nil {
				silent = append(silent, ch)
			}
		}
	})
	return silent
}

// expireLocked takes a channel out of the groups in which it was last seen before deadline, and returns it if
// there were any.
func (c *Clients) expireLocked(id uint64, groups *channelGroups, deadline int64, now time.Time,
	after *effects,
) (silent Channel) {
	for group := range groups.producers {
		if m := c.mu.producers[group][id]; m != nil && m.seen.Load() < deadline {
			silent = m.channel
			c.leaveProducerLocked(id, group)
		}
	}
	for name := range groups.consumers {
		g, ok := c.consumers.Load(name)
		if !ok {
			continue
		}
		if m := g.members[id]; m != nil && m.seen.Load() < deadline {
			silent = m.channel
			c.leaveConsumerLocked(id, name, "no heartbeat", now, after)
		}
	}
	return silent
}
