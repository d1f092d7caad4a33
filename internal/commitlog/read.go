// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sort"
	"time"

	"github.com/roquetmq/roquet/internal/message"
)

// Read returns the record at pos. A size above 0 must be the record's own, as an index knows it; 0 means that
// it is not known and that pos may be anything: then pos is checked to be the beginning of a record, which
// takes longer. The bytes are the log's own memory: they may be kept, and must not be changed. Safe for
// concurrent use; recent records come from memory without copying, older ones from verified blocks of the
// files.
//
// Errors: ErrNotFound (dropped, not durable yet, or no record begins there), *CorruptError, ErrClosed, or the
// disk's.
func (l *Log) Read(pos message.LogOffset, size int) ([]byte, error) {
	r := Reader{Log: l}
	return r.Read(pos, size)
}

// Reader reads records that may lie close to each other: it keeps the part of the log where the last one was. It
// is for one goroutine, and for one walk: what it keeps stays in memory as long as it does.
type Reader struct {
	Log *Log
	// Passing says that what Read returned is only needed until the next Read, or until Close, which must follow the
	// last one: then it may come from a mapped file, without a copy. To read there can panic like memory that does not
	// exist if the disk fails, or somebody else cuts the file: see debug.SetPanicOnFault.
	Passing bool

	part block
	file *cachedBlock // the segment that part lies in, if that is mapped
}

// Close ends a walk.
func (r *Reader) Close() {
	if r.file != nil {
		r.Log.mapped.leave(r.file)
		r.file, r.part = nil, block{}
	}
}

// Read is like Log.Read.
func (r *Reader) Read(pos message.LogOffset, size int) ([]byte, error) {
	l := r.Log
	if l.closed.Load() {
		return nil, ErrClosed
	}
	if pos < message.LogOffset(l.first.Load()) || pos >= message.LogOffset(l.end.Load()) {
		return nil, ErrNotFound
	}
	if !r.part.holds(pos) {
		if c, ok := l.ring.find(pos); ok {
			r.part = block{base: c.base, data: c.buf}
		} else if r.Passing && r.readMapped(pos) {
			return r.part.read(pos, size)
		} else if b, err := l.oldBlock(pos); err == nil {
			r.part = *b
		} else {
			return nil, notFoundIfGone(err)
		}
	}
	return r.part.read(pos, size)
}

// pick returns the record at pos out of whole entries that begin at base.
func pick(base message.LogOffset, entries []byte, pos message.LogOffset, size int) ([]byte, error) {
	at := int(pos - base)
	if at < 0 || at >= len(entries) {
		return nil, ErrNotFound
	}
	if size > 0 && recordSize(entries[at:]) == size && plausible(entries[at:at+size], pos) {
		return entries[at : at+size : at+size], nil
	}
	found := findRecord(entries, at)
	if found == 0 || (size > 0 && found != size) {
		return nil, ErrNotFound
	}
	return entries[at : at+found : at+found], nil
}

// plausible reports whether a record that an index pointed at is one.
func plausible(rec message.Record, pos message.LogOffset) bool {
	if rec.IsMessage() {
		return len(rec) >= messageHeadBytes && rec.LogOffset() == pos
	}
	return rec.IsState()
}

// messageHeadBytes is the part of a message record that has its log offset.
const messageHeadBytes = 36

// findRecord returns the size of the record that begins at offset at of whole entries, 0 if none does.
func findRecord(entries []byte, at int) int {
	for off := 0; off < len(entries); {
		length, prefix, fault := parsePrefix(entries[off:])
		end := off + prefix + length
		if fault != "" || end > len(entries) {
			return 0
		}
		if at >= end {
			off = end
			continue
		}
		for rec := off + prefix + headBytes; rec <= at; {
			size := recordSize(entries[rec:end])
			if rec == at || size == 0 {
				return size
			}
			rec += size
		}
		return 0
	}
	return 0
}

// block is a run of whole entries of one segment, with every checksum verified. What did not verify is not
// served.
type block struct {
	base   message.LogOffset // position of data[0]
	data   []byte
	faults []blockFault
	mapped bool // data is a whole segment, which is not verified
}

// blockFault is a part [from, to) of a block that is damaged.
type blockFault struct {
	from, to message.LogOffset
	err      *CorruptError
}

func (b *block) holds(pos message.LogOffset) bool {
	return pos >= b.base && pos < b.base+message.LogOffset(len(b.data))
}

func (b *block) read(pos message.LogOffset, size int) ([]byte, error) {
	for _, f := range b.faults {
		if pos >= f.from && pos < f.to {
			return nil, f.err
		}
	}
	if len(b.faults) > 0 && size == 0 {
		return b.readAmong(pos)
	}
	return pick(b.base, b.data, pos, size)
}

// readAmong finds a record of unknown size in a block that is partly damaged: in the part behind the last
// fault before it.
func (b *block) readAmong(pos message.LogOffset) ([]byte, error) {
	from, to := b.base, b.base+message.LogOffset(len(b.data))
	for _, f := range b.faults {
		if f.to <= pos {
			from = f.to
		} else {
			to = min(to, f.from)
		}
	}
	return pick(from, b.data[from-b.base:to-b.base], pos, 0)
}

// locate returns the segment that holds pos and the number of its block.
func (l *Log) locate(pos message.LogOffset) (seg segment, i int, err error) {
	seg, ok := l.segs.find(pos)
	if !ok {
		return seg, 0, ErrNotFound
	}
	if seg.starts == nil {
		if err := l.learnBlocks(&seg); err != nil {
			return seg, 0, err
		}
	}
	off := uint32(pos - seg.First)
	if i = sort.Search(len(seg.starts), func(i int) bool { return seg.starts[i] > off }) - 1; i < 0 {
		return seg, i, ErrNotFound
	}
	return seg, i, nil
}

// oldBlock returns the block of a segment file that holds pos.
func (l *Log) oldBlock(pos message.LogOffset) (*block, error) {
	seg, i, err := l.locate(pos)
	if err != nil {
		return nil, err
	}
	from, to := seg.block(i)
	load := func() (*block, error) { return l.loadBlock(seg.Segment, from, to) }
	if seg.verified == nil && i == len(seg.starts)-1 { // the last block of the tail still grows
		return load()
	}
	return l.cache.get(blockKey{seg.FirstIndex, i}, to-from, load)
}

// readMapped moves to the block that holds pos of a sealed segment, which is mapped for it. When it returns false, the
// block has to be loaded, which also tells what is wrong with it.
func (r *Reader) readMapped(pos message.LogOffset) bool {
	l := r.Log
	seg, i, err := l.locate(pos)
	if err != nil || seg.verified == nil {
		return false
	}
	if r.file == nil || r.file.key.segment != seg.FirstIndex {
		r.Close()
		file, err := l.mapped.enter(blockKey{segment: seg.FirstIndex}, seg.Bytes(), func() (*block, error) {
			data, err := mapFile(l.cfg.FS, seg.Path, seg.Bytes())
			return &block{data: data, mapped: true}, err
		})
		if err != nil {
			return false
		}
		r.file = file
	}
	data := r.file.block.data
	from, to := seg.block(i)
	if now := time.Now().Unix(); now-seg.verified[i].Load() > trustSeconds {
		if populate(data, from, to) != nil {
			return false
		}
		if faults, err := l.scan(&seg.Segment, data[from:to], from).faults(nil); err != nil || len(faults) > 0 {
			return false
		}
		seg.verified[i].Store(now)
	}
	r.part = block{base: seg.First + message.LogOffset(from), data: data[from:to:to]}
	return true
}

// trustSeconds is how long the checksums of a mapped block are not looked at again. Its pages may have left the memory
// meanwhile, and come back from the disk.
const trustSeconds = 60

// notFoundIfGone makes a segment that retention removed meanwhile look like one that was removed before.
func notFoundIfGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNotFound
	}
	return err
}

// loadBlock reads and verifies the bytes [from, to) of a segment.
func (l *Log) loadBlock(seg Segment, from, to int64) (*block, error) {
	file, err := l.cfg.FS.Open(seg.Path)
	if err != nil {
		return nil, fmt.Errorf("open segment: %w", err)
	}
	b := &block{base: seg.First + message.LogOffset(from), data: make([]byte, to-from)}
	n, err := file.ReadAt(b.data, from)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("read segment %s at %d: %w", seg.Path, from, err)
	} else {
		err = nil
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	s := l.scan(&seg, b.data[:n], from)
	if b.faults, err = s.faults(nil); err != nil {
		return nil, err
	}
	if int64(n) < to-from {
		short := s.corrupt(s.size, fmt.Sprintf("the file ends %d bytes too early", to-from-int64(n)))
		short.Cure = cureRestore
		b.faults = append(b.faults, blockFault{short.Position, seg.First + message.LogOffset(to), short})
	}
	for _, f := range b.faults {
		l.log.Error("the commit log is damaged; these records cannot be read", "file", seg.Path,
			"log_offset", int64(f.from), "bytes", int64(f.to-f.from), "error", f.err)
	}
	return b, nil
}

// scan returns a scanner over data, which a segment has from the offset from on: it never has to go to the file.
func (l *Log) scan(seg *Segment, data []byte, from int64) *scanner {
	return &scanner{
		path: seg.Path, size: from + int64(len(data)), base: seg.First, logID: l.id,
		window: data, windowAt: from, off: from,
	}
}

// faults reads to the end of the file and returns the parts that are not valid entries; each gets the valid
// ones.
func (s *scanner) faults(each func(scanned) error) ([]blockFault, error) {
	var all []blockFault
	for {
		e, err := s.next(true)
		var bad *CorruptError
		switch {
		case errors.Is(err, io.EOF):
			return all, nil
		case errors.As(err, &bad):
			if s.off, err = s.resync(s.off + 1); err != nil {
				return all, err
			}
			s.index = 0
			bad.Cure = cureRestore
			all = append(all, blockFault{bad.Position, s.base + message.LogOffset(s.off), bad})
		case err != nil:
			return all, err
		case each != nil:
			if err := each(e); err != nil {
				return all, err
			}
		}
	}
}

// learnBlocks makes the table of a sealed segment by going through the heads of its entries. Damage between
// entries ends a block, so that no more than the damaged entry is lost to readers.
func (l *Log) learnBlocks(seg *segment) error {
	l.learning.Lock() // a pass reads the whole file: one at a time
	defer l.learning.Unlock()
	if now, ok := l.segs.find(seg.First); ok && now.starts != nil {
		*seg = now
		return nil
	}
	s, err := openScanner(l.cfg.FS, seg.Segment, l.id)
	if err != nil {
		return err
	}
	s.size = min(s.size, seg.Bytes())
	seg.starts, err = s.blockStarts()
	if err = errors.Join(err, s.close()); err != nil {
		return err
	}
	l.segs.learn(seg)
	return nil
}

func (s *scanner) blockStarts() ([]uint32, error) {
	starts := []uint32{0}
	previous := int64(-1)
	for {
		e, err := s.next(false)
		switch {
		case errors.Is(err, io.EOF):
			return starts, nil
		case errors.As(err, new(*CorruptError)):
			// The length of the entry before may be what is wrong: then the next one begins inside it.
			from := s.off + 1
			if previous >= 0 {
				if _, fault, err := s.parse(previous, true); err != nil {
					return nil, err
				} else if fault != "" {
					from = previous + 1
				}
			}
			if s.off, err = s.resync(from); err != nil {
				return nil, err
			}
			s.index = 0
			previous = -1
			if s.off < s.size {
				starts = append(starts, uint32(s.off))
			}
		case err != nil:
			return nil, err
		default:
			if e.start-int64(starts[len(starts)-1]) >= blockBytes {
				starts = append(starts, uint32(e.start))
			}
			previous = e.start
		}
	}
}
