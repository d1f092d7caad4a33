// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"github.com/tidwall/wal"
)

// WAL writes entries to the segment files of one folder. It has one caller at a time. After an error its
// memory and its files may differ, and only Close may be called.
type WAL interface {
	// Write appends data as the entry with this index, which is one more than that of the last. It need not
	// sync, except that a segment that reached its size is synced, closed, and followed by a new empty file.
	Write(index uint64, data []byte) error
	// Rolled tells that the last Write began a new segment, so that memory of the old one can be freed.
	Rolled()
	// Close releases the files.
	Close() error
}

// OpenWAL opens tidwall/wal on a folder whose last segment is whole: see Open for what is repaired before. It
// is the only use of that library; everything it leaves out (checksums, folder syncs, torn tails, reads) is
// done around it.
func OpenWAL(dir string, segmentBytes int64) (WAL, error) {
	log, err := wal.Open(dir, &wal.Options{
		NoSync:           true, // the committer syncs, once for each batch
		SegmentSize:      int(segmentBytes),
		SegmentCacheSize: 1,
		NoCopy:           true,
		DirPerms:         0o750,
		FilePerms:        0o640,
	})
	if err != nil {
		return nil, err
	}
	w := &tidwallLog{log: log, tail: newTailBuffer(log, segmentBytes)}
	w.tail.give(log)
	return w, nil
}

type tidwallLog struct {
	log  *wal.Log
	tail *tailBuffer
}

func (w *tidwallLog) Write(index uint64, data []byte) error { return w.log.Write(index, data) }

func (w *tidwallLog) Rolled() {
	if w.log.ClearCache() == nil { // fails on a closed log only
		w.tail.give(w.log)
	}
}

func (w *tidwallLog) Close() error { return w.log.Close() }
