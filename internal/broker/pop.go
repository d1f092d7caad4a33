// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v4"
	"golang.org/x/sync/errgroup"

	"github.com/roquetmq/roquet/internal/broker/due"
	"github.com/roquetmq/roquet/internal/broker/filter"
	"github.com/roquetmq/roquet/internal/broker/offset"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

const (
	// MaxPopCount is how many messages one receive can have. Source: PopMessageProcessor.java.
	MaxPopCount = 32

	// DefaultPopPollingSize is how many receives of one group wait for one queue, or for all of a topic, and
	// DefaultMaxPopPollingSize how many wait in all. Source: BrokerConfig popPollingSize (there 1,024),
	// maxPopPollingSize.
	DefaultPopPollingSize = 16_384
	// DefaultMaxPopPollingSize is the bound for all together.
	DefaultMaxPopPollingSize = 100_000

	// popAnswerAhead is how long before its time is up a waiting receive is answered, so that the client has
	// the answer in time. Source: PopRequest.java.
	popAnswerAhead = 50 * time.Millisecond
	// popTick is how late messages may become visible again: what becomes so within it is looked at together.
	popTick = 5 * time.Millisecond
	// popRetry is how long to wait after the store refused or failed a write.
	popRetry = time.Second
)

// PopStore is what a Popper needs of the store. *store.Store is one.
type PopStore interface {
	Queues
	store.Journal
	Archive
}

// PopperConfig configures a Popper. Zero values are RocketMQ's defaults, but for the names.
type PopperConfig struct {
	// BrokerName is in every receipt handle; handles with another one are refused.
	BrokerName string
	// BrokerAddr names the broker in remarks: its IP.
	BrokerAddr string
	// MaxBytes bounds the messages that one receive returns; 0 means DefaultPullBytes.
	MaxBytes int
	// PollingSize and MaxPollingSize bound how many receives wait, of one key and in all; 0 means the
	// defaults.
	PollingSize    int
	MaxPollingSize int
	// Filters parses subscriptions. Required.
	Filters *filter.Cache
	// ClaimsAsync answers receives that are not orderly before their claims are written. Those of the last moments
	// before a crash are lost: their messages come at once. Source: BrokerConfig appendCkAsync.
	ClaimsAsync bool
	// LogEnd returns the end of the log. Required.
	LogEnd func() message.LogOffset
	// Flush is called by a worker after a number of Done calls: the moment to write replies out. Required.
	Flush func()
	// Logger gets messages that are lost or damaged. Required.
	Logger *slog.Logger
}

// Popper lets consumer groups share the messages of topics: receives, acknowledgements, renewals, dead
// letters. The rules are package pop's; the Popper reads messages, stores claims and lets receives wait. All
// methods are safe for concurrent use. An answer is given when what it says is durable.
//
// What comes again is the message itself, at its place in its queue, with a higher reconsumeTimes in the
// answer: there are no retry topics. docs/adr/0005-pop-claims.md says why.
//
// Source: PopMessageProcessor.java, PopConsumerService.java, AckMessageProcessor.java,
// ChangeInvisibleTimeProcessor.java, ConsumerOrderInfoManager.java, PopLongPollingService.java,
// NotificationProcessor.java.
type Popper struct {
	cfg     PopperConfig
	topics  *Topics
	groups  *Groups
	offsets *offset.Table
	stats   *Stats
	store   PopStore
	holds   *holds
	alarm   popAlarm
	shares  *xsync.Map[popKey, *popShare]
	looks   sync.Pool    // *popLook
	carried atomic.Int64 // log position in front of which messages are kept as soon as they are received

	gate struct { // of topics and groups that are being deleted
		sync.Mutex
		closing map[popKey]int // a topic without a group, or a group without a topic
	}
}

// popKey names what one group has of one topic.
type popKey struct{ topic, group string }

// NewPopper loads the claims from the store, and subscribes to the deletion of topics and groups: before the
// store runs. The store's OnRetain must be given CarryForward. Receives wait while Run runs.
func NewPopper(cfg PopperConfig, topics *Topics, groups *Groups, offsets *offset.Table, stats *Stats,
	st PopStore,
) (*Popper, error) {
	setDefault(&cfg.MaxBytes, DefaultPullBytes)
	setDefault(&cfg.PollingSize, DefaultPopPollingSize)
	setDefault(&cfg.MaxPollingSize, DefaultMaxPopPollingSize)
	p := &Popper{
		cfg: cfg, topics: topics, groups: groups, offsets: offsets, stats: stats, store: st,
		shares: xsync.NewMap[popKey, *popShare](),
	}
	p.holds = newHolds(popAwaiter{p}, cfg.MaxPollingSize, cfg.Flush, p.wake)
	p.alarm.bell = due.NewBell()
	p.gate.closing = map[popKey]int{}
	if err := p.load(); err != nil {
		return nil, err
	}
	topics.deleted = append(topics.deleted, func(name string) companion { return p.forget(popKey{topic: name}) })
	groups.deleted = append(groups.deleted, func(name string) companion { return p.forget(popKey{group: name}) })
	return p, nil
}

// Run lets waiting receives go on, brings back what was not acknowledged and makes dead letters, until ctx is
// done; then it answers all that wait and returns. Stop it before the store.
func (p *Popper) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.holds.Run(ctx) })
	g.Go(func() error {
		p.watch(ctx)
		return nil
	})
	return g.Wait()
}

// Disconnected ends the waiting receives of a connection with ErrCanceled.
func (p *Popper) Disconnected(peer uint64) { p.holds.disconnected(peer) }

// Pop answers req, or lets it wait when there is nothing to receive. It does not block, but for reading from
// disk. Errors given to Done: *Refusal, ErrCanceled, those of store.Append, and what keeps
// the store from reading its index.
func (p *Popper) Pop(req *PopRequest) { p.start(req, false) }

// Notify answers req when there is something to receive, or when its time is up, but receives nothing: a
// result with PopFound has no messages. Filter and MaxCount do not count. Errors are Pop's.
func (p *Popper) Notify(req *PopRequest) { p.start(req, true) }

func (p *Popper) start(req *PopRequest, notify bool) {
	now := time.Now()
	req.popping = popping{popper: p, held: held{owner: req, peer: req.Peer}, started: now, notify: notify}
	req.Invisible = min(max(req.Invisible, 0), maxInvisible)
	req.attempt = attemptHash(req.AttemptID)
	if req.Wait > 0 {
		req.until = now.Add(req.Wait - popAnswerAhead)
	}
	if err := p.checkTopic(req); err != nil {
		req.Done(req, err)
		return
	}
	if _, ok := p.groups.Lookup(req.Group); ok {
		p.again(req, false)
		return
	}
	p.groups.Ensure(req.Group, func(_ *GroupConfig, err error) {
		if err == nil && !p.holds.queue(&req.held, wakeQueued) {
			err = ErrCanceled // the broker stops
		}
		if err != nil {
			req.Done(req, err)
		}
	})
}

// again looks for messages: the first time, or after waiting, with last set when there is no time left to
// wait. It is checked like a new one, for what may be received can have changed meanwhile.
func (p *Popper) again(req *PopRequest, last bool) {
	err := p.prepare(req)
	found := false
	if err == nil {
		found, err = p.receive(req)
	}
	switch {
	case err != nil:
		p.end(req, err)
	case found && req.notify:
		req.result.Outcome = PopFound
		p.end(req, nil)
	case found && p.early(req):
		p.found(req)
	case found: // popWritten answers
	case last || !time.Now().Before(req.until):
		p.miss(req, PopPollingTimeout)
	default:
		if outcome, held := p.hold(req); !held {
			p.miss(req, outcome)
		}
	}
}

// early tells whether a receive is answered before its claims are written.
func (p *Popper) early(req *PopRequest) bool {
	return p.cfg.ClaimsAsync && req.result.Order == Unordered
}

// found answers a receive with messages.
func (p *Popper) found(req *PopRequest) {
	r, key := &req.result, req.share.key
	r.Outcome = PopFound
	p.stats.Get(key.group, key.topic, len(r.Messages), r.Bytes, time.Since(req.started))
	p.stats.Popped(key.group, key.topic, len(r.Messages), r.Bytes)
	p.finish(req, nil)
}

// miss answers a receive that found nothing.
func (p *Popper) miss(req *PopRequest, outcome PopOutcome) {
	req.result.Outcome = outcome
	p.stats.GetMissed()
	p.finish(req, nil)
}

// end ends a receive that takes nothing. If it was sent on, it sends on another one in its place.
func (p *Popper) end(req *PopRequest, err error) {
	s, id, sent := req.share, req.QueueID, req.woken
	p.finish(req, err)
	if s != nil && sent {
		p.signal(s, id)
	}
}

// finish ends a receive.
func (p *Popper) finish(req *PopRequest, err error) {
	if req.held.listed {
		p.holds.end(&req.held)
	}
	req.Done(req, err)
}
