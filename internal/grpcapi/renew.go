// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// How receipts are renewed. Source: ProxyConfig.java, RenewStrategyPolicy.java.
const (
	renewedInvisible  = time.Minute      // of a message whose receipt is renewed, at first
	renewAhead        = 10 * time.Second // a receipt that ends sooner is renewed
	renewLongest      = 3 * time.Hour    // a message that is in work for longer goes to others
	renewMaxFailures  = 3
	returnedInvisible = time.Second       // of messages whose client is gone
	asGroupSays       = -time.Millisecond // lets the group's retry policy say for how long
)

// renewals is for how long a receipt is renewed the first time, the second …
var renewals = [...]time.Duration{
	time.Minute, 3 * time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour,
}

// receipt is a message whose invisible time is prolonged as long as its client lives. Its fields but for the first
// line are guarded by receipts.mu.
type receipt struct {
	group, topic, given string // the handle that the client has

	newest    string
	visibleAt int64 // ms, when others may see the message
	begun     time.Time
	count     int // renewals so far
	failures  int // in a row
	underWay  bool
	renewed   chan struct{} // made when somebody waits for the renewal under way, closed at its end
	returned  bool          // its client was gone while the renewal was under way
}

// receipts is the messages that one client has in work. Safe for concurrent use; the zero value is empty.
//
// Source: DefaultReceiptHandleManager.java, ReceiptHandleGroup.java. Known difference: an acknowledgement that
// fails leaves the receipt here, so that the client's first handle stays good (case C105); and only the handle
// that was given out with a delivery stands for that delivery.
type receipts struct {
	mu   sync.Mutex
	open map[string]*receipt // by the handle that the client has
}

func (r *receipts) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.open)
}

func (r *receipts) add(one *receipt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open == nil {
		r.open = map[string]*receipt{}
	}
	r.open[one.given] = one
}

// newest returns the handle that is good now for a message that the client knows by its first one, and waits
// for a renewal under way. The handle stays good until settle is called: nothing renews it.
func (r *receipts) newest(ctx context.Context, group, topic, given string) (handle string, held bool, err error) {
	for {
		r.mu.Lock()
		one := r.open[given]
		if one == nil || one.group != group || one.topic != topic {
			r.mu.Unlock()
			return given, false, nil
		}
		if !one.underWay {
			one.underWay = true
			handle = one.newest
			r.mu.Unlock()
			return handle, true, nil
		}
		if one.renewed == nil {
			one.renewed = make(chan struct{})
		}
		wait := one.renewed
		r.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return given, false, ctx.Err()
		}
	}
}

// settle ends what newest began. When the message is done with, nothing is renewed any more.
func (r *receipts) settle(given string, done bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if one := r.open[given]; one != nil {
		one.endLocked()
		if done {
			delete(r.open, given)
		}
	}
}

func (one *receipt) endLocked() {
	one.underWay = false
	if one.renewed != nil {
		close(one.renewed)
		one.renewed = nil
	}
}

// due takes the receipts that end soon; each is under way until renewedAs or settle is called.
func (r *receipts) due(now time.Time) (due []*receipt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.open {
		if !one.underWay && one.visibleAt-now.UnixMilli() <= renewAhead.Milliseconds() {
			one.underWay = true
			due = append(due, one)
		}
	}
	return due
}

// outcome is what came of a renewal.
type outcome uint8

const (
	receiptKept outcome = iota
	receiptLost
	receiptReturned // renewed, but its client is gone
)

// renewedAs ends a renewal: with the new handle, or with an error.
func (r *receipts) renewedAs(one *receipt, h *protocol.ReceiptsResponseHeader, err error) outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer one.endLocked()
	var refused *refusal
	switch {
	case err == nil && one.returned:
		return receiptReturned
	case err == nil:
		one.newest, one.visibleAt, one.failures = h.Handles[0], h.VisibleAt, 0
		one.count++
		return receiptKept
	case errors.As(err, &refused):
		one.failures = renewMaxFailures // it is nobody's any more
	default:
		one.failures++
	}
	if one.failures < renewMaxFailures {
		return receiptKept
	}
	delete(r.open, one.given)
	return receiptLost
}

// takeAll empties the table and returns what nobody else is busy with.
func (r *receipts) takeAll() (all []*receipt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.open {
		one.returned = true
		if !one.underWay {
			all = append(all, one)
		}
	}
	r.open = nil
	return all
}

// drop forgets everything.
func (r *receipts) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = nil
}

// renewDue prolongs what a client has in work and would soon be seen by others. What has been in work for too
// long goes back, to rest as the group says.
func (a *api) renewDue(ctx context.Context, s *session, now time.Time) {
	for _, one := range s.receipts.due(now) {
		if now.Sub(one.begun) >= renewLongest {
			s.receipts.settle(one.given, true)
			a.changeLater(ctx, s, one, one.newest, asGroupSays, nil)
			continue
		}
		next := renewals[min(one.count, len(renewals)-1)]
		a.changeLater(ctx, s, one, one.newest, next, func(h *protocol.ReceiptsResponseHeader, err error) {
			switch s.receipts.renewedAs(one, h, err) {
			case receiptKept:
			case receiptReturned:
				a.changeLater(ctx, s, one, h.Handles[0], returnedInvisible, nil)
			case receiptLost:
				a.log.Warn("receipt not renewed", slog.String("group", one.group), slog.String("topic", one.topic),
					slog.String("client_id", s.clientID), slog.Any("error", err))
			}
		})
	}
}

// returnAll lets others soon see what a client has in work that is gone.
func (a *api) returnAll(s *session) {
	for _, one := range s.receipts.takeAll() {
		a.changeLater(context.Background(), s, one, one.newest, returnedInvisible, nil)
	}
}

// changeLater changes the invisible time of a message of a session; done, if there is one, gets the new receipt.
func (a *api) changeLater(
	ctx context.Context, s *session, one *receipt, handle string, invisible time.Duration,
	done func(*protocol.ReceiptsResponseHeader, error),
) {
	c := &caller{clientID: s.clientID, session: s, conn: &connInfo{}, language: s.language, user: *s.user.Load()}
	a.registry.Dispatch(
		ctx,
		a.newCall(ctx, c, protocol.ChangeMessageInvisibleTime, &protocol.RenewReceiptRequestHeader{
			ConsumerGroup: one.group, Topic: one.topic, Handle: handle, InvisibleTime: invisible.Milliseconds(),
		}, nil, func(r remoting.Response, err error) {
			if err == nil && r.Code != protocol.Success {
				err = &protocol.Error{Code: r.Code, Remark: r.Remark}
			}
			if done != nil {
				done(changed(r, err))
			}
		}),
	)
}
