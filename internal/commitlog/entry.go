// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/bits"

	"github.com/roquetmq/roquet/internal/message"
)

// The head of an entry, big-endian, behind tidwall/wal's length prefix (an unsigned varint of head +
// records):
//
//	off  size  field
//	0    4     magic 0x52514531 "RQE1"
//	4    1     version, 1
//	5    1     kind: 1 records, 2 mark (no records)
//	6    2     reserved, 0
//	8    4     CRC-32C of everything from offset 12 to the end of the entry
//	12   4     recordCount
//	16   8     logID, random, the same in every entry of one log
//	24   8     position: log position of this head's first byte
//	32   8     durable: the log's end that was known to be on the disk when this entry was sealed
//	40   8     term
//	48   8     wall clock, ms since 1970
//	56   8     index: tidwall/wal's number of the entry, from 1
//	64   …     the records
const (
	entryMagic   = uint32(0x52514531)
	entryVersion = 1

	kindRecords = 1
	kindMark    = 2

	crcAt     = 8
	countAt   = 12
	headBytes = 64

	// maxPrefixBytes is room for the length prefix of any entry up to maxEntryBytes.
	maxPrefixBytes = 5
	// recordHeadBytes is what every record begins with: totalSize and magic.
	recordHeadBytes = 8
)

// head is the decoded head of an entry.
type head struct {
	kind     uint8
	crc      uint32
	count    uint32
	logID    uint64
	position message.LogOffset
	durable  message.LogOffset
	term     uint64
	millis   int64
	index    uint64
}

// put lays the head down at the start of entry and closes it with the checksum of all that follows.
func (h *head) put(entry []byte) {
	be := binary.BigEndian
	be.PutUint32(entry, entryMagic)
	entry[4], entry[5] = entryVersion, h.kind
	be.PutUint16(entry[6:], 0)
	be.PutUint32(entry[countAt:], h.count)
	be.PutUint64(entry[16:], h.logID)
	be.PutUint64(entry[24:], uint64(h.position))
	be.PutUint64(entry[32:], uint64(h.durable))
	be.PutUint64(entry[40:], h.term)
	be.PutUint64(entry[48:], uint64(h.millis))
	be.PutUint64(entry[56:], h.index)
	h.crc = checksum(entry)
	be.PutUint32(entry[crcAt:], h.crc)
}

// parseHead reads a head without looking at the checksum. The text says what does not fit; "" means it is a
// head.
func parseHead(entry []byte) (h head, fault string) {
	if len(entry) < headBytes {
		return h, fmt.Sprintf("entry of %d bytes is shorter than a head", len(entry))
	}
	be := binary.BigEndian
	if magic := be.Uint32(entry); magic != entryMagic {
		return h, fmt.Sprintf("magic %#08x is not that of an entry", magic)
	}
	if entry[4] != entryVersion {
		return h, fmt.Sprintf("version %d is unknown", entry[4])
	}
	h.kind = entry[5]
	if (h.kind != kindRecords && h.kind != kindMark) || be.Uint16(entry[6:]) != 0 {
		return h, fmt.Sprintf("kind %d or reserved bytes %x are unknown", h.kind, entry[6:8])
	}
	h.crc = be.Uint32(entry[crcAt:])
	h.count = be.Uint32(entry[countAt:])
	h.logID = be.Uint64(entry[16:])
	h.position = message.LogOffset(be.Uint64(entry[24:]))
	h.durable = message.LogOffset(be.Uint64(entry[32:]))
	h.term = be.Uint64(entry[40:])
	h.millis = int64(be.Uint64(entry[48:]))
	h.index = be.Uint64(entry[56:])
	return h, ""
}

// checksum is the CRC-32C of what the head's checksum covers. The standard library makes the table once and computes
// in hardware.
func checksum(entry []byte) uint32 {
	return crc32.Checksum(entry[countAt:], crc32.MakeTable(crc32.Castagnoli))
}

// uvarintLen is the length of x as an unsigned varint: a byte for every 7 bits.
func uvarintLen(x int) int { return (bits.Len(uint(x|1)) + 6) / 7 }

// Entry is one entry of the log. Records is memory of the log that nobody changes any more: it may be kept as
// long as wanted when it comes from Handler.Apply, and until the callback returns when it comes from Replay.
type Entry struct {
	Index    uint64            // tidwall/wal's number of the entry, from 1
	Position message.LogOffset // of the entry's first byte, the length prefix
	First    message.LogOffset // of the first record
	End      message.LogOffset // of the first byte behind the entry
	Count    int               // records; 0 in a mark, which carries nothing
	Records  []byte
}

// newEntry returns the entry at pos, whose head and records stand behind the bytes of a length prefix.
func newEntry(index uint64, pos message.LogOffset, count, prefix int, entry []byte) Entry {
	begin := pos + message.LogOffset(prefix)
	return Entry{
		Index: index, Position: pos, First: begin + headBytes, End: begin + message.LogOffset(len(entry)),
		Count: count, Records: entry[headBytes:],
	}
}

// Each calls fn for every record of the entry in order, until fn returns an error, which it returns. rec
// aliases e.Records.
func (e Entry) Each(fn func(pos message.LogOffset, rec []byte) error) error {
	for at := 0; at < len(e.Records); {
		size := recordSize(e.Records[at:])
		if size == 0 {
			return fmt.Errorf("record at log position %d does not fit its entry", e.First+message.LogOffset(at))
		}
		if err := fn(e.First+message.LogOffset(at), e.Records[at:at+size:at+size]); err != nil {
			return err
		}
		at += size
	}
	return nil
}

// recordSize returns the size that the record at the start of b states, 0 when b does not hold it.
func recordSize(b []byte) int {
	if len(b) < recordHeadBytes {
		return 0
	}
	size := int(binary.BigEndian.Uint32(b))
	if size < recordHeadBytes || size > len(b) {
		return 0
	}
	return size
}
