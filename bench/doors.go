// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Ports of the doors, before the offset.
const (
	grpcPort = 8081
	restPort = 8080
)

// doorRow is one workload of the gRPC or the REST door. Its CPU is that of all the broker's processes: the peer
// answers gRPC with a proxy in front of its broker.
type doorRow struct {
	row

	peer    bool // the peer has this door too
	measure func(ctx context.Context, d *doorRun) (map[string]float64, error)
}

// doorRun is a row on its way on one broker.
type doorRun struct {
	o    *options
	load string
	b    *broker
}

var doorRows = []doorRow{
	{row: row{name: "grpc send 4x32", goalCPU: 25, goalRate: 6}, peer: true, measure: grpcSend},
	{row: row{name: "grpc receive+ack 32", goalCPU: 6}, peer: true, measure: grpcReceive},
	{row: row{name: "rest single", goalCPU: 60}, measure: restSingle},
	{row: row{name: "rest ndjson 1000", goalCPU: 8}, measure: restBatch},
}

const heldGRPC = "held-grpc"

// selected tells whether -only asks for a row of a door: grpc does not ask for held-grpc.
func selected(only, name string) bool { return strings.HasPrefix(name, only) }

// doors runs the rows of the gRPC and REST doors and those of the kinds of messages, each first on the peer and then on roquet.
func doors(ctx context.Context, o *options, load string, report *report) error {
	ours, theirs := selected(o.only, heldGRPC), false
	rows := slices.Concat(doorRows, kindRows, lateRows)
	for _, r := range rows {
		if selected(o.only, r.name) {
			ours, theirs = true, theirs || r.peer
		}
	}
	if !ours {
		return nil
	}
	roquet, err := startRoquet(ctx, o, filepath.Join(o.work, "roquet-doors"))
	if err != nil {
		return err
	}
	defer roquet.stop()
	both := []*broker{roquet}
	if o.peer && theirs {
		peer, err := startPeer(ctx, o, filepath.Join(o.work, "peer-doors"), "ASYNC_FLUSH")
		if err != nil {
			return err
		}
		defer peer.stop()
		both = []*broker{peer, roquet}
	}
	for _, r := range rows {
		for _, b := range both {
			if !selected(o.only, r.name) || (b != roquet && !r.peer) {
				continue
			}
			result, err := r.measure(ctx, &doorRun{o: o, load: load, b: b})
			if err != nil {
				return fmt.Errorf("%s on %s: %w", r.name, b.name, err)
			}
			report.add(r.row, b.name, result)
		}
	}
	if !selected(o.only, heldGRPC) {
		return nil
	}
	return heldReceives(ctx, &doorRun{o: o, load: load, b: roquet}, report)
}

// warmSecs is how long a row runs before it is measured: the peer's compiler needs it.
func (d *doorRun) warmSecs() float64 {
	if d.b.name == "roquet" {
		return 1
	}
	return 20
}

// topic creates a topic with messages in it, sent through the remoting door.
func (d *doorRun) topic(ctx context.Context, topic string, messages int) error {
	_, err := runLoad(ctx, d.o, d.load, d.b, row{args: []string{
		"-mode", "batch", "-conns", "4", "-window", "4", "-topic", topic, "-warm", "0", "-secs", "60",
		"-max", strconv.Itoa(messages),
	}})
	return err
}

// perMessage is a result of what was done since the CPU time was before.
func (d *doorRun) perMessage(result map[string]float64, messages, cpuBefore float64) map[string]float64 {
	result["broker_cpu_us_per_msg"] = (d.b.cpuSeconds() - cpuBefore) / messages * 1e6
	result["broker_rss_mb"] = d.b.residentMB()
	return result
}

func grpcSend(ctx context.Context, d *doorRun) (map[string]float64, error) {
	const topic = "door-send"
	if err := d.topic(ctx, topic, 32); err != nil {
		return nil, err
	}
	args := func(secs float64) row {
		return row{args: []string{
			"-addr", d.b.door(grpcPort), "-mode", "grpc", "-conns", "4", "-window", "32", "-topic", topic,
			"-warm", "0", "-secs", fmt.Sprint(secs),
		}}
	}
	if _, err := runLoad(ctx, d.o, d.load, d.b, args(d.warmSecs())); err != nil {
		return nil, err
	}
	before := d.b.cpuSeconds()
	result, err := runLoad(ctx, d.o, d.load, d.b, args(d.o.secs))
	if err != nil {
		return nil, err
	}
	return d.perMessage(result, result["msgs"], before), nil
}

func grpcReceive(ctx context.Context, d *doorRun) (map[string]float64, error) {
	var t tally
	var cpu float64
	for _, part := range []struct {
		topic string
		secs  float64
	}{{"door-warm", d.warmSecs()}, {"door-receive", d.o.secs}} {
		backlog := max(200_000, int(part.secs*100_000))
		if err := d.topic(ctx, part.topic, backlog); err != nil {
			return nil, err
		}
		cpu = d.b.cpuSeconds()
		var err error
		if t, err = receiveAll(ctx, d.b.door(grpcPort), part.topic, seconds(part.secs)); err != nil {
			return nil, err
		}
	}
	return d.perMessage(t.result(), float64(t.messages), cpu), nil
}

const (
	restConns = 8
	bodyBytes = 128
	ndjson    = 1000 // lines of a batch
)

func restSingle(ctx context.Context, d *doorRun) (map[string]float64, error) {
	return d.rest(ctx, restPost{
		path: "/v1/topics/door-rest/messages", contentType: "application/octet-stream", messages: 1,
		body: bytes.Repeat([]byte("x"), bodyBytes),
	})
}

func restBatch(ctx context.Context, d *doorRun) (map[string]float64, error) {
	line := fmt.Sprintf("{\"text\":%q}\n", strings.Repeat("x", bodyBytes))
	return d.rest(ctx, restPost{
		path: "/v1/topics/door-ndjson/messages:batch", contentType: "application/x-ndjson", messages: ndjson,
		body: []byte(strings.Repeat(line, ndjson)),
	})
}

func (d *doorRun) rest(ctx context.Context, p restPost) (map[string]float64, error) {
	p.base = "http://" + d.b.door(restPort)
	if _, err := postAll(ctx, p, seconds(d.warmSecs())); err != nil {
		return nil, err
	}
	cpu := d.b.cpuSeconds()
	t, err := postAll(ctx, p, seconds(d.o.secs))
	if err != nil {
		return nil, err
	}
	return d.perMessage(t.result(), float64(t.messages), cpu), nil
}

const (
	heldClients = 10_000
	heldConns   = 100
)

// heldReceives reports what clients cost whose receive waits for a message that does not come: each has its
// telemetry stream and one receive, asked again every 20 s.
func heldReceives(ctx context.Context, d *doorRun, report *report) error {
	const topic = "door-held"
	if err := firstSendTo(ctx, d.b.addr, topic); err != nil {
		return err
	}
	before, idle := d.b.residentMB(), d.b.cpuSeconds()
	if err := wait(ctx, seconds(d.o.secs)); err != nil {
		return err
	}
	idle = d.b.cpuSeconds() - idle
	began, joining := time.Now(), d.b.cpuSeconds()
	h, err := hold(ctx, d.b.door(grpcPort), topic, heldClients, heldConns)
	if err != nil {
		return err
	}
	defer h.close()
	joined := time.Since(began)
	cpu, asked := d.b.cpuSeconds(), h.receives.Load()
	joining = cpu - joining
	if err := wait(ctx, seconds(d.o.secs)); err != nil {
		return err
	}
	cpu, asked = d.b.cpuSeconds()-cpu, h.receives.Load()-asked
	grown := d.b.residentMB() - before
	name := fmt.Sprintf("%s %d clients, ", heldGRPC, heldClients)
	report.addFact(name+"each", d.b.name, "KiB", grown*1024/heldClients, "measured")
	report.addFact(name+"total", d.b.name, "MB", grown, "measured")
	report.addFact(name+"all joined", d.b.name, "s", joined.Seconds(), "measured")
	report.addFact(name+"join CPU each", d.b.name, "µs", joining/heldClients*1e6, "measured")
	report.addFact(name+"CPU", d.b.name, "ms/s", (cpu-idle)/d.o.secs*1e3, "measured")
	report.addFact(name+"polls", d.b.name, "/s", float64(asked)/d.o.secs, "measured")
	report.addFact(name+"failed", d.b.name, "rpcs", float64(h.failed.Load()), "0")
	return nil
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// cpuSeconds is the user and system time that all the broker's processes have used.
func (b *broker) cpuSeconds() (total float64) {
	const ticksPerSecond = 100 // USER_HZ, the same on every Linux
	for _, pid := range b.pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		if fields := strings.Fields(rest); len(fields) > 12 {
			for _, field := range fields[11:13] {
				ticks, _ := strconv.ParseFloat(field, 64)
				total += ticks / ticksPerSecond
			}
		}
	}
	return total
}
