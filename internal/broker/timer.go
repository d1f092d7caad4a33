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

// timerMaxDays is the same in words.
const timerMaxDays = "40 days"

// timerRequest is the delivery time that a message asks for. When there are several the one with the greatest
// unit counts. Source: HookUtils.java transformTimerMessage.
type timerRequest struct {
	by, value string // the property
	unit      int64  // of a delay, in ms; 0: the value is the time itself
}

// note takes a property into account.
func (r *timerRequest) note(by, value string, unit int64) {
	if unit >= r.unit {
		*r = timerRequest{by, value, unit}
	}
}

// refuse refuses the delivery time: with the original's remark, property, value and limit.
func (r *timerRequest) refuse(reason string) error {
	return refuse(IllegalMessage,
		"timer message illegal, the delay time should not be bigger than the max delay %dms (%s): %s %q %s",
		TimerMaxDelay.Milliseconds(), timerMaxDays, r.by, r.value, reason)
}

// due returns when the message is due, in ms; now or earlier means at once. The longest delay accepted is
// limit. Errors: IllegalMessage. Known difference: the original delivers what is negative or overflows at once.
func (r *timerRequest) due(now time.Time, limit time.Duration) (int64, error) {
	n, err := strconv.ParseInt(r.value, 10, 64) // with an error n is 0, or what is nearest to a number too large
	at, most := now.UnixMilli(), limit.Milliseconds()
	switch {
	case n < 0:
		return 0, r.refuse("is negative")
	case err != nil && n == 0:
		return 0, r.refuse("is not a whole number")
	case err != nil, r.unit == 0 && n-at > most, r.unit > 0 && n > most/r.unit:
		return 0, r.refuse("is too far ahead")
	case r.unit == 0:
		return n, nil
	}
	return at + n*r.unit, nil
}

// asksForTime reports whether the message asks for a delivery time of its own.
func (n *noted) asksForTime() bool { return n.timer.by != "" && !n.timerSet && n.delayLevel <= 0 }

// checkTime refuses a half message's delivery time that cannot be.
func (n *noted) checkTime(now time.Time) error {
	if !n.asksForTime() {
		return nil
	}
	if n.cancels != "" {
		return illegal("property "+message.PropertyTimerDelUniqueKey, "calls nothing back in a transaction")
	}
	_, err := n.timer.due(now, TimerMaxDelay)
	return err
}

// place makes m, the only message of w and on its way to its topic, wait when it asks for that, up to limit. It
// returns when m is due (ms) if it asked for a time of its own and waits, else 0. A delay level wins over a time.
func (n *noted) place(w *store.Write, m *message.Message, levels DelayLevels, now time.Time, limit time.Duration,
) (due int64, err error) {
	if level := levels.Clamp(n.delayLevel); level > 0 {
		park(w, m, level, levels.Delay(level))
		return 0, nil
	}
	if !n.asksForTime() {
		return 0, nil
	}
	due, err = n.timer.due(now, limit)
	switch {
	case err != nil:
		return 0, err
	case due > now.UnixMilli():
		parkUntil(w, m, due)
		return due, nil
	case n.cancels != "":
		return 0, n.timer.refuse("is over, and what " + message.PropertyTimerDelUniqueKey +
			" names cannot be called back")
	}
	return 0, nil
}
