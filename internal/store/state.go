// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"encoding/binary"
	"iter"

	"github.com/roquetmq/roquet/internal/index"
	"github.com/roquetmq/roquet/internal/message"
)

// Keys of message.SpaceBroker that begin with a zero byte are the store's own; States does not show them.
//
//	00 'd' topic               deletion: drops the topic's queues. An event: applied, never kept
//	00 'f' topic 00 queueId    floor: the value (u64) is the least offset of the queue's next message. Written for
//	                           queues whose messages have all expired, so that their offsets never begin again
//	00 'c'                     cut: the value (u64) is where the log began to be cut by the last retention
const (
	ownKey         = 0
	ownKeyDeletion = 'd'
	ownKeyFloor    = 'f'
	ownKeyCut      = 'c'
)

// OnState registers fn to be called by the applier with every change of a state space, after it is in the
// index and before the Done of its Write. Key and Value are valid during the call only. Register before
// Run; what Open found is in States.
func (s *Store) OnState(space message.Space, fn func(st message.State)) {
	s.applier.hooks[space] = append(s.applier.hooks[space], fn)
}

// States yields every key of the space that begins with prefix, in ascending order. Key and value are valid until
// the next one. An error comes last: *index.CorruptError.
func (s *Store) States(space message.Space, prefix []byte) iter.Seq2[message.State, error] {
	return s.StatesIn(space, prefix, index.KeyEnd(prefix))
}

// StatesIn is States of the keys in [from, to); a nil to is the end of the space.
func (s *Store) StatesIn(space message.Space, from, to []byte) iter.Seq2[message.State, error] {
	return func(yield func(message.State, error) bool) {
		for st, err := range s.db.Scan(space, from, to) {
			if !isOwn(space, st.Key) && !yield(message.State{Space: space, Key: st.Key, Value: st.Value}, err) {
				return
			}
		}
	}
}

// TopicDeletion is the state record whose application drops the queues of topic, with all who wait for
// them. It belongs into the Write that deletes the topic's config. Messages of the topic that come later
// begin at queue offset 0.
func TopicDeletion(topic string) message.State {
	key := append([]byte{ownKey, ownKeyDeletion}, topic...)
	return message.State{Space: message.SpaceBroker, Delete: true, Key: key}
}

func isOwn(space message.Space, key []byte) bool {
	return space == message.SpaceBroker && len(key) > 0 && key[0] == ownKey
}

// deletedTopic returns the topic whose queues the record drops.
func deletedTopic(st *message.State) (topic string, ok bool) {
	if !isOwn(st.Space, st.Key) || len(st.Key) < 3 || st.Key[1] != ownKeyDeletion {
		return "", false
	}
	return string(st.Key[2:]), true
}

// floorPrefix begins the floor keys of a topic.
func floorPrefix(topic string) []byte {
	return append(append([]byte{ownKey, ownKeyFloor}, topic...), 0)
}

func floorState(key queueKey, next message.QueueOffset) message.State {
	return message.State{
		Space: message.SpaceBroker,
		Key:   binary.BigEndian.AppendUint32(floorPrefix(key.topic), uint32(key.id)),
		Value: binary.BigEndian.AppendUint64(nil, uint64(next)),
	}
}

// parseFloor reads a floor record.
func parseFloor(st *message.State) (key queueKey, next message.QueueOffset, ok bool) {
	if !isOwn(st.Space, st.Key) || len(st.Key) < 7 || st.Key[1] != ownKeyFloor || len(st.Value) != 8 {
		return queueKey{}, 0, false
	}
	name := st.Key[2 : len(st.Key)-4]
	topic, isTopic := bytes.CutSuffix(name, []byte{0})
	if !isTopic {
		return queueKey{}, 0, false
	}
	id := int32(binary.BigEndian.Uint32(st.Key[len(st.Key)-4:]))
	return queueKey{string(topic), id}, message.QueueOffset(binary.BigEndian.Uint64(st.Value)), true
}
