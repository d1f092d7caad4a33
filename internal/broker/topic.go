// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/roquetmq/roquet/internal/broker/offset"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// Permission bits of a topic. Source: PermName.java.
const (
	PermInherit  int32 = 1 // topics may be created after its example
	PermWrite    int32 = 2
	PermRead     int32 = 4
	PermPriority int32 = 8

	permAll = PermInherit | PermWrite | PermRead | PermPriority
)

// maxQueueNums bounds the queues of a topic: a queue id has to fit where clients keep 16 bits of it.
const maxQueueNums = 65535

// defaultFilterType is the only topic filter type that is in use.
const defaultFilterType = "SINGLE_TAG"

// TopicConfig is the configuration of a topic. What Topics gives out is shared and must not be changed.
// The JSON form is the one clients know and the one in the log.
type TopicConfig struct {
	Name          string `json:"topicName"`
	ReadQueueNums int32  `json:"readQueueNums"`
	// WriteQueueNums below ReadQueueNums is how a topic is made smaller: no new messages in the upper queues.
	WriteQueueNums int32             `json:"writeQueueNums"`
	Perm           int32             `json:"perm"`
	FilterType     string            `json:"topicFilterType"`
	SysFlag        int32             `json:"topicSysFlag"` // 1 unit, 2 unit subscription
	Order          bool              `json:"order"`
	Attributes     map[string]string `json:"attributes"`
}

// Readable tells whether consumers may read the topic.
func (c *TopicConfig) Readable() bool { return c.Perm&PermRead != 0 }

// Writable tells whether producers may send to the topic.
func (c *TopicConfig) Writable() bool { return c.Perm&PermWrite != 0 }

// IsFor tells whether the topic was made for messages of a type.
func (c *TopicConfig) IsFor(messageType string) bool {
	return len(c.Attributes) > 0 && c.Attributes[AttributeMessageType] == messageType
}

func (c *TopicConfig) equal(o *TopicConfig) bool {
	return c.Name == o.Name && c.ReadQueueNums == o.ReadQueueNums && c.WriteQueueNums == o.WriteQueueNums &&
		c.Perm == o.Perm && c.FilterType == o.FilterType && c.SysFlag == o.SysFlag && c.Order == o.Order &&
		maps.Equal(c.Attributes, o.Attributes)
}

// TopicsConfig says which topics exist by themselves and how others come about. Zero is RocketMQ's default,
// but for the names.
type TopicsConfig struct {
	System SystemNames
	// AutoCreateDisabled refuses to create topics on send.
	AutoCreateDisabled bool
	// DefaultTopicQueueNums bounds the queues of topics created on send; 0 means 8.
	DefaultTopicQueueNums int32
	// ClusterTopicDisabled and BrokerTopicDisabled take read and write away from the topics named after them.
	ClusterTopicDisabled bool
	BrokerTopicDisabled  bool
	// TraceTopic creates RMQ_SYS_TRACE_TOPIC at start.
	TraceTopic bool
	// Logger is required.
	Logger *slog.Logger
}

// Topics is the table of topic configurations. All methods are safe for concurrent use. A done function is
// called exactly once: on the caller's goroutine when nothing had to be stored or the change was refused,
// else by the store's applier once the change is durable and seen by Lookup; it must not block.
type Topics struct {
	cfg        TopicsConfig
	autoCreate atomic.Bool
	denied     atomic.Int32 // permissions that no topic gives
	offsets    *offset.Table
	table      *table[TopicConfig]
	deleted    []func(topic string) companion // what else goes with a topic; registered before the store runs
}

// NewTopics loads the table from the journal and subscribes to it: before the store runs. offsets lose what
// they have of a topic when it is deleted, and when it is created.
func NewTopics(cfg TopicsConfig, journal store.Journal, offsets *offset.Table) (*Topics, error) {
	setDefault(&cfg.DefaultTopicQueueNums, 8)
	t := &Topics{cfg: cfg, offsets: offsets}
	t.autoCreate.Store(!cfg.AutoCreateDisabled)
	var err error
	t.table, err = openTable(message.SpaceTopic, "", journal, cfg.Logger, systemTopics(&cfg))
	return t, err
}

// Lookup returns the topic's config. It takes no lock and does not allocate.
func (t *Topics) Lookup(name string) (*TopicConfig, bool) { return t.table.live.Load(name) }

// All returns every topic, ordered by name.
func (t *Topics) All() []*TopicConfig { return t.table.all() }

// Len returns the number of topics.
func (t *Topics) Len() int { return t.table.live.Size() }

// Version returns the table's version. What SetDenied takes away makes it another one.
func (t *Topics) Version() DataVersion {
	v := *t.table.version.Load()
	v.Counter += int64(t.denied.Load())
	return v
}

// OnChange registers fn to be told the names of topics that were created, changed or deleted, after Lookup
// shows it. fn is called by the store's applier and must not block. Before the store runs.
func (t *Topics) OnChange(fn func(changed []string)) { t.table.changed = append(t.table.changed, fn) }

// IsSystem tells whether the topic belongs to the system.
func (t *Topics) IsSystem(name string) bool { return t.cfg.System.IsTopic(name) }

// SetAutoCreate allows or forbids the creation of topics on send.
func (t *Topics) SetAutoCreate(allowed bool) { t.autoCreate.Store(allowed) }

// SetDenied takes permissions away from all topics, without a change of their configs, and reports whether it took
// others away before: brokerPermission.
func (t *Topics) SetDenied(perm int32) (changed bool) { return t.denied.Swap(perm) != perm }

// Denied returns the permissions that no topic gives.
func (t *Topics) Denied() int32 { return t.denied.Load() }

// Put creates or changes a topic. cfg.Attributes are changes as ParseAttributes returns them: "+name" sets,
// "-name" takes away; a new topic takes "+" only. Putting what is there already stores nothing and succeeds.
// Errors: *Refusal and those of the store. Source:
// AdminBrokerProcessor.java updateAndCreateTopic.
func (t *Topics) Put(cfg TopicConfig, done func(error)) {
	t.PutAll([]TopicConfig{cfg}, done)
}

// PutAll is Put of several topics at once: all are stored, or none.
func (t *Topics) PutAll(cfgs []TopicConfig, done func(error)) {
	edits := make([]edit[TopicConfig], 0, len(cfgs))
	for _, cfg := range cfgs {
		if err := t.check(&cfg); err != nil {
			done(err)
			return
		}
		cfg = cloneTopic(cfg)
		edits = append(edits, t.edit(cfg.Name, func(cur *TopicConfig) (*TopicConfig, error) {
			return t.merge(cur, cfg)
		}))
	}
	t.table.edit(edits, done)
}

func (t *Topics) check(cfg *TopicConfig) error {
	if err := ValidateTopic(cfg.Name); err != nil {
		return err
	}
	if t.IsSystem(cfg.Name) {
		return reserved(cfg.Name)
	}
	for _, n := range []struct {
		what  string
		value int32
	}{{"readQueueNums", cfg.ReadQueueNums}, {"writeQueueNums", cfg.WriteQueueNums}} {
		if n.value < 0 || n.value > maxQueueNums {
			return notAllowed(n.what, n.value, "a topic has 0 to "+strconv.Itoa(maxQueueNums)+" queues")
		}
	}
	if cfg.Perm&^permAll != 0 {
		return notAllowed("perm", cfg.Perm, "it is a sum of 1 inherit, 2 write, 4 read, 8 priority")
	}
	if cfg.Attributes["+"+AttributeMessageType] == "MIXED" {
		return notAllowed(AttributeMessageType, "MIXED", "MIXED message type is not supported.")
	}
	return nil
}

func (t *Topics) merge(cur *TopicConfig, cfg TopicConfig) (*TopicConfig, error) {
	var attributes map[string]string
	if cur != nil {
		attributes = cur.Attributes
	}
	merged, err := alterAttributes(cur == nil, topicAttributes(), attributes, cfg.Attributes)
	if err != nil {
		return nil, err
	}
	cfg.Attributes, cfg.FilterType = merged, cmp.Or(cfg.FilterType, defaultFilterType)
	if cur != nil && cur.equal(&cfg) {
		return cur, nil
	}
	return &cfg, nil
}

// EnsureForSend gives done the config of topic, after creating it if need be: with queueNums queues, but no
// more than defaultTopic has, and with what defaultTopic grants. done gets TopicNotExist when topics are
// not created on send or defaultTopic does not allow it. Many calls for one topic store it once. Source:
// TopicConfigManager.java createTopicInSendMessageMethod. Known differences: with automatic creation off no
// default topic helps, whatever its name; a topic gets one queue at least.
func (t *Topics) EnsureForSend(topic, defaultTopic string, queueNums, sysFlag int32,
	done func(*TopicConfig, error),
) {
	if cfg, ok := t.table.settled(topic); ok {
		done(cfg, nil)
		return
	}
	t.ensure(topic, done, func(cur *TopicConfig) (*TopicConfig, error) {
		if cur != nil {
			return cur, nil
		}
		if err := ValidateTopic(topic); err != nil {
			return nil, err
		}
		return t.afterExample(topic, defaultTopic, queueNums, sysFlag)
	})
}

func (t *Topics) afterExample(topic, defaultTopic string, queueNums, sysFlag int32) (*TopicConfig, error) {
	missing := func(why string) (*TopicConfig, error) {
		t.cfg.Logger.Warn("topic not created on send", "topic", topic, "default_topic", defaultTopic,
			"reason", why)
		return nil, refuse(TopicNotExist, "create topic %s on send: %s: topic not exist", topic, why)
	}
	if !t.autoCreate.Load() {
		return missing("autoCreateTopicEnable is false")
	}
	example, ok := t.Lookup(defaultTopic)
	if !ok {
		return missing("default topic " + defaultTopic + " does not exist")
	}
	if example.Perm&PermInherit == 0 {
		return missing("default topic " + defaultTopic + " has no inherit permission")
	}
	queues := max(1, min(queueNums, example.WriteQueueNums))
	return &TopicConfig{
		Name: strings.Clone(topic), ReadQueueNums: queues, WriteQueueNums: queues,
		Perm: example.Perm &^ PermInherit, FilterType: example.FilterType, SysFlag: sysFlag,
		Attributes: map[string]string{},
	}, nil
}

// EnsureRetry creates the retry topic of group with queueNums queues, readable and writable, for units if unit; order
// sets its order flag. Source: TopicConfigManager.java createTopicInSendMessageBackMethod. Known difference: the order
// flag stays once it is set, where there it follows the last heartbeat.
func (t *Topics) EnsureRetry(group string, queueNums int32, unit, order bool, done func(*TopicConfig, error)) {
	sysFlag := int32(0)
	if unit {
		sysFlag = unitSubscriptionFlag
	}
	t.EnsureTopic(TopicConfig{
		Name: RetryTopic(group), ReadQueueNums: queueNums, WriteQueueNums: queueNums,
		Perm: PermRead | PermWrite, SysFlag: sysFlag, Order: order,
	}, done)
}

// EnsureDLQ creates the dead letter topic of group: one queue, readable and writable.
func (t *Topics) EnsureDLQ(group string, done func(*TopicConfig, error)) {
	t.EnsureTopic(TopicConfig{
		Name: DLQTopic(group), ReadQueueNums: 1, WriteQueueNums: 1, Perm: PermRead | PermWrite,
	}, done)
}

// EnsureTopic creates a topic for the broker itself if there is none of its name, whatever the name; one that
// is there only gets cfg's order flag.
func (t *Topics) EnsureTopic(cfg TopicConfig, done func(*TopicConfig, error)) {
	if cur, ok := t.table.settled(cfg.Name); ok && (cur.Order || !cfg.Order) {
		done(cur, nil)
		return
	}
	cfg = cloneTopic(cfg)
	cfg.FilterType = cmp.Or(cfg.FilterType, defaultFilterType)
	t.ensure(cfg.Name, done, func(cur *TopicConfig) (*TopicConfig, error) {
		if cur == nil {
			return &cfg, nil
		}
		return cur.ordered(cfg.Order), nil
	})
}

// ordered returns c with its order flag, if that is to be set.
func (c *TopicConfig) ordered(set bool) *TopicConfig {
	if c == nil || c.Order || !set {
		return c
	}
	next := *c
	next.Order = true
	return &next
}

func (t *Topics) ensure(topic string, done func(*TopicConfig, error),
	next func(*TopicConfig) (*TopicConfig, error),
) {
	t.table.ensure(t.edit(strings.Clone(topic), next), NoTopic, done)
}

// edit is a change of one topic with what goes along: see with.
func (t *Topics) edit(name string, next func(*TopicConfig) (*TopicConfig, error)) edit[TopicConfig] {
	return edit[TopicConfig]{name: name, next: next, with: func(cur, next *TopicConfig) companion {
		return t.with(name, cur, next)
	}}
}

// with makes a deleted topic's queues and offsets go, and a created one start without offsets: one may have
// been committed while the topic of that name before it was being deleted.
func (t *Topics) with(name string, cur, next *TopicConfig) companion {
	if cur != nil && next != nil {
		return companion{}
	}
	drop := t.offsets.DropTopic(name)
	c := companion{drop.States, []func(error){drop.Settle}}
	if next == nil {
		c.states = append(c.states, store.TopicDeletion(name))
		for _, fn := range t.deleted {
			c.add(fn(name))
		}
	}
	return c
}

func cloneTopic(cfg TopicConfig) TopicConfig {
	cfg.Name, cfg.FilterType = strings.Clone(cfg.Name), strings.Clone(cfg.FilterType)
	cfg.Attributes = cloneAttributes(cfg.Attributes)
	return cfg
}

func cloneAttributes(attributes map[string]string) map[string]string {
	cloned := make(map[string]string, len(attributes))
	for k, v := range attributes {
		cloned[strings.Clone(k)] = strings.Clone(v)
	}
	return cloned
}
