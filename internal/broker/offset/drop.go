// SPDX-License-Identifier: Apache-2.0

package offset

import "github.com/roquetmq/roquet/internal/message"

// Drop is offsets that were taken out of the table. Its States have to be appended with the deletion that
// made them useless, and Settle called with the outcome.
type Drop struct {
	// States delete the stored offsets.
	States []message.State

	table *Table
	taken []*progress
}

// DropTopic takes the offsets of all groups in topic out of the table.
func (t *Table) DropTopic(topic string) *Drop {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := &Drop{table: t}
	for p := range t.mu.byTopic[topic] {
		d.takeLocked(p)
	}
	return d
}

// DropGroup takes the offsets of group in all topics out of the table.
func (t *Table) DropGroup(group string) *Drop {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := &Drop{table: t}
	for k, p := range t.live.All() {
		if k.group == group {
			d.takeLocked(p)
		}
	}
	return d
}

func (d *Drop) takeLocked(p *progress) {
	t := d.table
	p.gone = true
	t.live.Delete(p.key)
	t.mu.byTopic.Delete(p.key.topic, p)
	t.resets.Add(-p.resets())
	d.taken = append(d.taken, p)
	d.States = append(d.States, message.State{Space: message.SpaceOffset, Key: p.key.encode(), Delete: true})
}

func (p *progress) resets() int64 {
	n := int64(0)
	for _, q := range *p.queues.Load() {
		if q != nil && q.reset.Load() != none {
			n++
		}
	}
	return n
}

// Settle ends the drop: with an error the offsets are back, but for those that were committed anew.
func (d *Drop) Settle(err error) {
	if err == nil {
		return
	}
	t := d.table
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range d.taken {
		if _, found := t.live.LoadOrStore(p.key, p); found {
			continue
		}
		p.gone = false
		t.mu.byTopic.Put(p.key.topic, p, struct{}{})
		t.resets.Add(p.resets())
		p.dirty.Store(true) // a flush may have passed it over
		t.mu.dirty = append(t.mu.dirty, p)
	}
}
