// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/roquetmq/roquet/internal/remoting"
)

// connInfo is what is known of an HTTP/2 connection. It is the Peer of calls that belong to no session.
type connInfo struct {
	id     uint64
	via    *remoting.Listener // nil in tests that bring their own connections
	remote netip.AddrPort
	local  netip.AddrPort // what the client dialled, unless something between translated it

	blame   func()       // counts a fault of the client; may be nil
	owes    atomic.Int64 // bytes of requests that are not whole; see meter
	writing atomic.Int64 // bytes of messages that it was given and has not taken
}

// ID is the connection's among all peers of the process.
func (c *connInfo) ID() uint64 { return c.id }

// RemoteAddr is the client's address, the one a PROXY header named if there was one.
func (c *connInfo) RemoteAddr() netip.AddrPort { return c.remote }

// AuthType names what carries connInfo through grpc-go.
func (c *connInfo) AuthType() string { return "listener" }

// handshake gives each connection its connInfo. TLS, where there is any, was put on by the listener before:
// the connections that come here are plain or decrypted already, and grpc-go has nothing to secure.
type handshake struct {
	nextID func() uint64
	meter  *meter
}

var _ credentials.TransportCredentials = (*handshake)(nil)

// ClientHandshake is never called: this is a server.
func (h *handshake) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("grpcapi makes no connections")
}

// ServerHandshake takes note of where the connection came from.
func (h *handshake) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	info := &connInfo{
		id:     h.nextID(),
		remote: remoting.AddrPort(conn.RemoteAddr()),
		local:  remoting.AddrPort(conn.LocalAddr()),
	}
	if handed, ok := conn.(interface{ Listener() *remoting.Listener }); ok {
		info.via = handed.Listener()
	}
	if handed, ok := conn.(interface{ Blame() }); ok {
		info.blame = handed.Blame
	}
	return newMeteredConn(conn, h.meter, info), info, nil
}

// Info says that grpc-go does not encrypt.
func (h *handshake) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "listener"}
}

// Clone returns the handshake itself, which has no state.
func (h *handshake) Clone() credentials.TransportCredentials { return h }

// OverrideServerName is for clients only.
func (h *handshake) OverrideServerName(string) error { return nil }

// connOf returns the connection an rpc came over.
func connOf(ctx context.Context) *connInfo {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(*connInfo); ok {
			return info
		}
	}
	return &connInfo{}
}
