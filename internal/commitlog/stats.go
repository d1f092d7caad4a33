// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// SyncBuckets is the number of classes of the histogram of sync times.
const SyncBuckets = 20

// Stats are counters since Open, and the present state.
type Stats struct {
	Entries       uint64 // entries stored
	Groups        uint64
	Records       uint64
	AppendedBytes uint64 // of the log, heads and prefixes included
	PendingBytes  int64  // accepted and not settled
	OldestWait    time.Duration
	Failures      uint64 // failed writes, syncs and rolls
	LastSync      time.Duration
	SyncTime      time.Duration // of all syncs together
	// Syncs counts syncs by their time: class i holds those below 2^i µs that are in no lower class, the last
	// one also all that took longer.
	Syncs [SyncBuckets]uint64
	// BlockHits and BlockMisses count reads of older records, by whether their block was in memory.
	BlockHits, BlockMisses uint64
}

type counters struct {
	entries, groups, records, bytes atomic.Uint64
	failures                        atomic.Uint64
	hits, misses                    atomic.Uint64
	lastSync, syncTime              atomic.Int64
	syncs                           [SyncBuckets]atomic.Uint64
}

func (c *counters) synced(took time.Duration) {
	c.lastSync.Store(int64(took))
	c.syncTime.Add(int64(took))
	c.syncs[min(SyncBuckets-1, bits.Len64(uint64(took.Microseconds())))].Add(1)
}

func (c *counters) stored(b *batch, bytes int) {
	c.entries.Add(1)
	c.groups.Add(uint64(len(b.members)))
	c.records.Add(uint64(b.count))
	c.bytes.Add(uint64(bytes))
}

func (c *counters) blockRead(hit bool) {
	if hit {
		c.hits.Add(1)
	} else {
		c.misses.Add(1)
	}
}

// Stats returns the counters. Safe for concurrent use.
func (l *Log) Stats() Stats {
	c := &l.stats
	s := Stats{
		Entries: c.entries.Load(), Groups: c.groups.Load(), Records: c.records.Load(), AppendedBytes: c.bytes.Load(),
		Failures: c.failures.Load(), LastSync: time.Duration(c.lastSync.Load()),
		SyncTime:  time.Duration(c.syncTime.Load()),
		BlockHits: c.hits.Load(), BlockMisses: c.misses.Load(),
	}
	for i := range s.Syncs {
		s.Syncs[i] = c.syncs[i].Load()
	}
	l.pend.mu.Lock()
	defer l.pend.mu.Unlock()
	s.PendingBytes = l.pend.bytes
	if oldest := l.pend.oldestLocked(); !oldest.IsZero() {
		s.OldestWait = time.Since(oldest)
	}
	return s
}
