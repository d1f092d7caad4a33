// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// lifeRows measures what is not a load: start, start after kill -9, memory, idle connections, held pulls.
func lifeRows(ctx context.Context, o *options, load string, report *report) error {
	dir := filepath.Join(o.work, "life")
	began := time.Now()
	b, err := startRoquet(ctx, o, dir)
	if err != nil {
		return err
	}
	if err := firstSend(ctx, b.addr); err != nil {
		return err
	}
	report.addFact("start, first send", b.name, "s", time.Since(began).Seconds(), "≤ 0.3 s")
	report.addFact("memory idle", b.name, "MB", b.residentMB(), "≤ 60 MB")
	for _, r := range []struct {
		name string
		row  row
	}{
		{"memory loaded", row{args: []string{"-mode", "send", "-size", "1024", "-topic", "life"}}},
	} {
		result, err := runLoad(ctx, o, load, b, r.row)
		if err != nil {
			return err
		}
		report.addFact(r.name, b.name, "MB", result["broker_rss_mb"], "≤ 400 MB")
	}
	if err := restartAfterKill(ctx, o, load, dir, b, report); err != nil {
		return err
	}
	return connections(ctx, o, report)
}

// restartAfterKill fills the store, kills the broker under load and times the next first send.
func restartAfterKill(ctx context.Context, o *options, load, dir string, b *broker, report *report) error {
	messages := strconv.FormatInt(int64(o.backlogGiB*(1<<30)/1250), 10)
	fill := row{args: []string{
		"-mode", "batch", "-conns", "8", "-window", "8", "-size", "1024", "-topic", "life", "-max", messages,
		"-secs", "600", "-warm", "0",
	}}
	if _, err := runLoad(ctx, o, load, b, fill); err != nil {
		return err
	}
	if err := syscall.Kill(b.pids[0], syscall.SIGKILL); err != nil {
		return err
	}
	b.stop()
	began := time.Now()
	b, err := startRoquet(ctx, o, dir)
	if err != nil {
		return err
	}
	defer b.stop()
	if err := firstSend(ctx, b.addr); err != nil {
		return err
	}
	report.addFact(fmt.Sprintf("kill -9 with %g GiB, first send", o.backlogGiB), b.name, "s", time.Since(began).Seconds(), "≤ 1 s")
	return nil
}

// connections opens idle connections and held pulls from many loopback addresses and reports memory for each.
func connections(ctx context.Context, o *options, report *report) error {
	for _, c := range []struct {
		name  string
		count int
		pull  bool
	}{{"idle connections", 100_000, false}, {"held pulls", 50_000, true}} {
		b, err := startRoquet(ctx, o, filepath.Join(o.work, "conns"))
		if err != nil {
			return err
		}
		if err := firstSend(ctx, b.addr); err != nil {
			b.stop()
			return err
		}
		before := b.residentMB()
		opened, closeAll := openMany(ctx, b.addr, c.count, c.pull)
		time.Sleep(2 * time.Second)
		runtime.GC()
		report.addFact(fmt.Sprintf("%d %s, total", opened, c.name), b.name, "MB", b.residentMB()-before, "measured")
		report.addFact(fmt.Sprintf("%d %s, each", opened, c.name), b.name, "KiB", (b.residentMB()-before)*1024/float64(opened), "measured")
		closeAll()
		b.stop()
		_ = os.RemoveAll(filepath.Join(o.work, "conns"))
	}
	return nil
}

// openMany opens up to n connections, 20,000 from each loopback address, as far as the limit on open files
// goes. With pull set, 100 pulls are held on each connection instead.
func openMany(ctx context.Context, addr string, n int, pull bool) (int, func()) {
	var conns []net.Conn
	perConn := 1
	if pull {
		perConn = 100
	}
	opened := 0
	for opened < n {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+len(conns)/20_000))}, Timeout: 5 * time.Second}
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench: stopped opening connections:", err)
			break
		}
		conns = append(conns, conn)
		if pull {
			for i := range perConn {
				if _, err := conn.Write(pullFrame(int32(i + 1))); err != nil {
					break
				}
			}
		}
		opened += perConn
	}
	return opened, func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}
}
