// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/roquetmq/roquet/internal/protocol"
)

func TestMain(m *testing.M) {
	if spec := os.Getenv(loadEnv); spec != "" {
		loadMain(spec)
		return
	}
	if spec := os.Getenv(holdEnv); spec != "" {
		holdMain(spec)
		return
	}
	goleak.VerifyTestMain(m)
}

// patience bounds every wait of a test that works; it is never waited out.
const patience = 20 * time.Second

// logBuffer is a log that tests read.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// harness is a server on loopback that a test talks to.
type harness struct {
	*Server
	reg  *Registry
	log  *logBuffer
	stop context.CancelFunc
	done chan error
}

// option changes a harness before it starts.
type option func(cfg *Config, reg *RegistryConfig)

func withLimits(l Limits) option { return func(cfg *Config, _ *RegistryConfig) { cfg.Limits = l } }

func withHooks(h ...Hook) option { return func(_ *Config, reg *RegistryConfig) { reg.Hooks = h } }

func withListener(l Listener) option {
	return func(cfg *Config, _ *RegistryConfig) { cfg.Listeners = append(cfg.Listeners, l) }
}

// start serves routes on a free port of loopback and stops with the test.
func start(t testing.TB, routes []Route, options ...option) *harness {
	t.Helper()
	h := &harness{log: &logBuffer{}, done: make(chan error, 1)}
	logger := slog.New(slog.NewTextHandler(h.log, &slog.HandlerOptions{Level: slog.LevelInfo}))
	cfg := Config{Logger: logger}
	regCfg := RegistryConfig{Logger: logger}
	for _, o := range options {
		o(&cfg, &regCfg)
	}
	if len(cfg.Listeners) == 0 {
		cfg.Listeners = []Listener{{Name: "broker"}}
	}
	for i := range cfg.Listeners {
		if cfg.Listeners[i].Addr == "" {
			cfg.Listeners[i].Addr = "127.0.0.1:0"
		}
	}
	var err error
	if h.reg, err = NewRegistry(regCfg, routes); err != nil {
		t.Fatal(err)
	}
	if h.Server, err = NewServer(cfg, h.reg); err != nil {
		t.Fatal(err)
	}
	if err := h.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	h.stop = cancel
	go func() { h.done <- h.Serve(ctx) }()
	t.Cleanup(func() { h.end(t) })
	return h
}

// end stops the server and waits for it. Calling it twice is fine.
func (h *harness) end(t testing.TB) {
	t.Helper()
	h.stop()
	select {
	case err := <-h.done:
		if err != nil {
			t.Errorf("Serve returned %v", err)
		}
		h.done <- nil
	case <-time.After(patience):
		t.Fatal("Serve did not return")
	}
}

// wantLog waits for a text in the log: a line may follow what it tells of.
func (h *harness) wantLog(t testing.TB, text string) {
	t.Helper()
	eventually(t, "log of "+text, func() bool { return strings.Contains(h.log.String(), text) })
}

func (h *harness) addr() string { return h.Listeners()[0].Addr }

// client returns a client that ends with the test.
func (h *harness) client(t testing.TB) *Client {
	t.Helper()
	return dialTo(t, ClientConfig{Addr: h.addr(), Language: protocol.LanguageGo})
}

func dialTo(t testing.TB, cfg ClientConfig) *Client {
	t.Helper()
	c, err := NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// invoke asks and fails the test when there is no answer.
func invoke(t testing.TB, c *Client, code protocol.Code, h protocol.Header, body []byte) *protocol.Command {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd, err := c.Invoke(ctx, code, h, body)
	if err != nil {
		t.Fatalf("%s: %v", code, err)
	}
	return cmd
}

// dial opens a socket to the server that ends with the test and never waits longer than patience.
func (h *harness) dial(t testing.TB) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", h.addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return nc
}

// frameOf is a request frame.
func frameOf(code protocol.Code, opaque int32, h protocol.Header, body []byte) []byte {
	cmd := protocol.Command{Code: int32(code), Opaque: opaque, Version: protocol.VersionCurrent}
	return protocol.AppendFrame(nil, &cmd, h, body)
}

// fields is a header of any fields.
type fields map[string]string

func (fields) DecodeExt(*protocol.Ext) error { return nil }

func (f fields) AppendExt(w *protocol.ExtWriter) {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		w.String(name, f[name])
	}
}

func write(t testing.TB, nc net.Conn, b []byte) {
	t.Helper()
	if _, err := nc.Write(b); err != nil {
		t.Fatal(err)
	}
}

// readFrame reads one frame.
func readFrame(t testing.TB, nc io.Reader) protocol.Command {
	t.Helper()
	cmd, err := tryReadFrame(nc)
	if err != nil {
		t.Fatal(err)
	}
	return cmd
}

func tryReadFrame(nc io.Reader) (protocol.Command, error) {
	var word [4]byte
	if _, err := io.ReadFull(nc, word[:]); err != nil {
		return protocol.Command{}, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(word[:]))
	if _, err := io.ReadFull(nc, frame); err != nil {
		return protocol.Command{}, err
	}
	return protocol.DecodeFrame(frame)
}

// wantClosed fails unless the server closes the connection without a further byte.
func wantClosed(t testing.TB, nc net.Conn) {
	t.Helper()
	var one [1]byte
	n, err := nc.Read(one[:])
	if n != 0 || err == nil || isTimeout(err) {
		t.Fatalf("read %d bytes, error %v; want the connection closed", n, err)
	}
}

func isTimeout(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}

// eventually waits until what holds does, looking whenever tick says so.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// echo answers with what it got.
func echo(c *Call) (Response, error) {
	return Response{Body: c.Body, Remark: c.Ext.Value("topic")}, nil
}

const (
	codeEcho  = protocol.SendMessageV2
	codeAsync = protocol.PullMessage
)

func echoRoutes() []Route {
	return []Route{{Code: codeEcho, Lane: NewLane(LaneConfig{Name: "send"}), Processor: HandleBody(echo)}}
}

// logged is how often the text is in the log.
func (h *harness) logged(text string) int { return strings.Count(h.log.String(), text) }

// LaneStats is a snapshot of a lane.
type LaneStats struct {
	Calls   int64 // in flight
	Bytes   int64 // of them
	Waiting int64 // callers that wait for a place
	Done    uint64
	Refused uint64 // answered SYSTEM_BUSY
}

// Stats returns a snapshot; the numbers need not belong to the same instant.
func (l *Lane) Stats() LaneStats {
	return LaneStats{
		Calls: l.calls.Load(), Bytes: l.bytes.Load(), Waiting: int64(l.waiting.Load()),
		Done: l.done.Load(), Refused: l.refused.Load(),
	}
}
