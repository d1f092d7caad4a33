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

	"github.com/roquetmq/roquet/internal/broker"
	"github.com/roquetmq/roquet/internal/broker/filter"
	"github.com/roquetmq/roquet/internal/broker/offset"
	"github.com/roquetmq/roquet/internal/broker/transaction"
	"github.com/roquetmq/roquet/internal/commitlog"
	"github.com/roquetmq/roquet/internal/config"
	"github.com/roquetmq/roquet/internal/index"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// node is a broker: its store, its tables and rules, and the request families over them.
//
//lint:wide one field a request family
type node struct {
	store *store.Store
	rules *rules

	sends   *sendRequests
	pulls   *pullRequests
	offsets *offsetRequests
	clients *clientRequests
	queries *queryRequests
	topics  *topicRequests
	groups  *groupRequests
	resets  *resetRequests
	observe *observeRequests
	relays  *relayRequests
	pops    *popRequests
	assigns *assignmentRequests
	self    *nodeRequests
	timers  *timerRequests
	users   *userRequests

	transactions *transactionRequests
	recalls      *recallRequests
	replies      *replyRequests
	backups      *backupRequests
}

// rules are the broker's tables and what acts on them.
//
//lint:wide the list of what a broker is made of
type rules struct {
	topics  *broker.Topics
	groups  *broker.Groups
	offsets *offset.Table
	clients *broker.Clients
	locks   *broker.QueueLocks
	stats   *broker.Stats
	filters *filter.Cache
	sender  *broker.Sender
	puller  *broker.Puller
	delays  *broker.Delays
	popper  *broker.Popper

	transactions *broker.Transactions
	recalls      *broker.Recalls
	replies      *broker.Replies
	brokerName   string
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
		Index:     index.Config{},
		Retention: retention(cfg),
	}
	if self != nil {
		c.StoreHost = self.storeHost
	}
	return c
}

func retention(cfg *config.Config) store.Retention {
	return store.Retention{
		FileReservedTime: cfg.Store.FileReservedTime, MaxBytes: cfg.Store.MaxBytes,
		CleanForciblyPercent: cfg.Store.DiskMaxUsedRatio,
	}
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
	ru, err := newRules(cfg, self, st, log.With("component", "broker"))
	if err != nil {
		return nil, fmt.Errorf("load the broker's tables: %w", err)
	}
	n := &node{store: st, rules: ru}
	n.addRequests(cfg, self, set, l, version)
	if n.assigns.modes, err = broker.NewRequestModes(st, log.With("component", "broker")); err != nil {
		return nil, fmt.Errorf("load the request modes: %w", err)
	}
	set.watchers = append(set.watchers, ru.configure)
	return n, nil
}

func newRules(cfg *config.Config, self *identity, st *store.Store, log *slog.Logger) (*rules, error) {
	names := broker.SystemNames{Cluster: self.cluster, Broker: self.brokerName}
	r := &rules{stats: broker.NewStats(names, time.Now()), filters: filter.NewCache(), brokerName: self.brokerName}
	r.filters.SetSQL(cfg.Message.PropertyFilter)
	var err error
	if r.offsets, err = offset.New(st, log); err != nil {
		return nil, err
	}
	if r.topics, err = broker.NewTopics(topicsConfig(cfg, names, log), st, r.offsets); err != nil {
		return nil, err
	}
	groups := broker.GroupsConfig{AutoCreateDisabled: !cfg.Topic.AutoCreateGroup, Logger: log}
	if r.groups, err = broker.NewGroups(groups, st); err != nil {
		return nil, err
	}
	r.clients = broker.NewClients(broker.ClientsConfig{
		ChannelExpiredTimeout: cfg.Client.ChannelExpiry, NoticesDisabled: !cfg.Topic.NotifyConsumerChanges,
		Notify: notifyChanged, Logger: log,
	})
	r.locks = broker.NewQueueLocks(r.clients.Alive, log)
	levels, err := broker.ParseDelayLevels(cfg.Message.DelayLevels)
	if err != nil {
		return nil, err
	}
	r.sender = broker.NewSender(broker.SenderConfig{
		BrokerAddr: self.storeHost.Addr().String(), WriteDisabled: cfg.Topic.BrokerPermission&broker.PermWrite == 0,
		Cluster: self.cluster, Region: cfg.Identity.RegionID, TraceOff: !cfg.Topic.TraceOn,
		MaxMessageBytes: int(cfg.Message.MaxSizeBytes), Levels: levels, BrokerName: self.brokerName,
		TransactionsDisabled: cfg.Topic.RejectTransactions,
		UniqueIDs:            message.NewUniqueIDs(self.storeHost.Addr(), os.Getpid(), uint32(time.Now().UnixNano())),
	}, r.topics, r.groups, r.locks, r.stats, st)
	r.topics.OnChange(r.forgetTopics)
	r.groups.OnChange(r.forgetGroups)
	r.delays = broker.NewDelays(r.topics, r.stats, st, log)
	st.OnState(message.SpaceTimer, r.delays.OnTimer)
	st.OnRetain(r.delays.CarryForward)
	r.recalls = broker.NewRecalls(broker.RecallsConfig{
		BrokerName: self.brokerName, Disabled: !cfg.Message.Recall,
	}, r.topics, r.delays, st)
	r.sender.UseRecalls(r.recalls)
	r.replies = broker.NewReplies(broker.RepliesConfig{Push: pushReply(self.storeHost), Logger: log},
		r.topics, r.clients, r.sender)
	r.transactions, err = broker.NewTransactions(broker.TransactionsConfig{
		Timing: transaction.Config{
			Timeout: cfg.Message.TransTimeout, Interval: cfg.Message.TransInterval,
			MaxChecks: int(cfg.Message.TransCheckMax), MaxAge: cfg.Store.FileReservedTime,
		},
		Levels: levels, Send: r.sendCheck, Logger: log,
	}, r.topics, r.clients, r.stats, st)
	if err != nil {
		return nil, err
	}
	st.OnState(message.SpaceTransaction, r.transactions.OnState)
	st.OnRetain(r.transactions.CarryForward)
	return r, nil
}

func topicsConfig(cfg *config.Config, names broker.SystemNames, log *slog.Logger) broker.TopicsConfig {
	return broker.TopicsConfig{
		System: names, AutoCreateDisabled: !cfg.Topic.AutoCreateTopic,
		DefaultTopicQueueNums: cfg.Topic.DefaultQueueNums, ClusterTopicDisabled: !cfg.Topic.ClusterTopic,
		BrokerTopicDisabled: !cfg.Topic.BrokerTopic, TraceTopic: cfg.Topic.TraceTopic,
		Logger: log,
	}
}

// hold makes the puller, whose answers flush writes out.
func (n *node) hold(cfg *config.Config, self *identity, flush func(), log *slog.Logger) {
	r := n.rules
	r.puller = broker.NewPuller(broker.PullerConfig{
		BrokerAddr:       self.storeHost.Addr().String(),
		ReadDisabled:     cfg.Topic.BrokerPermission&broker.PermRead == 0,
		LitePullDisabled: !cfg.Message.LitePull, LongPollingDisabled: !cfg.Message.LongPolling,
		ShortPolling: cfg.Message.ShortPolling, Filters: r.filters,
		MaxHeld: cfg.Client.PullQueueCount, Flush: flush,
		MaxCount: cfg.Message.PullCount, MaxBytes: int(cfg.Message.PullBytes),
		Logger: log.With("component", "broker"),
	}, r.topics, r.groups, r.clients, r.offsets, r.stats, n.store)
	n.pulls.puller = r.puller
	n.store.OnSettled(flush)
}

// share makes the popper, whose answers flush writes out.
func (n *node) share(cfg *config.Config, self *identity, flush func(), log *slog.Logger) error {
	r := n.rules
	popper, err := broker.NewPopper(broker.PopperConfig{
		BrokerName: self.brokerName, BrokerAddr: self.storeHost.Addr().String(),
		ReadDisabled:   cfg.Topic.BrokerPermission&broker.PermRead == 0,
		MaxPollingSize: cfg.Client.PullQueueCount, MaxBytes: int(cfg.Message.PullBytes), Filters: r.filters,
		LogEnd: n.store.End, Flush: flush, Logger: log.With("component", "broker"),
	}, r.topics, r.groups, r.offsets, r.stats, n.store)
	if err != nil {
		return err
	}
	r.popper, n.pops.popper = popper, popper
	n.store.OnRetain(popper.CarryForward)
	return nil
}

func (n *node) addRequests(cfg *config.Config, self *identity, set *settings, l *lanes, version string) {
	r, opts := n.rules, set.options
	queries := broker.NewQueries(r.offsets, n.store, n.store.End)
	offsets := offsetRequests{
		offsets: r.offsets, topics: r.topics, groups: r.groups, store: n.store, queries: queries,
	}
	n.sends = &sendRequests{sender: r.sender, region: cfg.Identity.RegionID, traceOn: cfg.Topic.TraceOn}
	n.pulls = &pullRequests{}
	n.offsets = &offsets
	n.clients = &clientRequests{
		heartbeats: broker.NewHeartbeats(r.topics, r.groups, r.clients, set.log), clients: r.clients, locks: r.locks,
		filters: r.filters,
	}
	n.queries = &queryRequests{
		store: n.store, topics: r.topics, clients: r.clients, filters: r.filters, options: opts,
		queries: queries,
	}
	n.topics = &topicRequests{topics: r.topics, store: n.store, stats: r.stats, self: self}
	n.groups = &groupRequests{groups: r.groups, offsets: r.offsets}
	n.resets = &resetRequests{offsetRequests: offsets, self: self, clients: r.clients, options: opts}
	n.observe = &observeRequests{
		clients: r.clients, topics: r.topics, groups: r.groups, offsets: r.offsets, stats: r.stats,
		store: n.store, self: self,
	}
	n.backups = &backupRequests{store: n.store, dir: cfg.Store.Dir, broker: r.brokerName, version: version}
	n.transactions = &transactionRequests{transactions: r.transactions}
	n.recalls = &recallRequests{recalls: r.recalls, region: cfg.Identity.RegionID}
	n.replies = &replyRequests{replies: r.replies, region: cfg.Identity.RegionID, traceOn: cfg.Topic.TraceOn}
	n.relays = &relayRequests{clients: r.clients, store: n.store, self: self}
	n.pops = &popRequests{topics: r.topics}
	n.assigns = &assignmentRequests{topics: r.topics, groups: r.groups, clients: r.clients, self: self}
	n.timers = &timerRequests{delays: r.delays, stats: r.stats, store: n.store}
	n.self = &nodeRequests{
		store: n.store, stats: r.stats, settings: set, lanes: l, version: version, started: time.Now(),
		timers: n.timers,
	}
}

// forgetTopics drops the statistics of topics that were deleted.
func (r *rules) forgetTopics(changed []string) {
	for _, name := range changed {
		if _, ok := r.topics.Lookup(name); !ok {
			r.stats.TopicDeleted(name)
		}
	}
}

// forgetGroups drops the statistics of groups that were deleted.
func (r *rules) forgetGroups(changed []string) {
	for _, name := range changed {
		if _, ok := r.groups.Lookup(name); !ok {
			r.stats.GroupDeleted(name)
		}
	}
}

// configure takes over what may change at run time.
func (r *rules) configure(cfg *config.Config) {
	r.topics.SetAutoCreate(cfg.Topic.AutoCreateTopic)
	r.groups.SetAutoCreate(cfg.Topic.AutoCreateGroup)
	r.recalls.SetDisabled(!cfg.Message.Recall)
	r.sender.SetTransactionsDisabled(cfg.Topic.RejectTransactions)
	r.sender.SetMaxMessageBytes(int(cfg.Message.MaxSizeBytes))
	r.filters.SetSQL(cfg.Message.PropertyFilter)
}

// tick is the upkeep of the tables, about once a second.
func (r *rules) tick(now time.Time) {
	r.clients.Tick(now)
	for _, channel := range r.clients.Expire(now) {
		if conn, ok := channel.(interface{ Close() }); ok {
			conn.Close() // a client that fell silent
		}
	}
	for _, group := range r.locks.Sweep(now) {
		r.clients.Notify(group, now)
	}
	r.stats.Tick(now)
}

// disconnected forgets a connection.
func (r *rules) disconnected(channel broker.Channel, now time.Time) {
	r.clients.Disconnected(channel, now)
	r.locks.Disconnected(channel, now)
	r.puller.Disconnected(channel.ID())
	r.popper.Disconnected(channel.ID())
}

// run runs the rules until ctx is done. Held pulls are answered then.
func (r *rules) run(ctx context.Context, flushOffsets time.Duration) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.puller.Run(ctx) })
	g.Go(func() error { return r.popper.Run(ctx) })
	g.Go(func() error { return r.delays.Run(ctx) })
	g.Go(func() error { return r.transactions.Run(ctx) })
	g.Go(func() error {
		every(ctx, time.Second, r.tick)
		return nil
	})
	g.Go(func() error {
		every(ctx, flushOffsets, func(time.Time) { r.offsets.Flush(nil) })
		return nil
	})
	return g.Wait()
}

// every calls fn at intervals until ctx is done.
func every(ctx context.Context, interval time.Duration, fn func(now time.Time)) {
	t := time.NewTicker(interval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			fn(now)
		}
	}
}
