// SPDX-License-Identifier: Apache-2.0

package service

import (
	"strconv"
	"syscall"
)

// disk is the use of a volume, in bytes: what is there for this process, as df tells it.
type disk struct{ total, free uint64 }

// diskUse is zero when the volume cannot be asked.
func diskUse(dir string) disk {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return disk{}
	}
	size := uint64(st.Bsize) // its type differs between systems
	return disk{total: (st.Blocks - st.Bfree + st.Bavail) * size, free: st.Bavail * size}
}

func (d disk) ratio() string {
	if d.total == 0 {
		return "0.0"
	}
	return strconv.FormatFloat(1-float64(d.free)/float64(d.total), 'f', 4, 64)
}
