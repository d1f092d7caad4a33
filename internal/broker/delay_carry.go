// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// What is carried forward in one Write, and how much is looked for at once.
const (
	maxCarryBytes = 1 << 20
	maxCarryCount = 1024
)

// CarryForward appends again every message that still waits and lies in front of cut, under a new queue
// offset, with its timer, so that the log in front of cut can be dropped. It returns when all that is
// durable. Deliveries go on meanwhile: each message is either delivered or carried forward.
func (d *Delays) CarryForward(ctx context.Context, cut message.LogOffset) error {
	stop := context.AfterFunc(ctx, func() {
		d.mu.Lock()
		d.mu.free.Broadcast()
		d.mu.Unlock()
	})
	defer stop()
	pass := carryPass{cut: cut, behind: map[uint8]message.QueueOffset{}}
	for {
		found, more, err := d.before(&pass)
		if err != nil {
			return err
		}
		mine := d.claim(found)
		pass.passedOver += len(found) - len(mine)
		if err := ctx.Err(); err != nil {
			d.free(mine, false, 0)
			return fmt.Errorf("carry delayed messages forward: %w", err)
		}
		if err := d.carry(mine); err != nil {
			return fmt.Errorf("carry delayed messages forward: %w", err)
		}
		if more {
			continue
		}
		if pass.passedOver == 0 {
			return nil
		}
		d.awaitFree(ctx, len(mine) == 0)
		pass.from, pass.passedOver = nil, 0 // those that were being delivered: once more from the beginning
	}
}

// carryPass is how far one pass over the timers is.
type carryPass struct {
	cut        message.LogOffset
	from       []byte
	behind     map[uint8]message.QueueOffset // by level, an offset that is known to lie behind cut
	passedOver int                           // timers that were taken
}

// before returns timers, at most maxCarryCount, whose messages lie in front of cut, in the order in which
// they lie, and whether there may be more.
func (d *Delays) before(p *carryPass) (found []timerKey, more bool, err error) {
	for st, err := range d.log.StatesIn(message.SpaceTimer, bytes.Clone(p.from), nil) {
		if err != nil {
			return nil, false, err
		}
		if len(found) == maxCarryCount {
			p.from, more = append(p.from[:0], st.Key...), true
			break
		}
		k, ok := decodeTimerKey(st.Key)
		if known, seen := p.behind[k.level]; !ok || seen && k.offset >= known {
			continue
		}
		topic, queueID := k.queue()
		rec, readErr := d.log.At(topic, queueID, k.offset)
		switch {
		case readErr != nil: // what cannot be read cannot be carried: its delivery reports it
		case rec.LogOffset() >= p.cut:
			p.behind[k.level] = k.offset
		default:
			found = append(found, k)
		}
	}
	slices.SortFunc(found, compareStored)
	return found, more, nil
}

// claim takes up those of found that are not being delivered.
func (d *Delays) claim(found []timerKey) []timerKey {
	d.mu.Lock()
	defer d.mu.Unlock()
	mine := found[:0:0]
	for _, k := range found {
		if d.mu.due.take(k) {
			mine = append(mine, k)
		}
	}
	return mine
}

// awaitFree waits, if wait is set, until a timer that was taken is settled.
func (d *Delays) awaitFree(ctx context.Context, wait bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if wait && len(d.mu.due.taken) > 0 && ctx.Err() == nil {
		d.mu.free.Wait()
	}
}

// free lets go of timers that were taken: they are gone, or have to be looked for again, not before resume (ms).
func (d *Delays) free(keys []timerKey, gone bool, resume int64) {
	d.mu.Lock()
	for _, k := range keys {
		if gone {
			d.mu.due.settle(k)
		} else {
			d.mu.due.release(k, resume)
		}
	}
	d.mu.free.Broadcast()
	waited := len(d.mu.later) > 0
	d.mu.Unlock()
	if waited || !gone {
		d.bell.Ring()
	}
}

// stateOf returns where the message of a timer is going, and whether the timer is still there. For one that
// is taken the answer holds.
func (d *Delays) stateOf(k timerKey) (topic []byte, found bool, err error) {
	for st, err := range d.log.StatesIn(message.SpaceTimer, k.encode(), append(k.encode(), 0)) {
		return bytes.Clone(st.Value), err == nil, err
	}
	return nil, false, nil
}

// carry appends the messages of keys, which are taken, with their timers, and waits until that is durable.
func (d *Delays) carry(keys []timerKey) error {
	for len(keys) > 0 {
		w, n, err := d.carryWrite(keys)
		if err == nil && len(w.Messages) > 0 {
			err = store.AppendAndWait(d.log, w)
		}
		if err != nil {
			d.free(keys, false, 0)
			return err
		}
		d.free(keys[:n], true, 0)
		d.ahead.take(keys[:n]...)
		keys = keys[n:]
	}
	return nil
}

// carryWrite makes the Write that carries the first n of keys forward, but for those that were delivered before
// they were claimed.
func (d *Delays) carryWrite(keys []timerKey) (w *store.Write, n int, err error) {
	w = &store.Write{Assigned: setCarried, Reserve: true}
	for size := 0; n < len(keys) && size < maxCarryBytes; n++ {
		k := keys[n]
		topic, live, err := d.stateOf(k)
		if err != nil {
			return w, n, err
		}
		if !live {
			continue
		}
		m, err := d.waiting(k)
		if err != nil {
			return w, n, err
		}
		size += m.EncodedLen()
		w.Messages = append(w.Messages, m)
		w.State = append(w.State, k.end(topic), k.set(topic))
	}
	return w, n, nil
}

// waiting returns the message of a timer as it waits.
func (d *Delays) waiting(k timerKey) (message.Message, error) {
	topic, queueID := k.queue()
	rec, err := d.log.At(topic, queueID, k.offset)
	if err != nil {
		return message.Message{}, errors.Join(errors.New("read a waiting message"), err)
	}
	return message.Decode(rec)
}

// setCarried gives each new timer the queue offset of its message. It runs under the log's append lock.
func setCarried(w *store.Write) {
	for i := range w.Messages {
		binary.BigEndian.PutUint64(w.State[2*i+1].Key[9:], uint64(w.Messages[i].QueueOffset))
	}
}
