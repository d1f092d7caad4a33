// SPDX-License-Identifier: Apache-2.0

package index

import (
	"encoding/binary"

	"github.com/roquetmq/roquet/internal/message"
)

// formatVersion is the version of everything this package writes; another one is refused (the cure is a
// rebuild).
const formatVersion = 1

// Key spaces of the Pebble database: the first byte of every key. Numbers are big endian, so that order is
// numeric; of a queueId the sign bit is flipped, for the same reason.
//
//	01 'v'                              format version            u32
//	01 'a'                              applied position          u64
//	01 'h'                              high: furthest state      u64
//	01 't'                              next topic id             u32
//	02 topic                            topic id                  u32
//	03 topicID u32, queueID u32         tail of a queue           see chunk.go
//	04 topicID u32, queueID u32         min of a queue            queue offset u64, its log position u64
//	05 topicID u32, queueID u32, n u64  chunk n of a queue        see chunk.go
//	10 space u8, key                    state                     position u64 of its record, value
//
// Explained in docs/format/index.md.
const (
	spaceMeta  = 0x01
	spaceTopic = 0x02
	spaceTail  = 0x03
	spaceMin   = 0x04
	spaceChunk = 0x05
	spaceState = 0x10

	queueKeyBytes = 9
	signBit       = 1 << 31
	stateHead     = 8 // bytes of the position before a state's value
)

const (
	metaFormat    = "\x01v"
	metaApplied   = "\x01a"
	metaHigh      = "\x01h"
	metaNextTopic = "\x01t"
)

func appendTopicKey(dst []byte, name string) []byte {
	return append(append(dst, spaceTopic), name...)
}

// appendTopicIDKey appends the prefix of all keys of one topic in a queue keyspace.
func appendTopicIDKey(dst []byte, space byte, topicID uint32) []byte {
	return binary.BigEndian.AppendUint32(append(dst, space), topicID)
}

func appendQueueKey(dst []byte, space byte, topicID uint32, queueID int32) []byte {
	return binary.BigEndian.AppendUint32(appendTopicIDKey(dst, space, topicID), uint32(queueID)^signBit)
}

func appendChunkKey(dst []byte, topicID uint32, queueID int32, chunk int64) []byte {
	return binary.BigEndian.AppendUint64(appendQueueKey(dst, spaceChunk, topicID, queueID), uint64(chunk))
}

func appendStateKey(dst []byte, space message.Space, key []byte) []byte {
	return append(append(dst, spaceState, byte(space)), key...)
}

// KeyEnd returns the first key behind all keys that begin with prefix, which holds a byte below 0xff.
func KeyEnd(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		end[i]++
		if end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}

// splitQueueKey reads the ids out of a key of the tail and min keyspaces.
func splitQueueKey(key []byte) (topicID uint32, queueID int32, ok bool) {
	if len(key) != queueKeyBytes {
		return 0, 0, false
	}
	return binary.BigEndian.Uint32(key[1:]), int32(binary.BigEndian.Uint32(key[5:]) ^ signBit), true
}
