// SPDX-License-Identifier: Apache-2.0

package broker

// ProducerByID returns the newest connection of a client as a producer. Source: ProducerManager.java
// findChannel.
func (c *Clients) ProducerByID(clientID string) (Member, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.mu.byClient[clientID]
	if m == nil {
		return Member{}, false
	}
	return m.public(), true
}

// unlistLocked makes another of the channel's producers stand for the client when m, which left its group,
// did.
func (c *Clients) unlistLocked(m *member) {
	if c.mu.byClient[m.clientID] != m {
		return
	}
	delete(c.mu.byClient, m.clientID)
	groups := c.mu.groupsOf[m.channel.ID()]
	if groups == nil {
		return
	}
	for group := range groups.producers {
		if other := c.mu.producers[group][m.channel.ID()]; other != nil && other.clientID == m.clientID {
			c.mu.byClient[m.clientID] = other
			return
		}
	}
}
