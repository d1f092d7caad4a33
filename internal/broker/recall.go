// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"encoding/base64"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/roquetmq/roquet/internal/message"
)

const (
	recallVersion = "v1"

	// maxRecallCandidates bounds the messages of one unique key that are looked at.
	maxRecallCandidates = 64
)

// RecallHandle names a message that waits for its time. Source: RecallMessageHandle.java.
type RecallHandle struct {
	Topic      string
	BrokerName string
	DueMillis  int64
	UniqueKey  string
}

// String returns the handle as clients keep it: base64url of its parts, with a space between them.
func (h RecallHandle) String() string {
	due := strconv.FormatInt(h.DueMillis, 10)
	text := recallVersion + " " + h.Topic + " " + h.BrokerName + " " + due + " " + h.UniqueKey
	return base64.URLEncoding.EncodeToString([]byte(text))
}

// ParseRecallHandle reads what String made, with or without padding. Errors: IllegalOperation.
func ParseRecallHandle(text string) (RecallHandle, error) {
	bad := refuse(IllegalOperation, "recall handle is invalid")
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(text, "="))
	parts := strings.Split(string(raw), " ")
	if err != nil || len(parts) < 5 || parts[0] != recallVersion {
		return RecallHandle{}, bad
	}
	due, err := strconv.ParseInt(parts[3], 10, 64)
	if err != nil || parts[4] == "" {
		return RecallHandle{}, bad
	}
	return RecallHandle{Topic: parts[1], BrokerName: parts[2], DueMillis: due, UniqueKey: parts[4]}, nil
}

// due is when the message is due, as errors tell it.
func (h RecallHandle) due() string { return time.UnixMilli(h.DueMillis).UTC().Format(time.RFC3339Nano) }

// KeyIndex finds stored messages by key. *store.Store is one.
type KeyIndex interface {
	ByKey(topic, key string, unique bool, limit int, begin, end int64) ([]message.Record, error)
}

// Recalls calls back messages that wait for a delivery time of their own. All methods are safe for concurrent
// use and none waits. Source: RecallMessageProcessor.java. Known differences: on by default; the message is
// ended at once, where the original stores another one that cancels it; a message that never was is an error.
type Recalls struct {
	brokerName string
	topics     *Topics
	delays     *Delays
	keys       KeyIndex
	disabled   atomic.Bool
}

// NewRecalls returns Recalls of what waits in delays. Handles must name the broker.
func NewRecalls(brokerName string, topics *Topics, delays *Delays, keys KeyIndex) *Recalls {
	return &Recalls{brokerName: brokerName, topics: topics, delays: delays, keys: keys}
}

// SetDisabled changes whether recalls are refused: recallMessageEnable=false.
func (r *Recalls) SetDisabled(disabled bool) { r.disabled.Store(disabled) }

// Recall calls back the message that handle names, which must be of topic. done is called exactly once, at
// once or later by the store's applier: with the message's unique key when it will not be delivered, which is
// durable then; also when it had been called back before. Errors: *Refusal and those of the store.
func (r *Recalls) Recall(topic, handle string, done func(uniqueKey string, err error)) {
	h, err := r.check(topic, handle, time.Now())
	if err != nil {
		done("", err)
		return
	}
	r.cancel(h.Topic, h.UniqueKey, h.DueMillis, func(found bool, err error) {
		switch {
		case err == nil && !found:
			err = refuse(IllegalOperation, "recall failed, no message %s is waiting for %s", h.UniqueKey, h.due())
		case errors.Is(err, errTimerGone) && r.delays.hasPassed(h.DueMillis):
			err = refuse(IllegalOperation, "recall failed, message %s was delivered at %s", h.UniqueKey, h.due())
		case errors.Is(err, errTimerGone):
			err = nil // it was called back before
		}
		if err != nil {
			done("", err)
			return
		}
		done(h.UniqueKey, nil)
	})
}

// check checks in the original's order.
func (r *Recalls) check(topic, handle string, now time.Time) (h RecallHandle, err error) {
	if r.disabled.Load() {
		return h, refuse(NoPermission, "recall failed, operation is forbidden: recallMessageEnable is false")
	}
	if _, ok := r.topics.Lookup(topic); !ok {
		return h, NoTopic(topic)
	}
	if h, err = ParseRecallHandle(handle); err != nil {
		return h, err
	}
	left := h.DueMillis - now.UnixMilli()
	switch {
	case h.Topic != topic:
		err = refuse(IllegalOperation, "recall failed, topic not match: the handle is of topic %s", h.Topic)
	case h.BrokerName != r.brokerName:
		err = refuse(IllegalOperation, "recall failed, broker service not available: the handle is of broker %s",
			h.BrokerName)
	case left <= 0 || left > TimerMaxDelay.Milliseconds():
		err = refuse(IllegalOperation, "recall failed, timestamp invalid: %s is not within the next %s",
			h.due(), timerMaxDays)
	}
	return h, err
}

// cancelMessage is what a message with TIMER_DEL_UNIQKEY asks for: it calls back the message of that unique
// key, or of topic+"+"+key, that waits for topic. done gets nil when nothing waits. Source:
// TimerMessageStore.java buildDeleteKey.
func (r *Recalls) cancelMessage(topic, name string, done func(error)) {
	key, _ := strings.CutPrefix(name, topic+"+")
	r.cancel(strings.Clone(topic), strings.Clone(key), 0, func(_ bool, err error) {
		if errors.Is(err, errTimerGone) {
			err = nil
		}
		done(err)
	})
}

// cancel ends the timers of messages of the unique key that wait for topic, and are due at the given time
// unless that is 0. done gets whether there are such messages at all, and errTimerGone when none of them
// waits any more.
func (r *Recalls) cancel(topic, uniqueKey string, due int64, done func(found bool, err error)) {
	tried, err := r.find(topic, uniqueKey, due)
	if len(tried) == 0 {
		done(false, err)
		return
	}
	r.cancelNext(tried, errTimerGone, func(err error) {
		if !errors.Is(err, errTimerGone) {
			done(true, err)
			return
		}
		// Retention may have moved the message while this looked for it.
		again, _ := r.find(topic, uniqueKey, due) // what cannot be read was not found before either
		again = slices.DeleteFunc(again, func(k timerKey) bool { return slices.Contains(tried, k) })
		r.cancelNext(again, errTimerGone, func(err error) { done(true, err) })
	})
}

// find returns the timers of such messages, alive or not.
func (r *Recalls) find(topic, uniqueKey string, due int64) (waiting []timerKey, err error) {
	recs, err := r.keys.ByKey(TimerTopic, uniqueKey, true, maxRecallCandidates, 0, math.MaxInt64)
	for _, rec := range recs {
		if k, ok := timerOf(rec, topic); ok && (due == 0 || due == k.due) {
			waiting = append(waiting, k)
		}
	}
	return waiting, err
}

// cancelNext ends the timers one after the other. soFar is nil once one was ended.
func (r *Recalls) cancelNext(waiting []timerKey, soFar error, done func(err error)) {
	if len(waiting) == 0 {
		done(soFar)
		return
	}
	r.delays.cancel(waiting[0], func(err error) {
		switch {
		case err == nil:
			soFar = nil
		case !errors.Is(err, errTimerGone):
			done(err)
			return
		}
		r.cancelNext(waiting[1:], soFar, done)
	})
}

// timerOf returns the timer of a message of the timer topic that is going to topic.
func timerOf(rec message.Record, topic string) (timerKey, bool) {
	props := rec.Properties()
	out, _ := message.Property(props, message.PropertyTimerOutMillis)
	due, err := strconv.ParseInt(out, 10, 64)
	going, _, ok := destination(props)
	return timerKey{due: due, offset: rec.QueueOffset(), level: timerLevel}, ok && err == nil && going == topic
}
