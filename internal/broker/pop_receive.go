// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"strconv"
	"time"

	"github.com/roquetmq/roquet/internal/broker/pop"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// nowMillis is the time, in ms.
func nowMillis() int64 { return time.Now().UnixMilli() }

// popTake is what a receive found in one queue.
type popTake struct {
	queueID int32
	ev      pop.Receive
	plan    pop.Plan
	records [][]byte            // of ev.Again, then of ev.Fresh
	max     message.QueueOffset // of the queue
}

// popLook is the scratch of a receive.
type popLook struct{ takes []popTake }

// clear lets go of records, so that scratch keeps no part of the log in memory.
func (l *popLook) clear() {
	for i := range l.takes {
		clear(l.takes[i].records)
	}
}

// popRoom is how much a receive may still take.
type popRoom struct{ count, bytes int }

func (r *popRoom) full() bool { return r.count == 0 || r.bytes <= 0 }

// receive looks into the queues in turn and claims what it finds. When found is true and there is no error,
// the answer comes when the claims are durable; for a Notify nothing is claimed.
func (p *Popper) receive(req *PopRequest) (found bool, err error) {
	s := req.share
	s.turn.Lock()
	defer s.turn.Unlock()
	look, _ := p.looks.Get().(*popLook)
	if look == nil {
		look = new(popLook)
	}
	s.turn.takes = look.takes
	defer func() {
		look.takes, s.turn.takes = s.turn.takes, nil
		look.clear()
		p.looks.Put(look)
	}()
	for range maxRescans {
		req.seen = s.signals.Load()
		if err := p.look(req, s); err != nil {
			return false, err
		}
		found = p.takes(req, s)
		if !req.notify {
			if found, err = p.claim(req, s); err != nil {
				return false, err
			}
		}
		more := p.arm(req, s, found)
		switch {
		case found && more:
			p.signal(s, req.QueueID)
			return true, nil
		case found || !more:
			return found, nil
		}
	}
	s.signals.Add(1) // it goes on in its turn, without waiting
	return false, nil
}

// look looks into the queues, beginning with another one each time.
func (p *Popper) look(req *PopRequest, s *popShare) error {
	t := &s.turn
	t.takes = t.takes[:0]
	first, n := req.QueueID, int32(1)
	if req.QueueID == AllQueues {
		n = req.queues
		first = int32(t.first % uint32(max(n, 1)))
		t.first++
	}
	room := popRoom{req.MaxCount, p.cfg.MaxBytes}
	for i := range n {
		id := first + i
		if req.QueueID == AllQueues {
			if id %= n; req.urgent {
				id = n - 1 - i
			}
		}
		if len(t.takes) == cap(t.takes) {
			t.takes = append(t.takes, popTake{})
		} else {
			t.takes = t.takes[:len(t.takes)+1]
		}
		take := &t.takes[len(t.takes)-1]
		take.begin(id)
		if err := p.lookAt(req, s, take, &room); err != nil {
			return err
		}
	}
	return nil
}

func (t *popTake) begin(id int32) {
	ev := &t.ev
	*t = popTake{
		queueID: id, records: t.records[:0], plan: pop.Plan{Again: t.plan.Again[:0]},
		ev: pop.Receive{Again: ev.Again[:0], Gone: ev.Gone[:0], Fresh: ev.Fresh[:0]},
	}
}

// lookAt looks into one queue.
func (p *Popper) lookAt(req *PopRequest, s *popShare, t *popTake, room *popRoom) error {
	if err := p.plan(req, s, t, room); err != nil {
		return err
	}
	_, t.max, _ = p.store.Bounds(s.key.topic, t.queueID)
	if req.notify {
		return nil
	}
	for _, off := range t.plan.Again {
		if room.full() {
			return nil
		}
		if err := p.readAgain(req, s, t, off, room); err != nil {
			return err
		}
	}
	if t.plan.Blocked || room.full() || t.ev.To >= t.max {
		return nil
	}
	return p.readFresh(req, s, t, room)
}

// plan asks the queue's claims what to look at. It begins where an operator, or someone who reads the queue
// otherwise, said that the group is.
func (p *Popper) plan(req *PopRequest, s *popShare, t *popTake, room *popRoom) error {
	reset, isReset := p.offsets.TakeReset(s.key.group, s.key.topic, t.queueID)
	committed, known := p.offsets.Query(s.key.group, s.key.topic, t.queueID)
	var begin message.QueueOffset
	s.mu.Lock()
	defer s.mu.Unlock()
	err := p.usableLocked(s)
	q := s.queueLocked(t.queueID)
	if err == nil && q == nil {
		s.mu.Unlock()
		begin = p.initial(req, s, t.queueID)
		s.mu.Lock()
		if err = p.usableLocked(s); err == nil {
			q = s.beginLocked(t.queueID, begin)
		}
	}
	if err != nil {
		return err
	}
	if isReset {
		err = p.stepLocked(s, t.queueID, q, &pop.Reset{To: reset})
		s.signals.Add(1)
	} else if known && committed > q.Next() {
		if _, maximum, _ := p.store.Bounds(s.key.topic, t.queueID); maximum > q.Next() {
			err = p.stepLocked(s, t.queueID, q, &pop.Jump{To: min(committed, maximum)})
		}
	}
	if err != nil {
		return err
	}
	t.ev.Ask = pop.Ask{MaxCount: room.count, MaxTimes: p.maxTimes(s.key.group), Attempt: req.attempt}
	if req.notify {
		t.ev.MaxCount = 1
	}
	switch req.result.Order {
	case Unordered:
		t.ev.Attempt, t.ev.Free = 0, true
	case OrderQueue:
		t.ev.Key = wholeQueue
	}
	if t.ev.MaxCount > 0 {
		t.plan = q.Plan(nowMillis(), t.ev.Ask, t.plan.Again)
	}
	if t.plan.Overdue {
		s.overdue.Store(true)
		p.alarm.sooner(s, nowMillis())
	}
	t.ev.Invisible = req.Invisible.Milliseconds()
	t.ev.From, t.ev.To = q.Next(), q.Next()
	return nil
}

// beginLocked makes the claims of a queue that no receive has looked at before.
func (s *popShare) beginLocked(id int32, at message.QueueOffset) *pop.Queue {
	for int(id) >= len(s.mu.queues) {
		s.mu.queues = append(s.mu.queues, nil)
	}
	if s.mu.queues[id] == nil {
		s.mu.queues[id] = pop.NewQueue(at, &s.mu.scratch)
	}
	return s.mu.queues[id]
}

// initial is where a group begins in a queue. Source: PopMessageProcessor.java getInitOffset.
func (p *Popper) initial(req *PopRequest, s *popShare, id int32) message.QueueOffset {
	minimum, maximum, _ := p.store.Bounds(s.key.topic, id)
	if off, ok := p.offsets.Query(s.key.group, s.key.topic, id); ok {
		return min(off, maximum)
	}
	if req.InitMode == FromMin || maximum == 0 {
		return minimum
	}
	if minimum == 0 {
		first, err := p.store.At(s.key.topic, id, 0)
		if err == nil && p.cfg.LogEnd()-first.LogOffset() <= youngBytes {
			return 0
		}
	}
	return max(minimum, maximum-1)
}

// maxTimes is after how many reconsumptions a message of the group becomes a dead letter.
func (p *Popper) maxTimes(group string) int32 {
	cfg, ok := p.groups.Lookup(group)
	if !ok {
		return pop.NoMaxTimes
	}
	return max(0, cfg.RetryMaxTimes)
}

// message reads a message that was claimed: from its queue, or what was kept of it.
func (p *Popper) message(of popKey, id int32, off message.QueueOffset) (message.Record, error) {
	rec, err := p.store.At(of.topic, id, off)
	if !errors.Is(err, store.ErrNotFound) {
		return rec, err
	}
	key := appendPopKey(nil, popKeptKey, of, id, off)
	for st, scanErr := range p.store.States(message.SpacePop, key) {
		if r := message.Record(st.Value); scanErr == nil && r.IsWhole() {
			return append(message.Record(nil), r...), nil
		}
		return nil, errors.Join(err, scanErr)
	}
	return nil, err
}

// lost tells whether a message cannot be read, now or later.
func lost(err error) bool {
	var damaged *store.DamagedError
	return errors.Is(err, store.ErrNotFound) || errors.As(err, &damaged)
}

// readAgain reads a message that came back. The subscription decides on it as it did the first time.
func (p *Popper) readAgain(req *PopRequest, s *popShare, t *popTake, off message.QueueOffset, room *popRoom,
) error {
	rec, err := p.message(s.key, t.queueID, off)
	switch {
	case lost(err):
		p.cfg.Logger.Error("message cannot be handed out again", "topic", s.key.topic, "group", s.key.group,
			"queue_id", t.queueID, "offset", off, "error", err)
		t.ev.Gone = append(t.ev.Gone, off)
		return nil
	case err != nil:
		return err
	}
	if match := req.sub.MatchRecord(); match != nil && !match(rec) {
		t.ev.Gone = append(t.ev.Gone, off)
		return nil
	}
	t.ev.Again = append(t.ev.Again, off)
	t.records = append(t.records, rec)
	room.count--
	room.bytes -= len(rec)
	return nil
}

// readFresh reads new messages.
func (p *Popper) readFresh(req *PopRequest, s *popShare, t *popTake, room *popRoom) error {
	f := store.FetchRequest{
		Topic: s.key.topic, QueueID: t.queueID, MaxCount: room.count, MaxBytes: room.bytes,
		Match: req.sub.MatchCode(), MatchRecord: req.sub.MatchRecord(), Into: t.records,
	}
	had := len(t.records)
	for range maxScans {
		f.From = t.ev.To
		res := p.store.Fetch(&f)
		t.records = res.Records
		switch res.Status {
		case store.Unreadable:
			return res.Err
		case store.OffsetOverflowBadly, store.NoMatchedLogicQueue, store.NoMessageInQueue:
			if t.ev.From > res.Max {
				return p.rewind(s, t, res.Max)
			}
			return nil
		case store.Damaged:
			p.cfg.Logger.Error("damaged messages are passed over", "topic", s.key.topic, "group", s.key.group,
				"queue_id", t.queueID, "error", res.Err)
		}
		t.ev.To, t.max = res.Next, res.Max
		if len(t.records) > had || t.ev.To >= t.max {
			break
		}
	}
	for _, r := range t.records[had:] {
		rec := message.Record(r)
		t.ev.Fresh = append(t.ev.Fresh, pop.Fresh{
			Offset: rec.QueueOffset(), Times: rec.ReconsumeTimes(), Key: orderKey(rec, req.Order),
		})
		room.count--
		room.bytes -= len(r)
	}
	return nil
}

// rewind deals with a queue that is shorter than its group has come: the log lost its end.
func (p *Popper) rewind(s *popShare, t *popTake, to message.QueueOffset) error {
	p.cfg.Logger.Warn("group is ahead of its queue, going back", "topic", s.key.topic, "group", s.key.group,
		"queue_id", t.queueID, "offset", t.ev.From, "next_offset", to)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := p.usableLocked(s); err != nil {
		return err
	}
	return p.stepLocked(s, t.queueID, s.beginLocked(t.queueID, to), &pop.Reset{To: to})
}

// takes tells whether there is anything to receive, for a Notify.
func (p *Popper) takes(req *PopRequest, s *popShare) bool {
	for i := range s.turn.takes {
		t := &s.turn.takes[i]
		if req.notify && (len(t.plan.Again) > 0 || !t.plan.Blocked && t.ev.To < t.max) {
			return true
		}
	}
	return false
}

// claim claims what was found, stores the claims, and composes the answer.
func (p *Popper) claim(req *PopRequest, s *popShare) (found bool, err error) {
	r := &req.result
	*r = PopResult{Invisible: req.Invisible.Milliseconds(), BrokerName: p.cfg.BrokerName, Order: r.Order}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := p.usableLocked(s); err != nil {
		return false, err
	}
	r.PopTime = nowMillis()
	total := 0
	for i := range s.turn.takes {
		total += len(s.turn.takes[i].records)
	}
	if total > 0 {
		r.Messages = make([]PopMessage, 0, total)
	}
	var c popChange
	s.mu.batch.begin()
	for i := range s.turn.takes {
		t := &s.turn.takes[i]
		q := s.queueLocked(t.queueID)
		if q == nil || t.empty() && q.Stored() { // nil: loaded again meanwhile
			r.Rest += t.rest(q)
			continue
		}
		actions := q.Step(r.PopTime, &t.ev)
		s.takeLocked(&c, t.queueID, q, actions)
		if err := t.deliver(r, actions); err != nil {
			p.breakLocked(s, err)
			return false, err
		}
		p.keepLocked(s, t.queueID, r)
		p.offsets.CommitPull(s.key.group, s.key.topic, t.queueID, q.Next())
		r.Rest += t.rest(q)
	}
	w := &req.write
	if w.Done, w.Owner = popWritten, req; len(r.Messages) == 0 || p.early(req) {
		w = p.aside(s)
	}
	if _, err := p.appendLocked(s, w, &c); err != nil {
		return false, err
	}
	if c.due > 0 {
		p.alarm.sooner(s, c.due)
	}
	return len(r.Messages) > 0, nil
}

// keepLocked keeps what was received of a queue although retention is about to drop it.
func (p *Popper) keepLocked(s *popShare, id int32, r *PopResult) {
	carried := message.LogOffset(p.carried.Load())
	for i := len(r.Messages) - 1; i >= 0 && r.Messages[i].QueueID == id; i-- {
		m := &r.Messages[i]
		if m.Record.LogOffset() >= carried {
			continue
		}
		kept := popRecord{popKeptKey, s.key, id, m.Offset}
		if _, ok := s.mu.kept[kept]; !ok {
			s.mu.kept[kept] = struct{}{}
			s.mu.batch.keep(kept, m.Record)
		}
	}
}

// empty tells whether there was nothing in the queue for the receive.
func (t *popTake) empty() bool {
	return len(t.records) == 0 && len(t.ev.Gone) == 0 && t.ev.To == t.ev.From
}

// rest is what is left in the queue. What is behind messages that someone has in order does not count.
func (t *popTake) rest(q *pop.Queue) int64 {
	if q == nil || t.plan.Blocked {
		return 0
	}
	return int64(max(0, t.max-q.Next()))
}

// deliver adds the messages that were claimed to the answer. They come in the order in which they were read.
func (t *popTake) deliver(r *PopResult, actions []pop.Action) error {
	start, at := len(r.Messages), 0
	least := message.QueueOffset(never)
	for i := range actions {
		a := &actions[i]
		if a.Kind != pop.Deliver {
			continue
		}
		for t.offset(at) != a.Offset {
			at++
		}
		rec, err := redelivered(t.records[at], a, r.PopTime)
		if err != nil {
			return err
		}
		r.Messages = append(r.Messages, PopMessage{
			Record: rec, QueueID: t.queueID, Offset: a.Offset, ReconsumeTimes: a.Times,
		})
		r.Bytes += len(rec)
		least = min(least, a.Offset)
	}
	for i := range r.Messages[start:] {
		r.Messages[start+i].StartOffset = least
	}
	return nil
}

// offset is that of the record at index i.
func (t *popTake) offset(i int) message.QueueOffset {
	if i < len(t.ev.Again) {
		return t.ev.Again[i]
	}
	return t.ev.Fresh[i-len(t.ev.Again)].Offset
}

// redelivered returns the record as it is told: one that was handed out before says so, in a copy.
func redelivered(rec message.Record, a *pop.Action, popTime int64) (message.Record, error) {
	if a.Times == rec.ReconsumeTimes() && a.FirstPop == popTime {
		return rec, nil
	}
	m, err := message.Decode(rec)
	if err != nil {
		return nil, err
	}
	m.ReconsumeTimes = a.Times
	if _, ok := message.Property(m.Properties, message.PropertyFirstPopTime); !ok {
		tail := message.AppendProperty(nil, message.PropertyFirstPopTime, strconv.FormatInt(a.FirstPop, 10))
		if m.TailProperties = string(tail); m.Validate() != nil {
			m.TailProperties = "" // no room for it
		}
	}
	return m.AppendTo(nil), nil
}

// popWritten is the Done of a receive's Write.
func popWritten(w *store.Write, err error) {
	req, _ := w.Owner.(*PopRequest)
	p, s := req.popper, req.share
	p.settled(s, err)
	if err == nil {
		p.found(req)
		return
	}
	p.finish(req, err)
}
