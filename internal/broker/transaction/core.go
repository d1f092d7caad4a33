// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/roquetmq/roquet/internal/broker/due"
	"github.com/roquetmq/roquet/internal/message"
)

// Defaults of Config. Source: BrokerConfig.java, MessageStoreConfig.java fileReservedTime.
const (
	DefaultTimeout   = 6 * time.Second
	DefaultInterval  = 30 * time.Second
	DefaultMaxChecks = 15
	DefaultMaxAge    = 72 * time.Hour

	defaultMaxBusy = 32
	retryAfter     = time.Second // something could not be done

	// maxStepBack is by how much the clock may go back before that counts as having been set back.
	maxStepBack = time.Second
)

// Config says when half messages are asked about. Zero values are the defaults.
type Config struct {
	Timeout   time.Duration // age at which one is first asked about: transactionTimeOut
	Interval  time.Duration // from one check to the next: transactionCheckInterval
	MaxChecks int           // so many checks, then it is parked: transactionCheckMax
	MaxAge    time.Duration // so old, and it is parked without another check
	// MaxBusy bounds the checks and parkings that are on their way at once. Default 32.
	MaxBusy int
}

func (c *Config) setDefaults() {
	c.Timeout = cmp.Or(max(c.Timeout, 0), DefaultTimeout)
	c.Interval = cmp.Or(max(c.Interval, 0), DefaultInterval)
	c.MaxChecks = cmp.Or(max(c.MaxChecks, 0), DefaultMaxChecks)
	c.MaxAge = cmp.Or(max(c.MaxAge, 0), DefaultMaxAge)
	c.MaxBusy = cmp.Or(max(c.MaxBusy, 0), defaultMaxBusy)
}

// EventKind is what happened.
type EventKind uint8

// What can happen.
const (
	Tick     EventKind = iota // time has passed
	Stored                    // a half message, or a change of what is remembered of it, is durable: Half
	Deleted                   // it is open no more, durably: Offset
	Claim                     // someone wants to hold it: Offset, Ticket
	Finished                  // its holder is done with it: Offset, Outcome
)

// Outcome is how an action or a claim ended.
type Outcome uint8

// How it ended.
const (
	Done       Outcome = iota // what was to be done is durable
	Failed                    // it could not be done: try again soon
	NoProducer                // there is nobody to ask: try again when the next check is due; it does not count
	Unreadable                // the message cannot be read: it is not looked at any more until a restart
)

// Event is what happened.
type Event struct {
	Kind    EventKind
	Outcome Outcome
	Offset  message.QueueOffset
	Half    Half
	Ticket  any // the claimer's own
}

// ActionKind is what is to be done.
type ActionKind uint8

// What can be to do. Check and Park hold the half message until Finished.
const (
	// Check: store Half, whose Checks and LastCheck are set, and then ask a producer.
	Check ActionKind = iota
	// Park: move the half message out of the way; Half says how old it is and how often it was asked about.
	Park
	// Grant: Ticket holds the half message now, and must be Finished.
	Grant
	// Gone: there is no such open half message; Ticket holds nothing.
	Gone
)

// Action is what the owner has to do.
type Action struct {
	Kind   ActionKind
	Half   Half
	Ticket any
}

// Core is the open half messages. It is not safe for concurrent use.
type Core struct {
	cfg  Config
	open map[message.QueueOffset]*entry
	due  due.Heap[*entry] // entries that nobody holds and that are looked at again
	busy int              // checks and parkings on their way
	last int64            // ms, the greatest time seen
}

// entry is one open half message. It is in the heap only while nobody holds it.
type entry struct {
	due.Slot

	half    Half
	held    holder
	waiting []any // tickets, in order
}

type holder uint8

const (
	heldByNobody holder = iota
	heldByAction
	heldByTicket
)

// New returns a Core without half messages.
func New(cfg Config) *Core {
	c := &Core{open: map[message.QueueOffset]*entry{}}
	c.Configure(cfg)
	return c
}

// Configure takes another configuration over: what is open, and nobody holds, is looked at by that from now on.
func (c *Core) Configure(cfg Config) {
	if cfg.setDefaults(); cfg == c.cfg {
		return // a change of other settings
	}
	c.cfg = cfg
	for _, e := range c.open {
		if e.Due() != never {
			c.schedule(e, e.half.due(&c.cfg))
		}
	}
}

// Timeout returns the age at which a half message is first asked about that names none itself.
func (c *Core) Timeout() time.Duration { return c.cfg.Timeout }

// Open returns the open half message at offset.
func (c *Core) Open(offset message.QueueOffset) (Half, bool) {
	e := c.open[offset]
	if e == nil {
		return Half{}, false
	}
	return e.half, true
}

// Offsets returns where the open half messages are, in no order.
func (c *Core) Offsets() []message.QueueOffset {
	return slices.Collect(maps.Keys(c.open))
}

// Next returns when a Tick has something to do, in ms; ok is false when only another event can bring
// something.
func (c *Core) Next() (millis int64, ok bool) {
	if len(c.due) == 0 || c.busy >= c.cfg.MaxBusy {
		return 0, false
	}
	return c.due.Due(), true
}

// Step takes what happened and the time at which it happened, and returns what must be done, in this order.
func (c *Core) Step(now time.Time, ev Event) []Action {
	at := c.advance(now.UnixMilli())
	switch ev.Kind {
	case Stored:
		c.stored(at, ev.Half)
	case Deleted:
		return c.deleted(ev.Offset)
	case Claim:
		return c.claim(ev.Offset, ev.Ticket)
	case Finished:
		return c.finished(at, ev.Offset, ev.Outcome)
	case Tick:
		return c.tick(at)
	}
	return nil
}

// advance takes note of the time. When the clock was set back, ages and times go back with it: nobody waits
// longer.
func (c *Core) advance(now int64) int64 {
	if back := now - c.last; back < -maxStepBack.Milliseconds() {
		for _, e := range c.open {
			if at := e.Due(); at != never {
				c.schedule(e, at+back)
			}
			e.half.Since += back
			if e.half.LastCheck != 0 {
				e.half.LastCheck += back
			}
		}
		c.last = now
	}
	c.last = max(c.last, now)
	return now
}

func (c *Core) stored(now int64, half Half) {
	// What is younger than now was stored before the clock was set back.
	half.Since, half.LastCheck = min(half.Since, now), min(half.LastCheck, now)
	e := c.open[half.Offset]
	if e == nil {
		e = &entry{}
		c.open[half.Offset] = e
	}
	e.half = half
	if e.held == heldByNobody {
		c.schedule(e, half.due(&c.cfg))
	}
}

func (c *Core) deleted(offset message.QueueOffset) (actions []Action) {
	e := c.open[offset]
	if e == nil {
		return nil
	}
	c.letGo(e)
	c.due.Set(e, never, 0)
	delete(c.open, offset)
	for _, ticket := range e.waiting {
		actions = append(actions, Action{Kind: Gone, Half: e.half, Ticket: ticket})
	}
	return actions
}

func (c *Core) claim(offset message.QueueOffset, ticket any) []Action {
	e := c.open[offset]
	switch {
	case e == nil:
		return []Action{{Kind: Gone, Half: Half{Offset: offset}, Ticket: ticket}}
	case e.held != heldByNobody:
		e.waiting = append(e.waiting, ticket)
		return nil
	}
	return c.grant(e, ticket)
}

func (c *Core) grant(e *entry, ticket any) []Action {
	c.due.Set(e, never, 0)
	e.held = heldByTicket
	return []Action{{Kind: Grant, Half: e.half, Ticket: ticket}}
}

// letGo ends whoever holds the half message.
func (c *Core) letGo(e *entry) {
	if e.held == heldByAction {
		c.busy--
	}
	e.held = heldByNobody
}

func (c *Core) finished(now int64, offset message.QueueOffset, outcome Outcome) []Action {
	e := c.open[offset]
	if e == nil || e.held == heldByNobody {
		return nil // it was deleted: that ended everything
	}
	c.letGo(e)
	next := e.half.due(&c.cfg)
	switch outcome {
	case Done:
	case Failed:
		next = max(next, now+retryAfter.Milliseconds())
	case NoProducer:
		next = min(now+c.cfg.Interval.Milliseconds(), max(now, e.half.Since+c.cfg.MaxAge.Milliseconds()+1))
	case Unreadable:
		next = never
	}
	if len(e.waiting) > 0 {
		ticket := e.waiting[0]
		e.waiting = e.waiting[1:]
		return c.grant(e, ticket)
	}
	c.schedule(e, next)
	return nil
}

// tick takes up what is due, as much as may be on its way at once.
func (c *Core) tick(now int64) (actions []Action) {
	for c.busy < c.cfg.MaxBusy && c.due.Due() <= now {
		e := c.due[0]
		c.due.Set(e, never, 0)
		e.held = heldByAction
		c.busy++
		if e.half.Checks >= c.cfg.MaxChecks || now-e.half.Since > c.cfg.MaxAge.Milliseconds() {
			actions = append(actions, Action{Kind: Park, Half: e.half})
			continue
		}
		asked := e.half
		asked.Checks++
		asked.LastCheck = now
		actions = append(actions, Action{Kind: Check, Half: asked})
	}
	return actions
}

// never is the time of what is not looked at any more.
const never = due.Never

func (c *Core) schedule(e *entry, next int64) { c.due.Set(e, next, int64(e.half.Offset)) }
