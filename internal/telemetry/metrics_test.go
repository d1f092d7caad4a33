// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	traces "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"github.com/roquetmq/roquet/internal/config"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// collector is an OTLP/gRPC receiver that remembers what it got.
type collector struct {
	metrics.UnimplementedMetricsServiceServer
	addr string

	mu  sync.Mutex
	got map[string]string // name → what it has
}

func startCollector(t *testing.T) *collector {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &collector{addr: "http://" + l.Addr().String(), got: map[string]string{}}
	server := grpc.NewServer()
	metrics.RegisterMetricsServiceServer(server, c)
	traces.RegisterTraceServiceServer(server, &spanCollector{to: c})
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		<-ended
	})
	return c
}

func (c *collector) put(name, what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got[name] = what
}

func (c *collector) Export(
	_ context.Context, r *metrics.ExportMetricsServiceRequest,
) (*metrics.ExportMetricsServiceResponse, error) {
	for _, resource := range r.GetResourceMetrics() {
		for _, scope := range resource.GetScopeMetrics() {
			for _, m := range scope.GetMetrics() {
				c.put(m.GetName(), m.String())
			}
		}
	}
	return &metrics.ExportMetricsServiceResponse{}, nil
}

type spanCollector struct {
	traces.UnimplementedTraceServiceServer
	to *collector
}

func (c *spanCollector) Export(
	_ context.Context, r *traces.ExportTraceServiceRequest,
) (*traces.ExportTraceServiceResponse, error) {
	for _, resource := range r.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				c.to.put("span "+span.GetName(), span.String())
			}
		}
	}
	return &traces.ExportTraceServiceResponse{}, nil
}

// answered shows hooks a call and its answer.
func answered(hooks ...remoting.Hook) {
	c := &remoting.Call{
		Code: protocol.SendMessageV2, Protocol: remoting.ProtocolRemoting, Peer: peer{}, Received: time.Now(),
	}
	for _, hook := range hooks {
		ctx := hook.Before(context.Background(), c)
		hook.After(ctx, c, &remoting.Response{Code: protocol.Success}, nil)
	}
}

func lagTable(group string) []Table {
	return Readers{
		"lag": func(rows *Rows) { rows.Add([]string{group, "t", "false", "false"}, 7, 1, 2, 3, 5) },
	}.Tables()
}

// TestOTLPOverGRPC: spans and metrics arrive at a collector by their names, asked for by the environment.
func TestOTLPOverGRPC(t *testing.T) {
	c := startCollector(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.addr)
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	t.Setenv("OTEL_TRACES_SAMPLER", "always_on")
	spans, err := Setup(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := SetupMetrics(
		t.Context(),
		MetricOptions{Cluster: "C", Broker: "b", Metrics: config.Metrics{Exporter: ExportPage}},
	)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Start(t.Context(), lagTable("g")); err != nil {
		t.Fatal(err)
	}
	answered(spans.Hook(), m.Hook())
	for _, end := range []func(context.Context) error{spans.Shutdown, m.Shutdown} {
		if err := end(context.Background()); err != nil {
			t.Error(err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, parts := range map[string][]string{
		"span RocketMQ/SEND_MESSAGE_V2": {"SPAN_KIND_SERVER", "rocketmq_remoting"},
		"rocketmq_rpc_latency":          {`"request_code"`, `"send_message_v2"`, `"node_type"`},
		"rpc.server.call.duration":      {`"rpc.method"`, `"RocketMQ/SEND_MESSAGE_V2"`, `"rpc.system.name"`, `"SUCCESS"`},
		"rocketmq_consumer_lag_latency": {`unit:"milliseconds"`, `"consumer_group"`, `"cluster"`},
		"go.memory.used":                {`unit:"By"`},
	} {
		got := strings.ReplaceAll(c.got[name], "  ", " ") // the text's blanks vary on purpose
		for _, part := range parts {
			if !strings.Contains(got, part) {
				t.Errorf("%s: no %s in %q", name, part, got)
			}
		}
	}
}

// TestC191ExporterHeaders: a header's value may contain colons.
func TestC191ExporterHeaders(t *testing.T) {
	t.Parallel()
	got := pairs(" a:b:c , d : e,,nonsense", slog.New(slog.DiscardHandler))
	if len(got) != 2 || got["a"] != "b:c" || got["d"] != "e" {
		t.Errorf("got %q", got)
	}
}

// TestC207MetricsWithoutACollector: a collector that accepts connections and says nothing, or is not there,
// slows neither calls nor the end, and is told once.
func TestC207MetricsWithoutACollector(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, target := range []string{"http://" + l.Addr().String(), "http://127.0.0.1:1"} {
		var log syncBuffer
		m, err := SetupMetrics(t.Context(), MetricOptions{
			Options: Options{Logger: slog.New(slog.NewTextHandler(&log, nil))},
			Metrics: config.Metrics{
				Exporter:     ExportOTLP,
				GRPCTarget:   target,
				GRPCInterval: 20 * time.Millisecond,
				GRPCTimeout:  50 * time.Millisecond,
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Start(t.Context(), lagTable("g")); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for range 10_000 {
			answered(m.Hook())
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("%s: 10,000 calls took %v", target, took)
		}
		for log.String() == "" && time.Since(began) < 10*time.Second {
			<-time.After(10 * time.Millisecond)
		}
		began = time.Now()
		if err := m.Shutdown(context.Background()); err != nil {
			t.Logf("%s: %v", target, err)
		}
		if took := time.Since(began); took > 2*shutdownPatience {
			t.Errorf("%s: the end took %v", target, took)
		}
		if n := strings.Count(log.String(), "level=WARN"); n != 1 {
			t.Errorf("%s: %d warnings: %s", target, n, log.String())
		}
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// TestMetricsSwitchedOff: nothing is exported, measured or served.
func TestMetricsSwitchedOff(t *testing.T) {
	t.Parallel()
	m, err := SetupMetrics(t.Context(), MetricOptions{Metrics: config.Metrics{Exporter: ExportNothing}})
	if err != nil || m.Hook() != nil {
		t.Fatalf("hook %v, %v", m.Hook(), err)
	}
	if err := m.Start(t.Context(), lagTable("g")); err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	m.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if answer.Code != 404 || !strings.Contains(answer.Body.String(), "DISABLE") {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
	if err := m.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestLatencyHookDoesNotAllocate after the first call of its kind, and counts into classes.
func TestLatencyHookDoesNotAllocate(t *testing.T) {
	h := &LatencyHook{}
	c := &remoting.Call{
		Code:     protocol.PullMessage,
		Protocol: remoting.ProtocolGRPC,
		Method:   "m",
		Received: time.Now(),
	}
	r := &remoting.Response{Code: protocol.PullNotFound}
	if n := testing.AllocsPerRun(100, func() { h.After(t.Context(), c, r, nil) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	for i := range 300 { // codes that a hostile client makes up
		h.After(t.Context(), &remoting.Call{Code: protocol.Code(70_000 + i), Received: time.Now()}, r, nil)
	}
	kinds := 0
	h.each(func(l *latency) {
		kinds++
		for _, table := range h.Tables() {
			values := l.values(&table.Metrics[0])
			total := int64(0)
			for _, n := range values[:len(values)-1] {
				total += n
			}
			if want := map[protocol.Code]int64{protocol.PullMessage: 101, unknownCode: 300}[l.key.code]; total != want {
				t.Errorf("%s: %d calls of %s, want %d", table.Name, total, l.key.code, want)
			}
		}
	})
	if kinds != 2 {
		t.Errorf("%d kinds of calls, want 2", kinds)
	}
}

// TestLatencyClasses: every bound of a metric is a bound of the hook's classes, or calls would be counted too
// high.
func TestLatencyClasses(t *testing.T) {
	t.Parallel()
	for _, table := range new(LatencyHook).Tables() {
		m := &table.Metrics[0]
		for i, bound := range m.Bounds {
			var l latency
			l.add(time.Duration(bound / m.Scale))
			if values := l.values(m); values[i] != 1 {
				t.Errorf("%s: a call of exactly %v is in %v", m.Name, bound, values)
			}
		}
	}
}

// TestMetricsList: every line of the list is read as it stands there.
func TestMetricsList(t *testing.T) {
	t.Parallel()
	for line := range strings.Lines(metricsText) {
		if line == "\n" || line[0] == '#' || line[0] == '@' {
			continue
		}
		m, numbers := parseMetric(line), 0
		for _, word := range strings.Fields(strings.Split(line, "|")[2])[1:] {
			want, err := strconv.ParseFloat(strings.TrimPrefix(word, "*"), 64)
			if err != nil || word[0] == '*' && m.Scale != want || word[0] != '*' && m.Bounds[numbers] != want {
				t.Errorf("%s: %s, %v", m.Name, word, err)
			}
			if word[0] != '*' {
				numbers++
			}
		}
		if numbers != len(m.Bounds) || (m.Kind == kindHistogram) != (numbers > 0) ||
			m.Kind != kindHistogram && m.Kind != "gauge" && m.Kind != "counter" {
			t.Errorf("%+v", m)
		}
	}
}

// TestCardinalityLimit: what is more is left out, and told once.
func TestCardinalityLimit(t *testing.T) {
	t.Parallel()
	log := &logBuffer{}
	m, err := SetupMetrics(t.Context(), MetricOptions{
		Options: Options{Logger: slog.New(slog.NewTextHandler(log, nil))},
		Metrics: config.Metrics{Exporter: ExportPage, Cardinality: 10},
	})
	if err != nil {
		t.Fatal(err)
	}
	tables := Readers{"proxy": func(rows *Rows) {
		for i := range 20 {
			rows.Add([]string{fmt.Sprint(i)}, 1)
		}
	}}.Tables()
	if err := m.Start(t.Context(), tables); err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	m.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if n := strings.Count(answer.Body.String(), "rocketmq_proxy_up{"); n != 10 {
		t.Errorf("%d series", n)
	}
	m.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if n := strings.Count(log.String(), "series=20"); n != 1 {
		t.Errorf("told %d times: %s", n, log)
	}
	if err := m.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

func BenchmarkLatencyHook(b *testing.B) {
	h := &LatencyHook{}
	c := &remoting.Call{Code: protocol.SendMessageV2, Protocol: remoting.ProtocolRemoting, Received: time.Now()}
	r := &remoting.Response{}
	for b.Loop() {
		h.After(context.Background(), c, r, nil)
	}
}

func BenchmarkPage(b *testing.B) {
	m, err := SetupMetrics(b.Context(), MetricOptions{Metrics: config.Metrics{Exporter: ExportPage}})
	if err != nil {
		b.Fatal(err)
	}
	tables := Readers{"lag": func(rows *Rows) {
		for i := range 100_000 {
			rows.Add(
				[]string{"group-" + fmt.Sprint(i%20), "topic-" + fmt.Sprint(i/20), "false", "false"},
				1,
				2,
				3,
				4,
				5,
			)
		}
	}}.Tables()
	if err := m.Start(b.Context(), tables); err != nil {
		b.Fatal(err)
	}
	request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	for b.Loop() {
		m.ServeHTTP(discard{httptest.NewRecorder()}, request)
	}
}

type discard struct{ *httptest.ResponseRecorder }

func (discard) Write(p []byte) (int, error) { return io.Discard.Write(p) }
