// SPDX-License-Identifier: Apache-2.0

//go:build linux

package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// TestRealFullDisk fills a small volume for real, frees it, and goes on (C170, C175, C176).
func TestRealFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Skip("mounting is not permitted here; TestScenarios/failures and TestEveryOperationFails cover it:", err)
	}
	defer func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}()
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, bytes.Repeat([]byte{1}, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := testConfig(t)
	cfg.Dir = filepath.Join(dir, "log")
	cfg.Disk.Interval = time.Millisecond
	reset := make(chan struct{}, 100)
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := runWith(t, l, Handler{Reset: func() { reset <- struct{}{} }})
	var full *DiskFullError
	stored := 0
	for ; full == nil; stored++ {
		_, err := r.store(newGroup("g", stateRecord(fmt.Sprintf("g%04d", stored), 5000)))
		if err != nil && !errors.As(err, &full) {
			t.Fatal(err)
		}
	}
	stored--
	if got := len(names(t, r.Log)); got != stored {
		t.Errorf("%d records in the log, %d acknowledged", got, stored)
	}
	r.mustHalt()
	if l, err = Open(cfg); err != nil { // a restart with no byte free
		t.Fatal(err)
	}
	if ok, cause := l.Health(); ok {
		t.Error("a full disk is no reason to be unhealthy?", cause)
	}
	r = runWith(t, l, Handler{Reset: func() { reset <- struct{}{} }})
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	for {
		<-reset
		if _, err := r.store(newGroup("h", stateRecord("h", 5000))); err == nil {
			break
		}
	}
	if got := len(names(t, r.Log)); got != stored+1 {
		t.Errorf("%d records in the log, %d acknowledged", got, stored+1)
	}
	r.mustHalt()
	report, err := Verify(t.Context(), vfs.Default, cfg.Dir, nil)
	if err != nil || report.FaultCount+report.TornBytes > 0 {
		t.Errorf("%+v, %v", report, err)
	}
}
