// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"strconv"
	"time"

	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// TimerMaxDelay is how far ahead a message may ask to be delivered, through whatever door it comes.
const TimerMaxDelay = 40 * 24 * time.Hour

// inDays writes whole days as such.
func inDays(d time.Duration) string {
	const day = 24 * time.Hour
	if d%day != 0 {
		return d.String()
	}
	return strconv.FormatInt(int64(d/day), 10) + " days"
}

// timerProperty is which property asks for a delivery time. When there are several the greatest counts.
// Source: HookUtils.java transformTimerMessage.
type timerProperty uint8

const (
	timerNone timerProperty = iota
	timerDeliverMillis
	timerDelayMillis
	timerDelaySeconds
)

func (p timerProperty) String() string {
	return [...]string{
		timerNone: "", timerDeliverMillis: message.PropertyTimerDeliverMillis,
		timerDelayMillis: message.PropertyTimerDelayMillis, timerDelaySeconds: message.PropertyTimerDelaySeconds,
	}[p]
}

// timerRequest is the delivery time that a message asks for.
type timerRequest struct {
	by    timerProperty
	value string
}

// note takes a property into account.
func (r *timerRequest) note(by timerProperty, value string) {
	if by >= r.by {
		r.by, r.value = by, value
	}
}

// refuse refuses the delivery time: with the original's remark, property, value and limit.
func (r timerRequest) refuse(limit time.Duration, reason string) error {
	return refuse(IllegalMessage,
		"timer message illegal, the delay time should not be bigger than the max delay %dms (%s): %s %q %s",
		limit.Milliseconds(), inDays(limit), r.by, r.value, reason)
}

// due returns when the message is due, in ms; now or earlier means at once. The longest delay accepted is
// limit. Errors: IllegalMessage. Known difference: the original delivers what is negative or overflows at once.
func (r timerRequest) due(now time.Time, limit time.Duration) (int64, error) {
	n, err := strconv.ParseInt(r.value, 10, 64)
	switch {
	case n < 0:
		return 0, r.refuse(limit, "is negative")
	case err != nil && n != 0: // ParseInt's answer when the number is too large
		return 0, r.refuse(limit, "is too far ahead")
	case err != nil:
		return 0, r.refuse(limit, "is not a whole number")
	}
	at, unit := now.UnixMilli(), int64(1)
	if r.by == timerDeliverMillis {
		if n-at > limit.Milliseconds() {
			return 0, r.refuse(limit, "is too far ahead")
		}
		return n, nil
	}
	if r.by == timerDelaySeconds {
		unit = time.Second.Milliseconds()
	}
	if n > limit.Milliseconds()/unit {
		return 0, r.refuse(limit, "is too far ahead")
	}
	return at + n*unit, nil
}

// timing is what decides when a message is delivered.
type timing struct {
	levels DelayLevels
	limit  time.Duration // of timers
}

func newTiming(levels DelayLevels) timing {
	if levels.Max() == 0 {
		levels = DefaultDelayLevels()
	}
	return timing{levels, TimerMaxDelay}
}

// check refuses a half message's delivery time that cannot be.
func (t timing) check(seen *noted, now time.Time) error {
	if !seen.asksForTime() {
		return nil
	}
	if seen.cancels != "" {
		return illegal("property "+message.PropertyTimerDelUniqueKey, "calls nothing back in a transaction")
	}
	_, err := seen.timer.due(now, t.limit)
	return err
}

// place makes m, the only message of w and on its way to its topic, wait when it asks for that. It returns
// when m is due (ms) if it asked for a time of its own and waits, else 0. A delay level wins over a time.
func (t timing) place(w *store.Write, m *message.Message, seen *noted, now time.Time) (due int64, err error) {
	if level := t.levels.Clamp(seen.delayLevel); level > 0 {
		park(w, m, level, t.levels.Delay(level))
		return 0, nil
	}
	if !seen.asksForTime() {
		return 0, nil
	}
	due, err = seen.timer.due(now, t.limit)
	switch {
	case err != nil:
		return 0, err
	case due > now.UnixMilli():
		parkUntil(w, m, due)
		return due, nil
	case seen.cancels != "":
		return 0, seen.timer.refuse(t.limit,
			"is over, and what "+message.PropertyTimerDelUniqueKey+" names cannot be called back")
	}
	return 0, nil
}
