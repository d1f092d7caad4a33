// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roquetmq/roquet/internal/broker"
	"github.com/roquetmq/roquet/internal/config"
	"github.com/roquetmq/roquet/internal/nameserver"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// registrar tells name servers of this broker: the one in this process by a call, others over the wire; at
// the start, when a topic changes and every interval; and when it ends. Source: BrokerController.java
// registerBrokerAll, BrokerOuterAPI.java.
type registrar struct {
	self     *identity
	topics   *broker.Topics
	local    *nameserver.Routes // nil: no name server here
	remotes  []*remoteNames
	interval time.Duration
	changed  chan struct{} // of capacity 1
	log      *slog.Logger
	mu       sync.Mutex   // held while the name server of this process is told
	changes  atomic.Int64 // so many calls of topicsChanged
}

type remoteNames struct {
	addr   string
	client *remoting.Client
	as     Signer // zero: the name server asks for none
	known  bool   // the last registration succeeded
	warned bool   // the last one failed, and the log says so
}

// lost: it does not know this broker, or may have forgotten it with the connection.
func (n *remoteNames) lost() bool { return !n.known || !n.client.Connected() }

// watchPeriod is how often lost name servers are looked for. One that came back knows no broker, and must not
// tell clients so until the next interval.
const watchPeriod = time.Second

const registerTimeout = 6 * time.Second // Source: BrokerConfig.java registerBrokerTimeoutMills

func newRegistrar(
	self *identity, topics *broker.Topics, local *nameserver.Routes, cfg *config.Config, log *slog.Logger,
) (*registrar, error) {
	inner, err := innerCredentials(&cfg.Auth)
	if err != nil {
		return nil, err
	}
	r := &registrar{
		self: self, topics: topics, local: local, interval: cfg.Client.RegisterInterval,
		changed: make(chan struct{}, 1), log: log.With("component", "registrar"),
	}
	secure, err := clientTLS(&cfg.TLS)
	if err != nil {
		return nil, err
	}
	for _, addr := range cfg.Identity.NamesrvAddrs {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return nil, fmt.Errorf("namesrvAddr (--namesrv): %w", err)
		}
		client, err := remoting.NewClient(remoting.ClientConfig{Addr: addr, TLS: secure, Logger: r.log})
		if err != nil {
			return nil, err
		}
		r.remotes = append(r.remotes, &remoteNames{addr: addr, client: client, as: inner})
	}
	topics.OnChange(r.topicsChanged)
	return r, nil
}

// topicsChanged tells the name server of this process at once, since a client that creates a topic asks for its
// route next, and has the others told soon. It costs what changed, unless a topic was deleted; nil is all of them.
func (r *registrar) topicsChanged(names []string) {
	r.registerLocal(names, 1)
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// run registers until ctx is done.
func (r *registrar) run(ctx context.Context) error {
	tick, watch := time.Tick(r.interval), time.Tick(watchPeriod)
	for lostOnly := false; ; {
		r.registerRemotes(ctx, lostOnly)
		lostOnly = false
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
			r.registerLocal(nil, 0)
		case <-r.changed:
		case <-watch:
			lostOnly = true
		}
	}
}

// registerLocal tells the name server of this process of topics, nil: of all, and counts a change if there is one.
func (r *registrar) registerLocal(names []string, change int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes.Add(change)
	if r.local == nil {
		return
	}
	topics := make([]*broker.TopicConfig, 0, len(names))
	for _, name := range names {
		if cfg, ok := r.topics.Lookup(name); ok {
			topics = append(topics, cfg)
		}
	}
	acting := false
	reg := &nameserver.Registration{
		Cluster: r.self.cluster, BrokerName: r.self.brokerName, BrokerAddr: r.self.addr, EnableActingMaster: &acting,
		Version: nameserver.DataVersion(r.version()), Complete: names == nil || len(topics) < len(names),
	}
	if reg.Complete {
		topics = r.topics.All()
	}
	for _, t := range topics {
		reg.Topics = append(reg.Topics, nameserver.TopicConfig{
			Name: t.Name, ReadQueueNums: t.ReadQueueNums, WriteQueueNums: t.WriteQueueNums,
			Perm: t.Perm &^ r.topics.Denied(), SysFlag: t.SysFlag,
		})
	}
	if _, err := r.local.Register(reg, time.Now()); err != nil {
		r.log.Error("the name server of this process refused the broker", "error", err)
	}
}

// version is another one after every change: name servers pass over what comes with a version that they know, and one
// write, which is one version of the table, may change several topics.
func (r *registrar) version() broker.DataVersion {
	v := r.topics.Version()
	v.Counter += r.changes.Load()
	return v
}

func (r *registrar) registerRemotes(ctx context.Context, lostOnly bool) {
	remotes := slices.Clone(r.remotes)
	if lostOnly {
		remotes = slices.DeleteFunc(remotes, func(n *remoteNames) bool { return !n.lost() })
	}
	if len(remotes) == 0 {
		return
	}
	body := r.body()
	header := &protocol.RegisterBrokerRequestHeader{
		BrokerName: r.self.brokerName, BrokerAddr: r.self.addr, ClusterName: r.self.cluster, Compressed: true,
		BodyCRC32: protocol.Some(protocol.BodyCRC32(body)),
	}
	each(remotes, func(remote *remoteNames) {
		r.report(remote, invoke(ctx, remote, protocol.RegisterBroker, header, body))
	})
}

// each does something with all of them at once.
func each(remotes []*remoteNames, do func(*remoteNames)) {
	var all sync.WaitGroup
	for _, remote := range remotes {
		all.Go(func() { do(remote) })
	}
	all.Wait()
}

func (r *registrar) body() []byte {
	said := &protocol.RegisterBrokerBody{}
	wrapper := &said.TopicConfigSerializeWrapper
	wrapper.DataVersion = protocol.DataVersion(r.version())
	wrapper.TopicConfigTable = map[string]protocol.TopicConfig{}
	for _, t := range r.topics.All() {
		said := topicBody(t)
		said.Perm &^= r.topics.Denied()
		wrapper.TopicConfigTable[t.Name] = said
	}
	return said.EncodeCompressed()
}

func invoke(ctx context.Context, remote *remoteNames, code protocol.Code, h protocol.Header, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	answer, err := remote.client.Invoke(ctx, code, remote.as.Sign(h, body), body)
	if err == nil && answer.Code != 0 {
		err = fmt.Errorf("answer code %d: %s", answer.Code, answer.Remark)
	}
	return err
}

// report logs the changes: the first success and the first failure after it.
func (r *registrar) report(remote *remoteNames, err error) {
	switch {
	case err == nil && !remote.known:
		r.log.Info("registered with name server", "remote_addr", remote.addr)
	case err != nil && !remote.warned && !errors.Is(err, context.Canceled):
		r.log.Warn("could not register with name server: clients that ask it do not find this broker",
			"remote_addr", remote.addr, "error", err)
	}
	remote.known, remote.warned = err == nil, err != nil
}

// leave unregisters from all name servers, so that clients turn to others before this broker stops.
func (r *registrar) leave(ctx context.Context) {
	header := &protocol.UnRegisterBrokerRequestHeader{
		BrokerName: r.self.brokerName, BrokerAddr: r.self.addr, ClusterName: r.self.cluster,
	}
	each(r.remotes, func(remote *remoteNames) {
		if remote.known {
			if err := invoke(ctx, remote, protocol.UnregisterBroker, header, nil); err != nil {
				r.log.Warn("could not unregister from name server", "remote_addr", remote.addr, "error", err)
			}
		}
		remote.client.Close()
	})
	if r.local != nil {
		r.local.Unregister(r.self.cluster, r.self.brokerName, r.self.addr)
	}
}
