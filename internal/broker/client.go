// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v4"

	"github.com/roquetmq/roquet/internal/nested"
)

// Channel is the connection, or the door's stand-in for one, by which a client can be reached. Its ID is
// never used again by another.
type Channel interface {
	ID() uint64
	RemoteAddr() netip.AddrPort
}

// Heartbeat is what a client says of itself. Its strings may alias a buffer; Clients clones what it keeps.
type Heartbeat struct {
	ClientID string
	Language string
	Version  int32
	// Fingerprint is not 0 in heartbeats of version 2: it stands for the subscriptions.
	Fingerprint int32
	// WithoutSubscriptions says that nothing changed since a heartbeat with this Fingerprint.
	WithoutSubscriptions bool
	Producers            []string // groups
	Consumers            []ConsumerData
}

// ConsumerData is a client's membership in one consumer group.
type ConsumerData struct {
	Group         string
	Type          ConsumeType
	Model         MessageModel
	FromWhere     ConsumeFromWhere
	UnitMode      bool
	Subscriptions []SubscriptionData
	// Quiet says that the group's config does not want its members told of changes.
	Quiet bool
}

// Member is a client in a group, as it was when asked for.
type Member struct {
	Channel  Channel
	ClientID string
	Language string
	Version  int32
	LastSeen time.Time
}

// ConsumerGroup is a consumer group with members, as it was at one moment. It is shared and must not be
// changed.
type ConsumerGroup struct {
	Name      string
	Type      ConsumeType
	Model     MessageModel
	FromWhere ConsumeFromWhere
	// Subscriptions are those of all members, by topic.
	Subscriptions map[string]*SubscriptionData
	channels      []Channel
	clientIDs     []string // ordered, each once
}

// ClientIDs returns the members' client ids, ordered, each once. The slice must not be changed. Known
// difference: RocketMQ repeats a client id that two connections share, and then nobody reads half of the
// queues.
func (g *ConsumerGroup) ClientIDs() []string { return g.clientIDs }

// member is one connection in one group. Fields but seen are guarded by Clients.mu.
type member struct {
	channel     Channel
	clientID    string
	language    string
	version     int32
	fingerprint int32
	order       uint64       // of registration
	seen        atomic.Int64 // unix ms
	subs        subscriptions
	typ         ConsumeType
	model       MessageModel
	fromWhere   ConsumeFromWhere
}

func (m *member) public() Member {
	return Member{
		Channel: m.channel, ClientID: m.clientID, Language: m.language, Version: m.version,
		LastSeen: time.UnixMilli(m.seen.Load()),
	}
}

// consumerGroup is a group's members; guarded by Clients.mu but for view.
type consumerGroup struct {
	name    string
	members map[uint64]*member // by channel id
	quiet   bool
	view    atomic.Pointer[ConsumerGroup]
	noticed time.Time                 // when the members were last told of a change
	warned  map[conflictKey]time.Time // when each conflict was last told
}

// ClientsConfig configures Clients. Functions are called without any lock held and must not block.
type ClientsConfig struct {
	// ChannelExpiredTimeout is how long a client is known without a heartbeat; 0 means 120 s.
	ChannelExpiredTimeout time.Duration
	// NoticesDisabled sends no notices at all.
	NoticesDisabled bool
	// Notify tells the members of a group that membership or subscriptions changed (request code 40); nil
	// does nothing.
	Notify func(group string, members []Channel)
	// Conflict is told of members that do not fit together, each at most once in ten minutes; nil does
	// nothing.
	Conflict func(Conflict)
	// Logger is required.
	Logger *slog.Logger
}

// Clients is the table of producers and consumers that are connected. Nothing of it is stored: clients say
// again who they are every 30 s. All methods are safe for concurrent use. The owner calls Tick every second
// or so, and Disconnected when a connection ended. Source: ConsumerManager.java, ProducerManager.java,
// ClientManageProcessor.java.
type Clients struct {
	cfg       ClientsConfig
	consumers *xsync.Map[string, *consumerGroup]
	conflicts atomic.Int64

	mu struct {
		sync.Mutex
		order     uint64
		producers nested.Map[string, uint64, *member]
		byClient  map[string]*member // the newest producer of each client id
		// groupsOf lists what a channel is in, so that its end costs nothing else.
		groupsOf map[uint64]*channelGroups
		pending  map[string]*consumerGroup // groups with a notice to send
		turns    map[uint64][]func()       // by channel whose heartbeat waits: what came from it since
	}
}

type channelGroups struct{ consumers, producers map[string]struct{} }

// NewClients returns an empty table.
func NewClients(cfg ClientsConfig) *Clients {
	setDefault(&cfg.ChannelExpiredTimeout, 120*time.Second)
	if cfg.Notify == nil {
		cfg.Notify = func(string, []Channel) {}
	}
	if cfg.Conflict == nil {
		cfg.Conflict = func(Conflict) {}
	}
	c := &Clients{cfg: cfg, consumers: xsync.NewMap[string, *consumerGroup]()}
	c.mu.producers = nested.Map[string, uint64, *member]{}
	c.mu.byClient = map[string]*member{}
	c.mu.groupsOf = map[uint64]*channelGroups{}
	c.mu.pending = map[string]*consumerGroup{}
	c.mu.turns = map[uint64][]func(){}
	return c
}

// inTurn calls act when all that came from the channel before is over, which endTurn says. So a client that leaves
// while a heartbeat of it waits is gone after that.
func (c *Clients) inTurn(id uint64, act func()) {
	c.mu.Lock()
	waiting, busy := c.mu.turns[id]
	if busy {
		waiting = append(waiting, act)
	}
	c.mu.turns[id] = waiting
	c.mu.Unlock()
	if !busy {
		act()
	}
}

func (c *Clients) endTurn(id uint64) {
	next := func() {}
	c.mu.Lock()
	if waiting := c.mu.turns[id]; len(waiting) > 0 {
		next, c.mu.turns[id] = waiting[0], waiting[1:]
	} else {
		delete(c.mu.turns, id)
	}
	c.mu.Unlock()
	next()
}

// HeartbeatResult is what to answer to a heartbeat.
type HeartbeatResult struct {
	// SubscriptionsChanged asks the client for a heartbeat with subscriptions: this table does not have them.
	SubscriptionsChanged bool
}

// Heartbeat registers the channel in the client's groups and takes over its subscriptions.
func (c *Clients) Heartbeat(ch Channel, hb *Heartbeat, now time.Time) HeartbeatResult {
	var result HeartbeatResult
	c.locked(func(after *effects) {
		for _, group := range hb.Producers {
			c.joinProducerLocked(ch, hb, group, now)
		}
		for i := range hb.Consumers {
			if !c.joinConsumerLocked(ch, hb, &hb.Consumers[i], now, after) {
				result.SubscriptionsChanged = true
			}
		}
	})
	return result
}

func (c *Clients) joinProducerLocked(ch Channel, hb *Heartbeat, group string, now time.Time) {
	old := c.mu.producers[group][ch.ID()]
	if old != nil && old.clientID == hb.ClientID {
		old.seen.Store(now.UnixMilli())
		return
	}
	group = strings.Clone(group)
	m := c.newMemberLocked(ch, hb, now)
	c.mu.producers.Put(group, ch.ID(), m)
	if c.mu.byClient[m.clientID] = m; old != nil {
		c.unlistLocked(old)
	}
	c.channelLocked(ch).producers[group] = struct{}{}
	c.cfg.Logger.Debug("producer joined", "group", group, "client_id", hb.ClientID,
		"remote_addr", ch.RemoteAddr())
}

func (c *Clients) newMemberLocked(ch Channel, hb *Heartbeat, now time.Time) *member {
	c.mu.order++
	m := &member{
		channel: ch, clientID: strings.Clone(hb.ClientID), language: strings.Clone(hb.Language),
		version: hb.Version, order: c.mu.order,
	}
	m.seen.Store(now.UnixMilli())
	return m
}

func (c *Clients) channelLocked(ch Channel) *channelGroups {
	groups := c.mu.groupsOf[ch.ID()]
	if groups == nil {
		groups = &channelGroups{consumers: map[string]struct{}{}, producers: map[string]struct{}{}}
		c.mu.groupsOf[ch.ID()] = groups
	}
	return groups
}

// joinConsumerLocked reports whether the member's subscriptions are known now.
func (c *Clients) joinConsumerLocked(ch Channel, hb *Heartbeat, data *ConsumerData, now time.Time,
	after *effects,
) bool {
	group, ok := c.consumers.Load(data.Group)
	if !ok {
		group = &consumerGroup{name: strings.Clone(data.Group), members: map[uint64]*member{}}
		c.consumers.Store(group.name, group)
	}
	m := group.members[ch.ID()]
	joined := m == nil || m.clientID != hb.ClientID
	if joined {
		m = c.newMemberLocked(ch, hb, now)
		group.members[ch.ID()] = m
		c.channelLocked(ch).consumers[group.name] = struct{}{}
		c.cfg.Logger.Info("consumer joined", "group", group.name, "client_id", m.clientID,
			"remote_addr", ch.RemoteAddr())
	}
	m.seen.Store(now.UnixMilli())
	group.quiet = data.Quiet

	known := true
	changed := joined || m.typ != data.Type || m.model != data.Model || m.fromWhere != data.FromWhere
	switch {
	case hb.WithoutSubscriptions:
		known = !joined && m.fingerprint == hb.Fingerprint
	case !m.subs.sameAs(data.Subscriptions):
		m.subs = newSubscriptions(data.Subscriptions)
		changed = true
	}
	if !hb.WithoutSubscriptions {
		m.fingerprint = hb.Fingerprint
	}
	if changed {
		m.typ = ConsumeType(strings.Clone(string(data.Type)))
		m.model = MessageModel(strings.Clone(string(data.Model)))
		m.fromWhere = ConsumeFromWhere(strings.Clone(string(data.FromWhere)))
		if topicsChanged := group.publishJoined(m, joined); joined || topicsChanged {
			c.noticeLocked(group, now, after)
		}
	}
	c.findConflictsLocked(group, m, changed, now, after)
	return known
}

// publish makes a new view after newest changed, and reports whether the topics of the group changed.
func (g *consumerGroup) publish(newest *member) bool {
	old := g.view.Load()
	v := &ConsumerGroup{Name: g.name, Subscriptions: unite(g.members)}
	if newest != nil {
		v.Type, v.Model, v.FromWhere = newest.typ, newest.model, newest.fromWhere
	} else if old != nil {
		v.Type, v.Model, v.FromWhere = old.Type, old.Model, old.FromWhere
	}
	for _, m := range g.members {
		v.channels = append(v.channels, m.channel)
		v.clientIDs = append(v.clientIDs, m.clientID)
	}
	slices.SortFunc(v.channels, byID)
	slices.Sort(v.clientIDs)
	v.clientIDs = slices.Compact(v.clientIDs)
	g.view.Store(v)
	return old == nil || !sameTopics(old.Subscriptions, v.Subscriptions)
}

// publishJoined is publish of a member that is new, at the cost of a copy where publish looks at every member.
func (g *consumerGroup) publishJoined(m *member, joined bool) bool {
	old := g.view.Load()
	if !joined || old == nil || len(old.channels) != len(g.members)-1 {
		return g.publish(m)
	}
	v := &ConsumerGroup{
		Name: g.name, Type: m.typ, Model: m.model, FromWhere: m.fromWhere,
		Subscriptions: maps.Clone(old.Subscriptions),
	}
	at, _ := slices.BinarySearchFunc(old.channels, m.channel, byID)
	v.channels = slices.Insert(slices.Clone(old.channels), at, m.channel)
	v.clientIDs = old.clientIDs
	if at, known := slices.BinarySearch(old.clientIDs, m.clientID); !known {
		v.clientIDs = slices.Insert(slices.Clone(old.clientIDs), at, m.clientID)
	}
	merge(v.Subscriptions, m.subs)
	g.view.Store(v)
	return !sameTopics(old.Subscriptions, v.Subscriptions)
}

// publishLeft is publish after m left, at the cost of a copy unless one of its subscriptions was the group's.
func (g *consumerGroup) publishLeft(m *member) {
	old := g.view.Load()
	whole := old == nil || len(old.channels) != len(g.members)+1 || len(old.clientIDs) != len(old.channels)
	for topic, sub := range m.subs {
		whole = whole || old.Subscriptions[topic] == sub
	}
	if whole {
		g.publish(nil)
		return
	}
	v := *old
	if at, ok := slices.BinarySearchFunc(old.channels, m.channel, byID); ok {
		v.channels = slices.Delete(slices.Clone(old.channels), at, at+1)
	}
	if at, ok := slices.BinarySearch(old.clientIDs, m.clientID); ok {
		v.clientIDs = slices.Delete(slices.Clone(old.clientIDs), at, at+1)
	}
	g.view.Store(&v)
}

func byID(a, b Channel) int { return cmp.Compare(a.ID(), b.ID()) }

func sameTopics(a, b map[string]*SubscriptionData) bool {
	if len(a) != len(b) {
		return false
	}
	for topic := range a {
		if b[topic] == nil {
			return false
		}
	}
	return true
}

// Unregister takes the channel out of the groups; an empty name is no group. Unknown ones are fine.
func (c *Clients) Unregister(ch Channel, producerGroup, consumerGroup string, now time.Time) {
	producerGroup, consumerGroup = strings.Clone(producerGroup), strings.Clone(consumerGroup)
	c.leave(ch.ID(), func(after *effects) {
		if producerGroup != "" {
			c.leaveProducerLocked(ch.ID(), producerGroup)
		}
		if consumerGroup != "" {
			c.leaveConsumerLocked(ch.ID(), consumerGroup, "unregistered", now, after)
		}
	})
}

// leave calls take, with the lock held, in the channel's turn.
func (c *Clients) leave(id uint64, take func(after *effects)) {
	c.inTurn(id, func() { c.locked(take); c.endTurn(id) })
}

// Disconnected takes the channel out of all its groups: its connection ended.
func (c *Clients) Disconnected(ch Channel, now time.Time) {
	c.leave(ch.ID(), func(after *effects) { c.disconnectedLocked(ch.ID(), "connection closed", now, after) })
}

func (c *Clients) disconnectedLocked(id uint64, why string, now time.Time, after *effects) {
	groups := c.mu.groupsOf[id]
	if groups == nil {
		return
	}
	for group := range groups.producers {
		c.leaveProducerLocked(id, group)
	}
	for group := range groups.consumers {
		c.leaveConsumerLocked(id, group, why, now, after)
	}
}

func (c *Clients) leaveProducerLocked(id uint64, group string) {
	m := c.mu.producers[group][id]
	if m == nil {
		return
	}
	c.mu.producers.Delete(group, id)
	c.forgetLocked(id, func(g *channelGroups) { delete(g.producers, group) })
	c.unlistLocked(m)
}

func (c *Clients) leaveConsumerLocked(id uint64, name, why string, now time.Time, after *effects) {
	group, ok := c.consumers.Load(name)
	if !ok || group.members[id] == nil {
		return
	}
	m := group.members[id]
	delete(group.members, id)
	c.forgetLocked(id, func(g *channelGroups) { delete(g.consumers, group.name) })
	c.cfg.Logger.Info("consumer left", "group", group.name, "client_id", m.clientID,
		"remote_addr", m.channel.RemoteAddr(), "reason", why)
	if len(group.members) == 0 {
		c.consumers.Delete(group.name)
		delete(c.mu.pending, group.name)
		return
	}
	group.publishLeft(m)
	c.noticeLocked(group, now, after)
}

func (c *Clients) forgetLocked(id uint64, remove func(*channelGroups)) {
	groups := c.mu.groupsOf[id]
	if groups == nil {
		return
	}
	if remove(groups); len(groups.consumers) == 0 && len(groups.producers) == 0 {
		delete(c.mu.groupsOf, id)
	}
}
