// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/roquetmq/roquet/internal/broker/offset"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// Defaults of a subscription group. Source: SubscriptionGroupConfig.java.
const (
	DefaultRetryQueueNums       = 1
	DefaultRetryMaxTimes        = 16
	defaultConsumeTimeoutMinute = 15
	defaultSlowBrokerID         = 1
)

// GroupConfig is the configuration of a subscription group. What Groups gives out is shared and must not be
// changed. The JSON form is the one clients know and the one in the log; NewGroupConfig and decoding set
// RocketMQ's defaults.
type GroupConfig struct {
	Name                           string              `json:"groupName"`
	ConsumeEnable                  bool                `json:"consumeEnable"`
	ConsumeFromMinEnable           bool                `json:"consumeFromMinEnable"`
	ConsumeBroadcastEnable         bool                `json:"consumeBroadcastEnable"`
	ConsumeMessageOrderly          bool                `json:"consumeMessageOrderly"`
	NotifyConsumerIDsChangedEnable bool                `json:"notifyConsumerIdsChangedEnable"`
	RetryQueueNums                 int32               `json:"retryQueueNums"`
	RetryMaxTimes                  int32               `json:"retryMaxTimes"`
	BrokerID                       int64               `json:"brokerId"`
	WhichBrokerWhenConsumeSlowly   int64               `json:"whichBrokerWhenConsumeSlowly"`
	SysFlag                        int32               `json:"groupSysFlag"`
	ConsumeTimeoutMinute           int32               `json:"consumeTimeoutMinute"`
	RetryPolicy                    GroupRetryPolicy    `json:"groupRetryPolicy"`
	Subscriptions                  []GroupSubscription `json:"subscriptionDataSet,omitempty"`
	Attributes                     map[string]string   `json:"attributes"`
}

// GroupSubscription is a subscription that belongs to a group's config.
type GroupSubscription struct {
	Topic          string `json:"topic"`
	ExpressionType string `json:"expressionType"`
	Expression     string `json:"expression"`
	Version        int64  `json:"version"`
}

// NewGroupConfig returns the config of a group that nobody configured.
func NewGroupConfig(name string) GroupConfig {
	return GroupConfig{
		Name: strings.Clone(name), ConsumeEnable: true, ConsumeFromMinEnable: true, ConsumeBroadcastEnable: true,
		NotifyConsumerIDsChangedEnable: true, RetryQueueNums: DefaultRetryQueueNums,
		RetryMaxTimes: DefaultRetryMaxTimes, WhichBrokerWhenConsumeSlowly: defaultSlowBrokerID,
		ConsumeTimeoutMinute: defaultConsumeTimeoutMinute, RetryPolicy: GroupRetryPolicy{Type: "CUSTOMIZED"},
		Attributes: map[string]string{},
	}
}

// urgent tells whether a receive takes the highest priorities first: it does in priority.factor percent of them, so
// that a group can keep the others from waiting for ever. Source: PopMessageProcessor.java of RocketMQ 5.5.
func (c *GroupConfig) urgent() bool {
	factor, err := strconv.Atoi(c.Attributes[attributePriorityFactor])
	return err != nil || rand.IntN(100) < factor
}

// UnmarshalJSON sets what is missing to its default, as RocketMQ does.
func (c *GroupConfig) UnmarshalJSON(data []byte) error {
	type plain GroupConfig
	p := plain(NewGroupConfig(""))
	if err := json.Unmarshal(data, &p); err != nil {
		return fmt.Errorf("decode subscription group: %w", err)
	}
	*c = GroupConfig(p)
	return nil
}

// GroupsConfig says how groups come about. Zero is RocketMQ's default.
type GroupsConfig struct {
	// AutoCreateDisabled refuses groups that nobody created.
	AutoCreateDisabled bool
	// Logger is required.
	Logger *slog.Logger
}

// Groups is the table of subscription groups, and of which topics each is forbidden to read. What Topics says
// of done functions and concurrency holds here too.
type Groups struct {
	autoCreate atomic.Bool
	table      *table[GroupConfig]
	forbidden  *table[forbiddance]
	deleted    []func(group string) companion // what else goes with a group's offsets; before the store runs
}

// forbiddenPrefix is before the group in the state keys of the forbidden table.
const forbiddenPrefix = "\x00forbidden/"

// forbiddance is the forbidden table's entry of a group: topic → permission bits that are taken away.
type forbiddance struct {
	Topics map[string]int32 `json:"topics"`
}

// NewGroups loads the table from the journal and subscribes to it: before the store runs.
func NewGroups(cfg GroupsConfig, journal store.Journal) (*Groups, error) {
	g := &Groups{}
	g.autoCreate.Store(!cfg.AutoCreateDisabled)
	var err error
	if g.table, err = openTable(message.SpaceGroup, "", journal, cfg.Logger, systemGroups()); err != nil {
		return nil, err
	}
	g.forbidden, err = openTable[forbiddance](message.SpaceGroup, forbiddenPrefix, journal, cfg.Logger, nil)
	return g, err
}

// systemGroups are the groups that exist without being created. Source: SubscriptionGroupManager.java init.
func systemGroups() map[string]*GroupConfig {
	groups := map[string]*GroupConfig{}
	for _, name := range []string{
		"TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PULL",
		"CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_RMQ_SYS_TRANS",
	} {
		groups[name] = new(NewGroupConfig(name))
	}
	return groups
}

// Lookup returns the group's config. It takes no lock, does not allocate and creates nothing.
func (g *Groups) Lookup(name string) (*GroupConfig, bool) { return g.table.live.Load(name) }

// All returns every group, ordered by name.
func (g *Groups) All() []*GroupConfig { return g.table.all() }

// Len returns the number of groups.
func (g *Groups) Len() int { return g.table.live.Size() }

// Version returns the version of groups and forbidden table together.
func (g *Groups) Version() DataVersion {
	groups, forbidden := g.table.version.Load(), g.forbidden.version.Load()
	return DataVersion{
		Counter: groups.Counter + forbidden.Counter, Timestamp: max(groups.Timestamp, forbidden.Timestamp),
	}
}

// OnChange registers fn to be told the names of groups that were created, changed or deleted. As
// Topics.OnChange.
func (g *Groups) OnChange(fn func(changed []string)) { g.table.changed = append(g.table.changed, fn) }

// SetAutoCreate allows or forbids groups that nobody created.
func (g *Groups) SetAutoCreate(allowed bool) { g.autoCreate.Store(allowed) }

// Ensure gives done the config of group, after creating it when groups are created by themselves, else
// GroupNotExist. It does not allocate when the group is there. Source: SubscriptionGroupManager.java
// findSubscriptionGroupConfig.
func (g *Groups) Ensure(group string, done func(*GroupConfig, error)) {
	if cfg, ok := g.table.settled(group); ok {
		done(cfg, nil)
		return
	}
	g.table.ensure(edit[GroupConfig]{name: group, next: func(cur *GroupConfig) (*GroupConfig, error) {
		if cur != nil {
			return cur, nil
		}
		if err := ValidateGroup(group); err != nil {
			return nil, err
		}
		if !g.autoCreate.Load() && !strings.HasPrefix(group, SystemGroupPrefix) {
			return nil, fmt.Errorf("%w: autoCreateSubscriptionGroup is false", NoGroup(group))
		}
		return new(NewGroupConfig(group)), nil
	}}, NoGroup, done)
}

// PutAll creates or changes groups, all or none. Their Attributes are changes, as with Topics.Put.
// Errors: *Refusal and those of the store.
func (g *Groups) PutAll(cfgs []GroupConfig, done func(error)) {
	edits := make([]edit[GroupConfig], 0, len(cfgs))
	for _, cfg := range cfgs {
		if err := checkGroup(&cfg); err != nil {
			done(err)
			return
		}
		cfg = cloneGroup(cfg)
		merge := func(cur *GroupConfig) (*GroupConfig, error) { return mergeGroup(cur, cfg) }
		edits = append(edits, edit[GroupConfig]{name: cfg.Name, next: merge})
	}
	g.table.edit(edits, done)
}

func checkGroup(cfg *GroupConfig) error {
	if err := ValidateGroup(cfg.Name); err != nil {
		return err
	}
	if cfg.RetryQueueNums < 0 || cfg.RetryQueueNums > maxQueueNums {
		return notAllowed("retryQueueNums", cfg.RetryQueueNums,
			"a retry topic has 0 to "+strconv.Itoa(maxQueueNums)+" queues")
	}
	return nil
}

func mergeGroup(cur *GroupConfig, cfg GroupConfig) (*GroupConfig, error) {
	var attributes map[string]string
	if cur != nil {
		attributes = cur.Attributes
	}
	merged, err := alterAttributes(cur == nil, groupAttributes(), attributes, cfg.Attributes)
	cfg.Attributes = merged
	return &cfg, err
}

// Delete removes a group, what it is forbidden, and its offsets in all topics, also of a group that does not exist.
func (g *Groups) Delete(group string, offsets *offset.Table, done func(error)) {
	if _, ok := g.Lookup(group); !ok {
		c := g.goesWith(group, offsets)
		c.store(g.table.journal, done)
		return
	}
	g.table.edit([]edit[GroupConfig]{{
		name: group, next: func(*GroupConfig) (*GroupConfig, error) { return nil, nil },
		with: func(*GroupConfig, *GroupConfig) companion { return g.goesWith(group, offsets) },
	}}, done)
}

// goesWith is what is deleted with a group.
func (g *Groups) goesWith(group string, offsets *offset.Table) companion {
	drop := offsets.DropGroup(group)
	c := companion{drop.States, []func(error){drop.Settle}}
	for _, fn := range g.deleted {
		c.add(fn(group))
	}
	if _, ok := g.forbidden.live.Load(group); ok {
		key := []byte(forbiddenPrefix + group)
		c.states = append(c.states, message.State{Space: message.SpaceGroup, Key: key, Delete: true})
	}
	return c
}

func cloneGroup(cfg GroupConfig) GroupConfig {
	cfg.Name = strings.Clone(cfg.Name)
	cfg.Subscriptions = slices.Clone(cfg.Subscriptions)
	cfg.Attributes = cloneAttributes(cfg.Attributes)
	return cfg
}

// SetForbidden takes permission bits of a topic away from a group, or gives them back. Source:
// SubscriptionGroupManager.java updateForbidden. Known difference: giving the last bit of one topic back
// leaves the group's other topics forbidden.
func (g *Groups) SetForbidden(group, topic string, perm int32, forbidden bool, done func(error)) {
	topic = strings.Clone(topic)
	g.forbidden.change(group, func(cur *forbiddance) (*forbiddance, error) {
		return cur.with(topic, perm, forbidden), nil
	}, done)
}

// with returns f with the bits of topic set or cleared: f itself when that changes nothing, nil when nothing
// is left.
func (f *forbiddance) with(topic string, perm int32, forbidden bool) *forbiddance {
	next := forbiddance{Topics: map[string]int32{}}
	if f != nil {
		maps.Copy(next.Topics, f.Topics)
	}
	bits := next.Topics[topic] &^ perm
	if forbidden {
		bits |= perm
	}
	switch {
	case bits == next.Topics[topic]:
		return f
	case bits != 0:
		next.Topics[topic] = bits
		return &next
	}
	if delete(next.Topics, topic); len(next.Topics) == 0 {
		return nil
	}
	return &next
}

// Forbidden returns the permission bits of topic that are taken away from group. It takes no lock and does
// not allocate.
func (g *Groups) Forbidden(group, topic string) int32 {
	if f, ok := g.forbidden.live.Load(group); ok {
		return f.Topics[topic]
	}
	return 0
}

// ForbiddenTable returns group → topic → permission bits taken away.
func (g *Groups) ForbiddenTable() map[string]map[string]int32 {
	all := map[string]map[string]int32{}
	for group, f := range g.forbidden.live.All() {
		all[group] = maps.Clone(f.Topics)
	}
	return all
}
