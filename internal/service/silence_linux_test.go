// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/config"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// slowTests is the variable under which tests run that take a minute.
const slowTests = "ROQUET_SLOW_TESTS"

// netns is a network namespace joined to this one by a pair of interfaces: a machine of its own.
type netns struct {
	t    *testing.T
	name string
	host string // this side's address
}

func newNetns(t *testing.T) *netns {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: a network namespace is made")
	}
	if _, err := exec.LookPath("iptables"); err != nil {
		t.Skip("needs iptables, which drops packets without a word")
	}
	pid := os.Getpid() // tells runs apart, also from one that was killed and left its namespace behind
	host := netip.AddrFrom4([4]byte{10, 217, byte(pid >> 6), byte(pid<<2) | 1})
	n := &netns{t: t, name: fmt.Sprintf("rq%d", pid), host: host.String()}
	if out, err := exec.CommandContext(t.Context(), "ip", "netns", "add", n.name).CombinedOutput(); err != nil {
		t.Skipf("no network namespace can be made here: %v: %s", err, out)
	}
	t.Cleanup(func() { exec.Command("ip", "netns", "del", n.name).Run() })
	n.run("ip", "link", "add", n.name+"a", "type", "veth", "peer", "name", n.name+"b", "netns", n.name)
	t.Cleanup(func() { exec.Command("ip", "link", "del", n.name+"a").Run() })
	n.run("ip", "addr", "add", n.host+"/30", "dev", n.name+"a")
	n.run("ip", "link", "set", n.name+"a", "up")
	n.run("ip", "-n", n.name, "addr", "add", host.Next().String()+"/30", "dev", n.name+"b")
	n.run("ip", "-n", n.name, "link", "set", n.name+"b", "up")
	return n
}

func (n *netns) run(args ...string) {
	n.t.Helper()
	if out, err := exec.CommandContext(n.t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
		n.t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// cut drops every packet in both directions without a word; heal ends that.
func (n *netns) cut() {
	n.run("ip", "netns", "exec", n.name, "iptables", "-A", "INPUT", "-j", "DROP")
	n.run("ip", "netns", "exec", n.name, "iptables", "-A", "OUTPUT", "-j", "DROP")
}

func (n *netns) heal() { n.run("ip", "netns", "exec", n.name, "iptables", "-F") }

// within runs fn with its sockets made in the namespace.
func (n *netns) within(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		file, err := os.Open("/run/netns/" + n.name)
		if err != nil {
			done <- err
			return
		}
		defer file.Close()
		if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- fn()
	}()
	return <-done
}

func (n *netns) dial(ctx context.Context, network, addr string) (conn net.Conn, err error) {
	err = n.within(func() error {
		conn, err = new(net.Dialer).DialContext(ctx, network, addr)
		return err
	})
	return conn, err
}

// Packets vanish without a reset while clients of all doors wait for messages: the server lets go of all of them in
// under a minute, what was on its way to them is delivered again, and the clients go on by themselves.
func TestC151SilentLossOfAConnection(t *testing.T) {
	if os.Getenv(slowTests) == "" {
		t.Skipf("takes a minute: set %s=1", slowTests)
	}
	t.Parallel()
	n := newNetns(t)
	w := startWire(t, func(cfg *config.Config) {
		cfg.Listen.BindAddress, cfg.Identity.AdvertiseHost, cfg.Listen.IdleTimeout = "0.0.0.0", n.host, 2*time.Minute
	})
	_, port, err := net.SplitHostPort(w.addr)
	if err != nil {
		t.Fatal(err)
	}
	addr := net.JoinHostPort(n.host, port)
	w.topic("t", 1)
	w.group("g")
	healthy := w.svc.server.Open()

	far, err := remoting.NewClient(remoting.ClientConfig{Addr: addr, Language: protocol.LanguageGo})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(far.Close)
	ask := func() error {
		return n.within(func() error {
			_, err := far.Invoke(t.Context(), protocol.GetBrokerConfig, nil, nil)
			return err
		})
	}
	conn, err := grpc.NewClient(
		"passthrough:///"+addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(
			func(ctx context.Context, addr string) (net.Conn, error) { return n.dial(ctx, "tcp", addr) },
		),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	phone := &grpcClient{t: t, id: "far", conn: conn, MessagingServiceClient: v2.NewMessagingServiceClient(conn)}
	web := &http.Transport{DialContext: n.dial, DisableCompression: true}
	t.Cleanup(web.CloseIdleConnections)
	get := func() error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/healthz", nil)
		if err != nil {
			return err
		}
		resp, err := web.RoundTrip(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	for _, door := range []func() error{ask, get} {
		if err := door(); err != nil {
			t.Fatal(err)
		}
	}
	// One receive is held on each of the two doors; the message that comes next goes to one of them.
	native, err := far.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	held := &protocol.PopMessageRequestHeader{
		ConsumerGroup: "g", Topic: "t", QueueID: -1, MaxMsgNums: 1, InvisibleTime: 20_000, PollTime: 90_000,
		BornTime: time.Now().UnixMilli(), ExpType: "TAG", Exp: "*",
	}
	native.Request(protocol.PopMessage, held, nil, 2*time.Minute, func(*protocol.Command, error) {})
	phone.consume("g", "t")
	if _, err = phone.ReceiveMessage(phone.ctx(), &v2.ReceiveMessageRequest{
		Group: named("g"), MessageQueue: &v2.MessageQueue{Topic: named("t")}, BatchSize: 1,
		InvisibleDuration: durationpb.New(20 * time.Second), LongPollingTimeout: durationpb.New(30 * time.Second),
	}); err != nil {
		t.Fatal(err)
	}
	w.eventually("three connections from afar", func() bool { return w.svc.server.Open() == healthy+3 })

	n.cut()
	since := time.Now()
	w.send("t", 0, "", "into the void")
	for tick := time.NewTicker(100 * time.Millisecond); w.svc.server.Open() > healthy; <-tick.C {
		if time.Since(since) > time.Minute {
			t.Fatalf("%d connections are still held after a minute", w.svc.server.Open()-healthy)
		}
	}
	t.Logf("the server let go of its silent peers after %v", time.Since(since).Round(time.Second))
	if got := w.pop("t", "g", 20*time.Second); len(got) != 1 {
		t.Errorf("%d messages came back, want 1", len(got))
	}
	n.heal()
	w.eventually("the clients go on by themselves", func() bool {
		_, err := phone.QueryRoute(phone.ctx(), &v2.QueryRouteRequest{Topic: named("t"), Endpoints: &v2.Endpoints{
			Scheme: v2.AddressScheme_IPv4, Addresses: []*v2.Address{{Host: n.host, Port: 1}},
		}})
		return err == nil && ask() == nil && get() == nil
	})
}
