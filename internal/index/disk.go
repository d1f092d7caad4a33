// SPDX-License-Identifier: Apache-2.0

package index

import (
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// guardedFS is the disk as Pebble sees it.
//
// After a failure it pauses before a file is created, for Pebble itself tries again at once, for ever.
//
// When a folder cannot be synced, Pebble would panic, sometimes in a goroutine of its own. So the error goes
// to health instead of Pebble, which breaks the index; and a broken index changes nothing on the disk any
// more, so that nothing is built on what may not be there.
type guardedFS struct {
	vfs.FS
	health *health
}

func (f guardedFS) guard() error {
	if err := f.health.brokenErr(); err != nil {
		return fmt.Errorf("index is broken: %w", err)
	}
	return nil
}

// inMemory tells the files that Pebble writes when it opens and nobody needs: a log of its own, which is not used,
// and its options. They never reach the disk, so an index opens on a full one, too.
func inMemory(name string) bool {
	return strings.HasSuffix(name, ".log") || strings.HasSuffix(name, ".dbtmp")
}

// Create implements vfs.FS.
func (f guardedFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if inMemory(name) {
		return vfs.NewMem().Create("file", category)
	}
	f.health.pause()
	if err := f.guard(); err != nil {
		return nil, err
	}
	file, err := f.FS.Create(name, category)
	if err != nil {
		return nil, err
	}
	return guardedFile{File: file, fs: f}, nil
}

// OpenDir implements vfs.FS.
func (f guardedFS) OpenDir(name string) (vfs.File, error) {
	dir, err := f.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return guardedDir{File: dir, name: name, health: f.health}, nil
}

// Remove implements vfs.FS.
func (f guardedFS) Remove(name string) error {
	if err := f.guard(); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

// Rename implements vfs.FS.
func (f guardedFS) Rename(oldName, newName string) error {
	if err := f.guard(); err != nil {
		return err
	}
	if inMemory(oldName) {
		return nil
	}
	return f.FS.Rename(oldName, newName)
}

// Unwrap implements vfs.FS.
func (f guardedFS) Unwrap() vfs.FS { return f.FS }

type guardedFile struct {
	vfs.File
	fs guardedFS
}

// Write implements vfs.File.
func (f guardedFile) Write(p []byte) (int, error) {
	if err := f.fs.guard(); err != nil {
		return 0, err
	}
	return f.File.Write(p)
}

// Sync implements vfs.File.
func (f guardedFile) Sync() error {
	if err := f.fs.guard(); err != nil {
		return err
	}
	return f.File.Sync()
}

// SyncData implements vfs.File.
func (f guardedFile) SyncData() error {
	if err := f.fs.guard(); err != nil {
		return err
	}
	return f.File.SyncData()
}

type guardedDir struct {
	vfs.File
	name   string
	health *health
}

// Sync implements vfs.File.
func (f guardedDir) Sync() error {
	if err := f.File.Sync(); err != nil {
		f.health.breakDown(fmt.Errorf("sync folder %s: %w", f.name, err))
	}
	return nil
}
