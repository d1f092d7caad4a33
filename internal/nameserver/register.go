// SPDX-License-Identifier: Apache-2.0

package nameserver

import (
	"maps"
	"slices"
	"time"
)

// Register takes over what a broker says of itself: its address always, its topics when they changed. A
// registration that is older than the one of another address for the same broker is ignored. Errors:
// ErrNotRegistered. Source: RouteInfoManager.java registerBroker.
func (r *Routes) Register(reg *Registration, now time.Time) (Registered, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	broker, created := r.brokerLocked(reg)
	if r.outdatedLocked(broker, reg) {
		r.log.Warn("registration of a broker ignored: another address has a newer one",
			"broker", reg.BrokerName, "broker_id", reg.BrokerID, "broker_addr", reg.BrokerAddr,
			"known_addr", broker.BrokerAddrs[reg.BrokerID])
		delete(r.mu.live, brokerAddr{reg.Cluster, reg.BrokerAddr})
		return Registered{}, nil
	}
	// A slave that became master keeps its address: it has one id only.
	maps.DeleteFunc(broker.BrokerAddrs, func(id int64, addr string) bool {
		return addr == reg.BrokerAddr && id != reg.BrokerID
	})
	if broker.BrokerAddrs[reg.BrokerID] == "" && len(reg.Topics) == 1 && !reg.Complete {
		if created {
			r.removeBrokerLocked(reg.Cluster, reg.BrokerName)
		}
		return Registered{}, ErrNotRegistered
	}
	first := broker.BrokerAddrs[reg.BrokerID] == ""
	broker.BrokerAddrs[reg.BrokerID] = reg.BrokerAddr
	least := slices.Min(slices.Collect(maps.Keys(broker.BrokerAddrs)))
	primeSlave := reg.EnableActingMaster != nil && reg.BrokerID != masterID && reg.BrokerID == least
	if reg.BrokerID == masterID || primeSlave {
		r.topicsLocked(reg, first, primeSlave && broker.EnableActingMaster)
	}
	r.liveLocked(reg, now)
	return r.masterLocked(broker, reg), nil
}

// brokerLocked returns the broker's entry, made if need be.
func (r *Routes) brokerLocked(reg *Registration) (broker *BrokerData, created bool) {
	if broker = r.mu.brokers[reg.BrokerName]; broker == nil {
		broker = &BrokerData{Cluster: reg.Cluster, BrokerName: reg.BrokerName, BrokerAddrs: map[int64]string{}}
		r.mu.brokers[reg.BrokerName] = broker
		created = true
	}
	if broker.Cluster != reg.Cluster {
		r.log.Warn("broker moved to another cluster", "broker", reg.BrokerName, "cluster", reg.Cluster,
			"old_cluster", broker.Cluster)
		r.mu.clusters.Delete(broker.Cluster, reg.BrokerName)
		broker.Cluster = reg.Cluster
	}
	r.mu.clusters.Put(reg.Cluster, reg.BrokerName, struct{}{})
	broker.EnableActingMaster = reg.EnableActingMaster != nil && *reg.EnableActingMaster
	broker.ZoneName = reg.ZoneName
	return broker, created
}

// outdatedLocked tells whether another address of the broker registered a later state.
func (r *Routes) outdatedLocked(broker *BrokerData, reg *Registration) bool {
	known := broker.BrokerAddrs[reg.BrokerID]
	if known == "" || known == reg.BrokerAddr {
		return false
	}
	live := r.mu.live[brokerAddr{reg.Cluster, known}]
	return live != nil && live.version.StateVersion > reg.Version.StateVersion
}

func (r *Routes) topicsLocked(reg *Registration, first, readOnly bool) {
	live := r.mu.live[brokerAddr{reg.Cluster, reg.BrokerAddr}]
	changed := first || live == nil || live.version != reg.Version
	named := make(map[string]struct{}, len(reg.Topics))
	for _, topic := range reg.Topics {
		named[topic.Name] = struct{}{}
		if _, known := r.mu.topics[topic.Name][reg.BrokerName]; known && !changed {
			continue
		}
		if readOnly {
			topic.Perm &^= permWrite
		}
		r.mu.topics.Put(topic.Name, reg.BrokerName, QueueData{
			BrokerName: reg.BrokerName, ReadQueueNums: topic.ReadQueueNums,
			WriteQueueNums: topic.WriteQueueNums, Perm: topic.Perm, TopicSysFlag: topic.SysFlag,
		})
	}
	if reg.Complete && changed {
		for topic := range r.mu.topics {
			if _, ok := named[topic]; !ok {
				r.mu.topics.Delete(topic, reg.BrokerName)
			}
		}
	}
}

func (r *Routes) liveLocked(reg *Registration, now time.Time) {
	key := brokerAddr{reg.Cluster, reg.BrokerAddr}
	live := r.mu.live[key]
	if live == nil {
		live = &liveBroker{}
		r.mu.live[key] = live
		r.log.Info("broker registered", "cluster", reg.Cluster, "broker", reg.BrokerName,
			"broker_id", reg.BrokerID, "broker_addr", reg.BrokerAddr, "topics", len(reg.Topics))
	}
	live.name, live.id, live.seen, live.version = reg.BrokerName, reg.BrokerID, now, reg.Version
	live.connection, live.haServerAddr = reg.Connection, reg.HAServerAddr
	if live.timeout = reg.Timeout; live.timeout <= 0 {
		live.timeout = defaultBrokerTimeout
	}
	if reg.FilterServers != nil {
		live.filterServers = slices.Clone(reg.FilterServers)
	}
}

func (r *Routes) masterLocked(broker *BrokerData, reg *Registration) Registered {
	if reg.BrokerID == masterID {
		return Registered{}
	}
	addr := broker.BrokerAddrs[masterID]
	live := r.mu.live[brokerAddr{reg.Cluster, addr}]
	if live == nil {
		return Registered{}
	}
	return Registered{HAServerAddr: live.haServerAddr, MasterAddr: addr}
}

// Unregister forgets a broker's address, and with the last one the broker and its topics. Unknown ones are
// fine. Source: RouteInfoManager.java unRegisterBroker.
func (r *Routes) Unregister(cluster, brokerName, addr string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unregisterLocked(cluster, brokerName, addr, "unregistered")
}

func (r *Routes) unregisterLocked(cluster, brokerName, addr, why string) {
	key := brokerAddr{cluster, addr}
	if _, known := r.mu.live[key]; known {
		r.log.Info("broker left", "cluster", cluster, "broker", brokerName, "broker_addr", addr,
			"reason", why)
	}
	delete(r.mu.live, key)
	broker := r.mu.brokers[brokerName]
	if broker == nil {
		return
	}
	maps.DeleteFunc(broker.BrokerAddrs, func(_ int64, known string) bool { return known == addr })
	if len(broker.BrokerAddrs) == 0 {
		r.removeBrokerLocked(broker.Cluster, brokerName)
		return
	}
	if _, master := broker.BrokerAddrs[masterID]; broker.EnableActingMaster && !master {
		r.permLocked(brokerName, func(perm int32) int32 { return perm &^ permWrite })
	}
}

func (r *Routes) removeBrokerLocked(cluster, brokerName string) {
	delete(r.mu.brokers, brokerName)
	r.mu.clusters.Delete(cluster, brokerName)
	for topic := range r.mu.topics {
		r.mu.topics.Delete(topic, brokerName)
	}
}

// Disconnected forgets the brokers that registered by the connection.
func (r *Routes) Disconnected(connection uint64) {
	r.removeIf("connection closed", func(live *liveBroker) bool {
		return connection != 0 && live.connection == connection
	})
}

// Tick forgets brokers that fell silent. To be called every few seconds.
// Source: RouteInfoManager.java scanNotActiveBroker.
func (r *Routes) Tick(now time.Time) {
	r.removeIf("no registration or heartbeat", func(live *liveBroker) bool {
		return live.connection != 0 && now.Sub(live.seen) > live.timeout
	})
}

func (r *Routes) removeIf(why string, gone func(*liveBroker) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, live := range r.mu.live {
		if gone(live) {
			r.unregisterLocked(key.cluster, live.name, key.addr, why)
		}
	}
}

// Heartbeat keeps a broker known.
func (r *Routes) Heartbeat(cluster, addr string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if live := r.mu.live[brokerAddr{cluster, addr}]; live != nil {
		live.seen = now
	}
}

// CompareVersion tells whether the broker's topics changed since its last registration, and what its version
// was then; known is false if there was none. It counts as a heartbeat.
func (r *Routes) CompareVersion(cluster, addr string, version DataVersion, now time.Time) (
	changed bool, last DataVersion, known bool,
) {
	r.mu.Lock()
	defer r.mu.Unlock()
	live := r.mu.live[brokerAddr{cluster, addr}]
	if live == nil {
		return true, DataVersion{}, false
	}
	live.seen = now
	return live.version != version, live.version, true
}

// WipeWritePerm takes the write permission of all topics on a broker away, until their configs change, and
// returns how many there are.
func (r *Routes) WipeWritePerm(brokerName string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.permLocked(brokerName, func(perm int32) int32 { return perm &^ permWrite })
}

// AddWritePerm makes all topics on a broker readable and writable and returns how many there are.
func (r *Routes) AddWritePerm(brokerName string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.permLocked(brokerName, func(int32) int32 { return permRead | permWrite })
}

func (r *Routes) permLocked(brokerName string, change func(int32) int32) int {
	count := 0
	for _, queues := range r.mu.topics {
		if q, ok := queues[brokerName]; ok {
			q.Perm = change(q.Perm)
			queues[brokerName] = q
			count++
		}
	}
	return count
}
