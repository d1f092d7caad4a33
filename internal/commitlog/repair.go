// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/roquetmq/roquet/internal/disk"
	"github.com/roquetmq/roquet/internal/message"
)

const (
	cureRestore = "restore this file from a backup; the records around it stay readable"
	cureTail    = "restore this file from a backup; if there is none, " +
		"cutting it at this byte gives up everything behind it"
	cureMissing = "a segment file is missing or was shortened: restore it from a backup"

	// maxTornBytes bounds what is kept aside of a torn tail.
	maxTornBytes = 64 << 20
)

// repairer makes the files of a log fit to be opened: it finds where each segment lies in the log, and cuts
// what an unfinished write left at the very end. It is used while nobody else has the files open.
//
// What may be cut is decided by one rule: nothing that was ever known to be on the disk. Every entry states
// how far the log was durable when it was sealed. So bytes that do not fit are a torn tail if no entry that
// says otherwise follows them; else they are damage, and nothing is touched.
type repairer struct {
	fs       vfs.FS
	dir      string
	log      *slog.Logger
	truncate func(path string, size int64) error
	logID    uint64 // 0 as long as no entry told
}

// repaired is what a log looks like when its files are in order.
type repaired struct {
	list  []segment // the last one is the tail; empty for a log without files
	end   message.LogOffset
	index uint64 // of the next entry

	marked bool // the last entry is a mark
}

// run repairs and returns the log's shape. Errors: *CorruptError, or the disk's.
func (r *repairer) run() (repaired, error) {
	files, err := listSegments(r.fs, r.dir)
	if err != nil {
		return repaired{}, err
	}
	if err := r.locate(files); err != nil {
		return repaired{}, err
	}
	for len(files) > 0 {
		t, err := r.repairTail(files[len(files)-1])
		if err != nil {
			return repaired{}, err
		}
		if t.kind == 0 && len(files) > 1 {
			// An empty last file says nothing: the one before it is the tail.
			if err := errors.Join(r.fs.Remove(t.seg.Path), disk.SyncDir(r.fs, r.dir)); err != nil {
				return repaired{}, fmt.Errorf("remove empty segment: %w", err)
			}
			files = files[:len(files)-1]
			continue
		}
		list := make([]segment, len(files))
		for i, f := range files {
			list[i].Segment = f
			if i > 0 {
				list[i-1].LastMillis = f.FirstMillis
			}
		}
		list[len(list)-1] = t.seg
		return repaired{list: list, end: t.seg.End, index: t.index, marked: t.kind == kindMark}, nil
	}
	return repaired{index: 1}, nil
}

// tailState is what a scan found in the last segment.
type tailState struct {
	seg   segment // with the table; End is where the last valid entry ends
	index uint64  // of the next entry
	kind  uint8   // of the last entry, 0 if there is none
	fault *CorruptError
}

// scanTail reads the last segment up to the first thing that is not a valid entry.
func scanTail(s *scanner, seg Segment) (tailState, error) {
	t := tailState{seg: segment{Segment: seg}, index: seg.FirstIndex}
	t.seg.FirstMillis, t.seg.LastMillis, t.seg.End = 0, 0, seg.First
	for {
		e, err := s.next(true)
		switch {
		case errors.Is(err, io.EOF):
			return t, nil
		case errors.As(err, &t.fault):
			return t, nil
		case err != nil:
			return t, err
		}
		if n := len(t.seg.starts); n == 0 || e.start-int64(t.seg.starts[n-1]) >= blockBytes {
			t.seg.starts = append(t.seg.starts, uint32(e.start))
		}
		t.seg.FirstMillis = cmp.Or(t.seg.FirstMillis, e.millis)
		t.seg.LastMillis = e.millis
		t.seg.End = seg.First + message.LogOffset(e.end())
		t.index, t.kind = e.index+1, e.kind
	}
}

// repairTail scans the last segment and cuts what is torn.
func (r *repairer) repairTail(seg Segment) (tailState, error) {
	s, err := openScanner(r.fs, seg, r.logID)
	if err != nil {
		return tailState{}, err
	}
	t, err := scanTail(s, seg)
	if err == nil {
		r.logID = s.logID
		if t.fault != nil {
			err = r.judge(s, t)
		}
	}
	if err := errors.Join(err, s.close()); err != nil {
		return tailState{}, err
	}
	if t.fault != nil {
		return t, r.cut(seg.Path, t.seg.Bytes())
	}
	return t, nil
}

// judge decides whether what follows the last valid entry may be cut, and reports it. An error means that it
// may not.
func (r *repairer) judge(s *scanner, t tailState) error {
	off := t.fault.Offset
	used, err := s.used(off)
	if err != nil || used == off {
		return err // room that was set aside for entries to come
	}
	lost, err := r.knownDurable(s, t.fault)
	if err != nil {
		return err
	}
	size := s.size
	s.size = used
	_, reason, err := s.parse(off, true)
	s.size = size
	if err != nil {
		return err
	}
	kept := ""
	if !s.cutOff(off, used) {
		kept = r.keepTorn(s, off, used)
	}
	r.log.Warn("cut an unfinished write off the end of the commit log; nothing acknowledged as durable was in it",
		"file", s.path, "file_offset", off, "log_offset", int64(t.fault.Position), "cut_bytes", used-off,
		"unsynced_entries", lost, "reason", reason, "kept_as", kept)
	return nil
}

// knownDurable looks for entries behind a fault. One that was sealed when the fault's place was durable
// already proves damage: the fault is the error. The others were never durable themselves; their number is
// returned.
func (r *repairer) knownDurable(s *scanner, fault *CorruptError) (unsynced int, err error) {
	for at := fault.Offset + 1; ; {
		if at, err = s.resync(at); err != nil || at >= s.size {
			return unsynced, err
		}
		e, reason, err := s.parse(at, true)
		if err != nil {
			return unsynced, err
		}
		if reason != "" { // resync found it valid
			return unsynced, s.corrupt(at, "file changes while it is read")
		}
		if e.durable > fault.Position {
			damage := *fault
			damage.Cure = cureTail
			return unsynced, &damage
		}
		unsynced++
		at = e.end()
	}
}

// cutOff reports whether the bytes [off, used) are the beginning of one entry and no more.
func (s *scanner) cutOff(off, used int64) bool {
	b, err := s.bytesAt(off, maxPrefixBytes)
	if err != nil {
		return false
	}
	length, prefix, fault := parsePrefix(b)
	return fault != "" && used-off < maxPrefixBytes || fault == "" && used < off+int64(prefix+length)
}

// keepTorn saves bytes that are about to be cut although they are more than the beginning of an entry: a disk
// that damages its newest bytes looks the same as a power cut. It returns the file's name; a failure is only
// logged, as the log must open on a full disk too.
func (r *repairer) keepTorn(s *scanner, off, used int64) string {
	name := r.fs.PathJoin(r.dir, fmt.Sprintf("torn-%020d", int64(s.base)+off))
	file, err := r.fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		r.log.Warn("could not keep the bytes that are cut off", "file", name, "error", err)
		return ""
	}
	end := min(used, off+maxTornBytes)
	for at := off; at < end && err == nil; {
		var b []byte
		if b, err = s.bytesAt(at, int(min(scanReadBytes, end-at))); err == nil {
			at += int64(len(b))
			_, err = file.Write(append([]byte(nil), b...)) // Write may change its argument
		}
	}
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		r.log.Warn("could not keep the bytes that are cut off", "file", name, "error", err)
		return ""
	}
	return name
}

// cut shortens a segment file and makes that durable.
func (r *repairer) cut(path string, size int64) error {
	if err := r.truncate(path, size); err != nil {
		return fmt.Errorf("cut segment: %w", err)
	}
	file, err := r.fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err == nil {
		err = errors.Join(file.Sync(), file.Close())
	}
	if err != nil {
		return fmt.Errorf("sync segment %s: %w", path, err)
	}
	return nil
}
