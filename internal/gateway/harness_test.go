// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/roquetmq/roquet/internal/config"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
	"github.com/roquetmq/roquet/internal/service"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rest is a running service and HTTP and native clients of it.
type rest struct {
	t      testing.TB
	addr   string
	http   *http.Client
	native *remoting.Client
	stop   func()
}

// start runs a whole service on one free loopback port until the test ends.
func start(t testing.TB, change func(*config.Config)) *rest {
	t.Helper()
	port := freePort(t)
	cfg := config.New()
	cfg.Metrics.PromPort = 0
	cfg.Store.Dir = t.TempDir()
	cfg.Identity.BrokerName = "broker-a"
	cfg.Listen = config.Listen{
		BindAddress: "127.0.0.1", MaxConns: 1000, MaxConnsPerIP: 1000, IdleTimeout: time.Minute,
	}
	cfg.Listen.BrokerPort = port
	if change != nil {
		change(cfg)
	}
	svc, err := service.New(cfg, "test", slog.New(slog.DiscardHandler), new(slog.LevelVar))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- svc.Run(ctx) }()
	select {
	case <-svc.Listening():
	case err := <-ended:
		cancel()
		t.Fatal(err)
	}
	r := &rest{t: t, addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	r.http = &http.Client{Transport: transport}
	r.native, err = remoting.NewClient(remoting.ClientConfig{Addr: r.addr, Language: protocol.LanguageGo})
	if err != nil {
		t.Fatal(err)
	}
	stopped := false
	r.stop = func() {
		if stopped {
			return
		}
		stopped = true
		r.native.Close()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		transport.CloseIdleConnections()
	}
	t.Cleanup(r.stop)
	return r
}

// lastPort counts the ports that were given out.
var lastPort atomic.Int32

// freePort is a port for a server, below those that connections get, which could take it before it is bound.
func freePort(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := 10_000 + (64*os.Getpid()+int(lastPort.Add(1)))%22_000
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

// answer is what a request was answered with.
type answer struct {
	t      testing.TB
	status int
	header http.Header
	body   []byte
}

// do makes a request. Headers are given as "Name: value".
func (r *rest) do(method, path, body string, headers ...string) *answer {
	r.t.Helper()
	var from io.Reader
	if body != "" {
		from = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(r.t.Context(), method, "http://"+r.addr+path, from)
	if err != nil {
		r.t.Fatal(err)
	}
	if method != http.MethodGet {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded") // as curl -d
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		if name == "Content-Type" {
			req.Header.Del(name)
		}
		req.Header.Add(name, value)
	}
	resp, err := r.http.Do(req)
	if err != nil {
		r.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatalf("%s %s: %v", method, path, err)
	}
	return &answer{t: r.t, status: resp.StatusCode, header: resp.Header, body: b}
}

const asJSON = "Content-Type: application/json"

func (r *rest) get(path string) *answer { r.t.Helper(); return r.do(http.MethodGet, path, "") }

func (r *rest) post(path, body string, headers ...string) *answer {
	r.t.Helper()
	return r.do(http.MethodPost, path, body, headers...)
}

// want checks the status.
func (a *answer) want(status int) *answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	return a
}

// refused checks status and reason of an error, and that it has the one form.
func (a *answer) refused(status int, reason string) *answer {
	a.t.Helper()
	a.want(status)
	checkError(a.t, a.value(""), reason)
	return a
}

func checkError(t testing.TB, e any, reason string) {
	t.Helper()
	all, ok := e.(map[string]any)
	if !ok || all["code"] == nil || all["message"] == nil || len(all) != 3 {
		t.Fatalf("not an error: %v", e)
	}
	if got := pick(e, "details.0.reason"); got != reason {
		t.Fatalf("reason %v, want %s: %v", got, reason, e)
	}
	if pick(e, "details.0.domain") != "roquet" ||
		pick(e, "details.0.@type") != "type.googleapis.com/google.rpc.ErrorInfo" {
		t.Fatalf("details: %v", e)
	}
}

// value is a part of a JSON answer, such as messages.0.text; "" is all of it.
func (a *answer) value(path string) any {
	a.t.Helper()
	var all any
	if err := json.Unmarshal(a.body, &all); err != nil {
		a.t.Fatalf("%v: %s", err, a.body)
	}
	return pick(all, path)
}

func (a *answer) text(path string) string {
	a.t.Helper()
	s, ok := a.value(path).(string)
	if !ok {
		a.t.Fatalf("%s is no string: %s", path, a.body)
	}
	return s
}

func pick(v any, path string) any {
	if path == "" {
		return v
	}
	for step := range strings.SplitSeq(path, ".") {
		switch at := v.(type) {
		case map[string]any:
			v = at[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(at) {
				return nil
			}
			v = at[i]
		default:
			return nil
		}
	}
	return v
}

// lines are the JSON values of an answer in NDJSON.
func (a *answer) lines() (all []any) {
	a.t.Helper()
	for line := range bytes.Lines(a.body) {
		var v any
		if err := json.Unmarshal(line, &v); err != nil {
			a.t.Fatalf("%v: %s", err, line)
		}
		all = append(all, v)
	}
	return all
}

// call makes a native request that must succeed.
func (r *rest) call(code protocol.Code, h protocol.Header, body []byte) *protocol.Command {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 20*time.Second)
	defer cancel()
	cmd, err := r.native.Invoke(ctx, code, h, body)
	if err != nil {
		r.t.Fatalf("%s: %v", code, err)
	}
	if cmd.Code != int32(protocol.Success) {
		r.t.Fatalf("%s: %d %s", code, cmd.Code, cmd.Remark)
	}
	return cmd
}

// receive receives by REST.
func (r *rest) receive(group, topic, body string) *answer {
	r.t.Helper()
	return r.receiveBy(group, topic, body).want(http.StatusOK)
}

// receiveBy receives, or not.
func (r *rest) receiveBy(group, topic string, body ...string) *answer {
	r.t.Helper()
	return r.post("/v1/groups/"+group+"/topics/"+topic+"/messages:receive", strings.Join(body, ""))
}

// count is how many messages the topic's queues hold.
func (r *rest) count(topic string) string {
	r.t.Helper()
	return r.get("/v1/topics/" + topic + "/stats").want(http.StatusOK).text("messages")
}
