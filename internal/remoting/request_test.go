// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roquetmq/roquet/internal/protocol"
)

// clientSide is a registry for requests that the server sends to a client.
func clientSide(t *testing.T, routes ...Route) *Registry {
	t.Helper()
	reg, err := NewRegistry(RegistryConfig{}, routes)
	if err != nil {
		t.Fatal(err)
	}
	return reg
}

// connected returns a client with that registry and the server's end of its connection.
func connected(t *testing.T, h *harness, reg *Registry) (*Client, *Conn) {
	t.Helper()
	c := dialTo(t, ClientConfig{Addr: h.addr(), Registry: reg})
	invoke(t, c, codeEcho, nil, nil)
	for _, conn := range h.conns(true) {
		return c, conn
	}
	t.Fatal("no connection")
	return nil, nil
}

func TestServerAsksClient(t *testing.T) {
	t.Parallel()
	h := start(t, echoRoutes())
	_, conn := connected(t, h, clientSide(t, Route{
		Code: protocol.GetConsumerRunningInfo, Lane: NewLane(LaneConfig{Workers: 4}), Processor: HandleBody(echo),
	}))
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			body := []byte{byte(i)}
			got, err := conn.Invoke(t.Context(), protocol.GetConsumerRunningInfo, nil, body)
			if err != nil || got.Body[0] != byte(i) {
				t.Errorf("%v %v", got, err)
			}
		})
		wg.Go(func() {
			answered := make(chan byte, 1)
			conn.Request(
				protocol.GetConsumerRunningInfo,
				nil,
				[]byte{byte(i)},
				patience,
				func(cmd *protocol.Command, err error) {
					if err != nil {
						t.Error(err)
						answered <- 0
						return
					}
					answered <- cmd.Body[0]
				},
			)
			if got := <-answered; got != byte(i) {
				t.Errorf("got %d, want %d", got, i)
			}
		})
	}
	wg.Wait()
	if conn.out.requests != nil {
		t.Error("answered requests are still waited for")
	}
	got, err := conn.Invoke(t.Context(), 4711, nil, nil)
	if err != nil || got.Code != int32(protocol.RequestCodeNotSupported) {
		t.Fatalf("%v %v", got, err)
	}
}

func TestOneWayToClient(t *testing.T) {
	t.Parallel()
	told := make(chan protocol.Code, 1)
	h := start(t, echoRoutes())
	_, conn := connected(t, h, clientSide(t, Route{
		Code: protocol.NotifyConsumerIDsChanged,
		Lane: NewLane(LaneConfig{}),
		Processor: func(_ context.Context, c *Call) {
			if !c.OneWay {
				t.Error("not one-way")
			}
			told <- c.Code
			c.Reply(Response{})
		},
	}))
	if err := conn.OneWay(protocol.NotifyConsumerIDsChanged, nil, nil); err != nil {
		t.Fatal(err)
	}
	<-told
	conn.Close()
	if err := conn.OneWay(protocol.NotifyConsumerIDsChanged, nil, nil); !errors.Is(err, ErrConnClosed) {
		t.Fatalf("after the end: %v", err)
	}
}

func TestUnansweredRequests(t *testing.T) {
	t.Parallel()
	h := start(t, echoRoutes())
	silent := clientSide(
		t,
		Route{
			Code:      protocol.GetConsumerRunningInfo,
			Lane:      NewLane(LaneConfig{}),
			Processor: func(context.Context, *Call) {},
		},
	)
	client, conn := connected(t, h, silent)
	outcome := make(chan error, 2)
	done := func(cmd *protocol.Command, err error) {
		if cmd != nil {
			t.Error("an answer from nowhere")
		}
		outcome <- err
	}
	conn.Request(protocol.GetConsumerRunningInfo, nil, nil, time.Millisecond, done)
	if err := <-outcome; !errors.Is(err, ErrTimeout) {
		t.Fatalf("expired with %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := conn.Invoke(
		ctx,
		protocol.GetConsumerRunningInfo,
		nil,
		nil,
	); !errors.Is(
		err,
		context.DeadlineExceeded,
	) {
		t.Fatalf("Invoke: %v", err)
	}
	conn.Request(protocol.GetConsumerRunningInfo, nil, nil, time.Hour, done)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if _, err := conn.Invoke(
			t.Context(),
			protocol.GetConsumerRunningInfo,
			nil,
			nil,
		); !errors.Is(
			err,
			ErrConnClosed,
		) {
			t.Errorf("Invoke on a lost connection: %v", err)
		}
	})
	eventually(t, "both wait", func() bool {
		conn.out.Lock()
		defer conn.out.Unlock()
		return len(conn.out.requests) == 2
	})
	client.Close()
	if err := <-outcome; !errors.Is(err, ErrConnClosed) {
		t.Fatalf("lost connection ended the request with %v", err)
	}
	waiting.Wait()
	conn.Request(protocol.GetConsumerRunningInfo, nil, nil, time.Hour, done)
	if err := <-outcome; !errors.Is(err, ErrConnClosed) {
		t.Fatalf("after the end: %v", err)
	}
}

func TestAnswerToNothing(t *testing.T) {
	t.Parallel()
	h := start(t, echoRoutes())
	nc := h.dial(t)
	cmd := protocol.Command{Code: 0, Opaque: 99, Flag: protocol.FlagResponse}
	write(t, nc, protocol.AppendFrame(nil, &cmd, nil, []byte("surprise")))
	write(t, nc, frameOf(codeEcho, 1, nil, nil))
	if got := readFrame(t, nc); got.Opaque != 1 {
		t.Fatalf("%+v", got)
	}
}

// TestRequestsExpireInTime: when their time is up, once, and nothing stays behind.
func TestRequestsExpireInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn := &Conn{eng: newEngine(clientSide(t), Limits{ReadMemoryBytes: 1}, nil)}
		conn.out.busy = true // somebody else writes
		var fired atomic.Int32
		timeouts := []time.Duration{0, time.Millisecond, time.Second, 26 * time.Second, 3 * time.Minute}
		for _, timeout := range timeouts {
			begun := time.Now()
			conn.Request(codeEcho, nil, nil, timeout, func(_ *protocol.Command, err error) {
				if late := time.Since(begun) - timeout; late < 0 || late > 1 || !errors.Is(err, ErrTimeout) {
					t.Errorf("timeout %v fired %v late with %v", timeout, late, err)
				}
				fired.Add(1)
			})
		}
		<-time.After(5 * time.Minute)
		if n := int(fired.Load()); n != len(timeouts) || conn.out.requests != nil {
			t.Fatalf("%d of %d fired, %v are left", n, len(timeouts), conn.out.requests)
		}
	})
}
