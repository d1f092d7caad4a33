// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// report gathers results and prints them as one table.
type report struct {
	lines []line
	json  string
}

type line struct {
	Row    string             `json:"row"`
	Broker string             `json:"broker"`
	Result map[string]float64 `json:"result"`
	goal   string
}

func newReport(json string) *report { return &report{json: json} }

func (p *report) add(r row, broker string, result map[string]float64) {
	l := line{Row: r.name, Broker: broker, Result: result, goal: goalText(r)}
	p.lines = append(p.lines, l)
	fmt.Fprintf(os.Stderr, "%-20s %-13s %8.2f µs %9.0f/s p50 %.2f p99 %.2f ms failed %.0f\n", r.name, broker,
		result["broker_cpu_us_per_msg"], result["msgs_per_s"], result["p50_ms"], result["p99_ms"], result["failed"])
	if p.json == "" {
		return
	}
	f, err := os.OpenFile(p.json, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return
	}
	defer f.Close()
	if err := json.NewEncoder(f).Encode(l); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
}

// addFact adds a row that is one number: a time or a size.
func (p *report) addFact(name, broker, unit string, value float64, goal string) {
	p.lines = append(p.lines, line{Row: name, Broker: broker, Result: map[string]float64{unit: value}, goal: goal})
	fmt.Fprintf(os.Stderr, "%-20s %-13s %8.2f %s (goal %s)\n", name, broker, value, unit, goal)
}

func goalText(r row) string {
	text := fmt.Sprintf("≤ %g µs", r.goalCPU)
	switch {
	case r.goalCPU == 0 && r.goalShare == 0:
		text = "CPU measured"
	case r.goalShare > 0:
		text = fmt.Sprintf("≤ 1/%g of the peer's CPU", 1/r.goalShare)
	}
	if r.goalP99 > 0 {
		text += fmt.Sprintf(", p99 ≤ %g ms", r.goalP99)
	}
	if r.goalRate > 0 {
		text += fmt.Sprintf(", ≥ %g × rate", r.goalRate)
	}
	return text
}

// print writes the table: every line of a row is compared with the row's last line of another broker.
func (p *report) print(w io.Writer) {
	fmt.Fprintln(w, "| workload | broker | CPU µs/msg | msg/s | p50 ms | p99 ms | p99.9 ms | refused | RSS MB | ratio | goal |")
	fmt.Fprintln(w, "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	peer := map[string]line{}
	for _, l := range p.lines {
		ratio := ""
		if l.Broker != "roquet" {
			peer[l.Row] = l
		} else if other, ok := peer[l.Row]; ok {
			ratio = fmt.Sprintf("1/%.1f of %s, %.1f × rate", other.Result["broker_cpu_us_per_msg"]/l.Result["broker_cpu_us_per_msg"],
				other.Broker, l.Result["msgs_per_s"]/other.Result["msgs_per_s"])
		}
		if _, load := l.Result["msgs_per_s"]; !load {
			for unit, v := range l.Result {
				fmt.Fprintf(w, "| %s | %s | %.2f %s | | | | | | | | %s |\n", l.Row, l.Broker, v, unit, l.goal)
			}
			continue
		}
		r := l.Result
		fmt.Fprintf(w, "| %s | %s | %.2f | %.0f | %.2f | %.2f | %.2f | %.0f | %.0f | %s | %s |\n", l.Row, l.Broker,
			r["broker_cpu_us_per_msg"], r["msgs_per_s"], r["p50_ms"], r["p99_ms"], r["p999_ms"], r["failed"], r["broker_rss_mb"],
			ratio, l.goal)
	}
}
