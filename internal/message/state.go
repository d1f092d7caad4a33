// SPDX-License-Identifier: Apache-2.0

package message

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
)

// MagicState is the magic number of a state record ("RQS1").
const MagicState uint32 = 0x52515331

// Space says which table a state record belongs to. Numbers are part of the disk format and are never reused.
type Space uint8

// The tables that live in the log as state records.
const (
	SpaceTopic       Space = 1 // topic configurations
	SpaceGroup       Space = 2 // group configurations
	SpaceOffset      Space = 3 // consumer offsets
	SpaceKV          Space = 4 // small settings
	SpaceTimer       Space = 5 // due times of delayed messages
	SpaceTransaction Space = 6
	SpacePop         Space = 7
	SpaceUser        Space = 8 // users and access rules
	SpaceBroker      Space = 9 // what the broker must remember of itself
)

// Limits of a state record.
const (
	MaxStateKeyBytes   = 65535
	MaxStateValueBytes = 1<<30 - 1

	stateHeadBytes  = 16
	stateFlagDelete = 1
)

// State is one change of one key of one table: the key gets the value, or is deleted. It is stored as a
// record of the commit log, beside messages:
//
//	off  size      field
//	0    4         totalSize, the whole record
//	4    4         magic 0x52515331 "RQS1"
//	8    1         space
//	9    1         flags: bit 0 = delete
//	10   2         key length
//	12   4         value length
//	16   n         key, then value
type State struct {
	Space  Space
	Delete bool
	Key    []byte
	Value  []byte
}

// EncodedLen returns the exact number of bytes that AppendTo will append.
func (s *State) EncodedLen() int { return stateHeadBytes + len(s.Key) + len(s.Value) }

// Validate reports a *SizeError when key or value do not fit their length fields.
func (s *State) Validate() error {
	if n := len(s.Key); n > MaxStateKeyBytes {
		return &SizeError{What: "state key", Limit: MaxStateKeyBytes, Actual: n}
	}
	if n := len(s.Value); n > MaxStateValueBytes {
		return &SizeError{What: "state value", Limit: MaxStateValueBytes, Actual: n}
	}
	return nil
}

// JSONState returns the state that sets key to v as JSON, or deletes it when v is nil. Errors: those of Validate.
func JSONState[V any](space Space, key string, v *V) (s State, err error) {
	s = State{Space: space, Key: []byte(key), Delete: v == nil}
	if v != nil {
		if s.Value, err = json.Marshal(v); err != nil {
			return s, fmt.Errorf("encode state %q: %w", key, err)
		}
	}
	return s, s.Validate()
}

// AppendTo appends the record and returns the extended slice. The state must fit: see Validate.
func (s *State) AppendTo(dst []byte) []byte {
	size := s.EncodedLen()
	dst = slices.Grow(dst, size)
	be := binary.BigEndian
	dst = be.AppendUint32(dst, uint32(size))
	dst = be.AppendUint32(dst, MagicState)
	var flags byte
	if s.Delete {
		flags |= stateFlagDelete
	}
	dst = append(dst, byte(s.Space), flags)
	dst = be.AppendUint16(dst, uint16(len(s.Key)))
	dst = be.AppendUint32(dst, uint32(len(s.Value)))
	dst = append(dst, s.Key...)
	return append(dst, s.Value...)
}

// DecodeState reads one state record. rec must be exactly one record; Key and Value alias it. Errors:
// *FormatError.
func DecodeState(rec []byte) (State, error) {
	r := Record(rec)
	if len(rec) < stateHeadBytes {
		return State{}, &FormatError{What: "state", Reason: "shorter than any state record", At: len(rec)}
	}
	if !r.IsState() {
		return State{}, &FormatError{What: "magic", Reason: "not a state record", At: 4}
	}
	if r.Size() != len(rec) {
		return State{}, &FormatError{What: "totalSize", Reason: "differs from the record's length", At: 0}
	}
	if rec[9]&^stateFlagDelete != 0 {
		return State{}, &FormatError{What: "flags", Reason: "unknown bits are set", At: 9}
	}
	keyEnd := stateHeadBytes + int(binary.BigEndian.Uint16(rec[10:]))
	valueLen := int64(binary.BigEndian.Uint32(rec[12:]))
	if int64(keyEnd)+valueLen != int64(len(rec)) {
		return State{}, &FormatError{What: "lengths", Reason: "do not add up to the record", At: 10}
	}
	return State{
		Space:  Space(rec[8]),
		Delete: rec[9]&stateFlagDelete != 0,
		Key:    rec[stateHeadBytes:keyEnd:keyEnd],
		Value:  rec[keyEnd:],
	}, nil
}
