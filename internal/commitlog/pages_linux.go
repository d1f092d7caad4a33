// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"errors"

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

// mapFile maps the first bytes of a file, which must not become shorter.
func mapFile(fs vfs.FS, path string, size int64) (data []byte, err error) {
	file, err := fs.Open(path)
	if err != nil {
		return nil, err
	}
	if err = errors.ErrUnsupported; file.Fd() != vfs.InvalidFd {
		data, err = unix.Mmap(int(file.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	}
	return data, errors.Join(err, file.Close())
}

func unmap(data []byte) { _ = unix.Munmap(data) }

// populate makes [from, to) of a mapping be there, so that looking at it waits for no disk. Errors: the disk's,
// and that of a kernel before 5.14, which cannot.
func populate(data []byte, from, to int64) error {
	const align = 64 << 10 // the largest page in use
	return unix.Madvise(data[from&^(align-1):to], unix.MADV_POPULATE_READ)
}
