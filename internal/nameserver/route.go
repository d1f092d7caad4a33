// SPDX-License-Identifier: Apache-2.0

package nameserver

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/roquetmq/roquet/internal/nested"
)

// Permission bits of a topic. Source: PermName.java.
const (
	permWrite int32 = 2
	permRead  int32 = 4
)

// masterID is the broker id of a master.
const masterID = 0

// defaultBrokerTimeout is how long a broker is known that does not say how long. Source:
// RouteInfoManager.java.
const defaultBrokerTimeout = 120 * time.Second

// syncMemberPrefix is before the broker's name in the topic by which the brokers of one group find each
// other.
const syncMemberPrefix = "rmq_sys_SYNC_BROKER_MEMBER_"

// ErrNotRegistered says that a broker registered a single topic before it registered itself.
var ErrNotRegistered = errors.New("register broker failed")

// DataVersion is a broker's version of its topics; a registration with the known one changes no topic.
type DataVersion struct {
	Counter      int64
	StateVersion int64
	Timestamp    int64 // ms
}

// TopicConfig is what a route needs of a topic's configuration on one broker.
type TopicConfig struct {
	Name           string
	ReadQueueNums  int32
	WriteQueueNums int32
	Perm           int32
	SysFlag        int32 // 1 unit, 2 unit subscription
}

// QueueData is a topic's queues on one broker.
type QueueData struct {
	BrokerName     string
	Perm           int32
	ReadQueueNums  int32
	TopicSysFlag   int32
	WriteQueueNums int32
}

// BrokerData is a broker: its addresses by broker id, 0 the master's.
type BrokerData struct {
	BrokerAddrs        map[int64]string
	BrokerName         string
	Cluster            string
	EnableActingMaster bool
	ZoneName           string
}

// TopicRoute is where a topic is, ordered by broker name. It is the caller's own copy.
type TopicRoute struct {
	Queues        []QueueData
	Brokers       []BrokerData
	FilterServers map[string][]string // by broker address
	// OrderTopicConf is "broker:queues;..." for topics whose order the settings fix.
	OrderTopicConf string
}

// ClusterInfo is all brokers by name, and their names by cluster, in order. It is the caller's own copy.
type ClusterInfo struct {
	Brokers  map[string]BrokerData
	Clusters map[string][]string
}

// Registration is what a broker says of itself.
type Registration struct {
	Cluster      string
	BrokerName   string
	BrokerAddr   string
	BrokerID     int64
	HAServerAddr string
	ZoneName     string
	// Timeout is how long the broker is known without another registration or heartbeat; 0 means 120 s.
	Timeout time.Duration
	// EnableActingMaster is nil for brokers before RocketMQ 5.0.
	EnableActingMaster *bool
	Topics             []TopicConfig
	// Complete says that Topics is all the broker has: others of it are gone.
	Complete      bool
	Version       DataVersion
	FilterServers []string // nil: unchanged
	// Connection is the id of the connection it came by; 0 is this process, which never falls silent.
	Connection uint64
}

// Registered is the answer to a slave: where its master is.
type Registered struct {
	HAServerAddr string
	MasterAddr   string
}

// Routes is the table of brokers and topics. All methods are safe for concurrent use. The owner calls Tick
// every few seconds, and Disconnected when a broker's connection ended. Strings that are given in are kept.
// Source: RouteInfoManager.java.
type Routes struct {
	log *slog.Logger
	kv  *KV

	mu struct {
		sync.RWMutex
		topics   nested.Map[string, string, QueueData] // by topic and broker name
		brokers  map[string]*BrokerData
		clusters nested.Map[string, string, struct{}] // broker names by cluster
		live     map[brokerAddr]*liveBroker
	}
}

type brokerAddr struct{ cluster, addr string }

type liveBroker struct {
	name          string
	id            int64
	seen          time.Time
	timeout       time.Duration
	version       DataVersion
	connection    uint64
	haServerAddr  string
	filterServers []string
}

// NewRoutes returns an empty table that takes ordered-topic settings from kv.
func NewRoutes(log *slog.Logger, kv *KV) *Routes {
	r := &Routes{log: log, kv: kv}
	r.mu.topics = nested.Map[string, string, QueueData]{}
	r.mu.brokers = map[string]*BrokerData{}
	r.mu.clusters = nested.Map[string, string, struct{}]{}
	r.mu.live = map[brokerAddr]*liveBroker{}
	return r
}

// Route returns where topic is; false when no broker that is known has it.
// Source: RouteInfoManager.java pickupTopicRouteData.
func (r *Routes) Route(topic string) (TopicRoute, bool) {
	route := TopicRoute{FilterServers: map[string][]string{}}
	r.mu.RLock()
	queues := r.mu.topics[topic]
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		route.Queues = append(route.Queues, queues[name])
		broker := r.mu.brokers[name]
		if broker == nil {
			continue
		}
		route.Brokers = append(route.Brokers, broker.clone())
		for _, addr := range broker.BrokerAddrs {
			live := r.mu.live[brokerAddr{broker.Cluster, addr}]
			if live != nil && len(live.filterServers) > 0 {
				route.FilterServers[addr] = slices.Clone(live.filterServers)
			}
		}
	}
	r.mu.RUnlock()
	if len(route.Brokers) == 0 {
		return TopicRoute{}, false
	}
	if !strings.HasPrefix(topic, syncMemberPrefix) {
		route.actMasters()
	}
	route.OrderTopicConf, _ = r.kv.Get(OrderNamespace, topic)
	return route, true
}

func (b *BrokerData) clone() BrokerData {
	c := *b
	c.BrokerAddrs = maps.Clone(b.BrokerAddrs)
	return c
}

// actMasters puts the slave with the lowest id into the place of a master that is gone, where the topic
// cannot be written to anyway.
func (route *TopicRoute) actMasters() {
	for i := range route.Brokers {
		b := &route.Brokers[i]
		if _, ok := b.BrokerAddrs[masterID]; ok || !b.EnableActingMaster || len(b.BrokerAddrs) == 0 {
			continue
		}
		for _, q := range route.Queues {
			if q.BrokerName == b.BrokerName && q.Perm&permWrite == 0 {
				least := slices.Min(slices.Collect(maps.Keys(b.BrokerAddrs)))
				b.BrokerAddrs[masterID] = b.BrokerAddrs[least]
				delete(b.BrokerAddrs, least)
			}
		}
	}
}

// ClusterInfo returns all brokers and clusters.
func (r *Routes) ClusterInfo() ClusterInfo {
	r.mu.RLock()
	defer r.mu.RUnlock()
	info := ClusterInfo{Brokers: map[string]BrokerData{}, Clusters: map[string][]string{}}
	for name, b := range r.mu.brokers {
		info.Brokers[name] = b.clone()
	}
	for cluster, names := range r.mu.clusters {
		info.Clusters[cluster] = slices.Sorted(maps.Keys(names))
	}
	return info
}

// Members returns the addresses of a broker's group by broker id; empty when there is none of the name.
func (r *Routes) Members(brokerName string) map[int64]string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if b := r.mu.brokers[brokerName]; b != nil {
		return maps.Clone(b.BrokerAddrs)
	}
	return map[int64]string{}
}
