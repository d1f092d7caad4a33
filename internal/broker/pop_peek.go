// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"strings"

	"github.com/roquetmq/roquet/internal/broker/pop"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// PeekRequest asks for the messages that a receive would get, without receiving them.
type PeekRequest struct {
	Group    string
	Topic    string
	QueueID  int32 // or AllQueues
	MaxCount int   // at most MaxPopCount
}

// Peek returns messages that a group has not received, or that came back; they stay where they are, and have
// no handles. Errors are Pop's. Source: PeekMessageProcessor.java.
func (p *Popper) Peek(req *PeekRequest) ([]message.Record, error) {
	if p.cfg.ReadDisabled {
		return nil, &PermissionError{Denial: DeniedBrokerPeek, Name: p.cfg.BrokerAddr}
	}
	topic, err := p.readable(req.Topic, req.QueueID)
	if err != nil {
		return nil, err
	}
	group, ok := p.groups.Lookup(req.Group)
	if !ok {
		return nil, &GroupNotExistError{Group: strings.Clone(req.Group)}
	}
	if !group.ConsumeEnable {
		return nil, &PermissionError{Denial: DeniedGroup, Name: group.Name}
	}
	first, n := req.QueueID, int32(1)
	if req.QueueID == AllQueues {
		first, n = 0, topic.ReadQueueNums
	}
	var found []message.Record
	room := min(req.MaxCount, MaxPopCount)
	for id := first; id < first+n && len(found) < room; id++ {
		if found, err = p.peekAt(group.Name, topic.Name, id, room, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// peekAt adds what one queue has.
func (p *Popper) peekAt(group, topic string, id int32, room int, found []message.Record,
) ([]message.Record, error) {
	next, again, err := p.peekPlan(group, topic, id, room-len(found))
	if err != nil {
		return nil, err
	}
	for _, off := range again {
		rec, err := p.message(popKey{topic, group}, id, off)
		switch {
		case err == nil:
			found = append(found, rec)
		case !lost(err):
			return nil, err
		}
	}
	if len(found) >= room {
		return found, nil
	}
	f := store.FetchRequest{
		Topic:    topic,
		QueueID:  id,
		From:     next,
		MaxCount: room - len(found),
		MaxBytes: p.cfg.MaxBytes,
	}
	res := p.store.Fetch(&f)
	if res.Status == store.OffsetTooSmall {
		f.From = res.Next
		res = p.store.Fetch(&f)
	}
	if res.Status == store.Unreadable {
		return nil, res.Err
	}
	for _, rec := range res.Records {
		found = append(found, message.Record(rec))
	}
	return found, nil
}

// peekPlan returns where new messages begin for the group, and what came back.
func (p *Popper) peekPlan(group, topic string, id int32, room int) (
	next message.QueueOffset, again []message.QueueOffset, err error,
) {
	if s, ok := p.shares.Load(popKey{topic, group}); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err := p.usableLocked(s); err != nil {
			return 0, nil, err
		}
		if q := s.queueLocked(id); q != nil {
			plan := q.Plan(nowMillis(), pop.Ask{MaxCount: room, MaxTimes: p.maxTimes(group)}, nil)
			return q.Next(), plan.Again, nil
		}
	}
	if off, ok := p.offsets.Query(group, topic, id); ok {
		return off, nil, nil
	}
	minimum, _, _ := p.store.Bounds(topic, id)
	return minimum, nil, nil
}
