// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/roquetmq/roquet/internal/broker"
	"github.com/roquetmq/roquet/internal/remoting"
	"github.com/roquetmq/roquet/internal/telemetry"
)

// meters reads the broker's metrics from its tables when somebody asks. Names, types and labels are
// RocketMQ's; docs/metrics.md lists them with what differs. Source: BrokerMetricsManager.java,
// DefaultStoreMetricsManager.java, PopMetricsManager.java, ProxyMetricsManager.java.
type meters struct {
	node  *node
	lanes *lanes
	lag   lagReader

	mu struct {
		sync.Mutex
		due    []int64 // of the last count of timers by time
		dueAge time.Time
		dueFor time.Duration // how long it holds
	}
}

const local, onDisk = "local", "disk" // storage_type, storage_medium

// tables returns every table but those of calls.
func (m *meters) tables() []telemetry.Table {
	return telemetry.Readers{
		"watermarks":   m.readWatermarks,
		"broker":       m.readBroker,
		"producers":    m.readProducers,
		"consumers":    m.readConsumers,
		"conflicts":    m.readConflicts,
		"storage":      m.readStorage,
		"incoming":     m.readIncoming,
		"outgoing":     m.readOutgoing,
		"dead":         m.readDead,
		"transactions": m.readTransactions,
		"timers":       m.readTimers,
		"waiting":      m.readWaiting,
		"due":          m.readDue,
		"lag":          m.lag.read,
		"proxy":        func(rows *telemetry.Rows) { rows.Add([]string{"local"}, 1) },
	}.Tables()
}

func (m *meters) readWatermarks(rows *telemetry.Rows) {
	l := m.lanes
	for lane, names := range map[*remoting.Lane]string{
		l.send: "send transaction reply", l.pull: "pull lite_pull", l.ack: "ack", l.query: "query_message",
		l.client: "client_manager heartbeat consumer_manager", l.admin: "admin",
	} {
		for name := range strings.FieldsSeq(names) {
			rows.Add([]string{name}, lane.Waiting())
		}
	}
	rows.Add([]string{"async_put"}, 0) // the committer has no queue of requests
}

func (m *meters) readBroker(rows *telemetry.Rows) {
	r := m.node
	permission := int64(m.node.settings.load().Topic.BrokerPermission)
	rows.Add(nil, permission, int64(r.topics.Len()), int64(r.groups.Len()), 0,
		int64(r.popper.InFlight()), r.clients.Conflicts(), int64(r.puller.Held()))
}

// countClients counts members by language, version and door.
func countClients(counts map[[3]string]int64, members []broker.Member) map[[3]string]int64 {
	for i := range members {
		door := "grpc"
		if _, ok := members[i].Channel.(*remoting.Conn); ok {
			door = "remoting"
		}
		counts[[3]string{strings.ToLower(members[i].Language), versionName(members[i].Version), door}]++
	}
	return counts
}

// versionName is a client's release as RocketMQ calls it, in lower case. From 3.9.0 on (194), releases and
// their snapshots follow each other, ten to each x.y. Source: MQVersion.java.
func versionName(version int32) string {
	if version < 194 {
		return "v3"
	}
	n, suffix := int(version-wireVersion+1), ""
	if n%2 == 0 {
		suffix = "_snapshot"
	}
	n = 550 + (n-n&1)/2
	return fmt.Sprintf("v%d_%d_%d%s", n/100, n/10%10, n%10, suffix)
}

func (m *meters) readProducers(rows *telemetry.Rows) {
	counts := map[[3]string]int64{}
	for _, members := range m.node.clients.ProducerGroups() {
		countClients(counts, members)
	}
	for key, n := range counts {
		rows.Add(key[:], n)
	}
}

func (m *meters) readConsumers(rows *telemetry.Rows) {
	clients := m.node.clients
	clients.Groups(func(name string, group *broker.ConsumerGroup) {
		mode := map[broker.ConsumeType]string{
			broker.ConsumeActively: "pull", broker.ConsumePassively: "push", broker.ConsumePop: "pop",
		}[group.Type]
		for key, n := range countClients(map[[3]string]int64{}, clients.Members(name)) {
			rows.Add([]string{name, key[0], key[1], mode, key[2], strconv.FormatBool(broker.IsSystemGroup(name))}, n)
		}
	})
}

// Of commitlog.Stats.Syncs, classes of powers of two in µs, these are told apart.
const firstSyncClass, lastSyncClass = 6, 19

func (m *meters) readStorage(rows *telemetry.Rows) {
	st := m.node.store
	stats := st.Stats()
	age := int64(telemetry.Absent)
	if since := earliestSegment(st); since > 0 {
		age = max(0, time.Now().UnixMilli()-since)
	}
	values := []int64{int64(st.End() - st.First()), stats.PendingBytes, 0, age, int64(stats.Failures)}
	syncs := make([]int64, lastSyncClass-firstSyncClass+1)
	for class, n := range stats.Syncs {
		syncs[min(max(class, firstSyncClass), lastSyncClass)-firstSyncClass] += int64(n)
	}
	rows.Add([]string{local, onDisk}, append(append(values, syncs...), int64(stats.SyncTime))...)
}

// readConflicts tells of each kind of conflict in a group the first one: clients can make any number of them.
func (m *meters) readConflicts(rows *telemetry.Rows) {
	m.node.clients.Groups(func(name string, _ *broker.ConsumerGroup) {
		told := map[broker.ConflictKind]bool{}
		for _, c := range m.node.clients.ConflictsOf(name) {
			if !told[c.Kind] {
				rows.Add([]string{name, string(c.Kind), c.Topic, c.Members[0].ClientID, c.Members[1].ClientID}, 1)
			}
			told[c.Kind] = true
		}
	})
}

func (m *meters) isSystem(topic, group string) string {
	return strconv.FormatBool(m.node.topics.IsSystem(topic) || group != "" && broker.IsSystemGroup(group))
}

func (m *meters) readIncoming(rows *telemetry.Rows) {
	m.node.stats.EachTopic(func(topic string, c *broker.TopicMeter) {
		if broker.IsRetryTopic(topic) || broker.IsDLQTopic(topic) {
			return
		}
		for kind := range c.Sizes {
			sizes, count := c.Sizes[kind].Load(), int64(0)
			for _, n := range sizes[:7] {
				count += n
			}
			if count > 0 {
				rows.Add([]string{topic, broker.MessageKind(kind).String(), m.isSystem(topic, "")},
					append([]int64{count, sizes[7]}, sizes[:]...)...)
			}
		}
	})
}

// readOutgoing tells what pop took apart from what pull took.
func (m *meters) readOutgoing(rows *telemetry.Rows) {
	m.node.stats.EachGroup(func(group, topic string, pop, all [2]int64, _ int64) {
		if pop[0] > 0 {
			rows.Add([]string{topic, group, m.isSystem(topic, group), "false"}, pop[0], pop[1])
		}
		if all[0] > pop[0] {
			rows.Add([]string{topic, group, m.isSystem(topic, group), ""}, all[0]-pop[0], all[1]-pop[1])
		}
	})
}

func (m *meters) readDead(rows *telemetry.Rows) {
	m.node.stats.EachGroup(func(group, topic string, _, _ [2]int64, dead int64) {
		if dead > 0 {
			rows.Add([]string{topic, group, m.isSystem(topic, group)}, dead)
		}
	})
}

func (m *meters) readTransactions(rows *telemetry.Rows) {
	open := m.node.transactions.OpenByTopic()
	m.node.stats.EachTopic(func(topic string, c *broker.TopicMeter) {
		half, waits := open[topic]
		if delete(open, topic); !waits && c.Committed.Load()+c.RolledBack.Load() == 0 {
			return
		}
		finishes := c.Finishes.Load()
		values := append([]int64{c.Committed.Load(), c.RolledBack.Load()}, finishes[:]...)
		rows.Add([]string{topic}, append(values, half)...)
	})
	for topic, half := range open { // from before the start
		rows.Add([]string{topic}, append(make([]int64, 10), half)...)
	}
}

func (m *meters) readTimers(rows *telemetry.Rows) {
	stats := m.node.delays.Stats()
	overdue := int64(0)
	if due, ok, err := m.node.delays.NextDue(); ok && err == nil {
		overdue = max(0, time.Now().UnixMilli()-due)
	}
	values := append([]int64{0, 0, int64(stats.InFlight), overdue}, stats.Lateness[:]...)
	rows.Add([]string{local, onDisk}, append(values, int64(stats.LateSum))...)
}

func (m *meters) readWaiting(rows *telemetry.Rows) {
	waiting := m.node.delays.Waiting()
	m.node.stats.EachTopic(func(topic string, c *broker.TopicMeter) {
		n, set, done := waiting[topic], c.TimersSet.Load(), c.TimersDone.Load()
		if delete(waiting, topic); n+set+done > 0 {
			waits := c.Waits.Load()
			rows.Add([]string{local, onDisk, topic}, append([]int64{n, set, done}, waits[:]...)...)
		}
	})
	for topic, n := range waiting { // from before the start
		rows.Add([]string{local, onDisk, topic}, append([]int64{n}, make([]int64, 10)...)...)
	}
}

// readDue counts timers by when they are due. It reads them all, so the count is made again only when fifty
// times as long has passed as it took.
func (m *meters) readDue(rows *telemetry.Rows) {
	bounds := []time.Duration{ // source: TimerMetrics.java
		5 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute,
		time.Hour, 4 * time.Hour, 8 * time.Hour, 24 * time.Hour,
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); now.Sub(m.mu.dueAge) >= m.mu.dueFor {
		counts, err := m.node.delays.Distribution(now, bounds)
		if err != nil {
			return
		}
		m.mu.due, m.mu.dueAge, m.mu.dueFor = counts, now, 50*time.Since(now)
	}
	for i, n := range m.mu.due {
		rows.Add([]string{local, onDisk, strconv.Itoa(int(bounds[i].Seconds()))}, n)
	}
}

// setUpMetrics makes the ways out of metrics.
func (s *Service) setUpMetrics(version string) (err error) {
	s.metrics, err = telemetry.SetupMetrics(context.Background(), telemetry.MetricOptions{
		Options: telemetry.Options{Version: version, Logger: s.log.With("component", "metrics")},
		Metrics: s.cfg.Metrics, Cluster: s.self.cluster, Broker: s.self.brokerName,
	})
	if err != nil {
		return fmt.Errorf("%w; metricsExporterType=%s switches metrics off", err, telemetry.ExportNothing)
	}
	return nil
}

// startMetrics begins to export, when everything that is read is there.
func (s *Service) startMetrics(l *lanes) error {
	var tables []telemetry.Table
	if s.node != nil {
		m := &meters{node: s.node, lanes: l}
		m.lag.node = s.node
		tables = m.tables()
	}
	return s.metrics.Start(context.Background(), tables)
}

// serveMetrics serves the page for Prometheus on its own port until ctx is done. What keeps it from doing so
// is told and stops nothing else: the page is at /metrics of the HTTP port too.
func (s *Service) serveMetrics(ctx context.Context) {
	port := s.cfg.Listen.Port(s.cfg.Metrics.PromPort)
	if port == 0 || s.cfg.Metrics.Exporter != telemetry.ExportPage {
		return
	}
	addr := net.JoinHostPort(cmp.Or(s.cfg.Metrics.PromHost, s.cfg.Listen.BindAddress), strconv.Itoa(port))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.metrics)
	server := &http.Server{Addr: addr, Handler: mux, ReadTimeout: scrapePatience, WriteTimeout: scrapePatience}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // ListenAndServe tells
	defer stop()
	s.log.Info("metrics", "addr", "http://"+addr+"/metrics")
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		s.log.Warn("no metrics on a port of their own; choose another one with --metrics-port",
			"addr", addr, "error", err)
	}
}

// scrapePatience bounds a scrape.
const scrapePatience = time.Minute
