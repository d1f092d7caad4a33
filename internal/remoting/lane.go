// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roquetmq/roquet/internal/protocol"
)

// LaneConfig describes a lane. Zero fields take the defaults in parentheses.
type LaneConfig struct {
	Name     string
	MaxCalls int // calls in flight at once (10,000)

	// MaxBytes bounds the bytes of their frames (64 MiB). One call is admitted whatever its size.
	MaxBytes int64

	// Workers is how many goroutines at most run processors; 0: they run inline, on the caller's goroutine.
	Workers int

	// MaxWait is the longest wait for a place, if the call's deadline is not sooner (2 s).
	MaxWait time.Duration
}

// A Lane bounds the calls of some request codes that are in flight, by count and by bytes. A call has its
// place from Dispatch until it is replied to or suspended. When there is no place, Dispatch waits, up to the
// call's own deadline, in order of arrival; the connection's reader waits with it, which is how overload
// reaches the sender. A call whose time is up is refused with SYSTEM_BUSY and is never executed. A Lane is
// safe for concurrent use.
type Lane struct {
	cfg     LaneConfig
	calls   atomic.Int64
	bytes   atomic.Int64
	waiting atomic.Int32 // len(mu.waiters), readable without the lock
	done    atomic.Uint64
	refused atomic.Uint64

	mu struct {
		sync.Mutex
		waiters []*laneWaiter // first come, first served
		queue   []queuedCall  // calls of a pooled lane that wait for a worker; bounded by MaxCalls
		workers int
	}
	running sync.WaitGroup // the workers
}

type laneWaiter struct {
	bytes   int64
	granted chan struct{} // closed under Lane.mu when the place is given
}

type queuedCall struct {
	e *entry
	c *Call
}

// NewLane returns an empty lane.
func NewLane(cfg LaneConfig) *Lane {
	cfg.MaxCalls = cmp.Or(cfg.MaxCalls, 10_000)
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, 64<<20)
	cfg.MaxWait = cmp.Or(cfg.MaxWait, 2*time.Second)
	return &Lane{cfg: cfg}
}

// Capacity is how many calls the lane admits at once.
func (l *Lane) Capacity() int { return l.cfg.MaxCalls }

// Waiting is how many callers wait for a place.
func (l *Lane) Waiting() int64 { return int64(l.waiting.Load()) }

// tryEnter takes a place if there is one and nobody waits for it.
func (l *Lane) tryEnter(bytes int64) bool {
	return l.waiting.Load() == 0 && l.take(bytes)
}

func (l *Lane) take(bytes int64) bool {
	if l.calls.Add(1) > int64(l.cfg.MaxCalls) {
		l.calls.Add(-1)
		return false
	}
	if sum := l.bytes.Add(bytes); sum > l.cfg.MaxBytes && sum != bytes {
		l.bytes.Add(-bytes)
		l.calls.Add(-1)
		return false
	}
	return true
}

// leave gives a place back and passes it on.
func (l *Lane) leave(bytes int64) {
	l.bytes.Add(-bytes)
	l.calls.Add(-1)
	l.done.Add(1)
	if l.waiting.Load() > 0 {
		l.grant()
	}
}

// grant gives places to waiters, in order, while there are any.
func (l *Lane) grant() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.mu.waiters) > 0 && l.take(l.mu.waiters[0].bytes) {
		w := l.mu.waiters[0]
		l.mu.waiters = append(l.mu.waiters[:0], l.mu.waiters[1:]...)
		l.waiting.Add(-1)
		close(w.granted)
	}
}

// enter waits for a place until the deadline or until stop is closed (nil: never). It reports how long it
// waited.
func (l *Lane) enter(bytes int64, deadline time.Time, stop <-chan struct{}) (waited time.Duration, ok bool) {
	start := time.Now()
	patience := min(l.cfg.MaxWait, deadline.Sub(start))
	if deadline.IsZero() {
		patience = l.cfg.MaxWait
	}
	if patience <= 0 {
		return 0, false
	}
	w := &laneWaiter{bytes: bytes, granted: make(chan struct{})}
	l.mu.Lock()
	l.mu.waiters = append(l.mu.waiters, w)
	l.waiting.Add(1)
	l.mu.Unlock()
	l.grant() // a place may have come free before the waiter was seen

	select {
	case <-w.granted:
		return time.Since(start), true
	case <-time.After(patience):
	case <-stop:
	}
	return time.Since(start), !l.withdraw(w)
}

// withdraw takes a waiter out. False: it has got its place in the meantime.
func (l *Lane) withdraw(w *laneWaiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, other := range l.mu.waiters {
		if other == w {
			l.mu.waiters = append(l.mu.waiters[:i], l.mu.waiters[i+1:]...)
			l.waiting.Add(-1)
			return true
		}
	}
	return false
}

// busy is the refusal of a call, in RocketMQ's words and with the cause in numbers. Source of the words:
// NettyRemotingAbstract.java processRequestCommand, BrokerFastFailure.java.
func (l *Lane) busy(waited time.Duration) *protocol.Error {
	l.refused.Add(1)
	var b strings.Builder
	if waited > 0 {
		fmt.Fprintf(&b, "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "+
			"period in queue: %dms, size of queue: %d", waited.Milliseconds(), l.waiting.Load())
	} else {
		b.WriteString("[OVERLOAD]system busy, start flow control for a while")
	}
	fmt.Fprintf(&b, ", lane %s: %d of %d calls, %d of %d bytes in flight", l.cfg.Name, l.calls.Load(),
		l.cfg.MaxCalls, l.bytes.Load(), l.cfg.MaxBytes)
	return &protocol.Error{Code: protocol.SystemBusy, Remark: b.String()}
}

// submit runs the call's processor on a worker. The call has its place already, which bounds the queue.
func (l *Lane) submit(e *entry, c *Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.queue = append(l.mu.queue, queuedCall{e, c})
	if l.mu.workers < l.cfg.Workers {
		l.mu.workers++
		l.running.Go(l.work)
	}
}

// work runs queued calls until there are none.
func (l *Lane) work() {
	for {
		l.mu.Lock()
		if len(l.mu.queue) == 0 {
			l.mu.queue = nil
			l.mu.workers--
			l.mu.Unlock()
			return
		}
		next := l.mu.queue[0]
		l.mu.queue = l.mu.queue[1:]
		l.mu.Unlock()
		next.e.runPooled(next.c)
	}
}

// wait returns when no worker runs, or when ctx is done. Nobody may submit any more.
func (l *Lane) wait(ctx context.Context) error {
	ended := make(chan struct{})
	go func() {
		l.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("lane %s: %w", l.cfg.Name, ctx.Err())
	}
}
