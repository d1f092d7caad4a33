// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/roquetmq/roquet/internal/broker/due"
	"github.com/roquetmq/roquet/internal/commitlog"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

const (
	// A delivery is one Write of this many messages or bytes; so many messages may be on their way at once.
	maxDeliveryCount = 256
	maxDeliveryBytes = 1 << 20
	maxUndelivered   = 8192
	// maxUndeliveredBytes bounds their bytes, but for the last Write.
	maxUndeliveredBytes = 16 << 20

	// maxLookCount bounds the timers that one look takes up.
	maxLookCount = maxUndelivered / 4

	// deliveryRetry is how long to wait after a Write was refused.
	deliveryRetry = time.Second

	// deliveryGap is the least time from one look to the next that only time brings: what is due in between
	// goes together, which costs a third under load.
	deliveryGap = 5 * time.Millisecond
)

// TimerLog is what Delays needs of the store. *store.Store is one.
type TimerLog interface {
	Append(w *store.Write) error
	At(topic string, queueID int32, off message.QueueOffset) (message.Record, error)
	StatesIn(space message.Space, from, to []byte) iter.Seq2[message.State, error]
}

// Delays delivers messages that wait in the schedule and the timer topic when they are due. A timer is a
// state record; the message's copy for its real topic and the deletion of the timer are one Write, so that a
// message is delivered exactly once, whenever the broker dies. Timers whose time passed while it was down are
// delivered at the start. All methods are safe for concurrent use.
//
// Source: ScheduleMessageService.java, TimerMessageStore.java. Known differences: no polling, exactly once,
// to the millisecond, and a message whose topic was deleted meanwhile is dropped, with a warning.
type Delays struct {
	topics *Topics
	stats  *Stats
	log    TimerLog
	logger *slog.Logger
	bell   *due.Bell // something to look at, before the time slept until
	ahead  *readAhead
	spare  sync.Pool // *delivery

	mu struct {
		sync.Mutex
		due     dueKeys
		free    *sync.Cond // a taken key was settled
		later   []func(stopped error)
		stopped error      // why nothing is delivered any more
		passed  int64      // ms: what was due before has been looked for
		bytes   int        // of the deliveries that are on their way
		told    DelayStats // but for InFlight, Waiting and Counting
		waiting pendingCount
	}
}

// NewDelays returns Delays over the store's timers. The store's OnState of message.SpaceTimer must be given
// OnTimer, and its OnRetain CarryForward, before the store runs.
func NewDelays(topics *Topics, stats *Stats, log TimerLog, logger *slog.Logger) *Delays {
	d := &Delays{topics: topics, stats: stats, log: log, logger: logger, bell: due.NewBell()}
	d.ahead = newReadAhead()
	d.mu.due = newDueKeys()
	d.mu.free = sync.NewCond(&d.mu.Mutex)
	d.mu.waiting = newPendingCount()
	return d
}

// OnTimer takes note of a timer that was stored or ended. Applier only.
func (d *Delays) OnTimer(st message.State) {
	k, ok := decodeTimerKey(st.Key)
	if !ok {
		return
	}
	d.mu.Lock()
	d.mu.waiting.note(st.Key, st.Value, !st.Delete)
	earlier := !st.Delete && d.mu.due.add(k, st.Key)
	d.mu.Unlock()
	if st.Delete {
		return
	}
	d.ahead.note(k.due)
	if earlier {
		d.bell.Ring()
	}
}

// Run delivers until ctx is done. What it has appended by then is settled by the store.
func (d *Delays) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		for {
			now := time.Now()
			next := d.deliver(now)
			if !d.bell.Sleep(ctx, max(next, now.Add(deliveryGap).UnixMilli())) {
				d.runLater(commitlog.ErrClosed)
				return nil
			}
		}
	})
	g.Go(func() error { return d.readAhead(ctx) })
	g.Go(func() error { return d.count(ctx) })
	return g.Wait()
}

// deliver delivers what is due at now and returns when to look again, in ms; never when only an event can
// bring something.
func (d *Delays) deliver(now time.Time) (next int64) {
	d.runLater(nil)
	begun := time.Now()
	for {
		batch, next := d.collect(now)
		if len(batch) == 0 {
			return next
		}
		d.append(batch, now, begun)
	}
}

// collect takes up timers that are due. With none it returns when to look again.
func (d *Delays) collect(now time.Time) (batch []timerKey, next int64) {
	for more := true; more && len(batch) == 0; {
		d.mu.Lock()
		limit := maxUndelivered
		if d.mu.bytes >= maxUndeliveredBytes {
			limit = 0
		}
		from, pause, ok := d.mu.due.begin(now.UnixMilli(), limit)
		d.mu.Unlock()
		if !ok {
			return nil, pause
		}
		var found []timerKey
		var err error
		found, more, next, err = d.look(from, now.UnixMilli(), maxLookCount)
		if err != nil {
			d.logger.Error("timers cannot be read", "error", err)
			next = now.Add(deliveryRetry).UnixMilli()
			d.mu.Lock()
			d.mu.due.abort(next)
			d.mu.Unlock()
			return nil, next
		}
		d.mu.Lock()
		batch = d.mu.due.end(found, more, now.UnixMilli(), next)
		d.mu.passed = max(d.mu.passed, now.UnixMilli())
		d.mu.Unlock()
	}
	return batch, next
}

// look reads timers from a key on: up to limit that are due at now, whether there may be more, and when the
// first is due that is not.
func (d *Delays) look(from []byte, now int64, limit int) (found []timerKey, more bool, next int64, err error) {
	for st, err := range d.log.StatesIn(message.SpaceTimer, from, nil) {
		if err != nil {
			return found, false, never, err
		}
		k, ok := decodeTimerKey(st.Key)
		switch {
		case !ok:
			d.logger.Error("timer with a malformed key", "key", fmt.Sprintf("%x", st.Key))
		case k.due > now:
			return found, false, k.due, nil
		case len(found) == limit:
			return found, true, never, nil
		default:
			found = append(found, k)
		}
	}
	return found, false, never, nil
}

// delivery is one Write on its way. Done deliveries are used again.
type delivery struct {
	write store.Write
	keys  []timerKey
	buf   []byte // of the keys and topics in write.State
	bytes int
	now   time.Time // what the clock showed when begun was
	begun time.Time
}

func (d *Delays) newDelivery(count int, now, begun time.Time) *delivery {
	dv, _ := d.spare.Get().(*delivery)
	if dv == nil {
		dv = &delivery{keys: make([]timerKey, 0, count)}
		dv.write.Messages = make([]message.Message, 0, count)
		dv.write.State = make([]message.State, 0, count)
		dv.write.Done = func(_ *store.Write, err error) { d.settle(dv, err) }
	}
	dv.now, dv.begun = now, begun
	return dv
}

// recycle lets go of what a settled delivery holds.
func (d *Delays) recycle(dv *delivery) {
	clear(dv.write.Messages)
	dv.write.Messages, dv.write.State = dv.write.Messages[:0], dv.write.State[:0]
	dv.keys, dv.buf, dv.bytes = dv.keys[:0], dv.buf[:0], 0
	d.spare.Put(dv)
}

// append delivers the messages of batch, in order; the clock showed now when begun was. What there is no room
// for is given back.
func (d *Delays) append(batch []timerKey, now, begun time.Time) {
	messages, errs := d.load(batch)
	busy := false // the store refused some: nobody passes them
	for len(batch) > 0 {
		d.mu.Lock()
		full := busy || d.mu.bytes >= maxUndeliveredBytes
		d.mu.Unlock()
		if full {
			d.free(batch, false, 0)
			return
		}
		n := 0
		dv := d.newDelivery(min(len(batch), maxDeliveryCount), now, begun)
		for ; n < len(batch) && n < maxDeliveryCount && dv.bytes < maxDeliveryBytes; n++ {
			d.put(dv, batch[n], messages[n], errs[n])
		}
		d.mu.Lock()
		d.mu.bytes += dv.bytes
		d.mu.Unlock()
		if err := d.log.Append(&dv.write); err != nil {
			d.settle(dv, err)
			_, busy = errors.AsType[*commitlog.BusyError](err)
		}
		batch, messages, errs = batch[n:], messages[n:], errs[n:]
	}
}

// put adds the end of timer k to the Write, and its message unless that cannot be delivered.
func (d *Delays) put(dv *delivery, k timerKey, m *message.Message, err error) {
	if m == nil && err == nil {
		m, err = d.read(k, false)
	}
	if err == nil {
		if _, ok := d.topics.Lookup(m.Topic); !ok {
			err = NoTopic(m.Topic)
		}
	}
	dv.keys = append(dv.keys, k)
	at := len(dv.buf)
	dv.buf = k.appendTo(dv.buf)
	if err != nil {
		d.drop(k, err)
		topic, _, _ := d.stateOf(k) // without it the timer counts for no topic
		dv.buf = append(dv.buf, topic...)
	} else {
		dv.buf = append(dv.buf, m.Topic...)
		dv.write.Messages = append(dv.write.Messages, *m)
		dv.bytes += m.EncodedLen()
	}
	state := dv.buf[at:]
	dv.write.State = append(dv.write.State, message.State{
		Space:  message.SpaceTimer,
		Key:    state[:timerKeyBytes:timerKeyBytes],
		Value:  state[timerKeyBytes:],
		Delete: true,
	})
}

// load returns the messages of batch as they go to their real topics. What was not read ahead is read in the
// order in which it is stored; of large messages only some, the others are nil.
func (d *Delays) load(batch []timerKey) (messages []*message.Message, errs []error) {
	messages, errs = d.ahead.take(batch...), make([]error, len(batch))
	var missing []int
	for i, m := range messages {
		if m == nil {
			missing = append(missing, i)
		}
	}
	slices.SortFunc(missing, func(a, b int) int { return compareStored(batch[a], batch[b]) })
	size := 0
	for _, i := range missing {
		if size >= maxUndeliveredBytes {
			break
		}
		if messages[i], errs[i] = d.read(batch[i], false); errs[i] == nil {
			size += messages[i].EncodedLen()
		}
	}
	return messages, errs
}

// compareStored orders timers by where their messages are.
func compareStored(a, b timerKey) int {
	return cmp.Or(cmp.Compare(a.level, b.level), cmp.Compare(a.offset, b.offset))
}

// settle ends a delivery, or gives its timers back.
func (d *Delays) settle(dv *delivery, err error) {
	if err != nil {
		d.logger.Warn("delayed messages could not be delivered, trying again", "count", len(dv.keys), "error", err)
	}
	now := dv.now.Add(time.Since(dv.begun))
	d.mu.Lock()
	full := len(d.mu.due.taken) >= maxUndelivered || d.mu.bytes >= maxUndeliveredBytes
	d.mu.bytes -= dv.bytes
	if err == nil {
		for _, k := range dv.keys {
			d.mu.told.note(now.Sub(time.UnixMilli(k.due)))
		}
		d.mu.told.Delivered += int64(len(dv.write.Messages))
	}
	d.mu.Unlock()
	d.free(dv.keys, err == nil, now.Add(deliveryRetry).UnixMilli())
	for i := range dv.write.Messages {
		if m := &dv.write.Messages[i]; err == nil {
			d.stats.Put(m.Topic, KindDelay, 1, m.EncodedLen(), 0)
			d.stats.topic(m.Topic).meter.TimersDone.Add(1)
			d.stats.broker.timers.add(1, 1)
		}
	}
	d.recycle(dv)
	if full {
		d.bell.Ring()
	}
}

// runLater does what had to wait for a timer that was taken; stopped is why nothing can be done any more.
func (d *Delays) runLater(stopped error) {
	d.mu.Lock()
	later := d.mu.later
	d.mu.later = nil
	if stopped != nil {
		d.mu.stopped = stopped
	}
	d.mu.Unlock()
	for _, fn := range later {
		fn(stopped)
	}
}

// errNoRealTopic says that a waiting message does not tell where it was going.
var errNoRealTopic = errors.New("the message has no REAL_TOPIC and REAL_QID")

// read returns the message that timer k is for, as it goes to its real topic: with the properties that it waited
// with, as RocketMQ 5.5.0 delivers it. With keep it does not hold on to the store's memory. Source: messageTimeUp,
// TimerMessageStore.java convertMessage. Known difference: no TIMER_ENQUEUE_MS, TIMER_DEQUEUE_MS, TIMER_ROLL_TIMES.
func (d *Delays) read(k timerKey, keep bool) (*message.Message, error) {
	topic, queueID := k.queue()
	rec, err := d.log.At(topic, queueID, k.offset)
	if err != nil {
		return nil, err
	}
	if keep {
		rec = bytes.Clone(rec)
	}
	m, err := message.Decode(rec)
	if err != nil {
		return nil, err
	}
	topic, queueID, ok := destination(m.Properties)
	if !ok || IsSendForbidden(topic) {
		return nil, errNoRealTopic
	}
	m.Topic, m.QueueID = topic, queueID
	return &m, nil
}

// drop reports a timer that ends without a delivery, unless an operator's deletion of the topic is why.
func (d *Delays) drop(k timerKey, err error) {
	level := slog.LevelError
	if errors.Is(err, TopicNotExist) {
		level = slog.LevelWarn
	}
	d.logger.Log(context.Background(), level, "delayed message was not delivered", "delay_level", k.level,
		"queue_offset", k.offset, "due", time.UnixMilli(k.due), "error", err)
}
