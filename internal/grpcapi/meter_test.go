// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/peer"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/protocol"
)

// rawConn is a connection whose frames a test writes itself.
type rawConn struct {
	net.Conn
	t      *testing.T
	framer *http2.Framer
	heads  bytes.Buffer
	enc    *hpack.Encoder
	window chan int // what the server lets the connection send more
	resets atomic.Int64
	pongs  atomic.Int64
	deaf   atomic.Bool // reads nothing more
	ended  chan struct{}
}

// raw dials and says the preface. What the server sends is read away, but for what it lets the connection send.
func (d *door) raw(settings ...http2.Setting) *rawConn {
	d.t.Helper()
	theirs, ours := net.Pipe()
	go d.server.Deliver(ours)
	c := &rawConn{
		Conn:   theirs,
		t:      d.t,
		framer: http2.NewFramer(theirs, theirs),
		window: make(chan int, 10_000),
		ended:  make(chan struct{}),
	}
	c.window <- 65535
	c.enc = hpack.NewEncoder(&c.heads)
	d.t.Cleanup(func() { theirs.Close() })
	go func() {
		defer close(c.ended)
		for {
			frame, err := c.framer.ReadFrame()
			if err != nil || c.deaf.Load() {
				return
			}
			switch f := frame.(type) {
			case *http2.WindowUpdateFrame:
				if f.StreamID == 0 {
					c.window <- int(f.Increment)
				}
			case *http2.RSTStreamFrame:
				c.resets.Add(1)
			case *http2.PingFrame:
				if f.IsAck() {
					c.pongs.Add(1)
				}
			}
		}
	}()
	if _, err := io.WriteString(theirs, http2.ClientPreface); err != nil {
		d.t.Fatal(err)
	}
	if err := c.framer.WriteSettings(settings...); err != nil {
		d.t.Fatal(err)
	}
	return c
}

// open begins an rpc on a stream.
func (c *rawConn) open(stream uint32, method string) error {
	c.heads.Reset()
	for _, f := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", "/apache.rocketmq.v2.MessagingService/" + method},
		{":authority", "x"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
		{keyClientID, "raw"},
	} {
		if err := c.enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			c.t.Fatal(err)
		}
	}
	return c.framer.WriteHeaders(
		http2.HeadersFrameParam{StreamID: stream, BlockFragment: c.heads.Bytes(), EndHeaders: true},
	)
}

// neighbour shows that another client is served.
func (d *door) neighbour() {
	d.t.Helper()
	answer, err := d.client.QueryRoute(as(d.t, "neighbour"), &v2.QueryRouteRequest{Topic: resource("normal")})
	if err != nil {
		d.t.Fatal(err)
	}
	wantCode(d.t, answer.GetStatus(), v2.Code_OK)
}

// A client that begins requests to drop them loses its connection (CVE-2023-44487); others do not notice.
func TestRapidReset(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	c := d.raw()
	for i := range uint32(3 * mostResets) {
		if c.open(2*i+1, "QueryRoute") != nil || c.framer.WriteRSTStream(2*i+1, http2.ErrCodeCancel) != nil {
			break
		}
	}
	select {
	case <-c.ended:
	case <-time.After(20 * time.Second):
		t.Error("it still has its connection")
	}
	d.neighbour()
}

func TestMeterFollowsFrames(t *testing.T) {
	t.Parallel()
	var wire bytes.Buffer
	wire.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&wire, nil)
	sizes := []int{0, 1, 5, 1000, 16384}
	want := int64(0)
	for i, n := range sizes {
		if err := errors.Join(
			f.WriteSettings(),
			f.WriteData(uint32(2*i+1), false, make([]byte, n)),
			f.WritePing(false, [8]byte{}),
		); err != nil {
			t.Fatal(err)
		}
		want += int64(n)
	}
	for range 200 {
		c := newMeteredConn(nil, &meter{log: slog.New(slog.DiscardHandler)}, &connInfo{})
		got := int64(0)
		for rest := wire.Bytes(); len(rest) > 0; {
			n := 1 + rand.IntN(len(rest))
			got += c.scan(rest[:n])
			rest = rest[n:]
		}
		if got != want {
			t.Fatalf("%d bytes of data, want %d", got, want)
		}
	}
}

func TestMeterTakesOffWhatArrived(t *testing.T) {
	t.Parallel()
	info := &connInfo{}
	ctx := peer.NewContext(t.Context(), &peer.Peer{AuthInfo: info})
	m := &meter{}
	req := &v2.SendMessageRequest{Messages: []*v2.Message{plain("normal", nil)}}
	info.owes.Store(1 << 20)
	m.all.Store(2 << 20)
	m.arrived(ctx, req)
	if n := info.owes.Load(); n >= 1<<20 || n < 1<<20-1000 || m.all.Load()-n != 1<<20 {
		t.Errorf("owes %d, all %d", n, m.all.Load())
	}
	info.owes.Store(3)
	m.arrived(ctx, req)
	if n := info.owes.Load(); n != 0 {
		t.Errorf("owes %d", n)
	}
	m.arrived(context.Background(), req)
}

// A client that begins large requests and never finishes them loses its connection, and its neighbours do not
// notice.
func TestUnfinishedRequestsAreBounded(t *testing.T) {
	t.Parallel()
	d := newDoor(t, func(c *Config) { c.Limits.InboundBytes = 8 << 20 })
	c := d.raw()
	chunk := make([]byte, 16<<10)
	copy(chunk, []byte{0, 7, 0, 0, 0}) // one message of 117 MiB
	room := 0
	for stream := uint32(1); d.server.api.meter.closed.Load() == 0; stream += 2 {
		if c.open(stream, "SendMessage") != nil {
			break
		}
		for range 3 { // within a stream's window of 64 KiB
			for room < len(chunk) {
				select {
				case n := <-c.window:
					room += n
				case <-c.ended:
					room = 1 << 30
				}
			}
			if c.framer.WriteData(stream, false, chunk) != nil {
				break
			}
			room -= len(chunk)
		}
	}
	if n := d.server.api.meter.closed.Load(); n != 1 {
		t.Errorf("%d connections were closed for what they owe", n)
	}
	d.neighbour()
	eventually(t, "the debt is forgotten", func() bool { return d.server.api.meter.all.Load() == 0 })
}

// Requests that are finished are not counted, however many there are.
func TestFinishedRequestsOweNothing(t *testing.T) {
	t.Parallel()
	d := newDoor(t, func(c *Config) { c.Limits.InboundBytes = 4 << 20 })
	d.broker.on(protocol.SendMessageV2, replySend)
	m := plain("normal", func(m *v2.Message) { m.Body = []byte(strings.Repeat("x", 1<<20)) })
	for range 20 {
		answer, err := d.client.SendMessage(as(t, "c1"), &v2.SendMessageRequest{Messages: []*v2.Message{m}})
		if err != nil {
			t.Fatal(err)
		}
		wantCode(t, answer.GetStatus(), v2.Code_OK)
	}
	if n := d.server.api.meter.all.Load(); n != 0 {
		t.Errorf("%d bytes owed", n)
	}
}
