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

// AckRequest says that messages were consumed.
type AckRequest struct {
	Group   string
	Topic   string
	Handles []pop.Handle
	// Results has an entry for each handle when Done is called without error: nil, or the *pop.HandleError
	// that refuses it.
	Results []error
	// Done is called exactly once, as PopRequest.Done is. With an error nothing was acknowledged.
	Done  func(req *AckRequest, err error)
	Owner any // the caller's

	settling
	ev pop.Ack
}

// RenewRequest gives messages another invisible time, counted from now.
type RenewRequest struct {
	Group     string
	Topic     string
	Handles   []pop.Handle
	Invisible time.Duration // 0: others get it at once; RetryPolicyDelay: as the group's retry policy says
	Suspend   bool          // the next delivery counts as the same attempt
	// Results has an entry for each handle when Done is called without error: nil, or the *pop.HandleError
	// that refuses it. Handles then has the new handle in place of each that was good; the old one is stale.
	Results []error
	// Done is called exactly once, as PopRequest.Done is. With an error nothing was renewed.
	Done  func(req *RenewRequest, err error)
	Owner any // the caller's

	settling
	ev pop.Renew
}

// settling is what a Popper keeps in a request about messages that were handed out.
type settling struct {
	popper *Popper
	write  store.Write
	share  *popShare
	good   int // handles that were not refused
}

// settler is a request about messages that were handed out.
type settler interface {
	// event is what happens to claims of one queue, all by orderly receives or none.
	event(refs []pop.Ref, orderly bool) pop.Event
	// renewed takes a new claim of the message of a handle.
	renewed(handle int, a *pop.Action)
	// refused takes the reason why a handle is no good.
	refused(handle int, reason pop.HandleReason)
}

var (
	_ settler = (*AckRequest)(nil)
	_ settler = (*RenewRequest)(nil)
)

// Ack acknowledges messages; they do not come again. Errors given to Done: TopicNotExist and those of
// store.Append. A handle is good until its message was acknowledged, renewed or handed out again, also after
// its time.
func (p *Popper) Ack(req *AckRequest) {
	req.settling = settling{popper: p}
	req.write.Done, req.write.Owner = ackWritten, req
	req.Results = resized(req.Results, len(req.Handles))
	stored, err := p.settle(popKey{req.Topic, req.Group}, req.Handles, req, &req.settling)
	if err != nil || !stored {
		req.Done(req, err)
	}
}

// ackWritten is the Done of an acknowledgement's Write.
func ackWritten(w *store.Write, err error) {
	req, _ := w.Owner.(*AckRequest)
	req.popper.settled(req.share, err)
	if err == nil {
		req.popper.stats.Ack(req.share.key.group, req.share.key.topic, req.good)
	}
	req.Done(req, err)
}

func (req *AckRequest) event(refs []pop.Ref, _ bool) pop.Event {
	req.ev.Refs = refs
	return &req.ev
}

func (req *AckRequest) renewed(int, *pop.Action) {}

func (req *AckRequest) refused(i int, reason pop.HandleReason) {
	req.Results[i] = &pop.HandleError{Handle: req.Handles[i].String(), Reason: reason}
}

// ChangeInvisible renews claims. Errors given to Done are Ack's. Source: ChangeInvisibleTimeProcessor.java.
func (p *Popper) ChangeInvisible(req *RenewRequest) {
	req.settling = settling{popper: p}
	req.write.Done, req.write.Owner = renewWritten, req
	req.Results = resized(req.Results, len(req.Handles))
	req.ev = pop.Renew{Suspend: req.Suspend, Invisible: min(req.Invisible, maxInvisible).Milliseconds()}
	if req.Invisible < 0 {
		req.ev.Policy = p.retryPolicy(req.Group)
	}
	stored, err := p.settle(popKey{req.Topic, req.Group}, req.Handles, req, &req.settling)
	if err != nil || !stored {
		req.Done(req, err)
	}
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

// renewWritten is the Done of a renewal's Write.
func renewWritten(w *store.Write, err error) {
	req, _ := w.Owner.(*RenewRequest)
	req.popper.settled(req.share, err)
	req.Done(req, err)
}

func (req *RenewRequest) event(refs []pop.Ref, orderly bool) pop.Event {
	req.ev.Refs, req.ev.Orderly = refs, orderly
	return &req.ev
}

func (req *RenewRequest) renewed(i int, a *pop.Action) {
	h := &req.Handles[i]
	h.PopTime, h.Invisible = a.PopTime, a.Invisible
}

func (req *RenewRequest) refused(i int, reason pop.HandleReason) {
	req.Results[i] = &pop.HandleError{Handle: req.Handles[i].String(), Reason: reason}
}

// Release gives back, at once and without counting an attempt, what a receive was answered with and the
// client did not get. Nobody has to wait for it: when it fails, the messages come again after their invisible
// time.
func (p *Popper) Release(req *PopRequest) {
	r := &req.result
	renew := &RenewRequest{Group: strings.Clone(req.Group), Topic: strings.Clone(req.Topic), Suspend: true}
	for i := range r.Messages {
		renew.Handles = append(renew.Handles, r.Handle(i))
	}
	renew.Done = func(req *RenewRequest, err error) {
		if err != nil {
			p.cfg.Logger.Debug(
				"messages could not be given back", "topic", req.Topic, "group", req.Group, "error", err,
			)
		}
	}
	p.ChangeInvisible(renew)
}

// settle steps the queues of the handles, and stores what that asks for in one Write. Without any good handle
// nothing is stored, and the write's Done is not called.
func (p *Popper) settle(key popKey, handles []pop.Handle, req settler, st *settling,
) (stored bool, err error) {
	if _, ok := p.topics.Lookup(key.topic); !ok {
		return false, NoTopic(key.topic)
	}
	s, _ := p.shares.Load(key)
	st.share = s
	if s == nil {
		for i := range handles {
			req.refused(i, p.impossible(s, &handles[i]))
		}
		return false, nil
	}
	var c popChange
	s.mu.Lock()
	if err = p.usableLocked(s); err == nil {
		s.mu.batch.begin()
		p.stepAllLocked(s, &c, handles, req, st)
		stored, err = p.appendLocked(s, &st.write, &c)
	}
	s.mu.Unlock()
	if err != nil {
		return false, err
	}
	if c.due > 0 {
		p.alarm.sooner(s, c.due)
	}
	if c.wake {
		p.signal(s, AllQueues)
	}
	return stored, nil
}

// impossible tells why a handle cannot be good, whatever the claims are; 0 when it can.
func (p *Popper) impossible(s *popShare, h *pop.Handle) pop.HandleReason {
	switch {
	case h.BrokerName != p.cfg.BrokerName:
		return pop.OtherBroker
	case s == nil || h.RetryFlag != 0 || h.StartOffset > h.Offset:
		return pop.NotGivenOut
	}
	return 0
}

// popRefs is scratch of a request: claims of one queue, and of which handles they are.
type popRefs struct {
	refs  []pop.Ref
	at    []int
	taken []bool // by handle
}

// stepAllLocked steps each queue once, and twice when some of its handles are orderly and others are not.
func (p *Popper) stepAllLocked(s *popShare, c *popChange, handles []pop.Handle, req settler, st *settling) {
	r := &s.mu.refs
	r.taken = append(r.taken[:0], make([]bool, len(handles))...)
	for i := range handles {
		if reason := p.impossible(s, &handles[i]); reason != 0 {
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
		s.stepRefsLocked(c, id, req.event(r.refs, orderly), req, st)
	}
}

// stepRefsLocked steps one queue with the claims in s.mu.refs.
func (s *popShare) stepRefsLocked(c *popChange, id int32, ev pop.Event, req settler, st *settling) {
	at := s.mu.refs.at
	q := s.queueLocked(id)
	if q == nil {
		for _, i := range at {
			req.refused(i, pop.NotGivenOut)
		}
		return
	}
	st.good += len(at)
	actions := q.Step(nowMillis(), ev)
	s.takeLocked(c, id, q, actions)
	for i := range actions {
		a := &actions[i]
		switch {
		case a.Kind == pop.Renewed:
			req.renewed(at[a.Index], a)
		case a.Kind == pop.Refused && a.Never:
			st.good--
			req.refused(at[a.Index], pop.NotGivenOut)
		case a.Kind == pop.Refused:
			st.good--
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
