// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"

	"github.com/roquetmq/roquet/internal/broker/offset"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

const (
	// DefaultQueryCount is how many messages a query by unique key returns at most, and MaxQueryCount any
	// query. Source: MessageStoreConfig defaultQueryMaxNum, maxMsgsNumBatch.
	DefaultQueryCount = 32
	// MaxQueryCount is how many any query returns at most.
	MaxQueryCount = 64

	// youngBytes is how far behind the end of the log a message counts as recent. The original takes what is
	// likely to be in the page cache, 40 % of the machine's memory.
	youngBytes = 2 << 30

	// noTime is the earliest store time of a queue without messages.
	noTime int64 = -1
)

// Archive gives messages and the bounds of queues. *store.Store is one.
type Archive interface {
	At(topic string, queueID int32, off message.QueueOffset) (message.Record, error)
	Bounds(topic string, queueID int32) (minimum, maximum message.QueueOffset, ok bool)
	ByKey(topic, key string, unique bool, limit int, begin, end int64) ([]message.Record, error)
}

// Queries answers questions about stored messages and offsets. All methods are safe for concurrent use.
// Source: QueryMessageProcessor.java, ConsumerManageProcessor.java, AdminBrokerProcessor.java.
type Queries struct {
	offsets *offset.Table
	archive Archive
	end     func() message.LogOffset
}

// NewQueries returns Queries. end returns the end of the log.
func NewQueries(offsets *offset.Table, archive Archive, end func() message.LogOffset) *Queries {
	return &Queries{offsets: offsets, archive: archive, end: end}
}

// KeyQuery asks for messages of a topic by key.
type KeyQuery struct {
	Topic  string
	Key    string
	Unique bool  // by UNIQ_KEY, else by one of KEYS
	Limit  int   // at most MaxQueryCount
	Begin  int64 // ms, of the store time
	End    int64 // ms
}

// ByKey returns messages newest first, each physical record once. A unique key names its message whenever
// that was stored: the times are ignored then, because tools compute them from the id and read those of newer
// clients wrongly. Errors: those of reading the store.
func (q *Queries) ByKey(ask KeyQuery) ([]message.Record, error) {
	if ask.Unique {
		ask.Limit, ask.Begin, ask.End = DefaultQueryCount, 0, never
	}
	limit := max(1, min(ask.Limit, MaxQueryCount))
	return q.archive.ByKey(ask.Topic, ask.Key, ask.Unique, limit, ask.Begin, ask.End)
}

// MinOffset returns the lowest offset of a queue that can be read; 0 when nothing was ever stored in it.
func (q *Queries) MinOffset(topic string, queueID int32) message.QueueOffset {
	minimum, _, _ := q.archive.Bounds(topic, queueID)
	return minimum
}

// MaxOffset returns the offset that the next message of a queue will have; 0 when nothing was ever stored in
// it.
func (q *Queries) MaxOffset(topic string, queueID int32) message.QueueOffset {
	_, maximum, _ := q.archive.Bounds(topic, queueID)
	return maximum
}

// EarliestStoreTime returns when the first message of a queue that can be read was stored, in ms, and -1 when
// there is none. Errors: those of reading the store.
func (q *Queries) EarliestStoreTime(topic string, queueID int32) (int64, error) {
	for range 2 { // the first message can be dropped in between
		minimum, maximum, _ := q.archive.Bounds(topic, queueID)
		if minimum == maximum {
			return noTime, nil
		}
		rec, err := q.archive.At(topic, queueID, minimum)
		if err == nil {
			return rec.StoreTimestamp(), nil
		}
		if !errors.Is(err, store.ErrNotFound) {
			return noTime, err
		}
	}
	return noTime, nil
}

// ConsumerOffset returns where a group goes on in a queue. A group that has no offset yet begins at 0 when
// the queue is young, that is all its messages are there and the first one is recent, and zero allows it;
// else ok is false and the consumer decides. Source: ConsumerManageProcessor.java queryConsumerOffset.
func (q *Queries) ConsumerOffset(
	group, topic string, queueID int32, zero bool,
) (off message.QueueOffset, ok bool) {
	if off, ok := q.offsets.Query(group, topic, queueID); ok {
		return off, true
	}
	if minimum, maximum, _ := q.archive.Bounds(topic, queueID); !zero || minimum > 0 || maximum == 0 {
		return 0, false
	}
	rec, err := q.archive.At(topic, queueID, 0)
	return 0, err == nil && q.end()-rec.LogOffset() <= youngBytes
}
