// SPDX-License-Identifier: Apache-2.0

package service

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/roquetmq/roquet/internal/telemetry"
)

const dashboardFile = "../../deploy/grafana/roquet.json"

// panel is one chart of the dashboard. Its queries take part in {…}: the choice of cluster and node, and more.
type panel struct {
	title, unit string
	queries     []string // legend = query
}

const (
	picked     = `cluster=~"$cluster",node_id=~"$node"`
	pickedMore = picked + `,topic=~"$topic"`
)

// dashboard is rows of panels.
//
//nolint:lll // queries
func dashboard() [][]panel {
	return [][]panel{
		{
			{
				"Messages in",
				"cps",
				[]string{
					`{{topic}} = sum by (topic) (rate(rocketmq_messages_in_total{` + pickedMore + `,is_system="false"}[$__rate_interval]))`,
				},
			},
			{
				"Messages out",
				"cps",
				[]string{
					`{{consumer_group}} {{topic}} = sum by (consumer_group, topic) (rate(rocketmq_messages_out_total{` + pickedMore + `,is_system="false"}[$__rate_interval]))`,
				},
			},
			{"Throughput", "Bps", []string{
				`in = sum(rate(rocketmq_throughput_in_total{` + picked + `}[$__rate_interval]))`,
				`out = sum(rate(rocketmq_throughput_out_total{` + picked + `}[$__rate_interval]))`,
			}},
		},
		{
			{
				"Lag in messages",
				"short",
				[]string{
					`{{consumer_group}} {{topic}} = sum by (consumer_group, topic) (rocketmq_consumer_lag_messages{` + pickedMore + `})`,
				},
			},
			{
				"Lag in time",
				"ms",
				[]string{
					`{{consumer_group}} {{topic}} = max by (consumer_group, topic) (rocketmq_consumer_lag_latency_milliseconds{` + pickedMore + `})`,
				},
			},
			{
				"Delivered, not consumed",
				"short",
				[]string{
					`{{consumer_group}} {{topic}} = sum by (consumer_group, topic) (rocketmq_consumer_inflight_messages{` + pickedMore + `})`,
				},
			},
			{
				"Dead letters",
				"short",
				[]string{
					`{{consumer_group}} = sum by (consumer_group) (increase(rocketmq_send_to_dlq_messages_total{` + picked + `}[$__rate_interval]))`,
				},
			},
		},
		{
			{
				"Answers by code",
				"reqps",
				[]string{
					`{{request_code}} {{response_code}} = sum by (request_code, response_code) (rate(rocketmq_rpc_latency_milliseconds_count{` + picked + `}[$__rate_interval]))`,
				},
			},
			{
				"Latency of calls that are not held, 99 %",
				"ms",
				[]string{
					`{{request_code}} = histogram_quantile(0.99, sum by (request_code, le) (rate(rocketmq_rpc_latency_milliseconds_bucket{` + picked + `,is_long_polling="false"}[$__rate_interval])))`,
				},
			},
			{
				"Waiting requests",
				"short",
				[]string{`{{processor}} = sum by (processor) (rocketmq_processor_watermark{` + picked + `})`},
			},
		},
		{
			{
				"Sync of the log, 99 %",
				"s",
				[]string{
					`{{node_id}} = histogram_quantile(0.99, sum by (node_id, le) (rate(roquet_log_sync_duration_seconds_bucket{` + picked + `}[$__rate_interval])))`,
				},
			},
			{"Log", "bytes", []string{
				`size {{node_id}} = rocketmq_storage_size_bytes{` + picked + `}`,
				`not durable {{node_id}} = rocketmq_storage_flush_behind_bytes{` + picked + `}`,
			}},
			{
				"Age of the oldest message",
				"ms",
				[]string{`{{node_id}} = rocketmq_storage_message_reserve_time_milliseconds{` + picked + `}`},
			},
			{
				"Failures of the log",
				"short",
				[]string{`{{node_id}} = increase(roquet_log_failures_total{` + picked + `}[$__rate_interval])`},
			},
		},
		{
			{
				"Waiting for their time",
				"short",
				[]string{`{{topic}} = sum by (topic) (rocketmq_timing_messages{` + pickedMore + `})`},
			},
			{
				"Late deliveries, 99 %",
				"s",
				[]string{
					`{{node_id}} = histogram_quantile(0.99, sum by (node_id, le) (rate(roquet_timer_lateness_seconds_bucket{` + picked + `}[$__rate_interval])))`,
				},
			},
			{"Transactions", "cps", []string{
				`committed = sum(rate(rocketmq_commit_messages_total{` + pickedMore + `}[$__rate_interval]))`,
				`rolled back = sum(rate(rocketmq_rollback_messages_total{` + pickedMore + `}[$__rate_interval]))`,
				`open = sum(rocketmq_half_messages{` + pickedMore + `})`,
			}},
		},
		{
			{"Connections", "short", []string{
				`producers {{language}} = sum by (language) (rocketmq_producer_connections{` + picked + `})`,
				`{{consumer_group}} = sum by (consumer_group) (rocketmq_consumer_connections{` + picked + `})`,
			}},
			{
				"Subscriptions that differ inside a group",
				"short",
				[]string{
					`{{node_id}} = increase(roquet_subscription_mismatch_total{` + picked + `}[$__rate_interval])`,
				},
			},
			{"Topics and groups", "short", []string{
				`topics {{node_id}} = rocketmq_topic_number{` + picked + `}`,
				`groups {{node_id}} = rocketmq_consumer_group_number{` + picked + `}`,
			}},
		},
	}
}

// TestDashboard: deploy/grafana/roquet.json is made of the panels above, and these ask only for what is
// exported.
func TestDashboard(t *testing.T) {
	exported := map[string]bool{}
	for _, table := range allTables(t) {
		for i := range table.Metrics {
			m := &table.Metrics[i]
			name := telemetry.PageName(m.Name, m.Unit)
			exported[name] = m.Kind != "histogram"
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				exported[name+suffix] = m.Kind == "histogram"
			}
		}
	}
	name := regexp.MustCompile(`\b(?:rocketmq|roquet|rpc)_\w+`)
	var panels []map[string]any
	y := 0
	for _, row := range dashboard() {
		for x, p := range row {
			targets := []map[string]any{}
			for i, query := range p.queries {
				legend, expr, _ := strings.Cut(query, " = ")
				for _, metric := range name.FindAllString(expr, -1) {
					if !exported[metric] {
						t.Errorf("%s: %s is not exported", p.title, metric)
					}
				}
				targets = append(targets, map[string]any{
					"expr": expr, "legendFormat": legend, "refId": string(rune('A' + i)),
					"datasource": map[string]string{"type": "prometheus", "uid": "${datasource}"},
				})
			}
			width := 24 / len(row)
			panels = append(panels, map[string]any{
				"id": len(panels) + 1, "type": "timeseries", "title": p.title, "targets": targets,
				"gridPos":     map[string]int{"x": x * width, "y": y, "w": width, "h": 8},
				"datasource":  map[string]string{"type": "prometheus", "uid": "${datasource}"},
				"fieldConfig": map[string]any{"defaults": map[string]string{"unit": p.unit}, "overrides": []any{}},
			})
		}
		y += 8
	}
	choice := func(variable, metric, label string) map[string]any {
		return map[string]any{
			"name": variable, "type": "query", "multi": true, "includeAll": true, "allValue": ".*", "refresh": 2,
			"datasource": map[string]string{"type": "prometheus", "uid": "${datasource}"},
			"query":      "label_values(" + metric + ", " + label + ")",
		}
	}
	want, err := json.MarshalIndent(map[string]any{
		"title": "roquet", "uid": "roquet", "schemaVersion": 39, "refresh": "30s", "tags": []string{"rocketmq"},
		"time": map[string]string{"from": "now-1h", "to": "now"}, "panels": panels,
		"templating": map[string]any{"list": []any{
			map[string]any{"name": "datasource", "type": "datasource", "query": "prometheus"},
			choice("cluster", "rocketmq_broker_permission", "cluster"),
			choice("node", "rocketmq_broker_permission", "node_id"),
			choice("topic", "rocketmq_messages_in_total", "topic"),
		}},
	}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *rewriteCompat {
		if err := os.MkdirAll(filepath.Dir(dashboardFile), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dashboardFile, want, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(dashboardFile); err != nil || string(got) != string(want) {
		t.Errorf("%s is old (%v): go test ./internal/service -run Dashboard -rewrite", dashboardFile, err)
	}
}
