// SPDX-License-Identifier: Apache-2.0

package broker

import "time"

// warnInterval is the least time between two warnings of the same conflict.
const warnInterval = 10 * time.Minute

// noticeInterval is the least time between two notices to one group.
const noticeInterval = time.Second

// effects are calls that were decided on under the lock and are made after it.
type effects struct {
	notices   []notice
	conflicts []Conflict
}

type notice struct {
	group   string
	members []Channel
}

// locked calls fn with the lock held, and makes then the calls that it decided on.
func (c *Clients) locked(fn func(after *effects)) {
	var after effects
	c.mu.Lock()
	fn(&after)
	c.mu.Unlock()
	for _, n := range after.notices {
		c.cfg.Notify(n.group, n.members)
	}
	for _, conflict := range after.conflicts {
		c.conflicts.Add(1)
		a, b := conflict.Members[0], conflict.Members[1]
		c.cfg.Logger.Warn("members of a consumer group do not fit together",
			"conflict", string(conflict.Kind), "group", conflict.Group, "topic", conflict.Topic,
			"client_id", a.ClientID,
			"remote_addr", a.Channel.RemoteAddr(), "other_client_id", b.ClientID,
			"other_remote_addr", b.Channel.RemoteAddr())
		c.cfg.Conflict(conflict)
	}
}

// noticeLocked tells the group's members of a change: at once when they were not told lately, else with the
// next Tick, so that a thousand changes in a second make one notice. Broadcasting groups share nothing and
// are not told.
func (c *Clients) noticeLocked(group *consumerGroup, now time.Time, after *effects) {
	view := group.view.Load()
	if c.cfg.NoticesDisabled || group.quiet || view.Model == Broadcasting {
		return
	}
	if now.Sub(group.noticed) < noticeInterval {
		c.mu.pending[group.name] = group
		return
	}
	delete(c.mu.pending, group.name)
	group.noticed = now
	after.notices = append(after.notices, notice{group.name, view.channels})
}

// Notify tells the members of a group that something changed for them, such as a queue lock that came free.
func (c *Clients) Notify(group string, now time.Time) {
	c.locked(func(after *effects) {
		if g, ok := c.consumers.Load(group); ok && g.view.Load() != nil {
			c.noticeLocked(g, now, after)
		}
	})
}

// Tick sends the notices that were held back. To be called about every noticeInterval.
func (c *Clients) Tick(now time.Time) {
	c.locked(func(after *effects) {
		for _, group := range c.mu.pending {
			c.noticeLocked(group, now, after)
		}
	})
}

// findConflictsLocked compares m, from which a heartbeat came, with the other members of its group.
func (c *Clients) findConflictsLocked(group *consumerGroup, m *member, changed bool, now time.Time,
	after *effects,
) {
	if len(group.members) < 2 || !changed && len(group.view.Load().clientIDs) == len(group.members) {
		return // alone, or nothing new and no client id twice
	}
	compared := 0
	for _, other := range group.members {
		if other == m {
			continue
		}
		compared++
		for _, key := range m.misfits(other) {
			if key.kind == ConflictClientID || changed && compared <= maxCompared {
				group.warn(key, m, other, now, after)
			}
		}
	}
}

// misfits is what is wrong with m and other in one group.
func (m *member) misfits(other *member) (keys []conflictKey) {
	if other.clientID == m.clientID && m.model != Broadcasting && bothAlive(m, other) {
		keys = append(keys, conflictKey{kind: ConflictClientID})
	}
	if other.model != m.model || other.typ != m.typ {
		keys = append(keys, conflictKey{kind: ConflictModel})
	}
	if topic, differ := differing(m.subs, other.subs); differ && m.subs != nil && other.subs != nil {
		keys = append(keys, conflictKey{ConflictSubscription, topic})
	}
	return keys
}

// ConflictsOf returns what is wrong among the members of a group now, each kind once: every member is compared with
// the one that came before it.
func (c *Clients) ConflictsOf(group string) (found []Conflict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := map[conflictKey]bool{}
	members := ordered(c.membersLocked(group))
	for i, m := range members {
		for _, key := range m.misfits(members[max(i-1, 0)]) {
			if i > 0 && !seen[key] {
				seen[key] = true
				found = append(found, key.of(group, members[i-1], m))
			}
		}
	}
	return found
}

// maxCompared is with how many others of its group, chosen at random, a member's model and subscriptions are
// compared: in a large group a misfit meets enough of them all the same.
const maxCompared = 128

// bothAlive tells two clients from one that came back on a new connection while the old one is not closed
// yet: the older connection still has heartbeats, or the two have different addresses.
func bothAlive(m, other *member) bool {
	return m.order < other.order || m.channel.RemoteAddr().Addr() != other.channel.RemoteAddr().Addr()
}

// conflictKey is what makes one conflict of a group the same as another.
type conflictKey struct {
	kind  ConflictKind
	topic string
}

// warn notes one conflict, unless the same was told lately.
func (g *consumerGroup) warn(key conflictKey, a, b *member, now time.Time, after *effects) {
	if last, told := g.warned[key]; told && now.Sub(last) < warnInterval {
		return
	}
	if g.warned == nil {
		g.warned = map[conflictKey]time.Time{}
	}
	g.warned[key] = now
	after.conflicts = append(after.conflicts, key.of(g.name, a, b))
}

func (k conflictKey) of(group string, a, b *member) Conflict {
	return Conflict{Kind: k.kind, Group: group, Topic: k.topic, Members: [2]Member{a.public(), b.public()}}
}
