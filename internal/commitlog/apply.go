// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"slices"

	"github.com/roquetmq/roquet/internal/message"
)

// applyLoop settles the batches that the committer hands over, in order.
func (c *committer) applyLoop() {
	for b := range c.l.jobs {
		c.settle(b)
		c.l.applying.Add(-1)
		c.applied.Done()
	}
}

// settle tells everybody of a stored batch: the index first, then each group, then whoever gathers replies.
func (c *committer) settle(b *batch) {
	if c.h.Apply != nil && b.count > 0 {
		c.h.Apply(b.entry)
	}
	for _, m := range b.members {
		m.group.Done(b.entry.First+message.LogOffset(m.at), nil)
	}
	if c.h.Settled != nil {
		c.h.Settled()
	}
	c.l.release(b)
}

// refuse tells the groups of batches that nothing of them is in the log.
func (c *committer) refuse(batches []*batch, cause error) {
	for _, b := range batches {
		for _, m := range b.members {
			m.group.Done(0, cause)
		}
	}
	if len(batches) > 0 && c.h.Settled != nil {
		c.h.Settled()
	}
	for _, b := range batches {
		c.l.release(b)
	}
}

// release takes a settled batch out of the account and keeps it for reuse.
func (l *Log) release(b *batch) {
	bytes := b.recordBytes()
	clear(b.members) // groups are not kept alive by a spare batch
	b.members = b.members[:0]
	p := &l.pend
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bytes -= bytes
	p.taken = slices.Delete(p.taken, 0, 1)
	if len(p.spare) < maxSpareBatches {
		p.spare = append(p.spare, b)
	}
}
