// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package commitlog

import (
	"errors"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// dropCache does nothing where the operating system has no call for it.
func dropCache(vfs.File) {}

// mapFile is for the operating system that can read ahead what is mapped, and tells when that fails.
func mapFile(vfs.FS, string, int64) ([]byte, error) { return nil, errors.ErrUnsupported }
func unmap([]byte)                                  {}
func populate([]byte, int64, int64) error           { return errors.ErrUnsupported }
