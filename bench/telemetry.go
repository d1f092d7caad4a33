// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// telemetryRounds is how often roquet runs with and without telemetry, in turns.
const telemetryRounds = 6

// telemetryCost compares a send with metrics on, scraped every second, and one call in a hundred traced to a
// collector, with the same without any of it. Each round is two fresh brokers, in changing order; what is
// reported is the median of the rounds' differences.
func telemetryCost(ctx context.Context, o *options, load string, report *report) error {
	if !strings.Contains("telemetry", o.only) {
		return nil
	}
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	defer collector.Close()
	send := row{args: []string{"-mode", "send", "-conns", "8", "-window", "64", "-topic", "telemetry"}}
	measure := func(round int, on bool) (float64, error) {
		with := *o
		args := []string{"--metrics", "DISABLE"}
		if on {
			args = nil
			with.env = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL, "OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=0.01"}
		}
		dir := filepath.Join(o.work, fmt.Sprint("telemetry-", round, on))
		b, err := startRoquet(ctx, &with, dir, args...)
		if err != nil {
			return 0, err
		}
		defer os.RemoveAll(dir)
		defer b.stop()
		scraping, stop := context.WithCancel(ctx)
		defer stop()
		if on {
			go scrape(scraping, "http://"+b.door(5557)+"/metrics")
		}
		result, err := runLoad(ctx, o, load, b, send)
		return result["broker_cpu_us_per_msg"], err
	}
	var shares, offs []float64
	for round := range telemetryRounds {
		var took [2]float64 // off, on
		for turn := range 2 {
			on := (turn + round) % 2
			var err error
			if took[on], err = measure(round, on == 1); err != nil {
				return fmt.Errorf("telemetry: %w", err)
			}
		}
		shares, offs = append(shares, 100*(took[1]/took[0]-1)), append(offs, took[0])
		fmt.Fprintf(os.Stderr, "telemetry off %.2f, on %.2f µs a message\n", took[0], took[1])
	}
	slices.Sort(shares)
	slices.Sort(offs)
	report.addFact("telemetry off", "roquet", "µs", offs[len(offs)/2], "")
	report.addFact("telemetry on", "roquet", "% CPU more", (shares[2]+shares[3])/2, "≤ 5 %")
	return nil
}

// scrape reads a page once a second until ctx is done.
func scrape(ctx context.Context, url string) {
	for ctx.Err() == nil {
		if req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil); err == nil {
			if answer, err := http.DefaultClient.Do(req); err == nil {
				_, _ = io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close()
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}
