// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"encoding/binary"
	"time"

	"github.com/roquetmq/roquet/internal/message"
)

// NoImmunity says that a half message names no age of its own for the first check.
const NoImmunity int32 = -1

// Half is what has to be remembered of an open half message.
type Half struct {
	// Offset is where it is in queue 0 of the half topic.
	Offset message.QueueOffset
	// Topic is where it will go when it is committed. The value keeps it.
	Topic string
	// Since is when it was first stored, LastCheck when it was last asked about (ms). 0: never.
	Since, LastCheck int64
	// Checks is how often it was asked about.
	Checks int
	// Immunity is the age in seconds before which it is not asked about; NoImmunity: the configured one.
	Immunity int32
	// Moved says that retention has appended it again. Origin and OriginPos are then where it was first: what
	// its producer knows.
	Moved     bool
	Origin    message.QueueOffset
	OriginPos message.LogOffset
}

// keyBytes is the length of a half message's state key in message.SpaceTransaction: its queue offset,
// big-endian.
const keyBytes = 8

// The value of the state record, all numbers big-endian:
//
//	off  size  field
//	0    1     version, 1
//	1    1     flags: bit 0 = moved
//	2    2     checks
//	4    4     immunity in seconds, -1 none
//	8    8     since, ms
//	16   8     last check, ms, 0 never
//	24   8     first queue offset, 0 unless moved
//	32   8     first log position, 0 unless moved
//	40   n     topic
const (
	valueVersion   = 1
	valueHeadBytes = 40
	flagMoved      = 1
	sinceAt        = 8
	maxChecks      = 1<<16 - 1
)

// AppendKey appends the state key of the half message at offset.
func AppendKey(dst []byte, offset message.QueueOffset) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(offset))
}

// SetKey writes offset into a key that AppendKey made.
func SetKey(key []byte, offset message.QueueOffset) { binary.BigEndian.PutUint64(key, uint64(offset)) }

// SetSince writes when the half message was first stored into a value that AppendValue made.
func SetSince(value []byte, millis int64) {
	binary.BigEndian.PutUint64(value[sinceAt:], uint64(millis))
}

// AppendValue appends the state value.
func (h *Half) AppendValue(dst []byte) []byte {
	be := binary.BigEndian
	var flags byte
	if h.Moved {
		flags = flagMoved
	}
	dst = append(dst, valueVersion, flags)
	dst = be.AppendUint16(dst, uint16(min(h.Checks, maxChecks)))
	dst = be.AppendUint32(dst, uint32(h.Immunity))
	dst = be.AppendUint64(dst, uint64(h.Since))
	dst = be.AppendUint64(dst, uint64(h.LastCheck))
	dst = be.AppendUint64(dst, uint64(h.Origin))
	dst = be.AppendUint64(dst, uint64(h.OriginPos))
	return append(dst, h.Topic...)
}

// ParseKey reads a state key; ok is false for one that is none.
func ParseKey(key []byte) (offset message.QueueOffset, ok bool) {
	if len(key) != keyBytes {
		return 0, false
	}
	offset = message.QueueOffset(binary.BigEndian.Uint64(key))
	return offset, offset >= 0
}

// Parse reads a state record's key and value. It keeps neither. Errors: *message.FormatError.
func Parse(key, value []byte) (Half, error) {
	offset, ok := ParseKey(key)
	if !ok {
		return Half{}, &message.FormatError{What: "transaction key", Reason: "is no queue offset", At: len(key)}
	}
	if len(value) < valueHeadBytes {
		return Half{}, &message.FormatError{What: "transaction value", Reason: "is too short", At: len(value)}
	}
	if value[0] != valueVersion {
		return Half{}, &message.FormatError{What: "transaction value", Reason: "is of a version not known", At: 0}
	}
	be := binary.BigEndian
	return Half{
		Offset: offset, Topic: string(value[valueHeadBytes:]), Since: int64(be.Uint64(value[sinceAt:])),
		LastCheck: int64(be.Uint64(value[16:])), Checks: int(be.Uint16(value[2:])),
		Immunity: int32(be.Uint32(value[4:])), Moved: value[1]&flagMoved != 0,
		Origin: message.QueueOffset(be.Uint64(value[24:])), OriginPos: message.LogOffset(be.Uint64(value[32:])),
	}, nil
}

// due returns when the half message is to be looked at next, in ms.
func (h *Half) due(cfg *Config) int64 {
	next := h.LastCheck + cfg.Interval.Milliseconds()
	if h.LastCheck == 0 {
		wait := cfg.Timeout
		if h.Immunity >= 0 {
			wait = time.Duration(h.Immunity) * time.Second
		}
		// Its age has to be over the limit, as in the original: one millisecond more.
		next = h.Since + wait.Milliseconds() + 1
	}
	return min(next, h.Since+cfg.MaxAge.Milliseconds()+1)
}
