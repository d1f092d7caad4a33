// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"errors"
	"fmt"
	"io"

	"github.com/roquetmq/roquet/internal/message"
)

// locate sets First and End of every file, and FirstMillis where the first entry can be read. One segment
// whose first entry is whole is enough to place all others by their sizes; every other first entry must
// agree, or segments are missing.
func (r *repairer) locate(files []Segment) error {
	if len(files) == 0 {
		return nil
	}
	sizes := make([]int64, len(files))
	stated := make([]message.LogOffset, len(files))
	for i := range files {
		sizes[i] = int64(files[i].End)
		e, base, err := r.firstEntry(files[i], false)
		if err != nil {
			return err
		}
		stated[i], files[i].FirstMillis = base, e.millis
	}
	anchor, err := r.anchor(files, stated)
	if err != nil {
		return err
	}
	for i := anchor; i >= 0; i-- {
		if i < anchor {
			files[i].First = files[i+1].First - message.LogOffset(sizes[i])
		}
		files[i].End = files[i].First + message.LogOffset(sizes[i])
	}
	for i := anchor + 1; i < len(files); i++ {
		files[i].First = files[i-1].End
		files[i].End = files[i].First + message.LogOffset(sizes[i])
	}
	return r.agree(files, stated, anchor)
}

// anchor returns the last segment whose first entry is whole, and sets its First.
func (r *repairer) anchor(files []Segment, stated []message.LogOffset) (int, error) {
	for i := len(files) - 1; i >= 0; i-- {
		if stated[i] == unknownPosition {
			continue
		}
		e, base, err := r.firstEntry(files[i], true)
		if err != nil {
			return 0, err
		}
		if base != unknownPosition {
			r.logID = e.logID
			files[i].First = base
			return i, nil
		}
		stated[i] = unknownPosition
	}
	if files[0].FirstIndex == 1 {
		files[0].First = 0 // the log's birth
		return 0, nil
	}
	last := files[len(files)-1]
	return 0, &CorruptError{
		File: last.Path, Position: unknownPosition,
		Reason: "no entry states where in the log this file lies", Cure: cureRestore,
	}
}

// agree checks every position stated in front of the anchor; what is behind it is torn or empty, and the tail's scan
// decides. A whole entry that states another place than its file has proves that bytes are missing; a damaged one is
// left for readers to find.
func (r *repairer) agree(files []Segment, stated []message.LogOffset, anchor int) error {
	for i := anchor - 1; i >= 0; i-- {
		if stated[i] == files[i].First {
			continue
		}
		_, base, err := r.firstEntry(files[i], true)
		if err != nil {
			return err
		}
		if base != unknownPosition {
			return r.missing(files[i], base)
		}
		r.log.Error("the first entry of a segment of the commit log is damaged",
			"file", files[i].Path, "log_offset", int64(files[i].First))
	}
	if files[0].FirstIndex == 1 && files[0].First != 0 {
		return r.missing(files[0], 0)
	}
	return nil
}

// missing reports that the segment at base and the one behind it, by whose place f was placed, do not meet.
func (r *repairer) missing(f Segment, base message.LogOffset) error {
	size := f.Bytes()
	return &CorruptError{
		File: f.Path, Offset: size, Position: base + message.LogOffset(size),
		Reason: fmt.Sprintf("the next segment begins at log position %d", int64(f.End)), Cure: cureMissing,
	}
}

// firstEntry reads the first entry of a file and the position of the file's first byte that it states, which
// is unknownPosition when it is not a valid entry.
func (r *repairer) firstEntry(f Segment, verify bool) (scanned, message.LogOffset, error) {
	f.First = unknownPosition
	s, err := openScanner(r.fs, f, 0)
	if err != nil {
		return scanned{}, unknownPosition, err
	}
	s.ahead = peekReadBytes
	e, err := s.next(verify)
	if _, corrupt := errors.AsType[*CorruptError](err); corrupt || errors.Is(err, io.EOF) {
		err = nil
	}
	return e, s.base, errors.Join(err, s.close())
}
