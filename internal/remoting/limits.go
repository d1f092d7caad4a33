// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"cmp"
	"time"

	"github.com/roquetmq/roquet/internal/protocol"
)

// Limits bounds what clients may cost. Zero fields take the defaults in parentheses.
type Limits struct {
	MaxFrameBytes    int           // a whole frame (16 MiB, also the most)
	MaxConns         int           // connections of all listeners (200,000)
	MaxConnsPerIP    int           // connections from one address (MaxConns)
	MaxCallsPerConn  int           // calls in flight on a connection, then its reader waits (65,536)
	SoftOutBytes     int           // untaken answers before a client is read no further (1 MiB)
	MaxOutBytes      int           // untaken answers before a client is closed (32 MiB)
	OutMemoryBytes   int64         // the same of all before each gets but 64 KiB (256 MiB)
	ReadMemoryBytes  int64         // unfinished frames above 64 KiB of all connections; one more may grow (256 MiB)
	IdleTimeout      time.Duration // nothing read or written and no call in flight (120 s)
	FrameTimeout     time.Duration // a frame, first bytes or TLS handshake begun, and silence (30 s)
	WriteTimeout     time.Duration // a quarter of a MiB of answers not taken (30 s)
	CallTimeout      time.Duration // deadline of native calls, which carry none (2.5 s; clients wait 3)
	DrainTimeout     time.Duration // at the end, for calls in flight and untaken answers (5 s)
	FaultDelay       time.Duration // new connections of who misbehaved wait this for each fault (100 ms); see tarpit
	KeepAliveTimeout time.Duration // until a vanished peer is noticed; twice, if just then sent to (29 s)
}

// squeezedOutBytes is what replaces SoftOutBytes while OutMemoryBytes is exceeded.
const squeezedOutBytes = 64 << 10

func (l *Limits) setDefaults() {
	l.MaxFrameBytes = cmp.Or(l.MaxFrameBytes, protocol.MaxFrameBytes)
	l.MaxConns = cmp.Or(l.MaxConns, 200_000)
	l.MaxConnsPerIP = cmp.Or(l.MaxConnsPerIP, l.MaxConns)
	l.MaxCallsPerConn = cmp.Or(l.MaxCallsPerConn, 1<<16)
	l.SoftOutBytes = cmp.Or(l.SoftOutBytes, 1<<20)
	l.MaxOutBytes = cmp.Or(l.MaxOutBytes, 32<<20)
	l.OutMemoryBytes = cmp.Or(l.OutMemoryBytes, 256<<20)
	l.ReadMemoryBytes = cmp.Or(l.ReadMemoryBytes, 256<<20)
	l.IdleTimeout = cmp.Or(l.IdleTimeout, 120*time.Second)
	l.FrameTimeout = cmp.Or(l.FrameTimeout, 30*time.Second)
	l.WriteTimeout = cmp.Or(l.WriteTimeout, 30*time.Second)
	l.CallTimeout = cmp.Or(l.CallTimeout, 2500*time.Millisecond)
	l.DrainTimeout = cmp.Or(l.DrainTimeout, 5*time.Second)
	l.FaultDelay = cmp.Or(l.FaultDelay, 100*time.Millisecond)
	l.KeepAliveTimeout = cmp.Or(l.KeepAliveTimeout, 29*time.Second)
}
