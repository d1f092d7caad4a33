// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// ProtocolSet says what a listener serves. The zero set stands for everything.
type ProtocolSet uint8

// What the first bytes of a connection can announce.
const (
	ServeNative ProtocolSet = 1 << iota // RemotingCommand frames
	ServeHTTP1                          // REST, health, metrics
	ServeHTTP2                          // gRPC

	// ServeAll is what the zero set stands for.
	ServeAll = ServeNative | ServeHTTP1 | ServeHTTP2
)

func (s ProtocolSet) has(one ProtocolSet) bool { return s == 0 || s&one != 0 }

// TLSMode says what a listener does with and without TLS; the empty mode is TLSPermissive. Source: TlsMode.java.
type TLSMode string

// The modes of the original.
const (
	TLSPermissive TLSMode = "permissive" // both are served
	TLSDisabled   TLSMode = "disabled"   // a TLS hello closes the connection
	TLSEnforcing  TLSMode = "enforcing"  // plain text closes the connection
)

// A Listener is one port and what is served there. It does not change once the server has been made, but for
// Addr, which Listen replaces by the address that was bound.
type Listener struct {
	Name       string // for logs and for pointers to the right port, such as "broker"
	Addr       string // host:port; port 0 takes a free one
	Advertised string // host:port that clients of this listener are told; empty: left to whoever tells them
	Protocols  ProtocolSet
	Fast       bool // the original's VIP port: calls use FastLane, codes without one are refused
	TLS        TLSMode

	// ProxyFrom lists who may send a PROXY protocol header; empty: anybody, as the original.
	ProxyFrom []netip.Prefix
}

// trustsProxy reports whether a PROXY header from addr is believed.
func (l *Listener) trustsProxy(addr netip.Addr) bool {
	if len(l.ProxyFrom) == 0 {
		return true
	}
	for _, prefix := range l.ProxyFrom {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}

func (l *Listener) validate() error {
	var faults []error
	if _, _, err := net.SplitHostPort(l.Addr); err != nil {
		faults = append(faults, fmt.Errorf("listener %s: address: %w", l.Name, err))
	}
	if l.Advertised != "" {
		if _, _, err := net.SplitHostPort(l.Advertised); err != nil {
			faults = append(faults, fmt.Errorf("listener %s: advertised address: %w", l.Name, err))
		}
	}
	if l.Protocols&^ServeAll != 0 {
		faults = append(
			faults,
			fmt.Errorf("listener %s: unknown protocol bits %#x", l.Name, uint8(l.Protocols&^ServeAll)),
		)
	}
	return errors.Join(faults...)
}
