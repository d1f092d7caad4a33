// SPDX-License-Identifier: Apache-2.0

package due

import (
	"context"
	"time"
)

// maxSleep bounds a sleep while something is due, so that a clock that was set is noticed: timers do not follow it.
const maxSleep = time.Second

// Bell wakes who sleeps by it; one ring is kept until then.
type Bell chan struct{}

// NewBell returns a Bell.
func NewBell() Bell { return make(Bell, 1) }

// Ring ends the sleep, or the next one when nobody sleeps.
func (b Bell) Ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// Sleep waits until the clock shows until (ms), or the bell rings; false when ctx is done.
func (b Bell) Sleep(ctx context.Context, until int64) bool {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if until == Never {
			timer.Stop()
		} else {
			timer.Reset(min(time.Until(time.UnixMilli(until)), maxSleep))
		}
		select {
		case <-ctx.Done():
			return false
		case <-b:
			return true
		case <-timer.C:
			if time.Now().UnixMilli() >= until {
				return true
			}
		}
	}
}
