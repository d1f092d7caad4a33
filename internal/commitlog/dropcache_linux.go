// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// dropCache asks the operating system to forget the cached pages of a file, so that what is read next comes
// from the disk. Dirty pages stay; after a failed sync there are none, which is why the cache cannot be
// trusted.
func dropCache(f vfs.File) {
	if fd := f.Fd(); fd != vfs.InvalidFd {
		_ = unix.Fadvise(int(fd), 0, 0, unix.FADV_DONTNEED) // advice: what cannot be dropped is read as it is
	}
}
