// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/roquetmq/roquet/internal/protocol"
)

func accessLog(level slog.Level) (*AccessLog, *logBuffer) {
	buf := &logBuffer{}
	return NewAccessLog(slog.New(slog.NewTextHandler(buf, &slog.HandlerOptions{Level: level})), time.Second), buf
}

func TestAccessLogLine(t *testing.T) {
	t.Parallel()
	hook, log := accessLog(slog.LevelDebug)
	c := &Call{Code: codeEcho, Peer: testPeer{}, Protocol: ProtocolRemoting, Received: time.Now(), OneWay: true}
	ctx := hook.Before(t.Context(), c)
	hook.After(ctx, c, &Response{Code: protocol.TopicNotExist, Remark: "no topic"}, nil)
	hook.After(ctx, c, nil, errors.New("gone"))
	for _, part := range []string{
		"level=DEBUG msg=call request_code=SEND_MESSAGE_V2 protocol=remoting remote_addr=192.0.2.1:1234 duration=",
		`response_code=TOPIC_NOT_EXIST remark="no topic" one_way=true`, "error=gone",
	} {
		if !strings.Contains(log.String(), part) {
			t.Errorf("%q lacks %q", log, part)
		}
	}
}

func TestSlowCallsAreSampled(t *testing.T) {
	t.Parallel()
	hook, log := accessLog(slog.LevelInfo)
	slow := time.Now().Add(-2 * time.Second)
	for range 5 {
		hook.After(t.Context(), &Call{Code: codeEcho, Peer: testPeer{}, Received: slow}, &Response{}, nil)
		hook.told.until = time.Now().Add(time.Hour)
	}
	held := &Call{Code: codeAsync, Peer: testPeer{}, Received: slow}
	held.held.Store(true)
	hook.After(t.Context(), held, &Response{}, nil)
	hook.After(t.Context(), &Call{Code: codeEcho, Peer: testPeer{}, Received: time.Now()}, &Response{}, nil)
	if n := strings.Count(log.String(), "slow call"); n != 1 || strings.Contains(log.String(), "PULL") {
		t.Errorf("%d lines: %s", n, log)
	}
	if hook.told.missed != 4 {
		t.Errorf("%d skipped", hook.told.missed)
	}
}

func TestAccessLogDoesNotAllocate(t *testing.T) {
	hook, _ := accessLog(slog.LevelInfo)
	c, r := &Call{Code: codeEcho, Peer: testPeer{}, Received: time.Now()}, &Response{}
	if n := testing.AllocsPerRun(1000, func() { hook.After(context.Background(), c, r, nil) }); n != 0 {
		t.Errorf("%v allocations a call", n)
	}
}

// TestDispatchAllocations pins what a native call costs from its frame to its answer in the outgoing buffer:
// the Call.
func TestDispatchAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector empties pools")
	}
	header := &protocol.SendMessageResponseHeader{MsgID: "7F00000100002A9F0000000000001234", QueueID: 3}
	reply := func(_ context.Context, c *Call) { c.Reply(Response{Header: header}) }
	for _, tc := range []struct {
		name    string
		process Processor
		hooks   []Hook
		want    float64
	}{
		{"plain", reply, nil, 1},
		{"typed header", HandleAsync(func(c *Call, _ *protocol.SendMessageRequestHeader) { reply(c.Context(), c) }), nil, 2},
		{"access log", reply, []Hook{NewAccessLog(slog.New(slog.DiscardHandler), time.Second)}, 1},
	} {
		reg, err := NewRegistry(RegistryConfig{Hooks: tc.hooks}, []Route{
			{Code: protocol.SendMessageV2, Lane: NewLane(LaneConfig{}), Processor: tc.process},
		})
		if err != nil {
			t.Fatal(err)
		}
		var limits Limits
		limits.setDefaults()
		c := &Conn{eng: newEngine(reg, limits, nil)}
		c.state.burst.Store(true) // nothing is written
		frame, now := sendFrame(1)[lengthBytes:], time.Now()
		n := testing.AllocsPerRun(1000, func() {
			if err := c.handle(frame, now); err != nil {
				t.Fatal(err)
			}
			c.out.buf = c.out.buf[:0]
		})
		if n > tc.want {
			t.Errorf("%s: %v allocations a call, want %v", tc.name, n, tc.want)
		}
	}
}

// BenchmarkHandle is the CPU time of a call without the socket: decode, registry, lane, processor, encode.
func BenchmarkHandle(b *testing.B) {
	header := &protocol.SendMessageResponseHeader{MsgID: "7F00000100002A9F0000000000001234", QueueID: 3}
	reg, err := NewRegistry(RegistryConfig{}, []Route{{
		Code: protocol.SendMessageV2, Lane: NewLane(LaneConfig{}),
		Processor: func(_ context.Context, c *Call) { c.Reply(Response{Header: header}) },
	}})
	if err != nil {
		b.Fatal(err)
	}
	c := &Conn{eng: testEngine(b)}
	c.eng.reg = reg
	c.state.burst.Store(true)
	frame, now := sendFrame(1)[lengthBytes:], time.Now()
	b.ReportAllocs()
	for b.Loop() {
		if err := c.handle(frame, now); err != nil {
			b.Fatal(err)
		}
		c.out.buf = c.out.buf[:0]
	}
}
