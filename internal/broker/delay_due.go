// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"bytes"
	"math"
)

// never is the time of nothing to do.
const never = math.MaxInt64

// dueKeys is which timers have been taken up, and when to look for more. It has no clock and does no I/O: the
// timers themselves are state records, in the order in which they are due, and each look begins at low.
//
// Invariant: a live timer whose key is below low is taken, or was added during the look that is going on.
type dueKeys struct {
	low     []byte                // nil: the beginning
	taken   map[timerKey]struct{} // being delivered or carried forward
	until   int64                 // ms: what is due before wakes the one who looks; 0 while there is no need
	resume  int64                 // ms: no look before it, after a failure
	looking bool
	added   []byte // the lowest key added since the look began
}

func newDueKeys() dueKeys { return dueKeys{taken: map[timerKey]struct{}{}} }

// add notes a new timer and reports whether it has to be looked for at once.
func (d *dueKeys) add(k timerKey, key []byte) bool {
	if d.looking {
		if d.added == nil || bytes.Compare(key, d.added) < 0 {
			d.added = bytes.Clone(key)
		}
		return true
	}
	if bytes.Compare(key, d.low) < 0 {
		d.low = bytes.Clone(key)
	}
	return k.due < d.until
}

// begin starts a look and returns where; ok is false when there is none to make before next.
func (d *dueKeys) begin(now int64, limit int) (from []byte, next int64, ok bool) {
	if latest := now + deliveryRetry.Milliseconds(); d.resume > latest {
		d.resume = latest // the clock was set back
	}
	switch {
	case d.resume > now:
		d.until = d.resume
		return nil, d.resume, false
	case len(d.taken) >= limit:
		d.until = 0
		return nil, never, false // the end of a delivery wakes
	}
	d.looking, d.added, d.resume = true, nil, 0
	return bytes.Clone(d.low), 0, true
}

// end ends a look that saw every live timer up to now but those behind last, when more is set, and of the
// rest that the first is due at next. It takes up those of found that are not taken and returns them.
func (d *dueKeys) end(found []timerKey, more bool, now, next int64) []timerKey {
	if more {
		d.low = append(found[len(found)-1].encode(), 0)
	} else {
		d.low = timerKey{due: now + 1}.encode()
	}
	if d.added != nil && bytes.Compare(d.added, d.low) < 0 {
		d.low = d.added
	}
	d.looking, d.until = false, next
	fresh := found[:0]
	for _, k := range found {
		if d.take(k) {
			fresh = append(fresh, k)
		}
	}
	return fresh
}

// abort ends a look that failed.
func (d *dueKeys) abort(resume int64) {
	d.looking, d.resume, d.until = false, resume, resume
	if d.added != nil && bytes.Compare(d.added, d.low) < 0 {
		d.low = d.added
	}
}

// take takes k up, unless it is taken already.
func (d *dueKeys) take(k timerKey) bool {
	if _, ok := d.taken[k]; ok {
		return false
	}
	d.taken[k] = struct{}{}
	return true
}

// settle ends what k was taken for: its timer is no more.
func (d *dueKeys) settle(k timerKey) { delete(d.taken, k) }

// release gives k back: its timer lives and has to be looked for again, not before resume.
func (d *dueKeys) release(k timerKey, resume int64) {
	delete(d.taken, k)
	d.resume = max(d.resume, resume)
	d.add(k, k.encode())
}
