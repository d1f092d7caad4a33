// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// broker is a running server under test.
type broker struct {
	name string
	addr string // broker port
	pids []int  // the first is the broker's
	stop func()

	offset int // added to every port
}

// door is the address of another port, given without the offset.
func (b *broker) door(port int) string { return fmt.Sprintf("127.0.0.1:%d", port+b.offset) }

func startRoquet(ctx context.Context, o *options, dir string, args ...string) (*broker, error) {
	args = append([]string{"serve", "--data", dir, "--port-offset", strconv.Itoa(o.offset)}, args...)
	cmd := exec.CommandContext(ctx, o.roquet, args...)
	cmd.Env = append(os.Environ(), o.env...)
	log, err := os.Create(dir + ".log")
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	b := &broker{name: "roquet", addr: fmt.Sprintf("127.0.0.1:%d", 10911+o.offset), pids: []int{cmd.Process.Pid}}
	b.offset = o.offset
	b.stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		_ = log.Close()
	}
	return b, waitOpen(ctx, b.addr)
}

func startPeer(ctx context.Context, o *options, dir, flush string) (*broker, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	up := exec.CommandContext(ctx, filepath.Join(o.shared, "peers/rocketmq/up.sh"), abs, flush)
	log, err := os.Create(abs + ".log")
	if err != nil {
		return nil, err
	}
	up.Stdout, up.Stderr = log, log // not pipes: the JVMs inherit them
	if err := up.Run(); err != nil {
		return nil, fmt.Errorf("start peer, see %s.log: %w", abs, err)
	}
	b := &broker{name: "apache " + strings.ToLower(strings.TrimSuffix(flush, "_FLUSH")), addr: "127.0.0.1:10911"}
	for _, n := range []string{"broker", "ns", "proxy"} {
		text, err := os.ReadFile(filepath.Join(abs, n+".pid"))
		if err != nil {
			return nil, err
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return nil, err
		}
		b.pids = append(b.pids, pid)
	}
	b.stop = func() {
		for _, pid := range b.pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		_ = os.RemoveAll(filepath.Join(abs, "store"))
	}
	return b, nil
}

func waitOpen(ctx context.Context, addr string) error {
	for range 600 {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err == nil {
			return conn.Close()
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("%s never opened", addr)
}

// runLoad runs the row's preparation and then the row itself; the result is what the load generator printed.
func runLoad(ctx context.Context, o *options, load string, b *broker, r row) (map[string]float64, error) {
	if r.prepare != nil {
		if _, err := runLoad(ctx, o, load, b, *r.prepare); err != nil {
			return nil, err
		}
	}
	args := append([]string{"-addr", b.addr, "-pid", strconv.Itoa(b.pids[0]), "-secs", fmt.Sprint(o.secs)}, r.args...)
	cmd := exec.CommandContext(ctx, load, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := json.Unmarshal(out, &fields); err != nil {
		return nil, fmt.Errorf("%q: %w", out, err)
	}
	result := map[string]float64{}
	for k, v := range fields {
		if n, ok := v.(float64); ok {
			result[k] = n
		}
	}
	return result, nil
}

// residentMB is the resident memory of all the broker's processes.
func (b *broker) residentMB() (total float64) {
	for _, pid := range b.pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
				kb, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
				total += kb / 1024
			}
		}
	}
	return total
}
