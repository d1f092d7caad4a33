// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"encoding/binary"
	"strconv"
	"time"

	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// timerKeyBytes is the length of a timer's state key: due time in ms (8), delay level (1, timerLevel for a
// time of the message's own), queue offset (8), all big-endian, so that the order of keys is the order of
// delivery. The value is the topic that the message is going to; the record that deletes the key repeats it.
const timerKeyBytes = 8 + 1 + 8

// timerLevel stands in a key for no delay level.
const timerLevel = 0

// maxClockSkewMillis is by how much the store's timestamps, which never go back, may be ahead of the clock
// before it is taken for a clock that was set back.
const maxClockSkewMillis = 1000

// timerKey is a message that waits in the schedule or the timer topic: its state record in space
// message.SpaceTimer lives until the message was delivered.
type timerKey struct {
	due    int64               // ms
	offset message.QueueOffset // in the queue it waits in
	level  uint8
}

// queue returns where the message waits.
func (k timerKey) queue() (topic string, queueID int32) {
	if k.level == timerLevel {
		return TimerTopic, 0
	}
	return ScheduleTopic, int32(k.level) - 1
}

// set is the state record that makes the timer, for a message that is going to topic; end is the one that
// ends it.
func (k timerKey) set(topic []byte) message.State {
	return message.State{Space: message.SpaceTimer, Key: k.encode(), Value: topic}
}

func (k timerKey) end(topic []byte) message.State {
	return message.State{Space: message.SpaceTimer, Key: k.encode(), Value: topic, Delete: true}
}

func (k timerKey) appendTo(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(k.due))
	dst = append(dst, k.level)
	return binary.BigEndian.AppendUint64(dst, uint64(k.offset))
}

func (k timerKey) encode() []byte { return k.appendTo(make([]byte, 0, timerKeyBytes)) }

func decodeTimerKey(b []byte) (timerKey, bool) {
	if len(b) != timerKeyBytes {
		return timerKey{}, false
	}
	k := timerKey{
		due: int64(binary.BigEndian.Uint64(b)), level: b[8],
		offset: message.QueueOffset(binary.BigEndian.Uint64(b[9:])),
	}
	return k, k.level != timerLevel || k.due > 0
}

// park turns m, the only message of w, into one that waits in the schedule topic, and adds the timer that
// will bring it to where it was going. Source: HookUtils.java transformDelayLevelMessage.
func park(w *store.Write, m *message.Message, level int, delay time.Duration) {
	m.Properties = message.WithoutProperty(m.Properties, message.PropertyTimerDeliverMillis,
		message.PropertyTimerDelaySeconds, message.PropertyTimerDelayMillis)
	hide(w, m, timerKey{due: delay.Milliseconds(), level: uint8(level)})
}

// parkUntil turns m, the only message of w, into one that waits in the timer topic until due (ms), and adds
// its timer. Source: HookUtils.java transformTimerMessage. Known difference: TIMER_OUT_MS is due itself, not
// the second before.
func parkUntil(w *store.Write, m *message.Message, due int64) {
	hide(w, m, timerKey{due: due, level: timerLevel}, message.PropertyTimerOutMillis, strconv.FormatInt(due, 10))
}

// hide puts m into the queue of key, which lacks its offset, and notes where m was going, and a property
// more.
func hide(w *store.Write, m *message.Message, key timerKey, more ...string) {
	m.Properties = withDestination(m.Properties, m.Topic, m.QueueID, more...)
	w.State = []message.State{key.set([]byte(m.Topic))}
	w.Assigned = setTimer
	m.Topic, m.QueueID = key.queue()
}

// withDestination returns props with REAL_TOPIC and REAL_QID, and more properties, which must not be there
// yet: name, value, name, value.
func withDestination(props, topic string, queueID int32, more ...string) string {
	props = message.WithoutProperty(props, message.PropertyRealTopic, message.PropertyRealQueueID)
	size := len(props) + len(topic) + 40
	for _, text := range more {
		size += len(text) + 1
	}
	dst := message.AppendProperties(make([]byte, 0, size), props)
	for i := 0; i+1 < len(more); i += 2 {
		dst = message.AppendProperty(dst, more[i], more[i+1])
	}
	dst = message.AppendProperty(dst, message.PropertyRealTopic, topic)
	var qid [11]byte
	dst = message.AppendProperty(dst, message.PropertyRealQueueID,
		string(strconv.AppendInt(qid[:0], int64(queueID), 10)))
	return string(dst)
}

// destination reads REAL_TOPIC and REAL_QID.
func destination(props string) (topic string, queueID int32, ok bool) {
	topic, ok = message.Property(props, message.PropertyRealTopic)
	qid, _ := message.Property(props, message.PropertyRealQueueID)
	n, err := strconv.ParseInt(qid, 10, 32)
	return topic, int32(n), ok && err == nil && n >= 0
}

// setTimer completes the key that hide made, when the store has given queue offset and time. It runs under
// the log's append lock. A delay counts from the message's store timestamp, or from the clock when that was
// set back.
func setTimer(w *store.Write) {
	key := w.State[0].Key
	m := &w.Messages[0]
	if key[8] != timerLevel {
		from := m.StoreTimestamp
		if now := time.Now().UnixMilli(); from > now+maxClockSkewMillis {
			from = now
		}
		binary.BigEndian.PutUint64(key, uint64(from+int64(binary.BigEndian.Uint64(key))))
	}
	binary.BigEndian.PutUint64(key[9:], uint64(m.QueueOffset))
}
