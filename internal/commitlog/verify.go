// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/roquetmq/roquet/internal/message"
)

// maxReportedFaults bounds the faults that a Report lists; all are counted.
const maxReportedFaults = 1000

// Report is what Verify found.
type Report struct {
	Segments, Entries, Records int64
	First, End                 message.LogOffset // the valid log; End is behind the last valid entry
	// TornBytes is the length of an unfinished write at the very end, which the next Open cuts off.
	TornBytes int64
	// Faults are damaged places, oldest first, at most maxReportedFaults; FaultCount counts all.
	Faults     []*CorruptError
	FaultCount int64
}

func (r *Report) add(fault *CorruptError) {
	r.FaultCount++
	if len(r.Faults) < maxReportedFaults {
		r.Faults = append(r.Faults, fault)
	}
}

// Verify reads every entry of the log in dir and checks all that can be checked without an index: that
// segments meet, that every checksum is true, that entries are numbered and placed without gaps, and that
// records fill their entries and message records state their own position. each, when not nil, gets every
// valid entry; its Records are valid until it returns, and its error ends the scan. Nothing is changed, and
// no other process may be writing. The error is the disk's, ctx's or each's; damage is in the report.
func Verify(ctx context.Context, fsys vfs.FS, dir string, each func(Entry) error) (Report, error) {
	var report Report
	files, err := listSegments(fsys, dir)
	var corrupt *CorruptError
	if errors.As(err, &corrupt) {
		report.add(corrupt)
		return report, nil
	}
	if err != nil || len(files) == 0 {
		return report, err
	}
	r := &repairer{fs: fsys, dir: dir, log: slog.New(slog.DiscardHandler)}
	if err := r.locate(files); errors.As(err, &corrupt) {
		report.add(corrupt)
		for i := range files {
			files[i].First = unknownPosition // each is checked by what its own first entry states
		}
	} else if err != nil {
		return report, err
	}
	for i, f := range files {
		v := verifier{repairer: r, report: &report, each: each, last: i == len(files)-1}
		if err := v.segment(ctx, f); err != nil {
			return report, err
		}
		if i+1 < len(files) && v.faults == 0 && v.index != files[i+1].FirstIndex {
			report.add(&CorruptError{
				File: f.Path, Offset: f.Bytes(), Position: f.End,
				Reason: fmt.Sprintf("next entry is number %d, but the next segment begins with %d", v.index,
					files[i+1].FirstIndex),
			})
		}
	}
	return report, nil
}

// verifier checks one segment.
type verifier struct {
	repairer *repairer
	report   *Report
	each     func(Entry) error
	last     bool

	faults int
	index  uint64 // of the entry behind the last one
}

func (v *verifier) segment(ctx context.Context, f Segment) error {
	v.report.Segments++
	s, err := openScanner(v.repairer.fs, f, v.repairer.logID)
	if err != nil {
		return err
	}
	end := int64(0)
	faults, err := s.faults(func(e scanned) error {
		end = e.end()
		return errors.Join(ctx.Err(), v.entry(s, e))
	})
	v.index, v.faults = s.index, len(faults)
	if v.last && err == nil && len(faults) > 0 && faults[len(faults)-1].from == s.base+message.LogOffset(end) {
		// Nothing valid follows: what Open would cut.
		var used int64
		if used, err = s.used(end); err == nil {
			v.report.TornBytes = used - end
			faults = faults[:len(faults)-1]
		}
	}
	for _, fault := range faults {
		v.report.add(fault.err)
	}
	if s.base != unknownPosition {
		if v.report.Segments == 1 {
			v.report.First = s.base
		}
		v.report.End = s.base + message.LogOffset(end)
	}
	return errors.Join(err, s.close())
}

func (v *verifier) entry(s *scanner, e scanned) error {
	v.report.Entries++
	entry := e.public(s.base)
	err := entry.Each(func(pos message.LogOffset, rec []byte) error {
		v.report.Records++
		r := message.Record(rec)
		if r.IsMessage() && (len(rec) < messageHeadBytes || r.LogOffset() != pos) {
			v.report.add(s.corrupt(int64(pos-s.base), "a message record states another log position than its own"))
		}
		return nil
	})
	if err != nil || v.each == nil {
		return err
	}
	return v.each(entry)
}
