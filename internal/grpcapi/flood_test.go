// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"encoding/binary"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// heapMB is what is in use after a collection; a second one takes what pools kept over the first.
func heapMB() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapInuse+m.StackInuse) / (1 << 20)
}

// TestFloods: what a connection can be made to do for nothing is throttled or closes it; memory stays where it was while
// it lasts, and a neighbour is served. The tests of this file run one after the other, since they look at the heap.
//
//nolint:paralleltest // the heap is the process's
func TestFloods(t *testing.T) {
	const mostMB = 24
	for _, tc := range []struct {
		name   string
		closes bool // the connection must be closed for it
		write  func(c *rawConn, i uint32) error
		times  uint32
	}{
		{"rapid reset", false, func(c *rawConn, i uint32) error {
			if err := c.open(2*i+1, "QueryRoute"); err != nil {
				return err
			}
			return c.framer.WriteRSTStream(2*i+1, http2.ErrCodeCancel)
		}, 10_000},
		{"malformed protobuf", false, func(c *rawConn, i uint32) error {
			if err := c.open(2*i+1, "SendMessage"); err != nil {
				return err
			}
			return c.framer.WriteData(2*i+1, true, []byte("\x00\x00\x00\x00\x05\xff\xff\xff\xff\xff"))
		}, 2_000},
		{"streams without end", false, func(c *rawConn, i uint32) error { return c.open(2*i+1, "Telemetry") }, 5_000},
		{"CONTINUATION", true, func(c *rawConn, i uint32) error {
			part := []byte(strings.Repeat("\x00\x01a\x7f\x80\x7f"+strings.Repeat("x", 255), 60)) // new fields of 255 bytes
			if i == 0 {
				return c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: part})
			}
			return c.framer.WriteContinuation(1, false, part)
		}, 10_000},
		{"PING", true, func(c *rawConn, _ uint32) error { return c.framer.WritePing(false, [8]byte{}) }, 100_000},
		{"SETTINGS", false, func(c *rawConn, i uint32) error {
			return c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: i})
		}, 20_000},
		{"WINDOW_UPDATE", false, func(c *rawConn, _ uint32) error { return c.framer.WriteWindowUpdate(0, 1) }, 50_000},
		{"PRIORITY", false, func(c *rawConn, i uint32) error {
			return c.framer.WritePriority(2*i+1, http2.PriorityParam{Weight: 1})
		}, 50_000},
		{"empty DATA", false, func(c *rawConn, i uint32) error {
			if i == 0 {
				return c.open(1, "SendMessage")
			}
			return c.framer.WriteData(1, false, nil)
		}, 50_000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDoor(t, func(c *Config) { c.Limits.MaxStreamsPerConn = 200 })
			d.neighbour()
			before := heapMB()
			c := d.raw()
			closed := false
			for i := uint32(0); i < tc.times && !closed; i++ {
				closed = tc.write(c, i) != nil
				if i%(tc.times/4) == 0 {
					d.neighbour()
				}
			}
			if tc.closes { // grpc-go leaves a client a second to read why
				<-c.ended
			}
			if grown := heapMB() - before; grown > mostMB {
				t.Errorf("%.0f MB more are in use", grown)
			}
			if tc.name == "streams without end" && !closed {
				eventually(t, "streams over the limit are refused", func() bool { return c.resets.Load() >= 4_000 })
			}
			d.neighbour()
		})
	}
}

// A client that asks without reading the answers makes the server stop reading from it.
//
//nolint:paralleltest // the heap is the process's
func TestFloodOfAClientThatReadsNothing(t *testing.T) {
	d := newDoor(t, nil)
	d.neighbour()
	c := d.raw()
	c.deaf.Store(true)
	before := heapMB()
	if err := c.SetWriteDeadline(time.Now().Add(2 * time.Second)); err != nil {
		t.Fatal(err)
	}
	sent := 0
	for c.framer.WriteSettings() == nil { // each wants an answer
		sent++
	}
	if grown := heapMB() - before; grown > 8 || sent > 100_000 {
		t.Errorf("%d frames were taken, %.0f MB more are in use", sent, grown)
	}
	d.neighbour()
}

// A client that takes no message is given so many and then none; one that reads Telemetry slowly is a case of
// TestSlowTelemetryReader.
//
//nolint:paralleltest // the heap is the process's
func TestSlowReceiver(t *testing.T) {
	const size, limit, asked = 1 << 20, 16 << 20, 200 // bytes, bytes, receives
	d := newDoor(t, func(c *Config) { c.Limits.MaxUntakenBytes = limit })
	d.broker.on(protocol.PopMessage, func(c *remoting.Call) {
		rec := stored("normal", 0, 0, strings.Repeat("x", size), "")
		receipts := &protocol.ReceiptsResponseHeader{Handles: []string{"handle"}, VisibleAt: 60_000}
		c.Reply(remoting.Response{Bodies: [][]byte{rec}, Header: receipts})
	})
	_, _ = d.connect(as(t, "raw"), consumer(v2.ClientType_SIMPLE_CONSUMER, "g", "normal"))
	before := heapMB()
	c := d.raw(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	request, err := proto.Marshal(&v2.ReceiveMessageRequest{
		Group: resource("g"), MessageQueue: &v2.MessageQueue{Topic: resource("normal")}, BatchSize: 1,
		InvisibleDuration: durationpb.New(time.Minute),
	})
	if err != nil {
		t.Fatal(err)
	}
	request = append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(request))), request...)
	for i := range uint32(asked) {
		if c.open(2*i+1, "ReceiveMessage") != nil || c.framer.WriteData(2*i+1, true, request) != nil {
			t.Fatal("the connection was closed")
		}
	}
	// Before all have come to their handlers, what is popped and about to be given back is in memory too.
	if err := c.framer.WritePing(false, [8]byte{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all have begun", func() bool { return c.pongs.Load() > 0 && d.server.api.meter.all.Load() == 0 })
	eventually(t, "each is given back, refused, or waits for the client", func() bool {
		given := len(d.broker.seen(protocol.PopMessage)) - len(d.broker.seen(protocol.ChangeMessageInvisibleTime))
		waiting := int(d.server.api.inFlight.Load())
		return given == waiting && waiting > 0 && waiting <= limit/size+1
	})
	d.neighbour()
	if grown := heapMB() - before; grown > 4*limit>>20 {
		t.Errorf("%.0f MB more are in use", grown)
	}
}
