// SPDX-License-Identifier: Apache-2.0

package offset

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/roquetmq/roquet/internal/message"
)

// separator is between topic and group in a state key. Neither name may contain it.
const separator = "@"

// form is the first byte of a value.
const form = 1

// maxQueueID bounds the queue ids that are kept, so that a hostile one allocates nothing.
const maxQueueID = 65535

// FormatError says what is wrong with a stored offset record.
type FormatError struct {
	Key    string
	Reason string
}

// Error names the record and the fault.
func (e *FormatError) Error() string { return "offset record " + e.Key + ": " + e.Reason }

// record is the decoded value of one queue; none is -1.
type record struct {
	queueID   int32
	committed int64
	reset     int64
}

func (p *progress) state() message.State {
	queues := *p.queues.Load()
	count := 0
	for _, q := range queues {
		if q != nil {
			count++
		}
	}
	value := make([]byte, 0, 1+binary.MaxVarintLen32+count*12)
	value = append(value, form)
	value = binary.AppendUvarint(value, uint64(count))
	for id, q := range queues {
		if q == nil {
			continue
		}
		value = binary.AppendUvarint(value, uint64(id))
		value = binary.AppendUvarint(value, uint64(q.committed.Load()+1))
		value = binary.AppendUvarint(value, uint64(q.reset.Load()+1))
	}
	return message.State{Space: message.SpaceOffset, Key: p.key.encode(), Value: value}
}

func (k key) encode() []byte { return []byte(k.topic + separator + k.group) }

func decodeKey(b []byte) (key, error) {
	topic, group, ok := strings.Cut(string(b), separator)
	if !ok {
		return key{}, &FormatError{Key: string(b), Reason: "no group in the key"}
	}
	return key{topic: topic, group: group}, nil
}

// decode calls each for every queue of a value.
func decode(name string, value []byte, each func(record)) error {
	fail := func(reason string) error { return &FormatError{Key: name, Reason: reason} }
	if len(value) == 0 || value[0] != form {
		return fail("unknown form")
	}
	value = value[1:]
	next := func(limit uint64) (uint64, bool) {
		v, n := binary.Uvarint(value)
		if n <= 0 || v > limit {
			return 0, false
		}
		value = value[n:]
		return v, true
	}
	count, ok := next(maxQueueID + 1)
	if !ok {
		return fail("bad number of queues")
	}
	for i := range count {
		id, ok1 := next(maxQueueID)
		committed, ok2 := next(1 << 63)
		reset, ok3 := next(1 << 63)
		if !ok1 || !ok2 || !ok3 {
			return fail(fmt.Sprintf("bad queue %d of %d", i+1, count))
		}
		each(record{queueID: int32(id), committed: int64(committed) - 1, reset: int64(reset) - 1})
	}
	if len(value) != 0 {
		return fail(fmt.Sprintf("%d bytes too many", len(value)))
	}
	return nil
}
