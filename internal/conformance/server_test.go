// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roquetmq/roquet/internal/config"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
	"github.com/roquetmq/roquet/internal/service"
)

const (
	brokerName = "broker-a"
	listening  = "listening" // what a child says when it does

	// patience is how long anything may take that does not wait by itself.
	patience = 30 * time.Second
	// maxBody is the largest message body of the servers here.
	maxBody = 64 << 10
)

// newService makes a whole server on one port: every door is on it.
func newService(port, dir string) (*service.Service, error) {
	cfg := config.New()
	cfg.Metrics.PromPort = 0
	n, err := strconv.Atoi(port)
	if err != nil {
		return nil, err
	}
	cfg.Store.Dir, cfg.Identity.BrokerName = dir, brokerName
	cfg.Message.MaxSizeBytes = maxBody
	cfg.Listen = config.Listen{
		BindAddress: "127.0.0.1", BrokerPort: n, MaxConns: 1000, MaxConnsPerIP: 1000, IdleTimeout: time.Minute,
	}
	log := io.Discard
	if os.Getenv("ROQUET_CONFORMANCE_LOG") != "" {
		log = os.Stderr
	}
	handler := slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn})
	return service.New(cfg, "test", slog.New(handler), new(slog.LevelVar))
}

// server is a running server.
type server struct {
	t    testing.TB
	addr string
	dir  string

	admin *remoting.Client
	cmd   *exec.Cmd // nil in this process
	stdin io.Closer
	said  *bytes.Buffer // on its standard error
}

// startServer runs a server in this process until the test ends.
func startServer(t testing.TB) *server {
	t.Helper()
	s := &server{t: t, addr: freeAddr(t), dir: t.TempDir()}
	_, port, _ := strings.Cut(s.addr, ":")
	svc, err := newService(port, s.dir)
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
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	s.connect()
	return s
}

// startChild runs a server in a process of its own, on a folder that may have been another's before.
func startChild(t testing.TB, dir string) *server {
	t.Helper()
	s := &server{t: t, addr: freeAddr(t), dir: dir}
	s.start()
	t.Cleanup(s.kill)
	return s
}

// start starts the process, anew after kill, and returns when it listens.
func (s *server) start() {
	s.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	_, port, _ := strings.Cut(s.addr, ":")
	s.cmd, s.said = exec.Command(exe), &bytes.Buffer{}
	s.cmd.Env = append(os.Environ(), childPort+"="+port, childDir+"="+s.dir,
		"GORACE=atexit_sleep_ms=0") // the race detector would have it sleep for a second before it ends
	s.cmd.Stderr = s.said
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || strings.TrimSpace(line) != listening {
		s.t.Fatalf("the server did not start: it said %q, %v\n%s", line, err, s.said)
	}
	s.connect()
}

// kill ends the process without a warning: kill -9.
func (s *server) kill() {
	if s.cmd.ProcessState != nil {
		return
	}
	_ = s.cmd.Process.Kill() // it may have ended by itself, which Wait tells
	if err := s.cmd.Wait(); err != nil && !strings.Contains(err.Error(), "killed") {
		s.t.Errorf("the server ended by itself: %v\n%s", err, s.said)
	}
	if bytes.Contains(s.said.Bytes(), []byte("DATA RACE")) { // who is killed has no exit status to tell it by
		s.t.Errorf("the server has a race:\n%s", s.said)
	}
	s.admin.Close()
}

// verify kills the server for good, and checks and removes what it left.
func (s *server) verify() {
	s.t.Helper()
	s.kill()
	var report strings.Builder
	if err := service.Verify(context.Background(), s.dir, &report); err != nil {
		s.t.Errorf("what the server left is damaged: %v\n%s", err, &report)
		return
	}
	if err := os.RemoveAll(s.dir); err != nil {
		s.t.Error(err)
	}
}

// stop ends the process as its operator would.
func (s *server) stop() {
	s.t.Helper()
	if err := s.stdin.Close(); err != nil {
		s.t.Error(err)
	}
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("the server did not stop well: %v\n%s", err, s.said)
	}
	s.admin.Close()
}

func (s *server) connect() {
	s.t.Helper()
	s.admin = dial(s.t, s.addr)
	s.t.Cleanup(s.admin.Close)
}

func dial(t testing.TB, addr string) *remoting.Client {
	t.Helper()
	c, err := remoting.NewClient(remoting.ClientConfig{Addr: addr, Language: protocol.LanguageGo})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// lastPort counts the ports that were given out.
var lastPort atomic.Int32

// freeAddr is an address for a server, with a port below those that connections get, which could take it before it is bound.
func freeAddr(t testing.TB) string {
	t.Helper()
	for range 1000 {
		port := 10_000 + (64*os.Getpid()+int(lastPort.Add(1)))%22_000
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no free port")
	return ""
}

// must sends a native request that must succeed.
func (s *server) must(code protocol.Code, h protocol.Header, body []byte) *protocol.Command {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	answer, err := s.admin.Invoke(ctx, code, h, body)
	if err != nil {
		s.t.Fatalf("%s: %v", code, err)
	}
	if answer.Code != int32(protocol.Success) {
		s.t.Fatalf("%s: code %d %s", code, answer.Code, answer.Remark)
	}
	return answer
}

// topic makes a topic for messages of a type.
func (s *server) topic(name, messageType string, queues int32) {
	s.t.Helper()
	s.must(protocol.UpdateAndCreateTopic, &protocol.CreateTopicRequestHeader{
		Topic: name, DefaultTopic: "TBW102", ReadQueueNums: queues, WriteQueueNums: queues, Perm: 6,
		TopicFilterType: "SINGLE_TAG", Attributes: "+message.type=" + messageType,
	}, nil)
}

// group makes a consumer group; maxTimes is how often a message comes again before it is a dead letter.
func (s *server) group(name string, orderly bool, maxTimes int) {
	s.t.Helper()
	s.must(protocol.UpdateAndCreateSubscriptionGroup, nil, []byte(`{"groupName":"`+name+`","consumeMessageOrderly":`+
		strconv.FormatBool(orderly)+`,"retryMaxTimes":`+strconv.Itoa(maxTimes)+`}`))
}
