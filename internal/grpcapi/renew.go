// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
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

// receiptKey names a message that a client has in work.
type receiptKey struct {
	group, topic string
	queueID      int32
	offset       int64
}

// receipt is a message whose invisible time is prolonged as long as its client lives. Its fields are guarded by
// receipts.mu.
type receipt struct {
	given    string // the handle that the client has
	newest   receiptHandle
	begun    time.Time
	count    int // renewals so far
	failures int // in a row
	underWay bool
	renewed  chan struct{} // made when somebody waits for the renewal under way, closed at its end
	returned bool          // its client was gone while the renewal was under way
}

// receipts is the messages that one client has in work. Safe for concurrent use; the zero value is empty.
//
// Source: DefaultReceiptHandleManager.java, ReceiptHandleGroup.java. Known difference: an acknowledgement that
// fails leaves the receipt here, so that the client's first handle stays good (case C105); and only the handle
// that was given out with a delivery stands for that delivery.
type receipts struct {
	mu   sync.Mutex
	open map[receiptKey]*receipt
}

func (r *receipts) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.open)
}

func (r *receipts) add(key receiptKey, one *receipt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open == nil {
		r.open = map[receiptKey]*receipt{}
	}
	r.open[key] = one
}

// newest returns the handle that is good now for a message that the client knows by its first one, and waits
// for a renewal under way. The handle stays good until forget or release is called: nothing renews it.
func (r *receipts) newest(ctx context.Context, key receiptKey, given string) (h receiptHandle, held bool, err error) {
	for {
		r.mu.Lock()
		one := r.open[key]
		if one == nil || one.given != given {
			r.mu.Unlock()
			return receiptHandle{}, false, nil
		}
		if !one.underWay {
			one.underWay = true
			h = one.newest
			r.mu.Unlock()
			return h, true, nil
		}
		if one.renewed == nil {
			one.renewed = make(chan struct{})
		}
		wait := one.renewed
		r.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return receiptHandle{}, false, ctx.Err()
		}
	}
}

// settle ends what newest began. When the message is done with, nothing is renewed any more.
func (r *receipts) settle(key receiptKey, given string, done bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.open[key]
	if one == nil || one.given != given {
		return
	}
	one.endLocked()
	if done {
		delete(r.open, key)
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
func (r *receipts) due(now time.Time) map[receiptKey]*receipt {
	r.mu.Lock()
	defer r.mu.Unlock()
	var due map[receiptKey]*receipt
	for key, one := range r.open {
		if one.underWay || one.newest.visibleAt()-now.UnixMilli() > renewAhead.Milliseconds() {
			continue
		}
		if due == nil {
			due = map[receiptKey]*receipt{}
		}
		one.underWay = true
		due[key] = one
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
func (r *receipts) renewedAs(key receiptKey, one *receipt, h receiptHandle, err error) outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer one.endLocked()
	var refused *refusal
	switch {
	case err == nil && one.returned:
		return receiptReturned
	case err == nil:
		one.newest, one.failures = h, 0
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
	if r.open[key] == one {
		delete(r.open, key)
	}
	return receiptLost
}

// takeAll empties the table and returns what nobody else is busy with.
func (r *receipts) takeAll() map[receiptKey]*receipt {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.open
	r.open = nil
	for key, one := range all {
		one.returned = true
		if one.underWay {
			delete(all, key)
		}
	}
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
	for key, one := range s.receipts.due(now) {
		if now.Sub(one.begun) >= renewLongest {
			s.receipts.settle(key, one.given, true)
			a.changeLater(ctx, s, key, one.newest, asGroupSays, func(receiptHandle, error) {})
			continue
		}
		next := renewals[min(one.count, len(renewals)-1)]
		a.changeLater(ctx, s, key, one.newest, next, func(h receiptHandle, err error) {
			switch s.receipts.renewedAs(key, one, h, err) {
			case receiptKept:
			case receiptReturned:
				a.changeLater(ctx, s, key, h, returnedInvisible, func(receiptHandle, error) {})
			case receiptLost:
				a.log.Warn("receipt not renewed", slog.String("group", key.group), slog.String("topic", key.topic),
					slog.String("client_id", s.clientID), slog.Any("error", err))
			}
		})
	}
}

// returnAll lets others soon see what a client has in work that is gone.
func (a *api) returnAll(s *session) {
	ctx := context.Background()
	for key, one := range s.receipts.takeAll() {
		a.changeLater(ctx, s, key, one.newest, returnedInvisible, func(receiptHandle, error) {})
	}
}

// changeLater changes the invisible time of a message of a session; done gets the new handle.
func (a *api) changeLater(
	ctx context.Context,
	s *session,
	key receiptKey,
	h receiptHandle,
	invisible time.Duration,
	done func(receiptHandle, error),
) {
	c := &caller{clientID: s.clientID, session: s, conn: &connInfo{}, language: s.language}
	header := changeHeader(key.group, key.topic, h, invisible)
	call := a.newCall(ctx, c, protocol.ChangeMessageInvisibleTime, header, nil, func(r remoting.Response, err error) {
		if err == nil && r.Code != protocol.Success {
			err = receiptError(&protocol.Error{Code: r.Code, Remark: r.Remark})
		}
		if err != nil {
			done(h, err)
			return
		}
		done(changed(h, r))
	})
	a.registry.Dispatch(ctx, call)
}

func changeHeader(
	group, topic string,
	h receiptHandle,
	invisible time.Duration,
) *protocol.ChangeInvisibleTimeRequestHeader {
	return &protocol.ChangeInvisibleTimeRequestHeader{
		ConsumerGroup: group,
		Topic:         h.realTopic(topic, group),
		QueueID:       h.queueID,
		ExtraInfo:     h.text(),
		Offset:        h.offset,
		InvisibleTime: invisible.Milliseconds(),
	}
}

// changed is the handle after its invisible time was changed.
func changed(h receiptHandle, r remoting.Response) (receiptHandle, error) {
	header, ok := r.Header.(*protocol.ChangeInvisibleTimeResponseHeader)
	if !ok {
		return h, refuse(v2.Code_INTERNAL_SERVER_ERROR, "the broker's answer has no header")
	}
	h.startOffset = h.offset
	h.popTime, h.invisible, h.reviveQueue = header.PopTime, header.InvisibleTime, header.ReviveQID
	return h, nil
}
