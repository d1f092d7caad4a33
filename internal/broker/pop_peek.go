// SPDX-License-Identifier: Apache-2.0

package broker

import (
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
// no handles. rest is how many there are in the queues that nobody has received. Errors are Pop's. Source:
// PeekMessageProcessor.java.
func (p *Popper) Peek(req *PeekRequest) (found []message.Record, rest int64, err error) {
	if p.topics.Denied()&PermRead != 0 {
		return nil, 0, forbiddenPeek("broker", p.cfg.BrokerAddr)
	}
	topic, err := p.readable(req.Topic, req.QueueID)
	if err != nil {
		return nil, 0, err
	}
	group, err := p.consuming(req.Group)
	if err != nil {
		return nil, 0, err
	}
	first, n := req.QueueID, int32(1)
	if req.QueueID == AllQueues {
		first, n = 0, topic.ReadQueueNums
	}
	key, room := popKey{topic.Name, group.Name}, min(req.MaxCount, MaxPopCount)
	for id := first; id < first+n; id++ {
		next, again, err := p.peekPlan(key, id, room-len(found))
		if err != nil {
			return nil, 0, err
		}
		_, maximum, _ := p.store.Bounds(topic.Name, id)
		rest += int64(max(0, maximum-next))
		if found, err = p.peekAt(key, id, next, again, room, found); err != nil {
			return nil, 0, err
		}
	}
	return found, rest, nil
}

// peekAt adds what one queue has: what came back, and what is new from next on.
func (p *Popper) peekAt(
	key popKey, id int32, next message.QueueOffset, again []message.QueueOffset, room int, found []message.Record,
) ([]message.Record, error) {
	for _, off := range again {
		rec, err := p.message(key, id, off)
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
		Topic: key.topic, QueueID: id, From: next, MaxCount: room - len(found), MaxBytes: p.cfg.MaxBytes,
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

// peekPlan returns where new messages begin for the group, and up to room of those that came back.
func (p *Popper) peekPlan(key popKey, id int32, room int) (
	next message.QueueOffset, again []message.QueueOffset, err error,
) {
	if s, ok := p.shares.Load(key); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err := p.usableLocked(s); err != nil {
			return 0, nil, err
		}
		if q := s.queueLocked(id); q != nil {
			if room > 0 {
				again = q.Plan(nowMillis(), pop.Ask{MaxCount: room, MaxTimes: p.maxTimes(key.group)}, nil).Again
			}
			return q.Next(), again, nil
		}
	}
	if off, ok := p.offsets.Query(key.group, key.topic, id); ok {
		return off, nil, nil
	}
	minimum, _, _ := p.store.Bounds(key.topic, id)
	return minimum, nil, nil
}
