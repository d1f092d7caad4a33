// SPDX-License-Identifier: Apache-2.0

//go:build unix

package index

import (
	"syscall"
	"time"
)

// cpuTime returns the processor time of this process so far, all threads together.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
