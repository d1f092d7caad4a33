// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"
)

// grpc-go gathers a request in memory until it is whole, for each stream of each connection up to MaxInboundBytes,
// and has no bound for all together. The meter is that bound. It counts the bytes of DATA frames as they are read
// from a connection, and takes off a request's size when the request has come to its handler. Whose bytes go over
// the bound loses the connection. What a client sent of requests that it gave up stays counted until the connection
// ends.

// HTTP/2 frames: a length of three bytes, a type, flags and a stream id, then the payload.
const (
	frameHeadBytes = 9
	frameData      = 0
	frameReset     = 3
	requestHead    = 5 // gRPC's own head of a message
	prefaceBytes   = len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")

	// smallDebt is what a connection may owe however much the others do.
	smallDebt = 1 << 20

	// mostResets is how many requests a client may give up on one connection in a second: one that begins requests
	// to drop them has the work done for nothing (CVE-2023-44487).
	mostResets = 500
)

// inboundError says that a connection was closed for the requests it has begun and not finished.
type inboundError struct{ own, all, limit int64 }

// Error names the numbers.
func (e *inboundError) Error() string {
	return fmt.Sprintf("requests begun and not finished: %d bytes on this connection, %d on all, limit %d",
		e.own, e.all, e.limit)
}

var errResets = fmt.Errorf("more than %d requests given up in a second", mostResets)

// meter counts what all connections owe.
type meter struct {
	limit  int64 // of all connections
	all    atomic.Int64
	closed atomic.Int64 // connections that went over it
	log    *slog.Logger
}

// meteredConn is a connection whose DATA frames are counted. It is read by one goroutine.
type meteredConn struct {
	net.Conn

	meter *meter
	info  *connInfo
	skip  int // bytes to pass over before the next frame's head
	data  int // of those, how many are payload of a DATA frame
	head  [frameHeadBytes]byte
	have  int // bytes of head
	ended atomic.Bool

	resets int // since then, for a second at most
	since  time.Time
}

func newMeteredConn(conn net.Conn, m *meter, info *connInfo) *meteredConn {
	return &meteredConn{Conn: conn, meter: m, info: info, skip: prefaceBytes}
}

// Read reads and counts. Errors: *inboundError, errResets.
func (c *meteredConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if data := c.scan(p[:n]); data > 0 {
		own, all := c.info.owes.Add(data), c.meter.all.Add(data)
		if own > smallDebt && (own > c.meter.limit/2 || all > c.meter.limit) {
			return 0, c.meter.over(c.info, &inboundError{own: own, all: all, limit: c.meter.limit})
		}
	}
	if c.resets > mostResets {
		return 0, c.meter.over(c.info, errResets)
	}
	return n, err
}

func (m *meter) over(info *connInfo, err error) error {
	m.closed.Add(1)
	if info.blame != nil {
		info.blame()
	}
	m.log.Warn("connection closed", slog.Any("remote_addr", info.remote), slog.Any("error", err))
	return err
}

// Close ends the counting.
func (c *meteredConn) Close() error {
	if c.ended.CompareAndSwap(false, true) {
		c.meter.all.Add(-c.info.owes.Swap(0))
	}
	return c.Conn.Close()
}

func (c *meteredConn) countReset(now time.Time) {
	if now.Sub(c.since) > time.Second {
		c.since, c.resets = now, 0
	}
	c.resets++
}

// scan follows the frames and returns how many bytes were payload of DATA frames.
func (c *meteredConn) scan(b []byte) (data int64) {
	for len(b) > 0 {
		if c.skip > 0 {
			n := min(c.skip, len(b))
			c.skip -= n
			b = b[n:]
			if c.data > 0 {
				c.data -= n
				data += int64(n)
			}
			continue
		}
		n := copy(c.head[c.have:], b)
		c.have += n
		b = b[n:]
		if c.have == frameHeadBytes {
			c.have = 0
			c.skip = int(c.head[0])<<16 | int(c.head[1])<<8 | int(c.head[2])
			c.data = 0
			switch c.head[3] {
			case frameData:
				c.data = c.skip
			case frameReset:
				c.countReset(time.Now())
			}
		}
	}
	return data
}

// arrived takes a request off what its connection owes.
func (m *meter) arrived(ctx context.Context, request any) {
	msg, ok := request.(proto.Message)
	if !ok {
		return
	}
	info := connOf(ctx)
	size := int64(proto.Size(msg) + requestHead)
	for {
		owes := info.owes.Load()
		less := min(size, owes) // an encoding may be longer or shorter than ours
		if info.owes.CompareAndSwap(owes, owes-less) {
			m.all.Add(-less)
			return
		}
	}
}
