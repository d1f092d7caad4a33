// SPDX-License-Identifier: Apache-2.0

package service

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/broker"
	"github.com/roquetmq/roquet/internal/config"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/telemetry"
)

// scrape returns the page for Prometheus.
func (w *wire) scrape() string {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, "http://"+w.addr+"/metrics", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		w.t.Fatalf("GET /metrics: %s %v\n%s", answer.Status, err, text)
	}
	return string(text)
}

// series is one line of a page.
type series struct {
	name   string
	labels map[string]string
	value  float64
}

var (
	seriesLine  = regexp.MustCompile(`^(\w+)(?:\{(.*)\})? (\S+)$`)
	seriesLabel = regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)",?`)
)

func parsePage(t *testing.T, page string) (all []series, types map[string]string) {
	t.Helper()
	types = map[string]string{}
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, typ, _ := strings.Cut(rest, " ")
			if types[name] != "" {
				t.Errorf("%s stands twice", name)
			}
			types[name] = typ
		}
		if line == "" || line[0] == '#' {
			continue
		}
		m := seriesLine.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("no series: %q", line)
		}
		s := series{name: m[1], labels: map[string]string{}}
		for _, pair := range seriesLabel.FindAllStringSubmatch(m[2], -1) {
			s.labels[pair[1]] = pair[2]
		}
		var err error
		if s.value, err = strconv.ParseFloat(m[3], 64); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, s)
	}
	return all, types
}

// value returns the value of the only series with the labels.
func valueOf(t *testing.T, all []series, name string, labels ...string) float64 {
	t.Helper()
	var found []series
	for _, s := range all {
		match := s.name == name
		for i := 0; i < len(labels); i += 2 {
			match = match && s.labels[labels[i]] == labels[i+1]
		}
		if match {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Errorf("%s %v: %d series %v", name, labels, len(found), found)
		return -1
	}
	return found[0].value
}

// facts reduces a page to lines of name, type, label keys and bounds, as the file in testdata has them.
func facts(t *testing.T, page string) map[string]bool {
	t.Helper()
	all, types := parsePage(t, page)
	keys, bounds := map[string]map[string]bool{}, map[string]map[float64]bool{}
	for _, s := range all {
		name := s.name
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base, ok := strings.CutSuffix(name, suffix); ok && types[base] == "histogram" {
				name = base
			}
		}
		if keys[name] == nil {
			keys[name], bounds[name] = map[string]bool{}, map[float64]bool{}
		}
		if le, ok := s.labels["le"]; ok && le != "+Inf" {
			bound, err := strconv.ParseFloat(le, 64)
			if err != nil {
				t.Fatal(err)
			}
			bounds[name][bound] = true
		}
		delete(s.labels, "le")
		keys[name][strings.Join(slices.Sorted(maps.Keys(s.labels)), ",")] = true
	}
	found := map[string]bool{}
	for name := range keys {
		for set := range keys[name] {
			line := name + " " + types[name] + " " + set
			for _, bound := range slices.Sorted(maps.Keys(bounds[name])) {
				line += " " + strconv.FormatFloat(bound, 'f', -1, 64)
			}
			found[line] = true
		}
	}
	return found
}

// factsOfRocketMQ are those of the original's page, without what roquet leaves out.
func factsOfRocketMQ(t *testing.T) map[string]bool {
	t.Helper()
	file, err := os.Open("testdata/metrics-rocketmq-5.5.0.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	found := map[string]bool{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		line := lines.Text()
		name, _, _ := strings.Cut(line, " ")
		// There is no revive topic and no buffer to scan: docs/metrics.md.
		if !strings.HasPrefix(line, "#") && !strings.HasPrefix(name, "rocketmq_pop_revive_") &&
			name != "rocketmq_pop_buffer_scan_time_consume_milliseconds" {
			found[line] = true
		}
	}
	return found
}

// TestMetricsAreRocketMQs drives what the original's page was scraped after, and compares names, types, label
// keys and bounds.
func TestMetricsAreRocketMQs(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	w.metricsWorkload()
	page := w.scrape()
	got := map[string]bool{}
	for line := range facts(t, page) {
		if strings.HasPrefix(line, "rocketmq_") {
			got[line] = true
		}
	}
	want := factsOfRocketMQ(t)
	// The original's peek and reply answers do not say whether they were held.
	delete(want, "rocketmq_rpc_latency_milliseconds histogram cluster,node_id,node_type,protocol_type,"+
		"request_code,response_code,result 1 3 5 7 10 100 1000 2000 3000")
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); diff != "" {
		t.Errorf("-RocketMQ +roquet:\n%s", diff)
	}
	all, _ := parsePage(t, page)
	for _, c := range []struct {
		want   float64
		name   string
		labels []string
	}{
		{3, "rocketmq_messages_in_total", []string{"topic", "orders", "message_type", "normal"}},
		{1, "rocketmq_messages_in_total", []string{"topic", "orders", "message_type", "fifo"}},
		{1, "rocketmq_messages_in_total", []string{"topic", "orders", "message_type", "delay"}},
		{1, "rocketmq_messages_in_total", []string{"topic", "orders", "message_type", "transaction"}},
		{6, "rocketmq_messages_out_total", []string{"consumer_group", "pullers"}},
		{6, "rocketmq_messages_out_total", []string{"consumer_group", "poppers", "is_retry", "false"}},
		{4, "rocketmq_consumer_lag_messages", []string{"consumer_group", "pullers", "topic", "orders"}},
		{6, "rocketmq_consumer_lag_messages", []string{"consumer_group", "poppers", "topic", "orders"}},
		{6, "rocketmq_consumer_inflight_messages", []string{"consumer_group", "poppers", "topic", "orders"}},
		{0, "rocketmq_consumer_ready_messages", []string{"consumer_group", "poppers", "topic", "orders"}},
		{1, "rocketmq_commit_messages_total", []string{"topic", "orders"}},
		{1, "rocketmq_rollback_messages_total", []string{"topic", "orders"}},
		{1, "rocketmq_send_to_dlq_messages_total", []string{"consumer_group", "pullers"}},
		{1, "rocketmq_timer_dequeue_total", []string{"topic", "orders"}},
		{1, "rocketmq_delay_message_latency_seconds_count", []string{"topic", "orders"}},
		{1, "rocketmq_proxy_up", []string{"node_type", "proxy"}},
		{1, "rocketmq_consumer_connections", []string{"consumer_group", "pullers", "consume_mode", "push"}},
		{2, "rocketmq_topic_create_execution_time_milliseconds_count", []string{"invocation_status", "success"}},
	} {
		if got := valueOf(t, all, c.name, c.labels...); got != c.want {
			t.Errorf("%s %v is %v, want %v", c.name, c.labels, got, c.want)
		}
	}
	for _, name := range []string{
		"go_memory_used_bytes", "go_memory_allocations_total",
		"rpc_server_call_duration_seconds_count", "roquet_log_sync_duration_seconds_count",
	} {
		if !strings.Contains(page, "\n"+name) {
			t.Errorf("no %s", name)
		}
	}
}

// metricsWorkload sends every kind of message, receives by pull and by pop, sends back, decides transactions.
func (w *wire) metricsWorkload() {
	w.t.Helper()
	w.topic("orders", 1)
	w.topic("other", 1)
	w.group("poppers")
	w.ok(protocol.UpdateAndCreateSubscriptionGroup, nil, []byte(`{"groupName":"pullers","retryMaxTimes":0}`))
	w.heartbeat(w.client, "c1", "pullers", "orders")
	for i := range 3 {
		w.send("orders", 0, "", fmt.Sprint("normal", i))
	}
	w.send("orders", 0, "__SHARDINGKEY\x01k\x02", "fifo")
	w.send("orders", 0, "TIMER_DELAY_MS\x0150\x02", "delay")
	for decision, id := range map[int32]string{message.TransactionCommit: "U1", message.TransactionRollback: "U2"} {
		half := w.send("orders", 0, "TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01"+id+"\x02", "half")
		_, at, err := message.ParseOffsetMsgID(half.MsgID)
		if err != nil {
			w.t.Fatal(err)
		}
		w.ok(protocol.EndTransaction, &protocol.EndTransactionRequestHeader{
			Topic: "orders", ProducerGroup: "p", TranStateTableOffset: half.QueueOffset, CommitLogOffset: int64(at),
			CommitOrRollback: decision, MsgID: id, TransactionID: id,
		}, nil)
	}
	deadline := time.Now().Add(20 * time.Second)
	for ; ; <-time.After(10 * time.Millisecond) {
		if _, high, _ := w.svc.node.store.Bounds("orders", 0); high == 6 {
			break
		} else if time.Now().After(deadline) {
			w.t.Fatalf("%d messages of 6", high)
		}
	}
	records, _ := w.pull("pullers", "orders", 0, 0, "*")
	w.ok(protocol.UpdateConsumerOffset, &protocol.UpdateConsumerOffsetRequestHeader{
		ConsumerGroup: "pullers", Topic: "orders", QueueID: 0, CommitOffset: 2,
	}, nil)
	w.ok(protocol.ConsumerSendMsgBack, &protocol.ConsumerSendMsgBackRequestHeader{
		Offset: int64(records[0].LogOffset), Group: "pullers", OriginTopic: "orders",
	}, nil)
	if got := w.pop("orders", "poppers", time.Second); len(got) != 6 {
		w.t.Fatalf("popped %v", got)
	}
	// Something waits for its time and something for its decision.
	w.send("other", 0, "DELAY\x0118\x02", "later")
	w.send("other", 0, "TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01U3\x02", "half")
}

// TestCallsOfGRPCAreNamedByTheirMethod: as the semantic conventions want, in spans and metrics.
func TestCallsOfGRPCAreNamedByTheirMethod(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	w.topic("orders", 1)
	c := w.grpc("c1")
	c.produce("orders")
	c.send(v2.Code_OK, outgoing("orders", "hello", nil))
	if page, want := w.scrape(), `rpc_method="apache.rocketmq.v2.MessagingService/SendMessage"`; !strings.Contains(
		page,
		want,
	) {
		t.Errorf("no %s", want)
	}
}

// TestC191MetricsLabels: a label's value may contain colons, quotes and what else Prometheus escapes.
func TestC191MetricsLabels(t *testing.T) {
	t.Parallel()
	w := startWire(t, func(cfg *config.Config) {
		cfg.Metrics.Label = `collector:https://collector:4317,quoted:a"b\c`
	})
	all, _ := parsePage(t, w.scrape())
	for _, s := range all {
		if s.name == "rocketmq_topic_number" {
			if s.labels["collector"] != "https://collector:4317" || s.labels["quoted"] != `a\"b\\c` {
				t.Errorf("labels %v", s.labels)
			}
			return
		}
	}
	t.Error("no rocketmq_topic_number")
}

// TestC188C189MetricsOfGroups: groups that consume the same are counted each for itself, and what is deleted
// is gone from the page.
func TestC188C189MetricsOfGroups(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	w.topic("t", 1)
	for range 101 {
		w.send("t", 0, "", "x")
	}
	for _, group := range []string{"g1", "g2"} {
		w.group(group)
		for at := int64(0); at < 101; at += 32 {
			w.pull(group, "t", 0, at, "*")
		}
		w.ok(protocol.UpdateConsumerOffset, &protocol.UpdateConsumerOffsetRequestHeader{
			ConsumerGroup: group, Topic: "t", CommitOffset: 101,
		}, nil)
	}
	all, _ := parsePage(t, w.scrape())
	for _, group := range []string{"g1", "g2"} {
		if got := valueOf(t, all, "rocketmq_messages_out_total", "consumer_group", group); got != 101 {
			t.Errorf("%s got %v messages", group, got)
		}
		if got := valueOf(t, all, "rocketmq_consumer_lag_messages", "consumer_group", group); got != 0 {
			t.Errorf("%s is %v behind", group, got)
		}
		w.ok(protocol.DeleteSubscriptionGroup, &protocol.DeleteSubscriptionGroupRequestHeader{
			GroupName: group, CleanOffset: true,
		}, nil)
	}
	w.ok(protocol.DeleteTopicInBroker, &protocol.DeleteTopicRequestHeader{Topic: "t"}, nil)
	all, _ = parsePage(t, w.scrape())
	for _, s := range all {
		if s.labels["topic"] == "t" || s.labels["consumer_group"] != "" && s.labels["consumer_group"][0] == 'g' {
			t.Errorf("still there: %v", s)
		}
	}
}

const metricsDoc = "../../docs/metrics.md"

// allTables are the tables of a broker.
func allTables(t *testing.T) []telemetry.Table {
	t.Helper()
	s := newTestService(t, nil)
	m := &meters{node: s.node}
	m.lag.node = s.node
	return append(m.tables(), new(telemetry.LatencyHook).Tables()...)
}

// TestMetricsDocument: docs/metrics.md lists every metric as it is.
func TestMetricsDocument(t *testing.T) {
	lines := []string{"| name | type | labels | meaning |", "| --- | --- | --- | --- |"}
	for _, table := range allTables(t) {
		for i := range table.Metrics {
			m := &table.Metrics[i]
			kind := m.Kind
			for _, bound := range m.Bounds {
				kind += " " + strconv.FormatFloat(bound, 'f', -1, 64)
			}
			labels := strings.ReplaceAll(strings.Join(table.Labels, ", "), ".", "_")
			lines = append(
				lines,
				fmt.Sprintf("| `%s` | %s | %s | %s |", telemetry.PageName(m.Name, m.Unit), kind, labels, m.Help),
			)
		}
	}
	slices.Sort(lines[2:])
	text, err := os.ReadFile(metricsDoc)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(text), "-rewrite -->\n")
	_, tail, _ := strings.Cut(rest, "<!-- end -->")
	want := head + "-rewrite -->\n" + strings.Join(lines, "\n") + "\n<!-- end -->" + tail
	if *rewriteCompat {
		if err := os.WriteFile(metricsDoc, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if want != string(text) {
		t.Error("docs/metrics.md is old: go test ./internal/service -run Metrics -rewrite")
	}
}

// TestC193ScrapeOfManyTopics: 5,000 topics × 20 groups are 500,000 series of lag, and a scrape of them costs
// about a second of one processor at most (0.6 s on a quiet machine); how long it takes on a busy one is not
// measured.
func TestC193ScrapeOfManyTopics(t *testing.T) {
	if testing.Short() || raceOn {
		t.Skip("100,000 pairs of group and topic")
	}
	w := startWire(t, func(cfg *config.Config) { cfg.Metrics.Cardinality = 0 })
	rules := w.svc.node
	topics := make([]broker.TopicConfig, 5000)
	for i := range topics {
		topics[i] = broker.TopicConfig{
			Name: fmt.Sprint(
				"topic-",
				i,
			),
			ReadQueueNums:  4,
			WriteQueueNums: 4,
			Perm:           broker.PermRead | broker.PermWrite,
		}
	}
	made := make(chan error, 1)
	rules.topics.PutAll(topics, func(err error) { made <- err })
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	for i := range topics {
		if i%50 == 0 {
			w.send(topics[i].Name, 0, "", "behind")
		}
		for g := range 20 {
			for queue := range int32(4) {
				rules.offsets.Commit(fmt.Sprint("group-", g), topics[i].Name, queue, 0)
			}
		}
	}
	request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	best := time.Hour
	var page countingWriter
	for range 3 {
		page = countingWriter{ResponseRecorder: httptest.NewRecorder()}
		before := processorTime(t)
		w.svc.metrics.ServeHTTP(&page, request)
		best = min(best, processorTime(t)-before)
	}
	if page.lines < 500_000 || best > 2*time.Second {
		t.Errorf("%d lines, %d bytes in %v of processor time", page.lines, page.bytes, best)
	}
	t.Logf("%d lines, %d bytes in %v of processor time", page.lines, page.bytes, best)
}

type countingWriter struct {
	*httptest.ResponseRecorder
	lines, bytes int
}

func (w *countingWriter) Write(b []byte) (int, error) {
	w.lines, w.bytes = w.lines+strings.Count(string(b), "\n"), w.bytes+len(b)
	return len(b), nil
}

func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		t.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// TestC192LagOfAFilteringGroup: a group that has gone past everything is not behind, whatever its filter left
// out.
func TestC192LagOfAFilteringGroup(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	w.topic("t", 1)
	for i := range 10 {
		w.send("t", 0, "TAGS\x01"+[]string{"a", "b"}[i%2]+"\x02", "x")
	}
	got, answer := w.pull("g", "t", 0, 0, "a")
	var h protocol.PullMessageResponseHeader
	if err := h.DecodeExt(&answer.Ext); err != nil || len(got) != 5 {
		t.Fatalf("%d messages, %v", len(got), err)
	}
	w.ok(protocol.UpdateConsumerOffset, &protocol.UpdateConsumerOffsetRequestHeader{
		ConsumerGroup: "g", Topic: "t", CommitOffset: h.NextBeginOffset,
	}, nil)
	all, _ := parsePage(t, w.scrape())
	if lag := valueOf(t, all, "rocketmq_consumer_lag_messages", "consumer_group", "g"); lag != 0 {
		t.Errorf("%v behind", lag)
	}
}
