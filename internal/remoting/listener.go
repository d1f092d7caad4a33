// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"errors"
	"fmt"
	"net"
)

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
	Fast       bool   // the original's VIP port: calls use FastLane, codes without one are refused
	TLS        TLSMode
	NoProxy    bool // a PROXY protocol header closes the connection; else anybody may send one, as with the original
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
	return errors.Join(faults...)
}
