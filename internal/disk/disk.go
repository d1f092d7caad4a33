// SPDX-License-Identifier: Apache-2.0

// Package disk makes files and their names survive a machine that stops.
package disk

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Partial ends the name under which Replace writes. What has it was not finished.
const Partial = ".partial"

// Create makes a durable file of data under a name that nothing has.
func Create(fs vfs.FS, path string, data []byte) error {
	if err := write(fs, path, data); err != nil {
		return err
	}
	return SyncDir(fs, fs.PathDir(path))
}

// Replace makes path a durable file of data: the old one or the new one whenever the machine stops, never a part.
// A nil fs is the machine's.
func Replace(fs vfs.FS, path string, data []byte) error {
	if fs == nil {
		fs = vfs.Default
	}
	if err := write(fs, path+Partial, data); err != nil {
		return err
	}
	if err := fs.Rename(path+Partial, path); err != nil {
		return err
	}
	return SyncDir(fs, fs.PathDir(path))
}

func write(fs vfs.FS, path string, data []byte) error {
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	if len(data) > 0 {
		_, err = f.Write(data)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// SyncDir makes the names in a folder durable: a file is only there after a crash if its folder was synced. A nil fs is
// the machine's.
func SyncDir(fs vfs.FS, dir string) error {
	if fs == nil {
		fs = vfs.Default
	}
	d, err := fs.OpenDir(dir)
	if err == nil {
		err = errors.Join(d.Sync(), d.Close())
	}
	if err != nil {
		return fmt.Errorf("sync folder %s: %w", dir, err)
	}
	return nil
}
