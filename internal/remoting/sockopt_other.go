// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package remoting

import (
	"net"
	"time"
)

// setSocketOptions does nothing here; keepalive probes alone find vanished peers.
func setSocketOptions(net.Conn, time.Duration) {}
