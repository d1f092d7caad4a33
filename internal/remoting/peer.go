// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"net"
	"net/netip"
	"time"

	"github.com/roquetmq/roquet/internal/protocol"
)

// Protocol says through which door a call came.
type Protocol uint8

// The doors.
const (
	ProtocolRemoting Protocol = iota + 1
	ProtocolGRPC
	ProtocolREST
)

// String returns the door's name as logs and spans carry it.
func (p Protocol) String() string {
	return [...]string{"unknown", "remoting", "grpc", "rest"}[p]
}

// A Peer is whoever made a call: a native connection, a gRPC stream, an HTTP client.
type Peer interface {
	// ID is unique among the peers of this process; see Registry.NextPeerID.
	ID() uint64
	// RemoteAddr is the client's address, the one that a PROXY header names if there was one.
	RemoteAddr() netip.AddrPort
}

// AddrPort is a TCP address; the zero value for others.
func AddrPort(a net.Addr) netip.AddrPort {
	if tcp, ok := a.(*net.TCPAddr); ok {
		ap := tcp.AddrPort()
		return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
	}
	return netip.AddrPort{}
}

// A Gate tells doors who makes a request. What that user may do, the registry's wrapper decides.
type Gate interface {
	// Closed tells whether requests need credentials.
	Closed() bool
	// Identify returns the user that an Authorization header proves; empty for nobody who is let in by other
	// reasons. The error is a *protocol.Error for the client. date is what is signed besides, where there is one.
	Identify(authorization, date string, from netip.Addr) (user string, err error)
}

// A Caller is a peer that takes requests from the server. Conn is one.
type Caller interface {
	// Request sends a request and returns; done is called exactly once, with the answer or with ErrTimeout or
	// ErrConnClosed, on a goroutine that must not be blocked, under no lock.
	Request(code protocol.Code, h protocol.Header, body []byte, timeout time.Duration,
		done func(*protocol.Command, error))
	// OneWay sends a request that has no answer. It does not wait for the socket.
	OneWay(code protocol.Code, h protocol.Header, body []byte) error
}
