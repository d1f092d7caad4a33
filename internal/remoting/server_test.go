// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/roquetmq/roquet/internal/protocol"
)

func TestEchoInBothHeaderForms(t *testing.T) {
	t.Parallel()
	h := start(t, echoRoutes())
	for _, form := range []protocol.SerializeType{protocol.SerializeJSON, protocol.SerializeROCKETMQ} {
		c := dialTo(t, ClientConfig{Addr: h.addr(), Serialize: form})
		for _, size := range []int{0, 1, 100, chunkBytes, 5 << 20} {
			body := bytes.Repeat([]byte{'x'}, size)
			got := invoke(t, c, codeEcho, &protocol.GetRouteInfoRequestHeader{Topic: "orders"}, body)
			if got.Code != int32(protocol.Success) || got.Remark != "orders" || !bytes.Equal(got.Body, body) {
				t.Fatalf(
					"%s, %d bytes: code %d remark %q body %d bytes",
					form,
					size,
					got.Code,
					got.Remark,
					len(got.Body),
				)
			}
			if got.Serialize != form {
				t.Fatalf("asked in %s, answered in %s", form, got.Serialize)
			}
		}
	}
}

func TestManyInFlight(t *testing.T) {
	t.Parallel()
	h := start(t, echoRoutes())
	var wg sync.WaitGroup
	for conn := range 8 {
		c := h.client(t)
		for worker := range 16 {
			wg.Go(func() {
				for i := range 200 {
					want := fmt.Appendf(nil, "%d/%d/%d", conn, worker, i)
					got, err := c.Invoke(t.Context(), codeEcho, nil, want)
					if err != nil || !bytes.Equal(got.Body, want) {
						t.Errorf("got %v, %v; want %s", got, err, want)
						return
					}
				}
			})
		}
	}
	wg.Wait()
}

// TestC007SameOpaqueOnTwoConnections: each connection gets its own answer, whatever opaque the other uses.
func TestC007SameOpaqueOnTwoConnections(t *testing.T) {
	t.Parallel()
	rounds := 10_000
	if testing.Short() || raceEnabled {
		rounds = 1000
	}
	h := start(t, echoRoutes())
	var wg sync.WaitGroup
	for _, topic := range []string{"left", "right"} {
		nc := h.dial(t)
		wg.Go(func() {
			frame := frameOf(codeEcho, 1, &protocol.GetRouteInfoRequestHeader{Topic: topic}, []byte(topic))
			for range rounds {
				if _, err := nc.Write(frame); err != nil {
					t.Error(err)
					return
				}
				got, err := tryReadFrame(nc)
				if err != nil || got.Opaque != 1 || got.Remark != topic || string(got.Body) != topic {
					t.Errorf("%s got opaque %d remark %q, %v", topic, got.Opaque, got.Remark, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestUnknownCodeAndOneWay(t *testing.T) {
	t.Parallel()
	h := start(t, echoRoutes())
	c := h.client(t)
	got := invoke(t, c, 4711, nil, nil)
	if got.Code != int32(protocol.RequestCodeNotSupported) || got.Remark != " request type 4711 not supported" {
		t.Fatalf("got %d %q", got.Code, got.Remark)
	}
	got = invoke(t, c, protocol.PullMessage, nil, nil)
	if want := " request type 11 not supported (PULL_MESSAGE)"; got.Remark != want {
		t.Fatalf("got %q, want %q", got.Remark, want)
	}

	nc := h.dial(t)
	cmd := protocol.Command{Code: 4711, Opaque: 1, Flag: protocol.FlagOneWay}
	write(t, nc, protocol.AppendFrame(nil, &cmd, nil))
	cmd = protocol.Command{Code: int32(codeEcho), Opaque: 2, Flag: protocol.FlagOneWay}
	write(t, nc, protocol.AppendFrame(nil, &cmd, nil))
	write(t, nc, frameOf(codeEcho, 3, nil, nil))
	if got := readFrame(t, nc); got.Opaque != 3 {
		t.Fatalf("a one-way request was answered: opaque %d", got.Opaque)
	}
}

func TestFastListenerRefusesPulls(t *testing.T) {
	t.Parallel()
	send, fast, pull := NewLane(
		LaneConfig{Name: "send"},
	), NewLane(
		LaneConfig{Name: "fast"},
	), NewLane(
		LaneConfig{Name: "pull"},
	)
	routes := []Route{
		{Code: codeEcho, Lane: send, FastLane: fast, Processor: HandleBody(echo)},
		{Code: protocol.PullMessage, Lane: pull, Processor: HandleBody(echo)},
	}
	h := start(t, routes, withListener(Listener{Name: "fast", Fast: true}), withListener(Listener{Name: "broker"}))
	c := h.client(t)
	if got := invoke(t, c, codeEcho, nil, nil); got.Code != int32(protocol.Success) {
		t.Fatalf("send: %d %s", got.Code, got.Remark)
	}
	if got := invoke(t, c, protocol.PullMessage, nil, nil); got.Code != int32(protocol.RequestCodeNotSupported) {
		t.Fatalf("pull: %d %s", got.Code, got.Remark)
	}
	if fast.Stats().Done != 1 || send.Stats().Done != 0 {
		t.Fatalf("fast %+v, send %+v", fast.Stats(), send.Stats())
	}
	ordinary := dialTo(t, ClientConfig{Addr: h.Listeners()[1].Addr})
	if got := invoke(t, ordinary, protocol.PullMessage, nil, nil); got.Code != int32(protocol.Success) {
		t.Fatalf("pull on the ordinary port: %d %s", got.Code, got.Remark)
	}
}

// TestC011MissingField: the remark names the field, and the connection stays up.
func TestC011MissingField(t *testing.T) {
	t.Parallel()
	fn := func(_ *Call, h *protocol.QueryMessageRequestHeader) (Response, error) {
		return Response{Remark: h.Topic}, nil
	}
	h := start(
		t,
		[]Route{
			{
				Code:      protocol.QueryMessage,
				Lane:      NewLane(LaneConfig{Name: "query", Workers: 2}),
				Processor: Handle(fn),
			},
		},
	)
	nc := h.dial(t)
	cmd := protocol.Command{Code: int32(protocol.QueryMessage), Opaque: 9}
	write(
		t,
		nc,
		protocol.AppendFrame(nil, &cmd, fields{"topic": "t", "key": "k", "maxNum": "1", "begin": "0", "end": "9"}),
	)
	got := readFrame(t, nc)
	if got.Code != int32(protocol.SystemError) || !strings.Contains(got.Remark, "beginTimestamp") {
		t.Fatalf("got %d %q", got.Code, got.Remark)
	}
	full := &protocol.QueryMessageRequestHeader{Topic: "t", Key: "k", MaxNum: 1, BeginTimestamp: 1, EndTimestamp: 2}
	write(t, nc, frameOf(protocol.QueryMessage, 10, full, nil))
	if got := readFrame(t, nc); got.Code != int32(protocol.Success) || got.Remark != "t" || got.Opaque != 10 {
		t.Fatalf("after the error: %d %q", got.Code, got.Remark)
	}
}

func TestErrorsAndPanicsBecomeAnswers(t *testing.T) {
	t.Parallel()
	domain := errors.New("no such thing")
	lane := NewLane(LaneConfig{Name: "admin", Workers: 1})
	fail := func(err error) Processor {
		return HandleBody(func(*Call) (Response, error) { return Response{}, err })
	}
	routes := []Route{
		{Code: 90001, Lane: lane, Processor: fail(domain)},
		{
			Code:      90002,
			Lane:      lane,
			Processor: fail(fmt.Errorf("wrapped: %w", &protocol.Error{Code: 17, Remark: "gone"})),
		},
		{Code: 90003, Lane: lane, Processor: func(context.Context, *Call) { panic("boom") }},
		{Code: 90004, Lane: NewLane(LaneConfig{}), Processor: func(context.Context, *Call) { panic("bang") }},
		{Code: 90005, Lane: lane, Processor: func(_ context.Context, c *Call) { c.Fail(nil) }},
		{Code: codeEcho, Lane: lane, Processor: HandleBody(echo)},
	}
	mapErr := func(_ *Config, reg *RegistryConfig) {
		reg.MapError = func(err error) *protocol.Error {
			if errors.Is(err, domain) {
				return &protocol.Error{Code: protocol.NoMessage, Remark: "mapped"}
			}
			return &protocol.Error{Code: protocol.SystemError, Remark: err.Error()}
		}
	}
	h := start(t, routes, mapErr)
	c := h.client(t)
	for _, tc := range []struct {
		code   protocol.Code
		want   protocol.ResponseCode
		remark string
	}{
		{90001, protocol.NoMessage, "mapped"},
		{90002, 17, "gone"},
		{90003, protocol.SystemError, "internal error in 90003: boom"},
		{90004, protocol.SystemError, "bang"},
		{90005, protocol.SystemError, "did not say why"},
		{codeEcho, protocol.Success, ""},
	} {
		got := invoke(t, c, tc.code, nil, nil)
		if got.Code != int32(tc.want) || !strings.Contains(got.Remark, tc.remark) {
			t.Errorf("%s: got %d %q, want %d %q", tc.code, got.Code, got.Remark, tc.want, tc.remark)
		}
	}
	if log := h.log.String(); !strings.Contains(log, "boom") || !strings.Contains(log, "server_test.go") {
		t.Errorf("the stack is not in the log: %s", log)
	}
	if n := h.logged("processor panicked"); n != 2 {
		t.Errorf("%d panics logged", n)
	}
}

func TestReplyLaterWaitsForFlushPending(t *testing.T) {
	t.Parallel()
	calls := make(chan *Call, 4)
	routes := []Route{
		{Code: codeAsync, Lane: NewLane(LaneConfig{}), Processor: func(_ context.Context, c *Call) { calls <- c }},
	}
	h := start(t, routes)
	nc := h.dial(t)
	for i := range 3 {
		write(t, nc, frameOf(codeAsync, int32(i), nil, nil))
	}
	for range 3 {
		c := <-calls
		for c.conn.state.burst.Load() { // the reader would flush by itself
			c.conn.out.cause()
		}
		c.ReplyLater(Response{Remark: "later"})
	}
	var conn *Conn
	for _, c := range h.conns(true) {
		conn = c
	}
	if !conn.owes() {
		t.Fatal("ReplyLater wrote by itself")
	}
	h.FlushPending()
	seen := map[int32]bool{}
	for range 3 {
		seen[readFrame(t, nc).Opaque] = true
	}
	if len(seen) != 3 {
		t.Fatalf("answers to %v", seen)
	}
}

func TestSecondReplyIsLogged(t *testing.T) {
	t.Parallel()
	h := start(t, []Route{{Code: codeEcho, Lane: NewLane(LaneConfig{}), Processor: func(_ context.Context, c *Call) {
		c.Reply(Response{Remark: "first"})
		c.Reply(Response{Remark: "second"})
		c.Fail(errors.New("third"))
	}}})
	c := h.client(t)
	for range 3 {
		if got := invoke(t, c, codeEcho, nil, nil); got.Remark != "first" {
			t.Fatalf("got %q", got.Remark)
		}
	}
	eventually(t, "6 double answers", func() bool { return h.logged("call answered twice") == 6 })
}

func TestAnswerTooLarge(t *testing.T) {
	t.Parallel()
	h := start(t, []Route{{Code: codeEcho, Lane: NewLane(LaneConfig{}), Processor: HandleBody(
		func(*Call) (Response, error) {
			return Response{Bodies: [][]byte{make([]byte, 9<<20), make([]byte, 9<<20)}}, nil
		})}})
	got := invoke(t, h.client(t), codeEcho, nil, nil)
	if got.Code != int32(protocol.SystemError) || !strings.Contains(got.Remark, "18874368 bytes") {
		t.Fatalf("got %d %q", got.Code, got.Remark)
	}
}

func TestGoAwayWhileDraining(t *testing.T) {
	t.Parallel()
	held := make(chan *Call, 1)
	routes := append(
		echoRoutes(),
		Route{
			Code:      codeAsync,
			Lane:      NewLane(LaneConfig{}),
			Processor: func(_ context.Context, c *Call) { held <- c },
		},
	)
	h := start(t, routes)
	nc := h.dial(t)
	write(t, nc, frameOf(codeAsync, 1, nil, nil))
	call := <-held
	h.stop()
	eventually(t, "drain begins", h.eng.draining.Load)

	write(t, nc, frameOf(codeEcho, 2, nil, nil))
	if got := readFrame(
		t,
		nc,
	); got.Code != int32(protocol.GoAway) || got.Remark != "please go away" ||
		got.Opaque != 2 {
		t.Fatalf("got %d %q for %d", got.Code, got.Remark, got.Opaque)
	}
	old := protocol.Command{Code: int32(codeEcho), Opaque: 3, Version: protocol.VersionV4_9_4}
	write(t, nc, protocol.AppendFrame(nil, &old, nil))
	if got := readFrame(t, nc); got.Code != int32(protocol.Success) || got.Opaque != 3 {
		t.Fatalf("old client got %d %q", got.Code, got.Remark)
	}
	call.Reply(Response{Remark: "finished"})
	if got := readFrame(t, nc); got.Opaque != 1 || got.Remark != "finished" {
		t.Fatalf("call in flight got %d %q", got.Opaque, got.Remark)
	}
	wantClosed(t, nc)
	h.end(t)
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	limits := Limits{IdleTimeout: 200 * time.Millisecond, FrameTimeout: 100 * time.Millisecond}
	h := start(t, echoRoutes(), withLimits(limits))
	silent, used, cut := h.dial(t), h.dial(t), h.dial(t)
	write(t, used, frameOf(codeEcho, 1, nil, nil))
	readFrame(t, used)
	write(t, cut, frameOf(codeEcho, 1, nil, nil)[:20])
	for _, nc := range []interface{ Read([]byte) (int, error) }{silent, used, cut} {
		var one [1]byte
		if _, err := nc.Read(one[:]); err == nil || isTimeout(err) {
			t.Fatalf("still open: %v", err)
		}
	}
	eventually(t, "all are gone", func() bool { return h.Open() == 0 })
	h.wantLog(t, ErrSilentFrame.Error())
}

// TestTrickledFrames: who sends a frame byte by byte, never silent and never done, is closed too; who sends frame
// after frame in small pieces is not.
func TestTrickledFrames(t *testing.T) {
	t.Parallel()
	h := start(t, echoRoutes(), withLimits(Limits{FrameTimeout: time.Second}))
	frame := frameOf(codeEcho, 1, nil, make([]byte, 4<<10))
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	trickling, steady := h.dial(t), h.dial(t)
	for i := range frame {
		<-tick.C
		if _, err := trickling.Write(frame[i : i+1]); err != nil {
			break
		}
		piece := i % 8 * (len(frame) / 8)
		write(t, steady, frame[piece:min(piece+len(frame)/8, len(frame))])
		if i%8 == 7 {
			write(t, steady, frame[8*(len(frame)/8):])
			readFrame(t, steady)
		}
		if i > 3000 {
			t.Fatalf("still open after %d bytes", i)
		}
	}
	h.wantLog(t, ErrSilentFrame.Error())
}

func TestConnectionLimits(t *testing.T) {
	t.Parallel()
	h := start(t, echoRoutes(), withLimits(Limits{MaxConns: 3, MaxConnsPerIP: 2}))
	for range 2 {
		nc := h.dial(t)
		write(t, nc, frameOf(codeEcho, 1, nil, nil))
		readFrame(t, nc)
	}
	third := h.dial(t)
	wantClosed(t, third)
	if n := h.Open(); n != 2 {
		t.Fatalf("%d open", n)
	}
	if !strings.Contains(h.log.String(), "2 connections from 127.0.0.1, which is the limit") {
		t.Error(h.log.String())
	}
}

// A server that is stopped as it begins to serve ends well: its sockets may be closed before anybody accepts on them.
func TestServeEndsAtOnce(t *testing.T) {
	t.Parallel()
	for range 50 {
		start(t, nil).end(t)
	}
}
