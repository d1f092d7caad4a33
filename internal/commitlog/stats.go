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
	PendingBytes int64         // accepted and not settled
	Failures     uint64        // failed writes, syncs and rolls
	SyncTime     time.Duration // of all syncs together
	// Syncs counts syncs by their time: class i holds those below 2^i µs that are in no lower class, the last
	// one also all that took longer.
	Syncs [SyncBuckets]uint64
}

type counters struct {
	failures           atomic.Uint64
	lastSync, syncTime atomic.Int64
	syncs              [SyncBuckets]atomic.Uint64
}

func (c *counters) synced(took time.Duration) {
	c.lastSync.Store(int64(took))
	c.syncTime.Add(int64(took))
	c.syncs[min(SyncBuckets-1, bits.Len64(uint64(took.Microseconds())))].Add(1)
}

// Stats returns the counters. Safe for concurrent use.
func (l *Log) Stats() Stats {
	c := &l.stats
	s := Stats{Failures: c.failures.Load(), SyncTime: time.Duration(c.syncTime.Load())}
	for i := range s.Syncs {
		s.Syncs[i] = c.syncs[i].Load()
	}
	l.pend.mu.Lock()
	defer l.pend.mu.Unlock()
	s.PendingBytes = l.pend.bytes
	return s
}
