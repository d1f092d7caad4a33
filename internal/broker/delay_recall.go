// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"

	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// errTimerGone says that a timer is not there any more: delivered, called back or carried forward.
var errTimerGone = errors.New("the timer is gone")

// cancel ends a timer without a delivery. done is called exactly once: with nil when that is durable, with
// errTimerGone when there is no such timer, or with the store's error. When the timer is being delivered or
// carried forward at the moment, the answer waits for how that ends. It does not block; done must not either.
func (d *Delays) cancel(k timerKey, done func(error)) {
	d.mu.Lock()
	if stopped := d.mu.stopped; stopped != nil {
		d.mu.Unlock()
		done(stopped)
		return
	}
	if !d.mu.due.take(k) {
		d.mu.later = append(d.mu.later, func(stopped error) {
			if stopped != nil {
				done(stopped)
				return
			}
			d.cancel(k, done)
		})
		d.mu.Unlock()
		return
	}
	d.mu.Unlock()
	d.cancelTaken(k, done)
}

// cancelTaken is cancel of a timer that is taken.
func (d *Delays) cancelTaken(k timerKey, done func(error)) {
	topic, live, err := d.stateOf(k)
	if err == nil && !live {
		err = errTimerGone
	}
	if err != nil {
		d.cancelled(k, err, done)
		return
	}
	w := &store.Write{State: []message.State{k.end(topic)}}
	w.Done = func(_ *store.Write, err error) { d.cancelled(k, err, done) }
	if err := d.log.Append(w); err != nil {
		d.cancelled(k, err, done)
	}
}

// cancelled ends a cancel.
func (d *Delays) cancelled(k timerKey, err error, done func(error)) {
	gone := err == nil || errors.Is(err, errTimerGone)
	if d.free([]timerKey{k}, gone, 0); gone {
		d.ahead.take(k)
	}
	done(err)
}

// hasPassed reports whether what was due at the given time (ms) has been looked for.
func (d *Delays) hasPassed(due int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return due <= d.mu.passed
}
