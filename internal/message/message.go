// SPDX-License-Identifier: Apache-2.0

// Package message holds the stored message: its layout in the commit log, its properties, its ids, the batch
// body producers send, and the state records that share the log with messages.
//
// Everything here is a pure function on values and byte slices. Nothing keeps a reference unless its comment
// says that the result aliases its input. All integers are big-endian, as RocketMQ stores them.
//
// A message record, the layout that PullMessage returns and that tools decode (V is 4 or 16 bytes of IP):
//
//	off  size  field
//	0    4     totalSize, the whole record
//	4    4     magic: MagicV1, or MagicV2 when the topic is longer than 127 bytes
//	8    4     bodyCRC, CRC-32 (IEEE) of the body & 0x7FFFFFFF, 0 when the body is empty
//	12   4     queueId
//	16   4     flag, the application's own
//	20   8     queueOffset
//	28   8     physicalOffset, the position in the log
//	36   4     sysFlag
//	40   8     bornTimestamp, ms
//	48   V+4   bornHost, IP then port
//	+0   8     storeTimestamp, ms
//	+8   V+4   storeHost, IP then port
//	+0   4     reconsumeTimes
//	+4   8     preparedTransactionOffset
//	+12  4+n   body length, body
//	+0   1+n   topic length, topic (2+n with MagicV2)
//	+0   2+n   properties length (at most 32767), properties
//
// Source: MessageExtEncoder, MessageDecoder and MessageVersion of Apache RocketMQ.
package message

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"
	"slices"
	"unsafe"
)

// LogOffset is a byte position counted from the birth of the commit log: RocketMQ's physical offset or
// commitLogOffset.
type LogOffset int64

// QueueOffset is a position in one queue of a topic, counted in messages from 0.
type QueueOffset int64

// Magic numbers of message records. Every record of the log begins with its size and a magic number.
const (
	MagicV1 uint32 = 0xDAA320A7
	MagicV2 uint32 = 0xDAA320AB
)

// Message is one stored message, or one about to be stored. Strings and slices may alias the buffer they were
// decoded from; whoever keeps a Message longer than that buffer clones them.
type Message struct {
	Topic       string
	QueueID     int32
	Flag        int32 // the application's own number
	QueueOffset QueueOffset
	LogOffset   LogOffset
	SysFlag     int32 // host bits are recomputed by AppendTo

	BornTimestamp  int64 // ms, by the producer's clock
	StoreTimestamp int64 // ms, by the broker's clock
	BornHost       netip.AddrPort
	StoreHost      netip.AddrPort

	ReconsumeTimes            int32
	PreparedTransactionOffset LogOffset
	Body                      []byte
	Properties                string // encoded: name \x01 value \x02 …
	// TailProperties are encoded properties that the broker adds. AppendTo writes them behind Properties,
	// with the separator between them when Properties lacks it, so that adding them costs no copy. Decode
	// leaves it empty.
	TailProperties string
}

const (
	queueIDAt       = 12
	flagAt          = 16
	queueOffsetAt   = 20
	logOffsetAt     = 28
	sysFlagAt       = 36
	bornTimestampAt = 40
	bornHostAt      = 48

	// minRecordBytes is a record with IPv4 hosts and empty body, topic and properties.
	minRecordBytes = 91
)

// EncodedLen returns the exact number of bytes that AppendTo will append.
func (m *Message) EncodedLen() int {
	n := minRecordBytes - 2*hostBytes(false) + len(m.Body) + len(m.Topic) + m.propertiesLen()
	if len(m.Topic) > maxTopicBytesV1 {
		n++
	}
	return n + hostBytes(isIPv6(m.BornHost.Addr())) + hostBytes(isIPv6(m.StoreHost.Addr()))
}

func (m *Message) propertiesLen() int {
	n := len(m.Properties) + len(m.TailProperties)
	if m.needsSeparator() {
		n++
	}
	return n
}

// needsSeparator reports whether Properties ends without the separator that TailProperties needs before it.
// Some client versions leave the last one out.
func (m *Message) needsSeparator() bool {
	n := len(m.Properties)
	return n > 0 && len(m.TailProperties) > 0 && m.Properties[n-1] != propertySeparator
}

// Validate reports a *SizeError when a field does not fit its length field in the stored layout. AppendTo
// must not be called with such a message: the record would be unreadable. Limits of taste (topic names,
// maxMessageSize) are not checked here.
func (m *Message) Validate() error {
	if n := len(m.Topic); n > MaxTopicBytes {
		return &SizeError{What: "topic", Limit: MaxTopicBytes, Actual: n}
	}
	if n := m.propertiesLen(); n > MaxPropertiesBytes {
		return &SizeError{What: "properties", Limit: MaxPropertiesBytes, Actual: n}
	}
	if n := len(m.Body); n > MaxBodyBytes {
		return &SizeError{What: "body", Limit: MaxBodyBytes, Actual: n}
	}
	return nil
}

// AppendTo appends the message in its stored layout and returns the extended slice. The host bits of sysFlag
// follow the hosts (an IPv4-mapped IPv6 address counts as IPv4), the body's CRC is computed here. The message
// itself is not changed. It must fit: see Validate.
func (m *Message) AppendTo(dst []byte) []byte {
	size := m.EncodedLen()
	dst = slices.Grow(dst, size)
	base := len(dst)
	b := dst[base : base+size]
	be := binary.BigEndian

	sysFlag := m.SysFlag &^ (SysFlagBornHostV6 | SysFlagStoreHostV6)
	if isIPv6(m.BornHost.Addr()) {
		sysFlag |= SysFlagBornHostV6
	}
	if isIPv6(m.StoreHost.Addr()) {
		sysFlag |= SysFlagStoreHostV6
	}
	magic := MagicV1
	if len(m.Topic) > maxTopicBytesV1 {
		magic = MagicV2
	}
	be.PutUint32(b, uint32(size))
	be.PutUint32(b[4:], magic)
	be.PutUint32(b[8:], BodyCRC(m.Body))
	be.PutUint32(b[queueIDAt:], uint32(m.QueueID))
	be.PutUint32(b[flagAt:], uint32(m.Flag))
	be.PutUint64(b[queueOffsetAt:], uint64(m.QueueOffset))
	be.PutUint64(b[logOffsetAt:], uint64(m.LogOffset))
	be.PutUint32(b[sysFlagAt:], uint32(sysFlag))
	be.PutUint64(b[bornTimestampAt:], uint64(m.BornTimestamp))
	n := bornHostAt
	n += putHost(b[n:], m.BornHost)
	be.PutUint64(b[n:], uint64(m.StoreTimestamp))
	n += 8
	n += putHost(b[n:], m.StoreHost)
	be.PutUint32(b[n:], uint32(m.ReconsumeTimes))
	be.PutUint64(b[n+4:], uint64(m.PreparedTransactionOffset))
	be.PutUint32(b[n+12:], uint32(len(m.Body)))
	n += 16
	n += copy(b[n:], m.Body)
	if magic == MagicV1 {
		b[n] = byte(len(m.Topic))
		n++
	} else {
		be.PutUint16(b[n:], uint16(len(m.Topic)))
		n += 2
	}
	n += copy(b[n:], m.Topic)
	be.PutUint16(b[n:], uint16(m.propertiesLen()))
	n += 2
	n += copy(b[n:], m.Properties)
	if m.needsSeparator() {
		b[n] = propertySeparator
		n++
	}
	copy(b[n:], m.TailProperties)
	return dst[:base+size]
}

// Decode reads one message record. rec must be exactly one record. Topic, Properties and Body alias rec. The
// lengths are checked, the body's CRC is not (Record.Check does). Errors: *FormatError.
func Decode(rec []byte) (Message, error) {
	r := Record(rec)
	at, err := r.layout()
	if err != nil {
		return Message{}, err
	}
	return Message{
		Topic:                     aliasString(rec[at.topic : at.properties-2]),
		QueueID:                   r.QueueID(),
		Flag:                      r.Flag(),
		QueueOffset:               r.QueueOffset(),
		LogOffset:                 r.LogOffset(),
		SysFlag:                   r.SysFlag(),
		BornTimestamp:             r.BornTimestamp(),
		StoreTimestamp:            r.StoreTimestamp(),
		BornHost:                  r.BornHost(),
		StoreHost:                 r.StoreHost(),
		ReconsumeTimes:            r.ReconsumeTimes(),
		PreparedTransactionOffset: r.PreparedTransactionOffset(),
		Body:                      rec[at.body:at.bodyEnd:at.bodyEnd],
		Properties:                aliasString(rec[at.properties:]),
	}, nil
}

// BodyCRC returns the checksum that a record states for its body: CRC-32 (IEEE) without the sign bit.
func BodyCRC(body []byte) uint32 {
	return crc32.ChecksumIEEE(body) & 0x7FFFFFFF
}

func isIPv6(a netip.Addr) bool { return a.Is6() && !a.Is4In6() }

// putHost writes an address and its port and returns the number of bytes. The zero AddrPort is written as
// 0.0.0.0:0.
func putHost(b []byte, h netip.AddrPort) int {
	a := h.Addr()
	n := 4
	switch {
	case isIPv6(a):
		ip := a.As16()
		n = copy(b, ip[:])
	case a.IsValid():
		ip := a.Unmap().As4()
		copy(b, ip[:])
	default:
		clear(b[:4])
	}
	binary.BigEndian.PutUint32(b[n:], uint32(h.Port()))
	return n + 4
}

// aliasString views b as a string without copying: topics and properties of a decoded record are read far
// more often than kept, and a copy would cost one allocation each per message. The caller must not change b
// while the string lives; records are immutable once they are laid down.
func aliasString(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b))
}
