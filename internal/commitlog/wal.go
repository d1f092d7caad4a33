// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"reflect"
	"unsafe"

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

// tailBuffer gives tidwall/wal the memory for its copy of the last segment in one piece, the same piece for
// every segment. The library appends each entry to a slice that starts empty in every segment and has no way
// to be told how large it will become. Growing it costs six bytes allocated for each byte logged: measured
// here (entries of 100 kB, segments of 16 MiB, no sync) 1.0–1.2 µs of CPU for 350 bytes and 4–7 ms at p99,
// against 0.15 µs and 0.1 ms with the memory given once.
//
// The slice is private to the library, so it is found by name and type. When the library's types do not look
// as they did in v1.2.1, nothing is given and all works as before, only slower; TestTailBufferIsGiven
// notices.
type tailBuffer struct {
	buf              []byte
	segmentsAt, ebuf uintptr // offsets of Log.segments and segment.ebuf
}

// tailSlackBytes is room for the entry that takes a segment past its size. A larger one makes the library
// grow once.
const tailSlackBytes = 4 << 20

// newTailBuffer looks at the library's types; log is a pointer to its Log.
func newTailBuffer(log any, segmentBytes int64) *tailBuffer {
	segments, ok := reflect.TypeOf(log).Elem().FieldByName("segments")
	if !ok || segments.Type.Kind() != reflect.Slice || segments.Type.Elem().Kind() != reflect.Pointer {
		return &tailBuffer{}
	}
	segment := segments.Type.Elem().Elem()
	if segment.Kind() != reflect.Struct {
		return &tailBuffer{}
	}
	ebuf, ok := segment.FieldByName("ebuf")
	if !ok || ebuf.Type != reflect.TypeFor[[]byte]() {
		return &tailBuffer{}
	}
	return &tailBuffer{
		buf:        make([]byte, 0, segmentBytes+min(tailSlackBytes, segmentBytes/4)),
		segmentsAt: segments.Offset,
		ebuf:       ebuf.Offset,
	}
}

// give makes the buffer that of the last segment, with what the segment holds already. The library must have
// let go of the segment that had it before.
func (t *tailBuffer) give(log any) bool {
	if t.buf == nil {
		return false
	}
	segments := *(*[]unsafe.Pointer)(unsafe.Add(reflect.ValueOf(log).UnsafePointer(), t.segmentsAt))
	if len(segments) == 0 {
		return false
	}
	ebuf := (*[]byte)(unsafe.Add(segments[len(segments)-1], t.ebuf))
	if len(*ebuf) > cap(t.buf) {
		return false
	}
	*ebuf = append(t.buf[:0], *ebuf...)
	return true
}
