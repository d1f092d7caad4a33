// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// Bounds of what the machine is to give.
const (
	syncs     = 32                     // fsyncs that are timed
	slowSync  = 20 * time.Millisecond  // at the median: every send waits for one
	badSync   = 200 * time.Millisecond // clients time out under load
	fewFiles  = 4096                   // a connection each, and the store's
	someFiles = 65536
)

// checkDisk times fsync in the server's data folder, if that is on this machine.
func (d *doctor) checkDisk() {
	dir := d.dir
	if dir == "" && d.cfg != nil && isLoopback(d.Host()) {
		dir = d.cfg.Store.Dir
	}
	if info, err := os.Stat(dir); dir == "" || d.dir == "" && (err != nil || !info.IsDir()) {
		d.note("disk sync", fine, "", "not checked: the server's data is not here (--data)")
		return
	}
	times, err := timeSyncs(dir)
	if err != nil {
		d.note("disk sync", failed, "the server's user must be able to write there", "%v", err)
		return
	}
	median, worst := times[syncs/2].Round(time.Microsecond), times[syncs-1].Round(time.Microsecond)
	cure := "use a local SSD: every acknowledged send waits for one; share it with nobody"
	d.note("disk sync", grade(median, slowSync, badSync), cure,
		"fsync of 4 KiB in %s takes %s, at worst %s", dir, median, worst)
}

// timeSyncs returns how long writes with fsync took in a folder, the quickest first.
func timeSyncs(dir string) (times []time.Duration, err error) {
	file, err := os.CreateTemp(dir, ".roquet-doctor-*")
	if err != nil {
		return nil, err
	}
	defer func() {
		_ = file.Close() // it is worth nothing
		_ = os.Remove(file.Name())
	}()
	for range syncs {
		began := time.Now()
		if _, err := file.Write(make([]byte, 4096)); err != nil {
			return nil, err
		}
		if err := file.Sync(); err != nil {
			return nil, err
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	return times, nil
}

// checkLimits looks at what a process that is started here may use.
func (d *doctor) checkLimits() {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err == nil {
		d.note("open files", grade(-int64(min(files.Cur, math.MaxInt64)), -someFiles, -fewFiles),
			"LimitNOFILE=1048576 in the unit, or ulimit -n 1048576: a file a connection",
			"a process that starts here may have %d", files.Cur)
	}
	limit, err := memlimit.FromCgroup()
	target := uint64(debug.SetMemoryLimit(-1)) // asks only
	switch {
	case err != nil:
		d.note("memory", fine, "", "no limit of the control group")
	case target > limit:
		cure := fmt.Sprintf("GOMEMLIMIT=%dMiB: memory is collected before the kernel kills", limit>>20*8/10)
		d.note("memory", warning, cure, "the control group allows %d MiB, and GOMEMLIMIT does not say so", limit>>20)
	default:
		d.note("memory", fine, "", "GOMEMLIMIT %d MiB of %d MiB", target>>20, limit>>20)
	}
}
