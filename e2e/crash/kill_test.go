// SPDX-License-Identifier: Apache-2.0

// Package crash kills the real binary under load, again and again, and then reads back everything that it had
// acknowledged.
package crash

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	topic         = "crash"
	queueCount    = 4
	producerCount = 8
	window        = 16
)

var (
	roquet = flag.String("roquet", "", "the binary; empty: built from this repository")
	cycles = flag.Int("cycles", 200, "kills")
	seed   = flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of the moments of the kills")
)

// acked is what a producer was told: this body stands at this queue offset.
type acked struct {
	queue  int
	offset int64
	body   string
}

// TestKillUnderLoad: no acknowledged message is lost or moved, none is stored twice, queue offsets have no
// gaps, and each restart answers its first send in under a second (cases C155–C168 as the operating system
// shows them).
func TestKillUnderLoad(t *testing.T) {
	t.Logf("seed %d", *seed)
	random := rand.New(rand.NewPCG(*seed, 1))
	bin, dir := roquetBinary(t), t.TempDir()
	var all []acked
	var restarts []time.Duration
	for cycle := range *cycles {
		srv := start(t, bin, dir)
		restarts = append(restarts, srv.firstAck)
		got := produceAndKill(t, srv, cycle, time.Duration(20+random.IntN(230))*time.Millisecond)
		all = append(all, got...)
	}
	srv := start(t, bin, dir)
	defer srv.kill()
	check(t, srv.addr, all)
	slices.Sort(restarts)
	worst, median := restarts[len(restarts)-1], restarts[len(restarts)/2]
	t.Logf("%d kills, %d acknowledged messages, restart to first send: median %v, worst %v", *cycles, len(all), median, worst)
	if median > time.Second {
		t.Errorf("half of the restarts took over %v, wanted under a second", median)
	}
	if len(all) < *cycles {
		t.Errorf("only %d messages were acknowledged in %d cycles: the load was too small to prove anything", len(all), *cycles)
	}
}

// roquetBinary is the binary named by the flag, or one built for this test.
func roquetBinary(t *testing.T) string {
	t.Helper()
	if *roquet != "" {
		abs, err := filepath.Abs(*roquet)
		if err != nil {
			t.Fatal(err)
		}
		return abs
	}
	bin := filepath.Join(t.TempDir(), "roquet")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "./cmd/server")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return bin
}

type server struct {
	addr     string
	cmd      *exec.Cmd
	log      string
	firstAck time.Duration // from exec to the first acknowledged send
}

func start(t *testing.T, bin, dir string) *server {
	t.Helper()
	port := freePort(t)
	srv := &server{addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), log: filepath.Join(dir, "roquet.log")}
	srv.cmd = exec.Command(bin, "serve", "--data", filepath.Join(dir, "data"), "--port", strconv.Itoa(port),
		"--namesrv-port", "0", "--fast-port", "0", "--grpc-port", "0", "--http-port", "0")
	log, err := os.Create(srv.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	srv.cmd.Stdout, srv.cmd.Stderr = log, log
	began := time.Now()
	if err := srv.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for time.Since(began) < 30*time.Second {
		key := "warm-" + strconv.FormatInt(time.Now().UnixNano(), 36)
		if a, err := call(srv.addr, 310, sendExt(0, key), []byte(key)); err == nil && a.Code == 0 {
			srv.firstAck = time.Since(began)
			return srv
		}
		<-tick.C
	}
	srv.kill()
	text, _ := os.ReadFile(srv.log)
	t.Fatalf("no send was acknowledged within 30 s of the start; the server's log:\n%s", text)
	return nil
}

// kill ends the process without a warning.
func (s *server) kill() {
	_ = s.cmd.Process.Signal(syscall.SIGKILL)
	_ = s.cmd.Wait() // "signal: killed" is what was asked for
}

// lastPort counts the ports that were given out.
var lastPort atomic.Int32

// freePort is a port for a server, below those that connections get, which could take it before it is bound.
func freePort(t *testing.T) int {
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

// produceAndKill runs the producers until the server is killed and returns what was acknowledged.
func produceAndKill(t *testing.T, srv *server, cycle int, after time.Duration) []acked {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	results := make([][]acked, producerCount)
	var wg sync.WaitGroup
	for p := range producerCount {
		wg.Go(func() { results[p] = produce(ctx, srv.addr, p, fmt.Sprintf("c%d-p%d", cycle, p)) })
	}
	<-time.After(after)
	srv.kill()
	cancel()
	wg.Wait()
	return slices.Concat(results...)
}

// produce keeps window sends in flight on one connection until it breaks.
func produce(ctx context.Context, addr string, producer int, name string) []acked {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return nil
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	queue := producer % queueCount
	slots, broken := make(chan struct{}, window), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := int32(0); ; i++ {
			select {
			case slots <- struct{}{}:
			case <-broken:
				return
			}
			body := fmt.Sprintf("%s-%d", name, i)
			if _, err := conn.Write(frame(310, i, sendExt(queue, body), []byte(body))); err != nil {
				return
			}
		}
	})
	var got []acked
	for r := bufio.NewReader(conn); ; {
		a, err := readAnswer(r)
		if err != nil {
			break
		}
		if a.Code == 0 {
			got = append(got, acked{queue, a.number("queueOffset"), fmt.Sprintf("%s-%d", name, a.Opaque)})
		}
		<-slots
	}
	_ = conn.Close()
	close(broken)
	wg.Wait()
	return got
}

// check reads every queue from its first message and compares it with what was acknowledged.
func check(t *testing.T, addr string, all []acked) {
	t.Helper()
	bodies, seen := make([]map[int64]string, queueCount), map[string]string{}
	total := 0
	for q := range queueCount {
		bodies[q] = map[int64]string{}
		for _, m := range readQueue(t, addr, q) {
			if want := int64(len(bodies[q])); m.queueOffset != want {
				t.Fatalf("queue %d: offset %d where %d was due", q, m.queueOffset, want)
			}
			bodies[q][m.queueOffset] = m.body
			place := fmt.Sprintf("queue %d offset %d", q, m.queueOffset)
			if m.body != "" && seen[m.body] != "" {
				t.Errorf("%q is stored twice: %s and %s", m.body, seen[m.body], place)
			}
			seen[m.body] = place
			total++
		}
	}
	lost := 0
	for _, a := range all {
		if bodies[a.queue][a.offset] != a.body {
			lost++
			if lost <= 10 {
				t.Errorf("acknowledged %q at queue %d offset %d; %q stands there", a.body, a.queue, a.offset, bodies[a.queue][a.offset])
			}
		}
	}
	t.Logf("%d messages stored, %d acknowledged, %d of these lost", total, len(all), lost)
}

func readQueue(t *testing.T, addr string, queue int) []stored {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	var out []stored
	for next := int64(0); ; {
		ext := map[string]string{
			"consumerGroup": "crash_reader", "topic": topic, "queueId": strconv.Itoa(queue), "queueOffset": strconv.FormatInt(next, 10),
			"maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*",
			"subVersion": "0", "expressionType": "TAG",
		}
		if _, err := conn.Write(frame(11, 1, ext, nil)); err != nil {
			t.Fatal(err)
		}
		a, err := readAnswer(r)
		if err != nil {
			t.Fatal(err)
		}
		if a.Code == 19 {
			return out
		}
		if a.Code != 0 {
			t.Fatalf("queue %d at %d: code %d %s", queue, next, a.Code, a.Remark)
		}
		batch, err := records(a.body)
		if err != nil || len(batch) == 0 {
			t.Fatalf("queue %d at %d: %d records, %v", queue, next, len(batch), err)
		}
		out = append(out, batch...)
		next = a.number("nextBeginOffset")
	}
}
