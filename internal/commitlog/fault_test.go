// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/roquetmq/roquet/internal/message"
)

// history is what a client knows of a log after a while: what was acknowledged, where, and what was refused.
type history struct {
	acked []string
	at    map[string]message.LogOffset
	// unsure was refused, but the disk could not be cut, so it may be there after a crash.
	unsure []string
}

// faultScript stores groups over several segments, rolls and drops once, and goes on after failures when the
// log does.
func faultScript(t *testing.T, r *running, reset <-chan struct{}) *history {
	h := &history{at: map[string]message.LogOffset{}}
	for i := range 9 {
		name := fmt.Sprintf("g%02d", i)
		g := newGroup(name, stateRecord(name+"a", 200), stateRecord(name+"b", 20_000))
		for {
			err := r.Append(g, g.size(), false)
			if err == nil {
				break
			}
			var broken *BrokenError
			var full *DiskFullError
			if !errors.As(err, &broken) && !errors.As(err, &full) {
				t.Fatalf("append: %v", err)
			}
			<-reset
		}
		if pos, err := g.wait(); err == nil {
			h.acked = append(h.acked, name)
			h.at[name] = pos
		} else if broken := (*BrokenError)(nil); errors.As(err, &broken) && broken.Uncertain {
			h.unsure = append(h.unsure, name)
		}
		if i == 4 {
			_ = r.Roll(t.Context()) // may be the operation that fails
		}
	}
	return h
}

// check compares a log that was opened again with the history: all that was acknowledged is there once, in
// order and in its place, and nothing that was refused.
func (h *history) check(t *testing.T, l *Log) {
	t.Helper()
	var got []string
	for _, n := range names(t, l) {
		if name, first := n[:len(n)-1], n[len(n)-1] == 'a'; first {
			got = append(got, name)
		} else if len(got) == 0 || got[len(got)-1] != name {
			t.Errorf("%s: half a group is in the log", name)
		}
	}
	got = slices.DeleteFunc(got, func(name string) bool { return slices.Contains(h.unsure, name) })
	if !slices.Equal(got, h.acked) {
		t.Errorf("in the log: %v\nacknowledged: %v", got, h.acked)
	}
	for name, pos := range h.at {
		rec, err := l.Read(pos, 0)
		if err != nil || recordName(rec) != name+"a" {
			t.Errorf("%s at %d: %v", name, pos, err)
		}
	}
}

// startFaulty opens and runs a log on a faulty disk; a failure of Open is healed and tried again.
func startFaulty(t *testing.T, cfg Config, disk *faultyDisk) (*running, <-chan struct{}) {
	l, err := Open(cfg)
	if err != nil {
		disk.heal()
		if l, err = Open(cfg); err != nil {
			t.Fatalf("open after a failed open: %v", err)
		}
	}
	reset := make(chan struct{}, 100)
	return runWith(t, l, Handler{Reset: func() { reset <- struct{}{} }}), reset
}

// TestEveryOperationFails fails the n-th operation on the disk for every n, in several ways.
func TestEveryOperationFails(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{errInjected, syscall.ENOSPC} {
		for _, d := range []damage{nothing, half, complete} {
			for _, run := range []int{1, 4} { // one failure, or several in a row
				if errors.Is(cause, syscall.ENOSPC) && (run > 1) == (d == half) {
					continue // as the other cause, but for when the log tries again
				}
				t.Run(fmt.Sprintf("%v/%v/%d", cause, d, run), func(t *testing.T) {
					t.Parallel()
					for n := 0; ; n++ {
						disk := newFaultyDisk(n)
						disk.damage, disk.err, disk.last = d, cause, n+run-1
						if failNth(t, disk); t.Failed() {
							t.Fatalf("after failing operation %d: %s", n, disk.fired())
						}
						if disk.fired() == "[]" {
							return // every operation has had its turn
						}
					}
				})
			}
		}
	}
}

func failNth(t *testing.T, disk *faultyDisk) {
	cfg := testConfig(t)
	cfg.Disk.Interval = time.Millisecond
	disk.install(&cfg)
	r, reset := startFaulty(t, cfg, disk)
	h := faultScript(t, r, reset)

	killed := cfg
	killed.Dir, killed.FS, killed.OpenWAL, killed.truncate = copyDir(t, cfg.Dir), nil, nil, nil
	_ = r.halt() // the failing operation may be its own
	stopped := cfg
	stopped.FS, stopped.OpenWAL, stopped.truncate = nil, nil, nil
	for _, c := range []Config{killed, stopped} {
		l, err := Open(c)
		if err != nil {
			t.Errorf("open: %v", err)
			continue
		}
		h.check(t, l)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		report, err := Verify(t.Context(), vfs.Default, c.Dir, nil)
		if err != nil || report.FaultCount > 0 || report.TornBytes > 0 {
			t.Errorf("verify: %+v, %v", report, err)
		}
	}
}
