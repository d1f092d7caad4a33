// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"net/netip"
	"sync"
	"time"
)

const (
	freeFaults      = 20              // of one address; they are forgiven at one a second
	mostFaults      = freeFaults + 20 // a well-behaved neighbour at the address waits for them too
	mostFaultyAddrs = 10_000          // remembered at once; then all are forgiven
)

// tarpit makes those wait whose connections were closed for what they sent: new ones of their address are served
// later, by so much for each fault that is not forgiven yet. Connections that are open do not notice. The zero value
// is ready; it is safe for concurrent use.
type tarpit struct {
	mu     sync.Mutex
	faults map[netip.Addr]faults
}

type faults struct {
	n     int
	since time.Time // when the last one was forgiven, or the first one happened
}

// blame counts a fault.
func (t *tarpit) blame(from netip.Addr, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.forgiveLocked(from, now)
	if t.faults == nil || len(t.faults) >= mostFaultyAddrs {
		t.faults = make(map[netip.Addr]faults)
	}
	f.n = min(f.n+1, mostFaults)
	t.faults[from] = f
}

// delay is how long a new connection waits.
func (t *tarpit) delay(from netip.Addr, now time.Time, each time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.faults) == 0 {
		return 0
	}
	return time.Duration(max(0, t.forgiveLocked(from, now).n-freeFaults)) * each
}

func (t *tarpit) forgiveLocked(from netip.Addr, now time.Time) faults {
	f, ok := t.faults[from]
	if !ok {
		return faults{since: now}
	}
	past := int(now.Sub(f.since) / time.Second)
	if f.n -= past; f.n <= 0 {
		delete(t.faults, from)
		return faults{since: now}
	}
	f.since = f.since.Add(time.Duration(past) * time.Second)
	t.faults[from] = f
	return f
}

// hold lets the connection wait if its address misbehaved.
func (s *Server) hold(c *Conn) {
	wait := s.eng.tarpit.delay(c.remote.Addr(), time.Now(), s.eng.limits.FaultDelay)
	if wait <= 0 {
		return
	}
	select {
	case <-time.After(wait):
	case <-s.eng.ctx.Done():
	}
}
