// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"crypto/tls"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// setSocketOptions bounds how long unacknowledged data keeps a connection whose peer vanished: keepalive
// probes are not sent while data is in flight, and retransmission alone would go on for a quarter of an hour.
func setSocketOptions(nc net.Conn, timeout time.Duration) {
	if secure, ok := nc.(*tls.Conn); ok {
		nc = secure.NetConn()
	}
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		return
	}
	rc, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	// A kernel without the option keeps the longer wait; nothing depends on it for correctness.
	_ = rc.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(timeout.Milliseconds()))
	})
}
