// SPDX-License-Identifier: Apache-2.0

package broker

import "strings"

// Delete removes a topic: its config, its queues, the offsets of all groups in it, and the pop retry topics
// of these groups, in one write. Of a topic that does not exist the offsets go. Errors: IllegalParameter for a
// blank name or a system topic, and those of the store. Source: AdminBrokerProcessor.java deleteTopic.
func (t *Topics) Delete(name string, done func(error)) {
	if strings.TrimSpace(name) == "" {
		done(ValidateTopic(name))
		return
	}
	if t.IsSystem(name) {
		done(reserved(name))
		return
	}
	if _, ok := t.Lookup(name); !ok {
		drop := t.offsets.DropTopic(name)
		c := companion{drop.States, []func(error){drop.Settle}}
		c.store(t.table.journal, done)
		return
	}
	remove := func(n string) edit[TopicConfig] {
		return t.edit(n, func(*TopicConfig) (*TopicConfig, error) { return nil, nil })
	}
	edits := []edit[TopicConfig]{remove(strings.Clone(name))}
	for _, group := range t.offsets.GroupsOf(name) {
		for _, retry := range PopRetryTopics(name, group) {
			edits = append(edits, remove(retry))
		}
	}
	t.table.edit(edits, done)
}
