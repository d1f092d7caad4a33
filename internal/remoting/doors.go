// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"fmt"
	"net/netip"
	"sync"
)

// ConnLimitError says that a connection is one too many.
type ConnLimitError struct {
	From  netip.Addr // the zero Addr: all together
	Limit int
}

// Error names the limit.
func (e *ConnLimitError) Error() string {
	if e.From.IsValid() {
		return fmt.Sprintf("%d connections from %s, which is the limit", e.Limit, e.From)
	}
	return fmt.Sprintf("%d connections, which is the limit", e.Limit)
}

// doors counts open connections, whatever they speak, in total and by address.
type doors struct {
	mu    sync.Mutex
	total int
	byIP  map[netip.Addr]int
}

func (d *doors) enter(from netip.Addr, max, maxPerIP int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.total >= max {
		return &ConnLimitError{Limit: max}
	}
	if d.byIP[from] >= maxPerIP {
		return &ConnLimitError{From: from, Limit: maxPerIP}
	}
	d.total++
	d.addLocked(from, 1)
	return nil
}

// move counts a connection for whom a PROXY header names instead of for the proxy. On an error it is still
// the proxy's.
func (d *doors) move(from, to netip.Addr, maxPerIP int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.byIP[to] >= maxPerIP && from != to {
		return &ConnLimitError{From: to, Limit: maxPerIP}
	}
	d.addLocked(from, -1)
	d.addLocked(to, 1)
	return nil
}

func (d *doors) leave(from netip.Addr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.total--
	d.addLocked(from, -1)
}

func (d *doors) addLocked(ip netip.Addr, n int) {
	if d.byIP[ip] += n; d.byIP[ip] == 0 {
		delete(d.byIP, ip)
	}
}

func (d *doors) open() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.total
}
