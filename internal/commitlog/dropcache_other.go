// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package commitlog

import "github.com/cockroachdb/pebble/v2/vfs"

// dropCache does nothing where the operating system has no call for it.
func dropCache(vfs.File) {}
