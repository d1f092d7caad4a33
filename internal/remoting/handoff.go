// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// A ConnHandler takes over a connection that speaks its protocol, with nothing of it consumed. It owns the
// connection and may return before it is done with it. The connection has the methods Listener() *Listener and
// Blame(), which counts a fault of the client, and
// its RemoteAddr is the one that a PROXY header named; the connection counts against the server's limits
// until it is closed.
type ConnHandler func(conn net.Conn)

// handed is a connection given to another door: what was read of it already comes first.
type handed struct {
	net.Conn
	prefix []byte
	via    *Listener
	remote netip.AddrPort
	server *Server // counts it until it is closed; nil: somebody else does
	once   sync.Once
}

// Read returns what the sniffing read, then what comes.
func (h *handed) Read(p []byte) (int, error) {
	if len(h.prefix) > 0 {
		n := copy(p, h.prefix)
		h.prefix = h.prefix[n:]
		return n, nil
	}
	h.prefix = nil
	return h.Conn.Read(p)
}

// RemoteAddr returns the client's address, the one a PROXY header named if there was one.
func (h *handed) RemoteAddr() net.Addr {
	if h.remote.IsValid() {
		return net.TCPAddrFromAddrPort(h.remote)
	}
	return h.Conn.RemoteAddr()
}

// Blame counts a fault of the client, whose next connections then wait.
func (h *handed) Blame() { h.server.eng.tarpit.blame(h.remote.Addr(), time.Now()) }

// Listener returns the listener the connection came through.
func (h *handed) Listener() *Listener { return h.via }

// Close closes the connection and ends its counting.
func (h *handed) Close() error {
	err := h.Conn.Close()
	if h.server != nil {
		h.once.Do(func() { h.server.doors.leave(h.remote.Addr()) })
	}
	return err
}

// A ConnListener is a net.Listener whose connections come from a ConnHandler: Deliver is the handler, and the
// listener is given to a server such as grpc-go's or net/http's. Safe for concurrent use.
type ConnListener struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// NewConnListener returns a listener that says it listens on addr, such as "127.0.0.1:8081"; nothing is
// bound.
func NewConnListener(addr string) *ConnListener {
	name := &net.UnixAddr{Name: addr, Net: "tcp"} // the net.Addr that may have any text
	return &ConnListener{addr: name, conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Deliver hands a connection to whoever accepts, and waits for that; after Close it closes the connection.
func (l *ConnListener) Deliver(conn net.Conn) {
	select {
	case l.conns <- conn:
	case <-l.closed:
		// Nobody is going to serve it, and it has no other owner to report to.
		_ = conn.Close()
	}
}

// Accept returns the next delivered connection, or net.ErrClosed after Close.
func (l *ConnListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and Deliver. Connections accepted before live on.
func (l *ConnListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr returns the address given to NewConnListener.
func (l *ConnListener) Addr() net.Addr { return l.addr }
