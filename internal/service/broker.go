// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/roquetmq/roquet/internal/auth"
	"github.com/roquetmq/roquet/internal/broker"
	"github.com/roquetmq/roquet/internal/broker/filter"
	"github.com/roquetmq/roquet/internal/broker/offset"
	"github.com/roquetmq/roquet/internal/broker/transaction"
	"github.com/roquetmq/roquet/internal/commitlog"
	"github.com/roquetmq/roquet/internal/config"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/nameserver"
	"github.com/roquetmq/roquet/internal/store"
)

// node is a broker: its store, its tables and the rules that act on them. The families of requests are types over it.
//
//lint:wide the list of what a broker is made of
type node struct {
	store    *store.Store
	self     *identity
	settings *settings
	lanes    *lanes
	log      *slog.Logger // of the rules
	version  string
	started  time.Time
	region   string
	traceOn  bool

	topics       *broker.Topics
	groups       *broker.Groups
	offsets      *offset.Table
	clients      *broker.Clients
	heartbeats   *broker.Heartbeats
	locks        *broker.QueueLocks
	stats        *broker.Stats
	filters      *filter.Cache
	sender       *broker.Sender
	puller       *broker.Puller
	popper       *broker.Popper
	queries      *broker.Queries
	requestModes *broker.RequestModes
	delays       *broker.Delays
	transactions *broker.Transactions
	recalls      *broker.Recalls
	replies      *broker.Replies

	users     *auth.Table
	mayOn     mayOn
	routes    *nameserver.Routes // of this process; nil: the registrar's name servers are asked
	registrar *registrar
}

func storeConfig(cfg *config.Config, self *identity, log *slog.Logger) store.Config {
	flush := commitlog.Sync
	if cfg.Store.FlushDiskType == config.AsyncFlush {
		flush = commitlog.Async
	}
	c := store.Config{
		Dir: filepath.Join(cfg.Store.Dir, "store"), Logger: log.With("component", "store"),
		Log: commitlog.Config{
			SegmentBytes: cfg.Store.SegmentBytes, FlushDiskType: flush,
			Disk: commitlog.DiskMarks{FullPercent: cfg.Store.DiskWarningRatio},
		},
	}
	if self != nil {
		c.StoreHost = self.storeHost
	}
	return c
}

// newNode opens the store, which recovers it, and builds everything over it. Nothing runs yet.
func newNode(
	cfg *config.Config, self *identity, set *settings, l *lanes, version string, log *slog.Logger,
) (*node, error) {
	if err := os.MkdirAll(cfg.Store.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("storePathRootDir (--data): %w", err)
	}
	if err := removeCheckpoints(cfg.Store.Dir); err != nil {
		log.Warn("could not remove what a backup left", "error", err)
	}
	st, err := store.Open(storeConfig(cfg, self, log))
	if err != nil {
		return nil, err
	}
	n := &node{
		store: st, self: self, settings: set, lanes: l, log: log.With("component", "broker"), version: version,
		started: time.Now(), region: cfg.Identity.RegionID, traceOn: cfg.Topic.TraceOn,
	}
	if err := n.loadTables(cfg); err != nil {
		return nil, fmt.Errorf("load the broker's tables: %w", err)
	}
	n.configure(cfg)
	set.watchers = append(set.watchers, n.configure)
	return n, nil
}

// loadTables reads what the store has of the broker's tables and makes the rules over them.
func (n *node) loadTables(cfg *config.Config) (err error) {
	st, log, self := n.store, n.log, n.self
	names := broker.SystemNames{Cluster: self.cluster, Broker: self.brokerName}
	n.stats, n.filters = broker.NewStats(names, time.Now()), filter.NewCache()
	if n.offsets, err = offset.New(st, log); err != nil {
		return err
	}
	topics := broker.TopicsConfig{
		System: names, AutoCreateDisabled: !cfg.Topic.AutoCreateTopic,
		DefaultTopicQueueNums: cfg.Topic.DefaultQueueNums, ClusterTopicDisabled: !cfg.Topic.ClusterTopic,
		BrokerTopicDisabled: !cfg.Topic.BrokerTopic, TraceTopic: cfg.Topic.TraceTopic, Logger: log,
	}
	if n.topics, err = broker.NewTopics(topics, st, n.offsets); err != nil {
		return err
	}
	groups := broker.GroupsConfig{AutoCreateDisabled: !cfg.Topic.AutoCreateGroup, Logger: log}
	if n.groups, err = broker.NewGroups(groups, st); err != nil {
		return err
	}
	if n.requestModes, err = broker.NewRequestModes(st, log); err != nil {
		return err
	}
	n.clients = broker.NewClients(broker.ClientsConfig{
		ChannelExpiredTimeout: cfg.Client.ChannelExpiry, NoticesDisabled: !cfg.Topic.NotifyConsumerChanges,
		Notify: notifyChanged, Logger: log,
	})
	n.heartbeats = broker.NewHeartbeats(n.topics, n.groups, n.clients, log)
	n.locks = broker.NewQueueLocks(n.clients.Alive, log)
	n.queries = broker.NewQueries(n.offsets, st, st.End)
	n.topics.OnChange(gone(n.topics.Lookup, n.stats.TopicDeleted))
	n.groups.OnChange(gone(n.groups.Lookup, n.stats.GroupDeleted))
	return n.makeSenders(cfg)
}

// makeSenders makes what stores messages.
func (n *node) makeSenders(cfg *config.Config) error {
	st, log, self := n.store, n.log, n.self
	levels, err := message.ParseDelayLevels(cfg.Message.DelayLevels)
	if err != nil {
		return err
	}
	n.sender = broker.NewSender(broker.SenderConfig{
		BrokerAddr: self.storeHost.Addr().String(),
		Cluster:    self.cluster, Region: n.region, TraceOff: !n.traceOn, Levels: levels, BrokerName: self.brokerName,
		UniqueIDs: message.NewUniqueIDs(self.storeHost.Addr(), os.Getpid(), uint32(time.Now().UnixNano())),
	}, n.topics, n.groups, n.locks, n.stats, st)
	n.delays = broker.NewDelays(n.topics, n.stats, st, log)
	st.OnState(message.SpaceTimer, n.delays.OnTimer)
	st.OnRetain(n.delays.CarryForward)
	n.recalls = broker.NewRecalls(self.brokerName, n.topics, n.delays, st)
	n.sender.UseRecalls(n.recalls)
	n.replies = broker.NewReplies(broker.RepliesConfig{Push: pushReply(self.storeHost), Logger: log},
		n.topics, n.clients, n.sender)
	n.transactions, err = broker.NewTransactions(broker.TransactionsConfig{
		Levels: levels, Send: n.sendCheck, Logger: log,
	}, n.topics, n.clients, n.stats, st)
	if err != nil {
		return err
	}
	st.OnState(message.SpaceTransaction, n.transactions.OnState)
	st.OnRetain(n.transactions.CarryForward)
	return nil
}

// hold makes the puller, whose answers flush writes out.
func (n *node) hold(cfg *config.Config, flush func()) {
	n.puller = broker.NewPuller(broker.PullerConfig{
		BrokerAddr:       n.self.storeHost.Addr().String(),
		LitePullDisabled: !cfg.Message.LitePull, LongPollingDisabled: !cfg.Message.LongPolling,
		ShortPolling: cfg.Message.ShortPolling, Filters: n.filters,
		MaxHeld: cfg.Client.PullQueueCount, Flush: flush,
		MaxCount: cfg.Message.PullCount, MaxBytes: int(cfg.Message.PullBytes), Logger: n.log,
	}, n.topics, n.groups, n.clients, n.offsets, n.stats, n.store)
	n.store.OnSettled(flush)
}

// share makes the popper, whose answers flush writes out.
func (n *node) share(cfg *config.Config, flush func()) (err error) {
	n.popper, err = broker.NewPopper(broker.PopperConfig{
		BrokerName: n.self.brokerName, BrokerAddr: n.self.storeHost.Addr().String(),
		MaxPollingSize: cfg.Client.PullQueueCount, MaxBytes: int(cfg.Message.PullBytes), Filters: n.filters,
		LogEnd: n.store.End, Flush: flush, Logger: n.log, ClaimsAsync: cfg.Store.ClaimsAsync,
	}, n.topics, n.groups, n.offsets, n.stats, n.store)
	if err == nil {
		n.store.OnRetain(n.popper.CarryForward)
	}
	return err
}

// gone calls forget with each of the changed names that lookup does not find any more.
func gone[C any](lookup func(name string) (C, bool), forget func(name string)) func(changed []string) {
	return func(changed []string) {
		for _, name := range changed {
			if _, ok := lookup(name); !ok {
				forget(name)
			}
		}
	}
}

// configure takes over what may change at run time.
func (n *node) configure(cfg *config.Config) {
	n.topics.SetAutoCreate(cfg.Topic.AutoCreateTopic)
	n.groups.SetAutoCreate(cfg.Topic.AutoCreateGroup)
	n.recalls.SetDisabled(!cfg.Message.Recall)
	n.sender.SetTransactionsDisabled(cfg.Topic.RejectTransactions)
	n.sender.SetMaxMessageBytes(int(cfg.Message.MaxSizeBytes))
	n.filters.SetSQL(cfg.Message.PropertyFilter)
	n.transactions.SetTiming(transaction.Config{
		Timeout: cfg.Message.TransTimeout, Interval: cfg.Message.TransInterval,
		MaxChecks: int(cfg.Message.TransCheckMax), MaxAge: cfg.Store.FileReservedTime,
	})
	n.store.SetRetention(store.Retention{
		FileReservedTime: cfg.Store.FileReservedTime, MaxBytes: cfg.Store.MaxBytes,
		CleanForciblyPercent: cfg.Store.DiskMaxUsedRatio,
	})
	const all = broker.PermRead | broker.PermWrite
	if n.topics.SetDenied(all&^cfg.Topic.BrokerPermission) && n.registrar != nil {
		n.registrar.topicsChanged(nil)
	}
}

// tick is the upkeep of the tables, about once a second.
func (n *node) tick(now time.Time) {
	n.clients.Tick(now)
	for _, channel := range n.clients.Expire(now) {
		if conn, ok := channel.(interface{ Close() }); ok {
			conn.Close() // a client that fell silent
		}
	}
	for _, group := range n.locks.Sweep(now) {
		n.clients.Notify(group, now)
	}
	n.stats.Tick(now)
}

// disconnected forgets a connection.
func (n *node) disconnected(channel broker.Channel, now time.Time) {
	n.clients.Disconnected(channel, now)
	n.locks.Disconnected(channel, now)
	n.puller.Disconnected(channel.ID())
	n.popper.Disconnected(channel.ID())
}

// run runs the rules until ctx is done. Held pulls are answered then.
func (n *node) run(ctx context.Context, flushOffsets time.Duration) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return n.puller.Run(ctx) })
	g.Go(func() error { return n.popper.Run(ctx) })
	g.Go(func() error { return n.delays.Run(ctx) })
	g.Go(func() error { return n.transactions.Run(ctx) })
	g.Go(func() error { return every(ctx, time.Second, n.tick) })
	g.Go(func() error { return every(ctx, flushOffsets, func(time.Time) { n.offsets.Flush(nil) }) })
	return g.Wait()
}

// every calls fn at intervals until ctx is done, which is no error.
func every(ctx context.Context, interval time.Duration, fn func(now time.Time)) error {
	tick := time.Tick(interval)
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick:
			fn(now)
		}
	}
}
