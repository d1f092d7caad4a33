// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roquetmq/roquet/internal/broker/due"
	"github.com/roquetmq/roquet/internal/message"
)

const (
	// Messages are read aheadLead before they are due, for aheadStep at a time, so many and so many bytes at
	// most.
	aheadLead     = 2 * time.Second
	aheadStep     = 500 * time.Millisecond
	maxAheadCount = 16384
	maxAheadBytes = 32 << 20
)

// readAhead holds messages that will be due soon, ready to be delivered. Messages that are due together may
// lie anywhere in the log, and reading them one by one when they are due takes longer than 20,000 a second
// allow; read in the order in which they lie, some seconds' worth at a time, they cost little. It is a help
// and no more: what is not in it is read when it is due.
type readAhead struct {
	bell    *due.Bell
	horizon atomic.Int64 // ms: what is due up to here has been looked for
	next    atomic.Int64 // ms: when the first is due beyond, as far as is known

	mu struct {
		sync.Mutex
		ready map[timerKey]*message.Message
		bytes int
	}
}

func newReadAhead() *readAhead {
	a := &readAhead{bell: due.NewBell()}
	a.mu.ready = map[timerKey]*message.Message{}
	return a
}

// note takes note of a new timer. One that is due within the horizon was stored just now: it is still in
// memory.
func (a *readAhead) note(due int64) {
	if due <= a.horizon.Load() || due >= a.next.Load() {
		return
	}
	a.next.Store(due)
	a.bell.Ring()
}

// take returns the messages of timers, nil for those that are not there, and lets go of them.
func (a *readAhead) take(keys ...timerKey) []*message.Message {
	found := make([]*message.Message, len(keys))
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, k := range keys {
		if m := a.mu.ready[k]; m != nil {
			found[i] = m
			a.mu.bytes -= m.EncodedLen()
			delete(a.mu.ready, k)
		}
	}
	return found
}

// put keeps a message and reports whether there is room for more.
func (a *readAhead) put(k timerKey, m *message.Message) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.ready[k] == nil {
		a.mu.ready[k] = m
		a.mu.bytes += m.EncodedLen()
	}
	return a.mu.bytes < maxAheadBytes
}

// wakeAt returns when to look again (ms) after a look at now.
func (a *readAhead) wakeAt(now time.Time) int64 {
	next := a.next.Load()
	if next == never {
		return never
	}
	return max(now.Add(aheadStep).UnixMilli(), next-aheadLead.Milliseconds())
}

// sweep lets go of messages that should have been taken long ago: their timers are gone.
func (a *readAhead) sweep(before int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for k, m := range a.mu.ready {
		if k.due < before {
			a.mu.bytes -= m.EncodedLen()
			delete(a.mu.ready, k)
		}
	}
}

// readAhead reads what will be due, until ctx is done, which is no error.
func (d *Delays) readAhead(ctx context.Context) error {
	a := d.ahead
	for {
		now := time.Now()
		a.sweep(now.Add(-2 * aheadLead).UnixMilli())
		d.readAheadOf(ctx, now)
		for looking := true; looking; looking = time.Now().UnixMilli() < a.wakeAt(now) {
			if !a.bell.Sleep(ctx, a.wakeAt(now)) {
				return nil
			}
		}
	}
}

// readAheadOf reads what is due until aheadLead from now and has not been looked for. What is due already is
// left to who delivers it.
func (d *Delays) readAheadOf(ctx context.Context, now time.Time) {
	a := d.ahead
	low, high := now.UnixMilli()+1, now.Add(aheadLead).UnixMilli()
	if horizon := a.horizon.Load(); horizon < high+aheadLead.Milliseconds() { // else the clock was set back
		low = max(low, horizon+1)
	}
	from := timerKey{due: low}.encode()
	next := high + 1
	for more, goOn := true, true; more && goOn; {
		var found []timerKey
		var beyond int64
		var err error
		if found, more, beyond, err = d.look(from, high, maxAheadCount); err != nil {
			d.logger.Warn("timers cannot be read ahead", "error", err)
			break
		}
		if more {
			from = append(found[len(found)-1].encode(), 0)
		} else {
			next = beyond
		}
		goOn = d.readInOrder(ctx, found)
	}
	a.horizon.Store(high)
	a.next.Store(next)
}

// readInOrder reads messages in the order in which they lie in the log, and reports whether there is room for more.
// What cannot be read is left to who delivers it.
func (d *Delays) readInOrder(ctx context.Context, found []timerKey) (roomy bool) {
	slices.SortFunc(found, compareStored)
	for _, k := range found {
		m, err := d.read(k, true)
		if err == nil && !d.ahead.put(k, m) || ctx.Err() != nil {
			return false
		}
	}
	return true
}
