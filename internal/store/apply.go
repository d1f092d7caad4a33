// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/roquetmq/roquet/internal/commitlog"
	"github.com/roquetmq/roquet/internal/index"
	"github.com/roquetmq/roquet/internal/message"
)

// applier turns log entries into index. One goroutine at a time uses it: Open while it replays, then the
// log's.
type applier struct {
	store *Store
	mu    sync.Mutex // held while an entry is applied
	hooks [256][]func(message.State)

	// last is the queue of the last message: records of one queue often follow each other.
	last *queue
	// touched are the queues of this entry that somebody waits for.
	touched []*queue
	woken   []*Waiter

	lastTime int64 // ms, the greatest store timestamp seen
}

// apply is the one way from log to index, live and in a replay. What an entry brings is done in record
// order; who waits for a queue is woken once, at the end. An error means that nothing more may be applied; until
// then writes are refused (indexError) and what was accepted before is applied.
func (a *applier) apply(e commitlog.Entry) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.records(e)
	if err != nil {
		err = a.store.fail(fmt.Errorf("entry at log position %d: %w", e.Position, err))
	}
	behind := a.store.db.Checkpoint(e.End)
	switch {
	case a.store.db.Err() != nil: // it may get over it
		a.store.ailing.Store(true)
	case behind != nil:
		behind = a.store.fail(behind)
	}
	a.wakeTouched()
	return errors.Join(err, behind)
}

func (a *applier) records(e commitlog.Entry) error {
	return e.Each(func(pos message.LogOffset, rec []byte) error {
		r := message.Record(rec)
		switch {
		case r.IsMessage():
			return a.applyMessage(pos, r)
		case r.IsState():
			return a.applyState(pos, rec)
		}
		return &message.FormatError{What: "magic", Reason: "is of no record this version knows", At: 4}
	})
}

func (a *applier) applyMessage(pos message.LogOffset, r message.Record) error {
	if !r.IsWhole() {
		return &message.FormatError{What: "message", Reason: "its lengths do not fit together"}
	}
	a.lastTime = max(a.lastTime, r.StoreTimestamp())
	topic, sysFlag := r.Topic(), r.SysFlag()
	props := indexed(r.Properties())
	if message.IsQueued(sysFlag) {
		q := a.queue(topic, r.QueueID())
		q.idx.Load().Add(index.Entry{
			Offset: r.QueueOffset(), Pos: pos, Size: int32(len(r)), TagsCode: message.TagsCode(props.tags),
		})
		if q.waiters.count.Load() > 0 && !q.touched {
			q.touched = true
			a.touched = append(a.touched, q)
		}
	}
	if sysFlag&message.TransactionMask != message.TransactionRollback {
		addKeys(a.store.db.AddKey, &props, topic, pos)
	}
	return nil
}

// queue returns a queue that has an index.
func (a *applier) queue(topic []byte, id int32) *queue {
	q := a.last
	if q == nil || q.key.id != id || q.key.topic != string(topic) {
		q = a.store.queues.lookup(topic, id)
		if q == nil {
			q = a.store.queues.obtain(string(topic), id)
		}
		a.last = q
	}
	if q.idx.Load() == nil {
		q.idx.Store(a.store.db.Queue(q.key.topic, id))
	}
	return q
}

// addKey takes one key of the message at pos.
type addKey func(kind index.KeyKind, topic []byte, key string, pos message.LogOffset)

// messageKeys gives every key of the message rec to add; other records have none.
func messageKeys(add addKey, pos message.LogOffset, rec []byte) {
	r := message.Record(rec)
	if r.IsMessage() && r.IsWhole() && r.SysFlag()&message.TransactionMask != message.TransactionRollback {
		props := indexed(r.Properties())
		addKeys(add, &props, r.Topic(), pos)
	}
}

// addKeys gives every key of a message to add.
func addKeys(add addKey, props *indexedProperties, topic []byte, pos message.LogOffset) {
	if props.uniqueKey != "" {
		add(index.KeyUnique, topic, props.uniqueKey, pos)
	}
	for rest := props.keys; rest != ""; {
		var token string
		token, rest, _ = strings.Cut(rest, " ")
		if token != "" {
			add(index.KeyOrdinary, topic, token, pos)
		}
	}
}

func (a *applier) applyState(pos message.LogOffset, rec []byte) error {
	st, err := message.DecodeState(rec)
	if err != nil {
		return err
	}
	if topic, ok := deletedTopic(&st); ok {
		return a.deleteTopic(topic, pos)
	}
	db := a.store.db
	carried := !st.Delete && a.store.carry.active.Load() && a.isCurrent(&st)
	if st.Delete {
		db.Delete(st.Space, st.Key, pos)
	} else {
		db.Put(st.Space, st.Key, st.Value, pos)
	}
	if key, next, ok := parseFloor(&st); ok && !st.Delete {
		a.queue([]byte(key.topic), key.id).idx.Load().Start(next)
	}
	if carried || isOwn(st.Space, st.Key) {
		return nil
	}
	for _, hook := range a.hooks[st.Space] {
		hook(st)
	}
	return nil
}

// isCurrent reports whether the key has that value already: then retention has only carried it forward,
// which is no change to tell anybody. A table that is ahead of what it has written down must not be thrown
// back.
func (a *applier) isCurrent(st *message.State) bool {
	value, _, ok, err := a.store.db.Get(st.Space, st.Key)
	return err == nil && ok && bytes.Equal(value, st.Value)
}

// deleteTopic drops the topic's queues and their floors, and wakes who waits for them.
func (a *applier) deleteTopic(topic string, pos message.LogOffset) error {
	db, prefix := a.store.db, floorPrefix(topic)
	for floor, err := range db.Scan(message.SpaceBroker, prefix, index.KeyEnd(prefix)) {
		if err != nil {
			return err
		}
		db.Delete(message.SpaceBroker, floor.Key, pos)
	}
	db.DeleteTopic(topic, pos)
	a.last = nil
	a.store.log.WithAppendLock(func() {
		a.store.queues.remove(topic, func(q *queue) bool {
			q.idx.Store(nil)
			if q.gone = a.store.assign.unused(q); q.gone {
				q.waiters.close()
			}
			a.woken = q.waiters.take(math.MaxInt64, a.woken)
			return q.gone
		})
	})
	return nil
}

// wakeTouched wakes who waits for what this entry brought.
func (a *applier) wakeTouched() {
	for i, q := range a.touched {
		a.touched[i], q.touched = nil, false
		a.woken = q.waiters.take(q.next(), a.woken)
	}
	a.touched = a.touched[:0]
	for i, w := range a.woken {
		a.woken[i] = nil
		w.Wake(w)
	}
	a.woken = a.woken[:0]
}

// indexedProperties are the properties that a message is found by.
type indexedProperties struct{ tags, keys, uniqueKey string }

// indexed picks them out of an encoded properties text in one pass. Of a property that occurs twice the
// last one counts.
func indexed(props string) indexedProperties {
	var found indexedProperties
	for len(props) > 0 {
		var entry string
		entry, props, _ = strings.Cut(props, "\x02")
		switch {
		case len(entry) > 5 && entry[4] == '\x01':
			switch entry[:4] {
			case message.PropertyTags:
				found.tags = entry[5:]
			case message.PropertyKeys:
				found.keys = entry[5:]
			}
		case len(entry) > 9 && entry[8] == '\x01' && entry[:8] == message.PropertyUniqueKey:
			found.uniqueKey = entry[9:]
		}
	}
	return found
}
