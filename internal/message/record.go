// SPDX-License-Identifier: Apache-2.0

package message

import (
	"encoding/binary"
	"net/netip"
)

// Record is one stored record viewed in place: no field is copied. Apart from Size, Magic, IsMessage,
// IsState, Check and IsWhole, its methods require a message record whose Check or IsWhole succeeded before
// (records read from the commit log have been verified there); on anything else they may panic.
type Record []byte

// Size returns the size that the record states for itself, or 0 when fewer than 8 bytes are there.
func (r Record) Size() int {
	if len(r) < 8 {
		return 0
	}
	return int(int32(binary.BigEndian.Uint32(r)))
}

// Magic returns the record's magic number, or 0 when fewer than 8 bytes are there.
func (r Record) Magic() uint32 {
	if len(r) < 8 {
		return 0
	}
	return binary.BigEndian.Uint32(r[4:])
}

// IsMessage reports whether the record's magic number is that of a message.
func (r Record) IsMessage() bool {
	m := r.Magic()
	return m == MagicV1 || m == MagicV2
}

// IsState reports whether the record's magic number is that of a state record.
func (r Record) IsState() bool { return r.Magic() == MagicState }

// BodyCRC returns the checksum the record states for its body.
func (r Record) BodyCRC() uint32 { return binary.BigEndian.Uint32(r[8:]) }

// QueueID returns the queue the message is stored in.
func (r Record) QueueID() int32 { return int32(binary.BigEndian.Uint32(r[queueIDAt:])) }

// Flag returns the application's own number.
func (r Record) Flag() int32 { return int32(binary.BigEndian.Uint32(r[flagAt:])) }

// QueueOffset returns the message's position in its queue.
func (r Record) QueueOffset() QueueOffset {
	return QueueOffset(binary.BigEndian.Uint64(r[queueOffsetAt:]))
}

// LogOffset returns the record's position in the commit log as the record states it.
func (r Record) LogOffset() LogOffset { return LogOffset(binary.BigEndian.Uint64(r[logOffsetAt:])) }

// SysFlag returns the system flags; see the SysFlag constants.
func (r Record) SysFlag() int32 { return int32(binary.BigEndian.Uint32(r[sysFlagAt:])) }

// BornTimestamp returns when the producer made the message, in ms.
func (r Record) BornTimestamp() int64 { return int64(binary.BigEndian.Uint64(r[bornTimestampAt:])) }

// BornHost returns the producer's address.
func (r Record) BornHost() netip.AddrPort {
	return host(r[bornHostAt:], r.SysFlag()&SysFlagBornHostV6 != 0)
}

// StoreTimestamp returns when the broker stored the message, in ms.
func (r Record) StoreTimestamp() int64 {
	return int64(binary.BigEndian.Uint64(r[r.storeTimestampAt():]))
}

// StoreHost returns the storing broker's address.
func (r Record) StoreHost() netip.AddrPort {
	return host(r[r.storeTimestampAt()+8:], r.SysFlag()&SysFlagStoreHostV6 != 0)
}

// ReconsumeTimes returns how often the message has been sent back.
func (r Record) ReconsumeTimes() int32 { return int32(binary.BigEndian.Uint32(r[r.bodyLenAt()-12:])) }

// PreparedTransactionOffset returns the position of the half message that a committed message came from.
func (r Record) PreparedTransactionOffset() LogOffset {
	return LogOffset(binary.BigEndian.Uint64(r[r.bodyLenAt()-8:]))
}

// Body returns the body, aliasing the record.
func (r Record) Body() []byte {
	start := r.bodyLenAt() + 4
	end := start + int(binary.BigEndian.Uint32(r[start-4:]))
	return r[start:end:end]
}

// Topic returns the topic, aliasing the record.
func (r Record) Topic() []byte {
	start, end := r.topicRange()
	return r[start:end:end]
}

// Properties returns the encoded properties, aliasing the record.
func (r Record) Properties() string {
	_, end := r.topicRange()
	return aliasString(r[end+2:])
}

// IsWhole reports whether r is exactly one message record whose lengths fit together. It does not look at the
// body.
func (r Record) IsWhole() bool {
	_, err := r.layout()
	return err == nil
}

// Check verifies that r is exactly one message record: its lengths fit together and the body has the stated
// CRC. Errors: *FormatError, *ChecksumError.
func (r Record) Check() error {
	at, err := r.layout()
	if err != nil {
		return err
	}
	if got, want := BodyCRC(r[at.body:at.bodyEnd]), r.BodyCRC(); got != want {
		return &ChecksumError{Want: want, Got: got}
	}
	return nil
}

// SetLogOffset patches the physical offset of a message record in place.
func SetLogOffset(rec []byte, off LogOffset) {
	binary.BigEndian.PutUint64(rec[logOffsetAt:], uint64(off))
}

func (r Record) storeTimestampAt() int {
	return bornHostAt + hostBytes(r.SysFlag()&SysFlagBornHostV6 != 0)
}

func (r Record) bodyLenAt() int {
	return r.storeTimestampAt() + 8 + hostBytes(r.SysFlag()&SysFlagStoreHostV6 != 0) + 12
}

func (r Record) topicRange() (start, end int) {
	at := r.bodyLenAt()
	at += 4 + int(binary.BigEndian.Uint32(r[at:]))
	if r.Magic() == MagicV1 {
		return at + 1, at + 1 + int(r[at])
	}
	return at + 2, at + 2 + int(binary.BigEndian.Uint16(r[at:]))
}

// Reasons of a *FormatError.
const (
	reachesPast = "reaches past the end of the record"
	doNotFit    = "does not end with the record"
)

// layout is where the variable parts of a record begin.
type layout struct{ body, bodyEnd, topic, properties int }

// layout checks every length of the record against what is there.
func (r Record) layout() (layout, error) {
	if len(r) < minRecordBytes {
		return layout{}, &FormatError{What: "record", Reason: "shorter than any message", At: len(r)}
	}
	if !r.IsMessage() {
		return layout{}, &FormatError{What: "magic", Reason: "not a message record", At: 4}
	}
	if r.Size() != len(r) {
		return layout{}, &FormatError{What: "totalSize", Reason: "differs from the record's length", At: 0}
	}
	lenAt := r.bodyLenAt()
	var at layout
	at.body = lenAt + 4
	topicLenBytes := 1
	if r.Magic() == MagicV2 {
		topicLenBytes = 2
	}
	if at.body+topicLenBytes > len(r) {
		return layout{}, &FormatError{What: "hosts", Reason: reachesPast, At: lenAt}
	}
	bodyLen := int(int32(binary.BigEndian.Uint32(r[lenAt:])))
	if bodyLen < 0 || bodyLen > len(r)-at.body-topicLenBytes {
		return layout{}, &FormatError{What: "body", Reason: reachesPast, At: lenAt}
	}
	at.bodyEnd = at.body + bodyLen
	topicLen := int(r[at.bodyEnd])
	if topicLenBytes == 2 {
		topicLen = int(binary.BigEndian.Uint16(r[at.bodyEnd:]))
	}
	at.topic = at.bodyEnd + topicLenBytes
	at.properties = at.topic + topicLen + 2
	if at.properties > len(r) {
		return layout{}, &FormatError{What: "topic", Reason: reachesPast, At: at.bodyEnd}
	}
	n := int(binary.BigEndian.Uint16(r[at.properties-2:]))
	if n > MaxPropertiesBytes || n != len(r)-at.properties {
		return layout{}, &FormatError{What: "properties", Reason: doNotFit, At: at.properties - 2}
	}
	return at, nil
}

func hostBytes(v6 bool) int {
	if v6 {
		return 20
	}
	return 8
}

func host(b []byte, v6 bool) netip.AddrPort {
	if v6 {
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b)), uint16(binary.BigEndian.Uint32(b[16:])))
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b)), uint16(binary.BigEndian.Uint32(b[4:])))
}
