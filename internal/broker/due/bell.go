// SPDX-License-Identifier: Apache-2.0

package due

import (
	"context"
	"time"
)

// maxSleep bounds a sleep while something is due, so that a clock that was set is noticed: timers do not follow it.
const maxSleep = time.Second

// Bell wakes the one who sleeps by it; one ring is kept until then.
type Bell struct {
	rung  chan struct{}
	timer *time.Timer // of the one who sleeps, used again: a sleep allocates nothing
}

// NewBell returns a Bell.
func NewBell() *Bell { return &Bell{rung: make(chan struct{}, 1)} }

// Rung gets a value when the bell rings, for who does not Sleep.
func (b *Bell) Rung() <-chan struct{} { return b.rung }

// Ring ends the sleep, or the next one when nobody sleeps.
func (b *Bell) Ring() {
	select {
	case b.rung <- struct{}{}:
	default:
	}
}

// Sleep waits until the clock shows until (ms), or the bell rings; false when ctx is done.
func (b *Bell) Sleep(ctx context.Context, until int64) bool {
	if b.timer == nil {
		b.timer = time.NewTimer(time.Hour)
	}
	defer b.timer.Stop()
	for {
		if until == Never {
			b.timer.Stop()
		} else {
			b.timer.Reset(min(time.Until(time.UnixMilli(until)), maxSleep))
		}
		select {
		case <-ctx.Done():
			return false
		case <-b.rung:
			return true
		case <-b.timer.C:
			if time.Now().UnixMilli() >= until {
				return true
			}
		}
	}
}
