// SPDX-License-Identifier: Apache-2.0

package message

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"sync/atomic"
	"time"
)

const (
	upperHex = "0123456789ABCDEF"

	offsetIDBytesV4 = 4 + 4 + 8
	offsetIDBytesV6 = 16 + 4 + 8
)

// OffsetMsgID returns the id that a broker answers a send with: upper-case hex of the broker's IP, port (32
// bits) and the log position; 32 characters for IPv4, 56 for IPv6. Clients dial the address inside. Source:
// MessageDecoder createMessageId.
func OffsetMsgID(host netip.AddrPort, off LogOffset) string {
	var buf [2 * offsetIDBytesV6]byte
	return string(AppendOffsetMsgID(buf[:0], host, off))
}

// AppendOffsetMsgID appends what OffsetMsgID returns.
func AppendOffsetMsgID(dst []byte, host netip.AddrPort, off LogOffset) []byte {
	var raw [offsetIDBytesV6]byte
	n := putHost(raw[:], host)
	binary.BigEndian.PutUint64(raw[n:], uint64(off))
	return appendUpperHex(dst, raw[:n+8])
}

// ParseOffsetMsgID reads an id made by OffsetMsgID; lower-case digits are accepted. Errors: *FormatError.
func ParseOffsetMsgID(id string) (netip.AddrPort, LogOffset, error) {
	if len(id) != 2*offsetIDBytesV4 && len(id) != 2*offsetIDBytesV6 {
		return badID("has neither 32 nor 56 characters", len(id))
	}
	raw, err := hex.DecodeString(id)
	n := len(raw)
	if err != nil {
		return badID("is not hexadecimal", 2*n)
	}
	port := binary.BigEndian.Uint32(raw[n-12:])
	off := LogOffset(binary.BigEndian.Uint64(raw[n-8:]))
	if port > 65535 {
		return badID("has no port number in it", 2*(n-12))
	}
	if off < 0 {
		return badID("has a negative position", 2*(n-8))
	}
	return host(raw, n == offsetIDBytesV6), off, nil
}

func badID(reason string, at int) (netip.AddrPort, LogOffset, error) {
	return netip.AddrPort{}, 0, &FormatError{What: "message id", Reason: reason, At: at}
}

// UniqueIDs makes unique message ids in the form of Apache's 4.x clients, for messages that arrive without
// UNIQ_KEY: hex of IP (4 or 16 bytes), process id (low 16 bits), a per-process seed (32 bits), milliseconds
// since the start of the month in UTC (32 bits) and a counter (16 bits). Safe for concurrent use. Source:
// MessageClientIDSetter.
type UniqueIDs struct {
	prefix  []byte // hex of the fixed part
	counter atomic.Uint32
}

// NewUniqueIDs returns a generator for one process. The seed tells processes apart that share address and
// process id; a random number is right.
func NewUniqueIDs(ip netip.Addr, pid int, seed uint32) *UniqueIDs {
	var raw [16 + 2 + 4]byte
	n := putHost(raw[:], netip.AddrPortFrom(ip, 0)) - 4
	binary.BigEndian.PutUint16(raw[n:], uint16(pid))
	binary.BigEndian.PutUint32(raw[n+2:], seed)
	return &UniqueIDs{prefix: appendUpperHex(nil, raw[:n+6])}
}

// Append appends the next id: 32 characters for an IPv4 generator, 56 for IPv6.
func (u *UniqueIDs) Append(dst []byte, now time.Time) []byte {
	now = now.UTC()
	month := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	var raw [6]byte
	binary.BigEndian.PutUint32(raw[:], uint32(now.Sub(month).Milliseconds()))
	binary.BigEndian.PutUint16(raw[4:], uint16(u.counter.Add(1)))
	dst = append(dst, u.prefix...)
	return appendUpperHex(dst, raw[:])
}

func appendUpperHex(dst, src []byte) []byte {
	for _, c := range src {
		dst = append(dst, upperHex[c>>4], upperHex[c&0xF])
	}
	return dst
}
