// SPDX-License-Identifier: Apache-2.0

package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/roquetmq/roquet/internal/disk"
	"github.com/roquetmq/roquet/internal/message"
)

// A sidecar is a file with the keys of one range of the log. Entries are sorted into buckets by the upper
// bits of their hash; a lookup reads the head, the directory and one bucket. Numbers are little endian,
// checksums CRC-32C.
//
//	off   size  field
//	0     8     magic "roqkeys1"
//	8     8     from: log position where the range begins
//	16    8     to: log position where it ends
//	24    4     number of entries n
//	28    4     bits b: there are 2^b buckets
//	32    4     checksum of bytes 0 to 31 and of the directory
//	36    4     zero
//	40    8*2^b directory, for each bucket: u32 index behind its last entry, u32 checksum of its entries
//	      8*n   entries by bucket and, within it, in log order: u32 position - from, u32 hash
//
// The name is <from>-<to>.keys, in 16 hexadecimal digits each. It is written under another name, synced and
// renamed.
const (
	sidecarMagic   = "roqkeys1"
	sidecarHead    = 40
	sidecarSuffix  = ".keys"
	keyEntryBytes  = 8
	dirEntryBytes  = 8
	maxBucketBits  = 20
	entriesABucket = 256
)

var errSidecarForm = errors.New("malformed")

// sidecar is one file on disk.
type sidecar struct {
	KeyRange
	path    string
	damaged atomic.Bool             // a lookup failed: MissingKeys names it
	dropped atomic.Bool             // retention deletes the file
	merged  atomic.Pointer[sidecar] // what has the keys in place of this one, whose file is deleted
}

// sidecarFiles reads and writes sidecars in one folder.
type sidecarFiles struct {
	fs  vfs.FS
	dir string
}

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

func sidecarName(r KeyRange) string {
	return fmt.Sprintf("%016x-%016x%s", int64(r.From), int64(r.To), sidecarSuffix)
}

func parseSidecarName(name string) (KeyRange, bool) {
	from, to, found := strings.Cut(strings.TrimSuffix(name, sidecarSuffix), "-")
	f, err1 := strconv.ParseInt(from, 16, 64)
	t, err2 := strconv.ParseInt(to, 16, 64)
	r := KeyRange{From: message.LogOffset(f), To: message.LogOffset(t)}
	return r, found && err1 == nil && err2 == nil && f >= 0 && f < t && sidecarName(r) == name
}

func (s sidecarFiles) sidecar(r KeyRange) *sidecar {
	return &sidecar{KeyRange: r, path: s.fs.PathJoin(s.dir, sidecarName(r))}
}

// encode returns the whole file of t.
func (s sidecarFiles) encode(t *keyTable) []byte {
	n := t.count()
	bucketBits := min(bits.Len(uint(n/entriesABucket)), maxBucketBits)
	buckets := 1 << bucketBits
	shift := 64 - bucketBits

	// While counting, ends[b+1] counts bucket b; while placing, ends[b] is its next place.
	ends := make([]uint32, buckets+1)
	for _, page := range t.pages {
		for _, e := range page {
			ends[e>>shift+1]++
		}
	}
	for b := range buckets {
		ends[b+1] += ends[b]
	}
	file := make([]byte, sidecarHead+dirEntryBytes*buckets+keyEntryBytes*n)
	entries := file[sidecarHead+dirEntryBytes*buckets:]
	for _, page := range t.pages {
		for _, e := range page {
			b := e >> shift
			binary.LittleEndian.PutUint64(entries[keyEntryBytes*ends[b]:], e)
			ends[b]++
		}
	}
	dir := file[sidecarHead : len(file)-len(entries)]
	from := uint32(0)
	for b := range buckets {
		binary.LittleEndian.PutUint32(dir[dirEntryBytes*b:], ends[b])
		sum := crc32.Checksum(entries[keyEntryBytes*from:keyEntryBytes*ends[b]], castagnoli())
		binary.LittleEndian.PutUint32(dir[dirEntryBytes*b+4:], sum)
		from = ends[b]
	}
	copy(file, sidecarMagic)
	binary.LittleEndian.PutUint64(file[8:], uint64(t.From))
	binary.LittleEndian.PutUint64(file[16:], uint64(t.To))
	binary.LittleEndian.PutUint32(file[24:], uint32(n))
	binary.LittleEndian.PutUint32(file[28:], uint32(bucketBits))
	binary.LittleEndian.PutUint32(file[32:], s.headSum(file, dir))
	return file
}

func (s sidecarFiles) headSum(head, dir []byte) uint32 {
	return crc32.Update(crc32.Checksum(head[:32], castagnoli()), castagnoli(), dir)
}

// write makes a durable sidecar of t.
func (s sidecarFiles) write(t *keyTable) (*sidecar, error) {
	c := s.sidecar(t.KeyRange)
	return c, disk.Replace(s.fs, c.path, s.encode(t))
}

// lookup returns the positions in the sidecar's range with hash h, newest first; none if the range has been
// dropped. Errors: *KeysError; the sidecar is marked as damaged.
func (s sidecarFiles) lookup(c *sidecar, h keyHash) ([]message.LogOffset, error) {
	found, err := s.read(c, h)
	if err == nil {
		return found, nil
	}
	if c.dropped.Load() {
		return nil, nil
	}
	if m := c.merged.Load(); m != nil {
		found, err := s.lookup(m, h)
		outside := func(pos message.LogOffset) bool { return pos < c.From || pos >= c.To }
		return slices.DeleteFunc(found, outside), err
	}
	c.damaged.Store(true)
	return nil, &KeysError{Range: c.KeyRange, File: c.path, Cause: err}
}

func (s sidecarFiles) read(c *sidecar, h keyHash) (found []message.LogOffset, err error) {
	f, err := s.fs.Open(c.path, vfs.RandomReadsOption)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	head, err := s.readHead(f, c.KeyRange)
	if err != nil {
		return nil, err
	}
	entries, err := s.readBucket(f, head, int(uint64(h)>>(32-head.bits)))
	if err != nil {
		return nil, err
	}
	for i := len(entries) - keyEntryBytes; i >= 0; i -= keyEntryBytes {
		if e := binary.LittleEndian.Uint64(entries[i:]); keyHash(e>>32) == h {
			found = append(found, c.From+message.LogOffset(uint32(e)))
		}
	}
	return found, nil
}

// sidecarDir is a checked head and directory.
type sidecarDir struct {
	dir  []byte
	bits int
}

// readBucket reads and checks the entries of bucket b.
func (s sidecarFiles) readBucket(f vfs.File, d sidecarDir, b int) ([]byte, error) {
	from, own := int64(0), d.dir[dirEntryBytes*b:]
	if b > 0 {
		from = int64(binary.LittleEndian.Uint32(d.dir[dirEntryBytes*(b-1):]))
	}
	entries := make([]byte, keyEntryBytes*(int64(binary.LittleEndian.Uint32(own))-from))
	at := int64(sidecarHead+len(d.dir)) + keyEntryBytes*from
	if len(entries) > 0 {
		if _, err := f.ReadAt(entries, at); err != nil {
			return nil, readFull(err)
		}
	}
	if crc32.Checksum(entries, castagnoli()) != binary.LittleEndian.Uint32(own[4:]) {
		return nil, fmt.Errorf("checksum of %d bytes at %d is wrong", len(entries), at)
	}
	return entries, nil
}

// readHead reads and checks all of the file but its entries.
func (s sidecarFiles) readHead(f vfs.File, r KeyRange) (sidecarDir, error) {
	info, err := f.Stat()
	if err != nil {
		return sidecarDir{}, err
	}
	var head [sidecarHead]byte
	if _, err := f.ReadAt(head[:], 0); err != nil {
		return sidecarDir{}, readFull(err)
	}
	n := binary.LittleEndian.Uint32(head[24:])
	bucketBits := binary.LittleEndian.Uint32(head[28:])
	switch {
	case string(head[:8]) != sidecarMagic, bucketBits > maxBucketBits,
		binary.LittleEndian.Uint64(head[8:]) != uint64(r.From), binary.LittleEndian.Uint64(head[16:]) != uint64(r.To):
		return sidecarDir{}, fmt.Errorf("head is %w", errSidecarForm)
	case info.Size() != sidecarHead+dirEntryBytes<<bucketBits+keyEntryBytes*int64(n):
		return sidecarDir{}, fmt.Errorf("file has %d bytes, which is not enough or too much for %d entries",
			info.Size(), n)
	}
	dir := make([]byte, dirEntryBytes<<bucketBits)
	if _, err := f.ReadAt(dir, sidecarHead); err != nil {
		return sidecarDir{}, readFull(err)
	}
	if s.headSum(head[:], dir) != binary.LittleEndian.Uint32(head[32:]) {
		return sidecarDir{}, errors.New("checksum of head and directory is wrong")
	}
	return sidecarDir{dir: dir, bits: int(bucketBits)}, nil
}

// readFull says what io.EOF means for a file whose size is known.
func readFull(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
