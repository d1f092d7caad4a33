// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"net"
	"time"
)

// keepAliveProbes is how many probes go unanswered before a peer counts as gone.
const keepAliveProbes = 3

// listenConfig makes listeners whose connections notice within timeout that their idle peer vanished: a third
// of it in silence, then probes.
func listenConfig(timeout time.Duration) net.ListenConfig {
	interval := max(timeout*2/3/keepAliveProbes, time.Second)
	return net.ListenConfig{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: max(timeout/3, time.Second), Interval: interval, Count: keepAliveProbes,
	}}
}
