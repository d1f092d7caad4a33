// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	_ "embed" // the list of metrics
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// Absent is the value of a row that has none for a metric.
const Absent = math.MinInt64

const kindHistogram = "histogram"

// Metric describes one metric.
type Metric struct {
	Name   string // OpenTelemetry's
	Unit   string
	Kind   string    // gauge, counter or histogram
	Bounds []float64 // the upper bounds of a histogram's classes, in Unit
	Scale  float64   // what a histogram's sum is multiplied by to be in Unit
	Help   string
}

// Table is metrics that share their labels and are read together.
type Table struct {
	Name     string
	Labels   []string
	Metrics  []Metric
	nodeType string
	read     func(rows *Rows)
}

//go:embed metrics.txt
var metricsText string

// Readers adds the rows of tables, by the tables' names. They are called for every scrape and every export,
// perhaps by several at once.
type Readers map[string]func(rows *Rows)

// Tables returns the tables that have a reader, in the order of metrics.txt.
func (r Readers) Tables() (all []Table) {
	for line := range strings.Lines(metricsText) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "#":
		case words[0][0] == '@':
			t := Table{Name: words[0][1:], nodeType: "broker", Labels: words[1:]}
			if len(words) > 1 && strings.HasPrefix(words[1], "node_type=") {
				t.nodeType, t.Labels = words[1][len("node_type="):], words[2:]
			}
			t.read = r[t.Name]
			all = append(all, t)
		default:
			t := &all[len(all)-1]
			t.Metrics = append(t.Metrics, parseMetric(line))
		}
	}
	return slices.DeleteFunc(all, func(t Table) bool { return t.read == nil })
}

func parseMetric(line string) Metric {
	parts := strings.Split(line, "|")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	words := strings.Fields(parts[2])
	m := Metric{Name: parts[0], Unit: parts[1], Kind: words[0], Help: parts[3], Scale: 1}
	for _, word := range words[1:] {
		number, _ := strconv.ParseFloat(strings.TrimPrefix(word, "*"), 64) // a test reads them all
		if word[0] == '*' {
			m.Scale = number
		} else {
			m.Bounds = append(m.Bounds, number)
		}
	}
	return m
}

// Rows takes what a table's reader finds.
type Rows struct {
	table      *Table
	base       []attribute.KeyValue
	limit      int // 0: none
	count      int
	start, now time.Time
	numbers    [][]metricdata.DataPoint[int64] // by metric
	histograms [][]metricdata.HistogramDataPoint[float64]
}

// Add adds a row: the values of the table's labels, of which an empty one is left out, and those of its
// metrics one after the other. A histogram's are the counts of its classes, of which the last one has no bound,
// and the sum. Both slices are copied. Rows beyond the cardinality limit are left out.
func (r *Rows) Add(labels []string, values ...int64) {
	if r.count++; r.limit > 0 && r.count > r.limit {
		return
	}
	attrs := append(make([]attribute.KeyValue, 0, 12), r.base...)
	for i, value := range labels {
		if value != "" {
			attrs = append(attrs, attribute.String(r.table.Labels[i], value))
		}
	}
	set := attribute.NewSet(attrs...)
	for i := range r.table.Metrics {
		m := &r.table.Metrics[i]
		if m.Kind == kindHistogram {
			r.histograms[i] = append(r.histograms[i], m.point(values, set, r.start, r.now))
			values = values[len(m.Bounds)+2:]
			continue
		}
		if values[0] != Absent {
			r.numbers[i] = append(r.numbers[i], metricdata.DataPoint[int64]{
				Attributes: set, StartTime: r.start, Time: r.now, Value: values[0],
			})
		}
		values = values[1:]
	}
}

func (m *Metric) point(
	values []int64, set attribute.Set, start, now time.Time,
) metricdata.HistogramDataPoint[float64] {
	point := metricdata.HistogramDataPoint[float64]{
		Attributes: set, StartTime: start, Time: now, Bounds: m.Bounds,
		Sum: m.Scale * float64(values[len(m.Bounds)+1]), BucketCounts: make([]uint64, len(m.Bounds)+1),
	}
	for i := range point.BucketCounts {
		point.BucketCounts[i] = uint64(values[i])
		point.Count += point.BucketCounts[i]
	}
	return point
}

// producer gives the tables' rows to OpenTelemetry's readers, past the SDK's instruments: what is counted already
// need not be counted again there.
type producer struct {
	tables []Table
	base   []attribute.KeyValue // of every row
	limit  int
	start  time.Time
	log    *slog.Logger
	told   atomic.Bool // that series are left out
}

var _ sdk.Producer = (*producer)(nil)

// Produce implements metric.Producer.
func (p *producer) Produce(context.Context) ([]metricdata.ScopeMetrics, error) {
	scope := metricdata.ScopeMetrics{Scope: instrumentation.Scope{Name: scopeName}}
	for i := range p.tables {
		t := &p.tables[i]
		rows := &Rows{
			table: t, limit: p.limit, start: p.start, now: time.Now(),
			base:       append(slices.Clone(p.base), attribute.String("node_type", t.nodeType)),
			numbers:    make([][]metricdata.DataPoint[int64], len(t.Metrics)),
			histograms: make([][]metricdata.HistogramDataPoint[float64], len(t.Metrics)),
		}
		t.read(rows)
		if p.limit > 0 && rows.count > p.limit && !p.told.Swap(true) {
			p.log.Warn("more series than metricsOtelCardinalityLimit, the rest is left out; told once",
				slog.String("metric", t.Metrics[0].Name), slog.Int("series", rows.count), slog.Int("limit", p.limit))
		}
		for j, m := range t.Metrics {
			data := metricdata.Metrics{Name: m.Name, Description: m.Help, Unit: m.Unit}
			switch {
			case len(rows.numbers[j])+len(rows.histograms[j]) == 0:
				continue
			case m.Kind == kindHistogram:
				data.Data = metricdata.Histogram[float64]{
					Temporality: metricdata.CumulativeTemporality, DataPoints: rows.histograms[j],
				}
			case m.Kind == "counter":
				data.Data = metricdata.Sum[int64]{
					Temporality: metricdata.CumulativeTemporality, IsMonotonic: true, DataPoints: rows.numbers[j],
				}
			default:
				data.Data = metricdata.Gauge[int64]{DataPoints: rows.numbers[j]}
			}
			scope.Metrics = append(scope.Metrics, data)
		}
	}
	return []metricdata.ScopeMetrics{scope}, nil
}
