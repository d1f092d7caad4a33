// SPDX-License-Identifier: Apache-2.0

// Command bench runs the workloads of docs/benchmarks.md against roquet and, in turns, against Apache
// RocketMQ, and prints what each needed per message and the ratio. It needs ../../shared (load generator and
// peer); figures of one run compare, figures of two runs do not.
//
//	cd bench && go run . -roquet ../bin/roquet [-peer=false] [-only send] [-secs 8]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

type options struct {
	roquet, shared, work, only, json string
	peer                             bool
	secs                             float64
	offset                           int
	backlogGiB                       float64
	env                              []string // of roquet, besides the own one
}

func main() {
	var o options
	flag.StringVar(&o.roquet, "roquet", "../bin/roquet", "binary under test")
	flag.StringVar(&o.shared, "shared", "../../shared", "folder with load/ and peers/")
	flag.StringVar(&o.work, "work", "", "folder for data; default a temporary one")
	flag.StringVar(&o.only, "only", "", "run only rows whose name contains this")
	flag.StringVar(&o.json, "json", "", "also append each result as a JSON line to this file")
	flag.BoolVar(&o.peer, "peer", true, "run Apache RocketMQ beside it")
	flag.Float64Var(&o.secs, "secs", 8, "seconds of each measurement")
	flag.Float64Var(&o.backlogGiB, "backlog", 4.8, "GiB stored before the kill -9 row")
	flag.IntVar(&o.offset, "port-offset", 1000, "added to roquet's ports, so that both can run at once")
	kind := flag.String("attack", "", "be the attacker of the row hostile: garbage, resets, slow or all")
	native, grpc, web := flag.String("native", "", ""), flag.String("grpc", "", ""), flag.String("http", "", "")
	flag.Parse()
	if *kind != "" {
		if err := attack(*kind, *native, *grpc, *web); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, &o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o *options) error {
	if o.work == "" {
		dir, err := os.MkdirTemp("", "roquet-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		o.work = dir
	}
	load := filepath.Join(o.work, "load")
	build := exec.CommandContext(ctx, "go", "build", "-o", load, ".")
	build.Dir = filepath.Join(o.shared, "load")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build load generator: %w\n%s", err, out)
	}
	report := newReport(o.json)
	defer report.print(os.Stdout)
	for _, flush := range []string{"ASYNC_FLUSH", "SYNC_FLUSH"} {
		if (flush == "SYNC_FLUSH" && !o.peer) || !slices.ContainsFunc(rows, func(r row) bool { return r.wanted(o, flush) }) {
			continue
		}
		if err := sideBySide(ctx, o, load, flush, report); err != nil {
			return err
		}
	}
	if err := doors(ctx, o, load, report); err != nil {
		return err
	}
	if err := telemetryCost(ctx, o, load, report); err != nil {
		return err
	}
	if o.only == "" || o.only == "hostile" {
		if err := hostileRows(ctx, o, report); err != nil {
			return err
		}
	}
	if strings.Contains("start kill memory connections held", o.only) || o.only == "" {
		return lifeRows(ctx, o, load, report)
	}
	return nil
}

// wanted tells whether the row is to run with the peer flushing as told.
func (r *row) wanted(o *options, flush string) bool {
	return strings.Contains(r.name, o.only) && (flush == "ASYNC_FLUSH" || r.sync)
}

// sideBySide runs every load row on the peer (flushing as told) and on roquet, in turns.
func sideBySide(ctx context.Context, o *options, load, flush string, report *report) error {
	roquet, err := startRoquet(ctx, o, filepath.Join(o.work, "roquet-"+flush))
	if err != nil {
		return err
	}
	defer roquet.stop()
	var peer *broker
	if o.peer {
		if peer, err = startPeer(ctx, o, filepath.Join(o.work, "peer-"+flush), flush); err != nil {
			return err
		}
		defer peer.stop()
		warmUp := row{args: []string{"-mode", "send", "-topic", "warmup", "-secs", "20"}} // its compiler needs it
		if _, err := runLoad(ctx, o, load, peer, warmUp); err != nil {
			return err
		}
	}
	for _, r := range rows {
		if !r.wanted(o, flush) {
			continue
		}
		for _, b := range []*broker{peer, roquet} {
			if b == nil {
				continue
			}
			result, err := runLoad(ctx, o, load, b, r)
			if err != nil {
				return fmt.Errorf("%s on %s: %w", r.name, b.name, err)
			}
			report.add(r, b.name, result)
		}
	}
	return nil
}
