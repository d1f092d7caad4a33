// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/runtime"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/stdout/stdoutmetric"
	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/roquetmq/roquet/internal/config"
	"github.com/roquetmq/roquet/internal/remoting"
)

// The ways in which metrics leave, by the original's names. Source: MetricsExporterType.java.
const (
	ExportNothing = "DISABLE"
	ExportOTLP    = "OTLP_GRPC"
	ExportPage    = "PROM"
	ExportLog     = "LOG"
)

// MetricOptions describes the metrics of a process.
type MetricOptions struct {
	Options
	config.Metrics // Exporter is one of the Export constants; the environment may add OTLP to it

	Cluster, Broker string // the names
}

// Metrics are a process's metrics and their ways out. It is safe for concurrent use.
type Metrics struct {
	opts     MetricOptions
	exporter sdk.Exporter // nil: none
	hook     *LatencyHook // nil: nothing is exported
	page     *page        // nil: none
	provider *sdk.MeterProvider
}

// SetupMetrics makes the ways out that options and environment ask for: a page for Prometheus, OTLP, the log.
// It does not wait for a collector. Nothing is read before Start.
func SetupMetrics(ctx context.Context, opts MetricOptions) (*Metrics, error) {
	opts.complete()
	exporter, err := metricExporter(ctx, &opts)
	if err != nil {
		return nil, fmt.Errorf("metrics exporter: %w", err)
	}
	m := &Metrics{opts: opts, exporter: exporter}
	if m.exporter != nil || opts.Exporter == ExportPage {
		m.hook = &LatencyHook{}
	}
	return m, nil
}

// Start begins to export the metrics of tables, of calls and of the Go runtime.
func (m *Metrics) Start(ctx context.Context, tables []Table) error {
	if m.hook == nil {
		return nil
	}
	opts := &m.opts
	res, err := resourceOf(ctx, opts.Options)
	if err != nil {
		return err
	}
	source := sdk.WithProducer(&producer{
		tables: append(tables, m.hook.Tables()...), base: baseLabels(opts), limit: opts.Cardinality,
		start: time.Now(), log: opts.Logger,
	})
	all := []sdk.Option{sdk.WithResource(res), sdk.WithCardinalityLimit(opts.Cardinality)}
	if m.exporter != nil {
		otel.SetErrorHandler(newErrorLog(opts.Logger))
		periodic := []sdk.PeriodicReaderOption{source}
		if opts.Exporter != ExportPage { // else the environment's interval counts
			periodic = append(periodic, sdk.WithInterval(opts.GRPCInterval), sdk.WithTimeout(opts.GRPCTimeout))
		}
		all = append(all, sdk.WithReader(sdk.NewPeriodicReader(m.exporter, periodic...)))
	}
	if opts.Exporter == ExportPage {
		m.page = &page{reader: sdk.NewManualReader(source), log: opts.Logger}
		all = append(all, sdk.WithReader(m.page.reader))
	}
	m.provider = sdk.NewMeterProvider(all...)
	if err := runtime.Start(runtime.WithMeterProvider(m.provider)); err != nil {
		return fmt.Errorf("runtime metrics: %w", err)
	}
	return nil
}

// metricExporter makes what exports periodically, nil if nothing does.
func metricExporter(ctx context.Context, opts *MetricOptions) (sdk.Exporter, error) {
	switch opts.Exporter {
	case ExportOTLP:
		target := opts.GRPCTarget
		if !strings.Contains(target, "://") {
			target = "https://" + target
		}
		return otlpmetricgrpc.New(ctx, otlpmetricgrpc.WithEndpointURL(target),
			otlpmetricgrpc.WithHeaders(pairs(opts.GRPCHeader, opts.Logger)),
			otlpmetricgrpc.WithTimeout(opts.GRPCTimeout))
	case ExportLog:
		return stdoutmetric.New(stdoutmetric.WithWriter(logWriter{opts.Logger}))
	case ExportNothing:
		return nil, nil
	}
	env := func(name string) string { return opts.Getenv("OTEL_" + name) }
	asked := env("METRICS_EXPORTER")
	if asked == "" && env("EXPORTER_OTLP_ENDPOINT")+env("EXPORTER_OTLP_METRICS_ENDPOINT") != "" {
		asked = "otlp"
	}
	if asked != "otlp" || disabled(opts.Getenv) {
		return nil, nil
	}
	if cmp.Or(env("EXPORTER_OTLP_METRICS_PROTOCOL"), env("EXPORTER_OTLP_PROTOCOL")) == "grpc" {
		return otlpmetricgrpc.New(ctx)
	}
	return otlpmetrichttp.New(ctx)
}

// pairs reads "name:value,name:value". A value may contain colons: the first one separates (case C191).
func pairs(text string, log *slog.Logger) map[string]string {
	found := map[string]string{}
	for item := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(item, ":")
		if name = strings.TrimSpace(name); ok && name != "" {
			found[name] = strings.TrimSpace(value)
		} else if strings.TrimSpace(item) != "" {
			log.Warn("metrics setting ignored, wanted name:value", slog.String("name", name))
		}
	}
	return found
}

// baseLabels are those of every series.
func baseLabels(opts *MetricOptions) []attribute.KeyValue {
	labels := pairs(opts.Label, opts.Logger)
	labels["cluster"], labels["node_id"] = opts.Cluster, opts.Broker
	base := make([]attribute.KeyValue, 0, len(labels))
	for name, value := range labels {
		base = append(base, attribute.String(name, value))
	}
	return base
}

// logWriter puts what an exporter prints into the log.
type logWriter struct{ log *slog.Logger }

// Write implements io.Writer.
func (w logWriter) Write(b []byte) (int, error) {
	w.log.Info("metrics", slog.String("data", strings.TrimSpace(string(b))))
	return len(b), nil
}

// ServeHTTP answers with the Prometheus page, or 404 when there is none.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if m.page == nil {
		http.Error(w, "metricsExporterType is "+m.opts.Exporter, http.StatusNotFound)
		return
	}
	m.page.ServeHTTP(w, r)
}

// Hook returns the hook that measures calls, nil when nothing is exported.
func (m *Metrics) Hook() remoting.Hook {
	if m.hook == nil {
		return nil
	}
	return m.hook
}

// Shutdown exports once more, for a second at most or until ctx is done, and ends the pipeline. What could
// not be exported is no error.
func (m *Metrics) Shutdown(ctx context.Context) error {
	if m.provider == nil {
		return nil
	}
	return shutDown(ctx, "metrics", m.provider.Shutdown)
}
