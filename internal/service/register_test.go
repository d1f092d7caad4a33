// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/roquetmq/roquet/internal/config"
	"github.com/roquetmq/roquet/internal/protocol"
)

// A broker alone registers with two name servers that run alone, tells them of a new topic, and leaves them when it
// stops (case C182: with another address it is found there after a restart).
func TestBrokerRegistersWithSeveralNameServers(t *testing.T) {
	t.Parallel()
	namesOnly := func(cfg *config.Config) { cfg.Roles = []string{config.RoleNameServer} }
	n1, n2 := startNames(t, namesOnly), startNames(t, namesOnly)
	port := freePort(t)
	cfg := config.New()
	cfg.Metrics.PromPort = 0
	cfg.Roles, cfg.Store.Dir, cfg.Identity.BrokerName = []string{config.RoleBroker}, t.TempDir(), "broker-a"
	cfg.Identity.NamesrvAddrs = []string{n1.addr, n2.addr}
	cfg.Listen = config.Listen{BindAddress: "127.0.0.1", BrokerPort: port, MaxConns: 100, MaxConnsPerIP: 100}
	svc, err := New(cfg, "test", slog.New(slog.DiscardHandler), new(slog.LevelVar))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- svc.Run(ctx) }()
	<-svc.Listening()
	w := &wire{t: t, svc: svc, addr: svc.self.addr}
	w.client = w.dial()
	w.topic("t", 3)
	for _, n := range []*wire{n1, n2} {
		n.eventually("the route of t", func() bool {
			answer := n.call(protocol.GetRouteInfoByTopic, &protocol.GetRouteInfoRequestHeader{Topic: "t"}, nil)
			if answer.Code != 0 {
				return false
			}
			route := body[protocol.TopicRouteData](t, answer)
			return route.BrokerDatas[0].BrokerAddrs[0] == svc.self.addr && route.QueueDatas[0].ReadQueueNums == 3
		})
	}
	w.client.Close()
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	for _, n := range []*wire{n1, n2} {
		n.refused(
			protocol.TopicNotExist,
			protocol.GetRouteInfoByTopic,
			&protocol.GetRouteInfoRequestHeader{Topic: "t"},
			nil,
		)
	}
}

// A name server that was lost and comes back empty knows the broker again at once, not at the next interval; and a broker
// that stops serves on for drainDelay after it left (C210).
func TestBrokerFindsLostNameServerAgain(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	var svc *Service
	names := func() (stop func()) {
		cfg := config.New()
		cfg.Roles, cfg.Store.Dir = []string{config.RoleNameServer}, t.TempDir()
		cfg.Listen = config.Listen{BindAddress: "127.0.0.1", NamesrvPort: port, MaxConns: 100, MaxConnsPerIP: 100}
		n, err := New(cfg, "test", slog.New(slog.DiscardHandler), new(slog.LevelVar))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- n.Run(ctx) }()
		<-n.Listening()
		svc = n
		return func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	stop := names()
	b := startWire(t, func(cfg *config.Config) {
		cfg.Roles, cfg.Identity.NamesrvAddrs = []string{config.RoleBroker}, []string{svc.server.Listeners()[0].Addr}
	})
	known := func() bool { return len(svc.names.routes.ClusterInfo().Brokers) == 1 }
	b.eventually("the broker is known", known)
	stop()
	stop = names()
	defer stop()
	b.eventually("the broker is known to the name server that came back", known)
}

// startNames is startWire for a process that is a name server alone, on its own port.
func startNames(t *testing.T, change func(*config.Config)) *wire {
	t.Helper()
	var addr string
	w := startWire(t, func(cfg *config.Config) {
		change(cfg)
		cfg.Listen.NamesrvPort, cfg.Listen.BrokerPort = cfg.Listen.BrokerPort, 0
	})
	addr = w.svc.server.Listeners()[0].Addr
	if addr != w.addr {
		t.Fatalf("the name server listens on %s, want %s", addr, w.addr)
	}
	return w
}

// eventually asks until the fact is there, for ten seconds.
func (w *wire) eventually(what string, fact func() bool) {
	w.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 1000 {
		if fact() {
			return
		}
		<-tick.C
	}
	w.t.Fatalf("%s: not within ten seconds", what)
}
