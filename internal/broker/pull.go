// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/roquetmq/roquet/internal/broker/filter"
	"github.com/roquetmq/roquet/internal/broker/offset"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// Bounds of a pull when nothing is configured. Source: MessageStoreConfig maxTransferCountOnMessageInMemory,
// maxTransferBytesOnMessageInMemory; BrokerConfig shortPollingTimeMills.
const (
	DefaultPullCount    = 32
	DefaultPullBytes    = 256 << 10
	DefaultShortPolling = time.Second

	minPullBytes   = 100     // of a request's own limit
	defaultMaxHeld = 200_000 // held pulls
	// maxScans bounds how often one held pull or receive reads on in its turn, so that a long run of messages that
	// nobody wants does not keep others from theirs; maxRescans, how often a receive begins again for what came.
	maxScans, maxRescans = 2, 8
)

// Queues is what a Puller reads. *store.Store is one.
type Queues interface {
	Fetch(req *store.FetchRequest) store.FetchResult
	Awaiter
}

// PullerConfig configures a Puller. Zero values are RocketMQ's defaults.
type PullerConfig struct {
	// BrokerAddr names the broker in remarks: its IP.
	BrokerAddr string
	// LitePullDisabled refuses lite pulls.
	LitePullDisabled bool
	// MaxCount and MaxBytes bound what one pull returns; 0 means DefaultPullCount and DefaultPullBytes.
	MaxCount int
	MaxBytes int
	// LongPollingDisabled makes a pull wait ShortPolling (0 means DefaultShortPolling) instead of what it
	// asks for.
	LongPollingDisabled bool
	ShortPolling        time.Duration
	// Filters parses subscriptions. Required.
	Filters *filter.Cache
	// MaxHeld bounds how many pulls wait; beyond it a pull is answered at once. 0 means 200,000.
	MaxHeld int
	// Flush is called by a worker after a number of Done calls: the moment to write replies out. Required.
	Flush func()
	// Logger gets offsets that were moved. Required.
	Logger *slog.Logger
}

// Puller answers pulls, and holds those that may wait. All methods are safe for concurrent use.
// Source: PullMessageProcessor.java, DefaultPullMessageResultHandler.java, PullRequestHoldService.java.
type Puller struct {
	cfg     PullerConfig
	topics  *Topics
	groups  *Groups
	clients *Clients
	offsets *offset.Table
	stats   *Stats
	queues  Queues
	all     *filter.Subscription // every message
	holds   *holds
	scratch sync.Pool // *[][]byte: a pull allocates its records' slice once it knows their number
}

// NewPuller returns a Puller. What it holds goes on once Run runs.
func NewPuller(cfg PullerConfig, topics *Topics, groups *Groups, clients *Clients, offsets *offset.Table,
	stats *Stats, queues Queues,
) *Puller {
	setDefault(&cfg.MaxCount, DefaultPullCount)
	setDefault(&cfg.MaxBytes, DefaultPullBytes)
	setDefault(&cfg.ShortPolling, DefaultShortPolling)
	setDefault(&cfg.MaxHeld, defaultMaxHeld)
	p := &Puller{
		cfg: cfg, topics: topics, groups: groups, clients: clients, offsets: offsets, stats: stats,
		queues: queues, all: filter.All(),
	}
	p.holds = newHolds(queues, cfg.MaxHeld, cfg.Flush, p.wake)
	return p
}

func setDefault[T int | int32 | time.Duration](field *T, value T) {
	if *field <= 0 {
		*field = value
	}
}

// Run lets held pulls go on until ctx is done; then it answers all that wait and returns. Stop it before the
// store.
func (p *Puller) Run(ctx context.Context) error { return p.holds.Run(ctx) }

// Held returns how many pulls wait.
func (p *Puller) Held() int { return p.holds.count() }

// Disconnected ends the held pulls of a connection with ErrCanceled.
func (p *Puller) Disconnected(peer uint64) { p.holds.disconnected(peer) }

// Moved lets the waiting pulls of a group go on: its offsets were reset.
func (p *Puller) Moved(group, topic string) {
	p.holds.moved(func(owner any) bool {
		req, ok := owner.(*PullRequest)
		return ok && req.Group == group && req.Topic == topic
	})
}

// Pull answers req, or holds it when there is nothing to read and it may wait. It does not block, but for
// reading from disk. Errors given to Done: *Refusal, *filter.UnsupportedError, ErrCanceled, and what keeps the
// store from reading its index.
func (p *Puller) Pull(req *PullRequest) {
	req.started = time.Now()
	req.held = held{owner: req, peer: req.Peer}
	req.sub, req.waited = nil, false
	if group, ok := p.groups.Lookup(req.Group); ok {
		req.group = group
		p.first(req)
		return
	}
	if err := p.checkBroker(req); err != nil {
		req.Done(req, err)
		return
	}
	p.groups.Ensure(req.Group, func(group *GroupConfig, err error) {
		if err != nil {
			req.Done(req, err)
			return
		}
		if !p.holds.queue(&req.held, wakeQueued) { // the broker stops: the store's applier can be spared for it
			p.wake(&req.held, wakeQueued)
		}
	})
}

// first answers a pull that came from a client.
func (p *Puller) first(req *PullRequest) {
	if err := p.prepare(req); err != nil {
		p.finish(req, err)
		return
	}
	req.fetch.From = req.Offset
	if err := p.read(req); err != nil {
		p.finish(req, err)
		return
	}
	p.offsets.CommitPull(req.Group, req.Topic, req.QueueID, req.result.Next)
	if req.SysFlag&PullCommitOffset != 0 {
		p.offsets.Commit(req.Group, req.Topic, req.QueueID, req.CommitOffset)
	}
	if req.result.Outcome != PullNotFound || req.SysFlag&PullSuspend == 0 {
		p.answer(req)
		return
	}
	wait := req.Suspend
	if p.cfg.LongPollingDisabled {
		wait = p.cfg.ShortPolling
	}
	req.until = req.started.Add(wait)
	if wait <= 0 || !p.hold(req) {
		p.answer(req)
	}
}

// hold makes the pull wait at the offset it has come to. It lets go of the strings the request came with.
func (p *Puller) hold(req *PullRequest) bool {
	req.Topic, req.Group = req.topic.Name, req.group.Name
	req.Subscription.Text, req.Subscription.Type = "", ""
	req.fetch.Topic = req.Topic
	if !req.waited && req.Holding != nil {
		req.waited = true
		if !req.Holding(req) {
			p.finish(req, ErrCanceled)
			return true
		}
	}
	group, topic, id := req.Group, req.Topic, req.QueueID
	held := p.holds.hold(&req.held, topic, id, req.asked(), req.until)
	if held && p.offsets.HasReset(group, topic, id) { // Moved came before it was held
		p.Moved(group, topic)
	}
	return held
}

// wake lets a pull go on that waited.
func (p *Puller) wake(h *held, why wakeReason) {
	req, _ := h.owner.(*PullRequest)
	group, ok := p.groups.Lookup(req.Group)
	req.group = group
	switch {
	case why == wakeGone:
		p.finish(req, ErrCanceled)
	case !ok:
		p.finish(req, NoGroup(req.Group))
	case why == wakeQueued:
		if _, known := p.offsets.Query(req.Group, req.Topic, req.QueueID); known {
			req.SysFlag &^= PullCommitOffset // committed while this waited: later
		}
		p.first(req)
	default:
		p.again(req, why == wakeTimeUp)
	}
}

// again reads for a pull that waited. It is checked like a new one, for what may be read can have changed
// meanwhile. Messages that the pull does not want move its offset on, so that they are not looked at a second
// time; when time is up the consumer is told where it has come to.
func (p *Puller) again(req *PullRequest, last bool) {
	if err := p.prepare(req); err != nil {
		p.finish(req, err)
		return
	}
	for range maxScans {
		if err := p.read(req); err != nil {
			p.finish(req, err)
			return
		}
		if req.result.Status != store.NoMatchedMessage.String() {
			break
		}
		req.fetch.From = req.result.Next
		if req.result.Next == req.result.Max {
			req.result.Outcome = PullNotFound // nothing wanted so far
			break
		}
	}
	waits := req.result.Outcome == PullNotFound || req.result.Status == store.NoMatchedMessage.String()
	if waits && !last && p.hold(req) {
		return
	}
	if waits && req.asked() > req.Offset {
		req.result.Outcome, req.result.Status = PullRetryImmediately, store.NoMatchedMessage.String()
		req.result.Next = req.asked()
	}
	p.offsets.CommitPull(req.Group, req.Topic, req.QueueID, req.result.Next)
	p.answer(req)
}

// read reads once, at the offset the pull has come to, and composes the answer.
func (p *Puller) read(req *PullRequest) error {
	if reset, ok := p.offsets.TakeReset(req.Group, req.Topic, req.QueueID); ok {
		req.reset(reset, p.queues)
		return nil
	}
	scratch, _ := p.scratch.Get().(*[][]byte)
	if scratch == nil {
		scratch = new([][]byte)
	}
	req.fetch.Into = (*scratch)[:0]
	res := p.queues.Fetch(&req.fetch)
	*scratch, req.fetch.Into = res.Records, nil
	if res.Records = nil; len(*scratch) > 0 {
		res.Records = slices.Clone(*scratch)
		clear(*scratch) // so that it keeps no part of the log in memory
	}
	p.scratch.Put(scratch)
	if res.Status == store.Unreadable {
		return res.Err
	}
	req.compose(&res)
	return nil
}

// reset answers with the offset that an operator gave the group.
func (req *PullRequest) reset(to message.QueueOffset, queues Queues) {
	res := queues.Fetch(
		&store.FetchRequest{Topic: req.Topic, QueueID: req.QueueID, From: -1},
	) // for the queue's bounds
	req.compose(&res)
	req.result.Outcome, req.result.Status, req.result.Next = PullOffsetMoved, statusOffsetReset, to
	req.result.Records, req.result.Damage = nil, nil
}

// answer ends a pull with its result.
func (p *Puller) answer(req *PullRequest) {
	r := &req.result
	switch r.Outcome {
	case PullFound:
		p.stats.Get(req.Group, req.Topic, len(r.Records), r.Bytes, time.Since(req.started))
	case PullOffsetMoved:
		p.stats.GetMissed()
		p.cfg.Logger.Warn("consumer's offset was moved", "group", req.Group, "topic", req.Topic,
			"queue_id", req.QueueID, "offset", req.Offset, "next_offset", r.Next, "status", r.Status,
			"error", r.Damage)
	default:
		p.stats.GetMissed()
	}
	p.finish(req, nil)
}

// finish ends a pull.
func (p *Puller) finish(req *PullRequest, err error) {
	if req.held.listed {
		p.holds.end(&req.held)
	}
	req.Done(req, err)
}

// prepare checks in the original's order what may be read, and fills in the fetch request but for its offset.
func (p *Puller) prepare(req *PullRequest) error {
	if err := p.checkBroker(req); err != nil {
		return err
	}
	if !req.group.ConsumeEnable {
		return forbiddenGroup(req.group.Name)
	}
	topic, ok := p.topics.Lookup(req.Topic)
	if !ok {
		return NoTopic(req.Topic)
	}
	if !topic.Readable() {
		return forbid(3, "the topic[%s] pulling message is forbidden", topic.Name)
	}
	if req.QueueID < 0 || req.QueueID >= topic.ReadQueueNums {
		return NoQueue(topic, req.QueueID)
	}
	req.topic = topic
	sub, err := p.subscription(req)
	if err != nil {
		return err
	}
	f := &req.fetch
	f.Topic, f.QueueID = req.Topic, req.QueueID
	f.MaxCount = max(1, min(req.MaxCount, p.cfg.MaxCount))
	if f.MaxBytes = p.cfg.MaxBytes; req.MaxBytes > 0 {
		f.MaxBytes = min(f.MaxBytes, max(req.MaxBytes, minPullBytes))
	}
	f.Match, f.MatchRecord = sub.MatchCode(), sub.MatchRecord()
	return nil
}

func (p *Puller) checkBroker(req *PullRequest) error {
	if p.topics.Denied()&PermRead != 0 {
		return forbid(1, "the broker[%s] pulling message is forbidden", p.cfg.BrokerAddr)
	}
	if req.LitePull && p.cfg.LitePullDisabled {
		return forbid(1, "the broker[%s] for lite pull consumer is forbidden", p.cfg.BrokerAddr)
	}
	return nil
}

// subscription returns what the pull wants: what it says itself, else what its group's consumers have told.
func (p *Puller) subscription(req *PullRequest) (*filter.Subscription, error) {
	if req.sub != nil {
		return req.sub, nil
	}
	if req.SysFlag&PullSubscription != 0 {
		sub, err := parseFilter(p.cfg.Filters, req.Subscription.Text, req.Subscription.Type)
		req.sub = sub
		return sub, err
	}
	group, ok := p.clients.Group(req.Group)
	if !ok {
		return nil, refuse(SubscriptionMissing,
			"the consumer's group info not exist: no consumer of group %s is connected", req.group.Name)
	}
	if !req.group.ConsumeBroadcastEnable && group.Model == Broadcasting {
		return nil, forbid(4, "the consumer group[%s] can not consume by broadcast way", req.group.Name)
	}
	if p.groups.Forbidden(req.Group, req.Topic)&PermRead != 0 {
		return nil, forbiddenTopic(req.group.Name, req.topic.Name)
	}
	data, ok := group.Subscriptions[req.Topic]
	if !ok {
		return nil, refuse(SubscriptionMissing, "the consumer's subscription not exist: no consumer of group %s "+
			"subscribes %s", req.group.Name, req.topic.Name)
	}
	if data.SubVersion < req.Subscription.Version {
		return nil, refuse(SubscriptionOld, "the consumer's subscription not latest")
	}
	if data.ClassFilterMode {
		return p.all, nil
	}
	return parseTold(p.cfg.Filters, data)
}
