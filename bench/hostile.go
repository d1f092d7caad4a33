// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// hostileRows measures what clients that mean no good cost one that does: attackers in a process of their own, which
// yields to the server's as if it were on another machine, while one client sends message after message.
func hostileRows(ctx context.Context, o *options, report *report) error {
	b, err := startRoquet(ctx, o, filepath.Join(o.work, "hostile"))
	if err != nil {
		return err
	}
	defer b.stop()
	if err := firstSendTo(ctx, b.addr, "good"); err != nil {
		return err
	}
	good, err := dialNative(ctx, b.addr)
	if err != nil {
		return err
	}
	defer good.close()
	if _, _, err := goodSends(ctx, good, seconds(2)); err != nil { // warm
		return err
	}
	alone, wrong, err := goodSends(ctx, good, seconds(o.secs))
	if err != nil {
		return err
	}
	for _, kind := range []string{"garbage", "resets", "slow", "all"} {
		files, memory := b.openFiles(), b.residentMB()
		attack := exec.CommandContext(ctx, os.Args[0], "-attack", kind, "-native", b.addr, "-grpc", b.door(8081), "-http", b.door(8080))
		attack.Stderr = os.Stderr
		if err := attack.Start(); err != nil {
			return err
		}
		if err := wait(ctx, time.Second); err != nil {
			return err
		}
		under, more, err := goodSends(ctx, good, seconds(o.secs))
		grown := b.residentMB() - memory
		_ = attack.Process.Kill()
		_ = attack.Wait() // it was killed
		if err != nil {
			return fmt.Errorf("under attack (%s): %w", kind, err)
		}
		wrong += more
		name := "attack, " + kind
		report.addFact(name+", p99 alone", b.name, "ms", alone, "")
		report.addFact(name+", p99 under attack", b.name, "ms", under, "")
		report.addFact(name+", ratio", b.name, "times", under/alone, "≤ 3")
		report.addFact(name+", memory grew", b.name, "MB", grown, "≤ 64")
		left := b.openFiles() - files
		for deadline := time.Now().Add(40 * time.Second); left > 0 && time.Now().Before(deadline); left = b.openFiles() - files {
			if err := wait(ctx, 100*time.Millisecond); err != nil {
				return err
			}
		}
		report.addFact(name+", connections left", b.name, "", float64(left), "0")
	}
	report.addFact("attack: errors of the good client", b.name, "", float64(wrong), "0")
	return nil
}

// goodSends sends one message after the other; it returns the 99th percentile in ms and how many were refused.
func goodSends(ctx context.Context, n *native, long time.Duration) (p99 float64, wrong int, err error) {
	var took []time.Duration
	body := make([]byte, 128)
	for end := time.Now().Add(long); time.Now().Before(end); {
		began := time.Now()
		reply, err := n.call(ctx, 310, sendExt("good", 0, "0", "", false), body)
		if err != nil {
			return 0, wrong, err
		}
		if reply.Code != 0 {
			wrong++
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)*99/100].Seconds() * 1e3, wrong, nil
}

// openFiles is how many descriptors the broker has: its connections, and a few more.
func (b *broker) openFiles() int {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", b.pids[0]))
	if err != nil {
		return 0
	}
	sockets := 0
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join("/proc", fmt.Sprint(b.pids[0]), "fd", e.Name())); err == nil && len(target) > 7 && target[:7] == "socket:" {
			sockets++
		}
	}
	return sockets
}

func dialRaw(addr string) (net.Conn, error) { return net.DialTimeout("tcp", addr, 5*time.Second) }
