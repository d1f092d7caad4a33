// SPDX-License-Identifier: Apache-2.0

package index

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// guardedFS is the disk as Pebble sees it.
//
// After a failure it pauses before a file is created, for Pebble itself tries again at once, for ever. Of its list of
// files it does not: it gives up when there is no room for that. So what is written to the list waits here for room.
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

// noRoom tells that a write to the list of files, or to what points to it, failed for want of room, after a pause,
// and is to be made again. While the index opens or closes nothing waits.
func (f guardedFS) noRoom(name string, err error) bool {
	if !strings.Contains(filepath.Base(name), "MANIFEST") ||
		!errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return false
	}
	f.health.fail(err)
	return f.health.pause()
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
	for err != nil && f.noRoom(name, err) {
		file, err = f.FS.Create(name, category)
	}
	if err != nil {
		return nil, err
	}
	return guardedFile{File: file, fs: f, name: name}, nil
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
	fs   guardedFS
	name string
}

// Write implements vfs.File.
func (f guardedFile) Write(p []byte) (int, error) {
	if err := f.fs.guard(); err != nil {
		return 0, err
	}
	n, err := f.File.Write(p)
	for err != nil && f.fs.noRoom(f.name, err) {
		var more int
		more, err = f.File.Write(p[n:])
		n += more
	}
	return n, err
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
