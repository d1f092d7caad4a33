// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/roquetmq/roquet/internal/message"
)

const (
	scanReadBytes   = 1 << 20 // read at a time when a file is read through
	peekReadBytes   = 4 << 10 // read at a time when only the first entry matters
	unknownPosition = message.LogOffset(-1)
)

// scanner reads one segment file from front to back in large pieces. Its memory is bounded by the largest
// entry of the file plus scanReadBytes.
type scanner struct {
	file  vfs.File
	path  string
	size  int64             // bytes of the file to look at
	base  message.LogOffset // position of the file's first byte; unknownPosition until an entry tells
	logID uint64            // 0 until an entry tells
	index uint64            // of the entry at off; 0 behind a damaged place, until an entry tells
	ahead int               // bytes to read at a time, at least

	window   []byte // bytes [windowAt, windowAt+len) of the file
	windowAt int64
	off      int64 // where the next entry begins
}

// scanned is an entry found by a scanner.
type scanned struct {
	head
	start  int64  // of the length prefix in the file
	prefix int    // bytes of the length prefix
	length int    // bytes of head and records
	entry  []byte // head and records, aliasing the scanner's window until its next call; nil when not verified
}

func (s scanned) end() int64 { return s.start + int64(s.prefix+s.length) }

// public returns the entry as callers see it; base is the position of the file's first byte.
func (s scanned) public(base message.LogOffset) Entry {
	return newEntry(s.index, base+message.LogOffset(s.start), int(s.count), s.prefix, s.entry)
}

// openScanner opens the file of seg; its First is the position of the first byte, or unknownPosition.
func openScanner(fs vfs.FS, seg Segment, logID uint64) (*scanner, error) {
	file, err := fs.Open(seg.Path)
	if err != nil {
		return nil, fmt.Errorf("open segment: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("look at segment %s: %w", seg.Path, err), file.Close())
	}
	return &scanner{
		file: file, path: seg.Path, size: info.Size(), base: seg.First, logID: logID,
		index: seg.FirstIndex, ahead: scanReadBytes,
	}, nil
}

func (s *scanner) close() error { return s.file.Close() }

// bytesAt returns n bytes of the file from off, fewer at its end.
func (s *scanner) bytesAt(off int64, n int) ([]byte, error) {
	n = int(min(int64(n), s.size-off))
	if n <= 0 {
		return nil, nil
	}
	if off >= s.windowAt && off+int64(n) <= s.windowAt+int64(len(s.window)) {
		return s.window[off-s.windowAt:][:n], nil
	}
	want := int(min(int64(max(n, s.ahead)), s.size-off))
	s.window = slices.Grow(s.window[:0], want)[:want]
	s.windowAt = off
	if got, err := s.file.ReadAt(s.window, off); err != nil && (!errors.Is(err, io.EOF) || got < want) {
		s.window = s.window[:0]
		return nil, fmt.Errorf("read segment %s at %d: %w", s.path, off, err)
	}
	return s.window[:n], nil
}

// next reads the entry at off. io.EOF is the clean end of the file, *CorruptError means that what is there is
// not an entry (off stays), any other error is the disk's.
func (s *scanner) next(verify bool) (scanned, error) {
	if s.off >= s.size {
		return scanned{}, io.EOF
	}
	e, fault, err := s.parse(s.off, verify)
	if err != nil {
		return e, err
	}
	if fault != "" {
		return e, s.corrupt(s.off, fault)
	}
	if s.index != 0 && e.index != s.index {
		return e, s.corrupt(s.off, fmt.Sprintf("entry states number %d, not %d", e.index, s.index))
	}
	if s.base == unknownPosition {
		s.base = e.position - message.LogOffset(e.start+int64(e.prefix))
	}
	s.logID = cmp.Or(s.logID, e.logID)
	s.index = e.index + 1
	s.off = e.end()
	return e, nil
}

func (s *scanner) corrupt(off int64, reason string) *CorruptError {
	c := &CorruptError{File: s.path, Offset: off, Position: unknownPosition, Reason: reason}
	if s.base != unknownPosition {
		c.Position = s.base + message.LogOffset(off)
	}
	return c
}

// parse reads the entry at a file offset. fault says what does not fit, "" if nothing. Without verify only
// length and head are looked at.
func (s *scanner) parse(off int64, verify bool) (e scanned, fault string, err error) {
	b, err := s.bytesAt(off, maxPrefixBytes+headBytes)
	if err != nil {
		return e, "", err
	}
	length, prefix, fault := parsePrefix(b)
	if fault != "" {
		return e, fault, nil
	}
	if left := s.size - off - int64(prefix); int64(length) > left {
		return e, fmt.Sprintf("entry of %d bytes is cut off after %d", length, left), nil
	}
	h, fault := parseHead(b[prefix:])
	if fault != "" {
		return e, fault, nil
	}
	if s.logID != 0 && h.logID != s.logID {
		return e, fmt.Sprintf("entry belongs to log %016x, not to %016x", h.logID, s.logID), nil
	}
	if want := s.base + message.LogOffset(off+int64(prefix)); s.base != unknownPosition && h.position != want {
		return e, fmt.Sprintf("entry states log position %d, not %d", h.position, want), nil
	}
	e = scanned{head: h, start: off, prefix: prefix, length: length}
	if !verify {
		return e, "", nil
	}
	if e.entry, err = s.bytesAt(off+int64(prefix), length); err != nil {
		return e, "", err
	}
	return e, checkEntry(h, e.entry), nil
}

// parsePrefix reads the length prefix of an entry.
func parsePrefix(b []byte) (length, prefix int, fault string) {
	v, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, 0, "length prefix does not end"
	}
	if v < headBytes || v > maxEntryBytes {
		return 0, 0, fmt.Sprintf("length %d is not that of an entry", v)
	}
	if n != uvarintLen(int(v)) {
		return 0, 0, "length prefix is longer than needed"
	}
	return int(v), n, ""
}

// checkEntry verifies checksum and records of a whole entry.
func checkEntry(h head, entry []byte) (fault string) {
	if got := checksum(entry); got != h.crc {
		return fmt.Sprintf("checksum is %08x, entry states %08x", got, h.crc)
	}
	count := uint32(countRecords(entry[headBytes:]))
	if count == 0 && len(entry) > headBytes {
		return "records do not fill the entry"
	}
	if count != h.count || (h.kind == kindMark) != (count == 0) {
		return fmt.Sprintf("%d records of %d, kind %d", count, h.count, h.kind)
	}
	return ""
}

// resync looks for the next valid entry at or behind from and returns its file offset, or the file's size if
// there is none. The base must be known. Only an entry with a true checksum, this log's random id and its own
// place in it counts as one, so bytes inside a message are not taken for it, and cost no more than a
// comparison.
func (s *scanner) resync(from int64) (int64, error) {
	var magic [4]byte
	binary.BigEndian.PutUint32(magic[:], entryMagic)
	for at := from; at < s.size; {
		b, err := s.bytesAt(at, scanReadBytes)
		if err != nil {
			return 0, err
		}
		i := s.indexHead(b, at, magic[:])
		if i < 0 {
			if at+int64(len(b)) >= s.size {
				break
			}
			at += int64(len(b) - headBytes + 1)
			continue
		}
		found := at + int64(i)
		for prefix := int64(1); prefix <= maxPrefixBytes && found-prefix >= from; prefix++ {
			e, fault, err := s.parse(found-prefix, true)
			if err != nil {
				return 0, err
			}
			if fault == "" && e.prefix == int(prefix) {
				return found - prefix, nil
			}
		}
		at = found + 1
	}
	return s.size, nil
}

// indexHead returns where in b, which lies at file offset at, a head begins that states its own position and
// this log's id; -1 if nowhere.
func (s *scanner) indexHead(b []byte, at int64, magic []byte) int {
	for i := 0; ; i++ {
		next := bytes.Index(b[i:], magic)
		if next < 0 {
			return -1
		}
		i += next
		h, fault := parseHead(b[i:])
		ours := s.logID == 0 || h.logID == s.logID
		if fault == "" && ours && h.position == s.base+message.LogOffset(at+int64(i)) {
			return i
		}
	}
}

// used returns the file offset behind the last byte from off on that is not zero; off if there is none.
func (s *scanner) used(off int64) (int64, error) {
	used := off
	for off < s.size {
		b, err := s.bytesAt(off, scanReadBytes)
		if err != nil {
			return 0, err
		}
		if b[0] != 0 || !bytes.Equal(b[1:], b[:len(b)-1]) { // else all are zero, which TrimRight is slow to see
			used = off + int64(len(bytes.TrimRight(b, "\x00")))
		}
		off += int64(len(b))
	}
	return used, nil
}
