// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"strings"
	"time"

	"github.com/roquetmq/roquet/internal/broker/pop"
	"github.com/roquetmq/roquet/internal/store"
)

// RetryPolicyDelay as the invisible time of a RenewRequest lets the group's retry policy decide, by how often
// the message was handed out before: a consumer that failed gives no time of its own.
const RetryPolicyDelay time.Duration = -1

// maxInvisible bounds invisible times, so that adding one to the time cannot overflow.
const maxInvisible = 100 * 365 * 24 * time.Hour

// SettleRequest says what becomes of messages that were handed out: see Ack, ChangeInvisible and ForwardToDLQ.
type SettleRequest struct {
	Group   string
	Topic   string
	Handles []pop.Handle
	// Invisible, of ChangeInvisible, is for how long nobody else gets the messages; 0: others get them at once;
	// RetryPolicyDelay: as the group's retry policy says.
	Invisible time.Duration
	Suspend   bool // of ChangeInvisible: the next delivery counts as the same attempt
	// Results has an entry for each handle when Done is called without error: nil, or the *pop.HandleError
	// that refuses it.
	Results []error
	// Done is called exactly once, as PopRequest.Done is. With an error nothing was settled.
	Done  func(req *SettleRequest, err error)
	Owner any // the caller's

	settling
}

// settling is what a Popper keeps in a request about messages that were handed out.
type settling struct {
	popper *Popper
	write  store.Write
	share  *popShare
	good   int       // handles that were not refused
	ev     pop.Event // what happens to the claims
	ack    pop.Ack   // ev of an acknowledgement
}

// Ack acknowledges messages; they do not come again. Errors given to Done: TopicNotExist and those of
// store.Append. A handle is good until its message was acknowledged, renewed or handed out again, also after
// its time.
func (p *Popper) Ack(req *SettleRequest) {
	req.settling = settling{}
	p.settle(req, &req.ack)
}

// ChangeInvisible gives messages another invisible time, counted from now. Handles then has the new handle in
// place of each that was good; the old one is stale. Errors given to Done are Ack's.
// Source: ChangeInvisibleTimeProcessor.java.
func (p *Popper) ChangeInvisible(req *SettleRequest) {
	ev := &pop.Renew{Suspend: req.Suspend, Invisible: min(req.Invisible, maxInvisible).Milliseconds()}
	if req.Invisible < 0 {
		ev.Policy = p.retryPolicy(req.Group)
	}
	req.settling = settling{}
	p.settle(req, ev)
}

// ForwardToDLQ moves the message of one handle to its group's dead letter topic, at a consumer's wish: when it is
// stored there, the message does not come again. Errors given to Done are Ack's.
// Source: ForwardMessageToDLQActivity.java.
func (p *Popper) ForwardToDLQ(req *SettleRequest) {
	req.settling = settling{}
	c, _, err := p.step(req, &pop.Forward{})
	if err != nil || len(c.dead) == 0 {
		req.Done(req, err)
		return
	}
	p.bury(req.share, c.dead[0], func(err error) { req.Done(req, err) })
}

// retryPolicy is how long messages of the group wait by how often they were reconsumed, in ms.
func (p *Popper) retryPolicy(group string) func(times int32) int64 {
	policy := GroupRetryPolicy{}
	if cfg, ok := p.groups.Lookup(group); ok {
		policy = cfg.RetryPolicy
	}
	return func(times int32) int64 {
		return min(max(0, policy.NextDelay(int(times))), maxInvisible.Milliseconds())
	}
}

// settleWritten is the Done of an acknowledgement's or a renewal's Write.
func settleWritten(w *store.Write, err error) {
	req, _ := w.Owner.(*SettleRequest)
	req.popper.settled(req.share, err)
	if err == nil && req.ev == &req.ack {
		req.popper.stats.Ack(req.share.key.group, req.share.key.topic, req.good)
	}
	req.Done(req, err)
}

// event is what happens to claims of one queue, all by orderly receives or none.
func (req *SettleRequest) event(refs []pop.Ref, orderly bool) pop.Event {
	switch ev := req.ev.(type) {
	case *pop.Ack:
		ev.Refs = refs
	case *pop.Renew:
		ev.Refs, ev.Orderly = refs, orderly
	case *pop.Forward:
		ev.Refs = refs
	}
	return req.ev
}

// refused takes the reason why a handle is no good.
func (req *SettleRequest) refused(i int, reason pop.HandleReason) {
	req.Results[i] = &pop.HandleError{Handle: req.Handles[i].String(), Reason: reason}
}

// Release gives back, at once and without counting an attempt, what a receive was answered with and the
// client did not get. Nobody has to wait for it: when it fails, the messages come again after their invisible
// time.
func (p *Popper) Release(req *PopRequest) {
	r := &req.result
	renew := &SettleRequest{Group: strings.Clone(req.Group), Topic: strings.Clone(req.Topic), Suspend: true}
	for i := range r.Messages {
		renew.Handles = append(renew.Handles, r.Handle(i))
	}
	renew.Done = func(req *SettleRequest, err error) {
		if err != nil {
			p.cfg.Logger.Debug(
				"messages could not be given back", "topic", req.Topic, "group", req.Group, "error", err,
			)
		}
	}
	p.ChangeInvisible(renew)
}

// settle steps the queues of the handles and answers when what that asks for is stored.
func (p *Popper) settle(req *SettleRequest, ev pop.Event) {
	if _, stored, err := p.step(req, ev); err != nil || !stored {
		req.Done(req, err)
	}
}

// step steps the queues of the handles, and stores what that asks for in one Write. Without anything to store,
// as without any good handle, the write's Done is not called.
func (p *Popper) step(req *SettleRequest, ev pop.Event) (c popChange, stored bool, err error) {
	req.popper, req.ev, req.write.Done, req.write.Owner = p, ev, settleWritten, req
	req.Results = resized(req.Results, len(req.Handles))
	if _, ok := p.topics.Lookup(req.Topic); !ok {
		return c, false, NoTopic(req.Topic)
	}
	s, _ := p.shares.Load(popKey{req.Topic, req.Group})
	req.share = s
	if s == nil {
		for i := range req.Handles {
			req.refused(i, p.impossible(s, &req.Handles[i]))
		}
		return c, false, nil
	}
	s.mu.Lock()
	if err = p.usableLocked(s); err == nil {
		s.mu.batch.begin()
		p.stepAllLocked(s, &c, req)
		stored, err = p.appendLocked(s, &req.write, &c)
	}
	s.mu.Unlock()
	if err != nil {
		return c, false, err
	}
	if c.due > 0 {
		p.alarm.sooner(s, c.due)
	}
	if c.wake {
		p.signal(s, AllQueues)
	}
	return c, stored, nil
}

// impossible tells why a handle cannot be good, whatever the claims are; empty when it can.
func (p *Popper) impossible(s *popShare, h *pop.Handle) pop.HandleReason {
	switch {
	case h.BrokerName != p.cfg.BrokerName:
		return pop.OtherBroker
	case s == nil || h.RetryFlag != 0 || h.StartOffset > h.Offset:
		return pop.NotGivenOut
	}
	return ""
}

// popRefs is scratch of a request: claims of one queue, and of which handles they are.
type popRefs struct {
	refs  []pop.Ref
	at    []int
	taken []bool // by handle
}

// stepAllLocked steps each queue once, and twice when some of its handles are orderly and others are not.
func (p *Popper) stepAllLocked(s *popShare, c *popChange, req *SettleRequest) {
	r, handles := &s.mu.refs, req.Handles
	r.taken = append(r.taken[:0], make([]bool, len(handles))...)
	for i := range handles {
		if reason := p.impossible(s, &handles[i]); reason != "" {
			req.refused(i, reason)
			r.taken[i] = true
		}
	}
	for i := range handles {
		if r.taken[i] {
			continue
		}
		id, orderly := handles[i].QueueID, handles[i].Orderly()
		r.refs, r.at = r.refs[:0], r.at[:0]
		for j := i; j < len(handles); j++ {
			if h := &handles[j]; !r.taken[j] && h.QueueID == id && h.Orderly() == orderly {
				r.taken[j] = true
				r.refs, r.at = append(r.refs, h.Ref()), append(r.at, j)
			}
		}
		s.stepRefsLocked(c, id, req.event(r.refs, orderly), req)
	}
}

// stepRefsLocked steps one queue with the claims in s.mu.refs.
func (s *popShare) stepRefsLocked(c *popChange, id int32, ev pop.Event, req *SettleRequest) {
	at := s.mu.refs.at
	q := s.queueLocked(id)
	if q == nil {
		for _, i := range at {
			req.refused(i, pop.NotGivenOut)
		}
		return
	}
	req.good += len(at)
	actions := q.Step(nowMillis(), ev)
	s.takeLocked(c, id, q, actions)
	for i := range actions {
		a := &actions[i]
		switch {
		case a.Kind == pop.Renewed:
			h := &req.Handles[at[a.Index]]
			h.PopTime, h.Invisible = a.PopTime, a.Invisible
		case a.Kind == pop.Refused && a.Never:
			req.good--
			req.refused(at[a.Index], pop.NotGivenOut)
		case a.Kind == pop.Refused:
			req.good--
			req.refused(at[a.Index], pop.Stale)
		}
	}
}

// resized returns errs with n entries, all nil.
func resized(errs []error, n int) []error {
	if cap(errs) < n {
		return make([]error, n)
	}
	errs = errs[:n]
	clear(errs)
	return errs
}
