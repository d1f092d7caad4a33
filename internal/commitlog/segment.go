// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/roquetmq/roquet/internal/message"
)

// Segment describes one file of the log.
type Segment struct {
	FirstIndex  uint64            // number of its first entry
	First       message.LogOffset // position of its first byte
	End         message.LogOffset // position behind its last durable byte
	FirstMillis int64             // wall clock of its first entry; 0 when it has none or cannot be read
	LastMillis  int64             // of its last entry, or an upper bound of it (the next segment's first)
	Path        string
}

// Bytes is how much of the log the segment holds.
func (s Segment) Bytes() int64 { return int64(s.End - s.First) }

// blockBytes is the least size of a block, the unit in which older entries are read, verified and cached.
const blockBytes = 128 << 10

// segment is a Segment and the table of its blocks.
type segment struct {
	Segment
	// starts are the file offsets of the entries at which blocks begin, the first being 0. Nil when not known
	// yet. It only grows, at the end, so a copy stays true.
	starts []uint32
	// verified says when readMapped last verified each block, in seconds; nil before the segment is sealed and has its
	// table.
	verified []atomic.Int64
}

// block returns the file offsets between which the i-th block lies.
func (s *segment) block(i int) (from, to int64) {
	if i+1 < len(s.starts) {
		return int64(s.starts[i]), int64(s.starts[i+1])
	}
	return int64(s.starts[i]), s.Bytes()
}

// segmentName is tidwall/wal's file name of the segment that begins with the entry of this index.
func segmentName(index uint64) string { return fmt.Sprintf("%020d", index) }

const segmentNameBytes = 20

// listSegments returns the segment files of a folder in order, with First and End counted from 0 in each (End
// is the size). Files that are no segments are left alone, except leftovers of tidwall/wal's own truncation,
// which this package never starts: they mean that somebody else worked on the log.
func listSegments(fs vfs.FS, dir string) ([]Segment, error) {
	names, err := fs.List(dir)
	if err != nil {
		return nil, fmt.Errorf("list commit log %s: %w", dir, err)
	}
	var list []Segment
	for _, name := range names {
		if len(name) < segmentNameBytes {
			continue
		}
		index, err := strconv.ParseUint(name[:segmentNameBytes], 10, 64)
		if err != nil || index == 0 {
			continue
		}
		path := fs.PathJoin(dir, name)
		if suffix := name[segmentNameBytes:]; suffix != "" {
			if strings.HasSuffix(name, ".START") || strings.HasSuffix(name, ".END") {
				return nil, &CorruptError{
					File: path, Position: -1, Reason: "left by an unfinished truncation",
					Cure: "another program has cut this log; restore the folder from a backup",
				}
			}
			continue
		}
		info, err := fs.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("look at segment %s: %w", path, err)
		}
		list = append(list, Segment{FirstIndex: index, End: message.LogOffset(info.Size()), Path: path})
	}
	slices.SortFunc(list, func(a, b Segment) int { return strings.Compare(a.Path, b.Path) })
	return list, nil
}

// maxTables bounds the segments whose table of blocks is kept; a table of a 16 MiB segment takes 0.5 KiB.
const maxTables = 4096

// segmentList is the log's segments, oldest first. The committer changes the last one, Drop takes from the
// front; anybody reads.
type segmentList struct {
	mu     sync.RWMutex
	list   []segment
	tables []uint64 // first indexes of the sealed segments whose table is kept, in the order they were kept
}

// find returns the segment that holds pos.
func (s *segmentList) find(pos message.LogOffset) (seg segment, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	i := sort.Search(len(s.list), func(i int) bool { return s.list[i].First > pos }) - 1
	if i < 0 || pos >= s.list[i].End {
		return segment{}, false
	}
	return s.list[i], true
}

// snapshot returns the list as it is now.
func (s *segmentList) snapshot() []segment {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clone(s.list)
}

// extend adds an entry to the last segment.
func (s *segmentList) extend(end message.LogOffset, millis int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := &s.list[len(s.list)-1]
	start := uint32(last.End - last.First)
	if n := len(last.starts); n == 0 || start-last.starts[n-1] >= blockBytes {
		last.starts = append(last.starts, start)
	}
	if start == 0 {
		last.FirstMillis = millis
	}
	last.End, last.LastMillis = end, millis
}

// roll begins a new last segment.
func (s *segmentList) roll(next Segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.list); n > 0 {
		s.keepTableLocked(&s.list[n-1])
	}
	s.list = append(s.list, segment{Segment: next})
}

// learn notes the table of a sealed segment that has none.
func (s *segmentList) learn(learned *segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if seg := s.byIndexLocked(learned.FirstIndex); seg != nil && seg.starts == nil {
		seg.starts = learned.starts
		s.keepTableLocked(seg)
		*learned = *seg
	}
}

// keepTableLocked notes that a sealed segment has a table, and forgets the one that has been kept longest if
// there are too many.
func (s *segmentList) keepTableLocked(seg *segment) {
	seg.verified = make([]atomic.Int64, len(seg.starts))
	s.tables = append(s.tables, seg.FirstIndex)
	if len(s.tables) <= maxTables {
		return
	}
	if old := s.byIndexLocked(s.tables[0]); old != nil {
		old.starts, old.verified = nil, nil
	}
	s.tables = append(s.tables[:0], s.tables[1:]...)
}

func (s *segmentList) byIndexLocked(firstIndex uint64) *segment {
	i, found := slices.BinarySearchFunc(s.list, firstIndex, func(seg segment, index uint64) int {
		return cmp.Compare(seg.FirstIndex, index)
	})
	if !found {
		return nil
	}
	return &s.list[i]
}

// removeFirst takes the segment away if it is the first.
func (s *segmentList) removeFirst(firstIndex uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) > 0 && s.list[0].FirstIndex == firstIndex {
		s.list = append([]segment(nil), s.list[1:]...)
	}
}
