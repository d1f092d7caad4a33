// SPDX-License-Identifier: Apache-2.0

package index

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/cockroachdb/pebble/v2"
)

// ErrDropped says that a queue offset is below what the index retains, or that its topic was deleted.
var ErrDropped = errors.New("queue offset is no longer retained")

// ErrClosed says that the index was closed before what was asked for was done.
var ErrClosed = errors.New("index is closed")

// CorruptError says that the index on disk cannot be read. Its text names the cure.
type CorruptError struct {
	Dir   string // the index folder
	Cause error
}

func (e *CorruptError) Error() string {
	return "index " + e.Dir + " is damaged (" + e.Cause.Error() +
		"); cure: stop, delete the index folder, start: it is rebuilt from the log"
}

func (e *CorruptError) Unwrap() error { return e.Cause }

// KeysError says that a key sidecar is missing or damaged; it can be rebuilt while serving (MissingKeys,
// RewriteKeys).
type KeysError struct {
	Range KeyRange
	File  string
	Cause error
}

func (e *KeysError) Error() string {
	return "key sidecar " + e.File + " cannot be read (" + e.Cause.Error() + "); it can be rebuilt from the log"
}

func (e *KeysError) Unwrap() error { return e.Cause }

// isCorruption tells a damaged database from a disk that fails at the moment. A file that is gone is damage
// too.
func isCorruption(err error) bool {
	return pebble.IsCorruptionError(err) || errors.Is(err, fs.ErrNotExist)
}

// damage makes one line of what Pebble says about a damaged file.
func damage(path string, details error) error { return fmt.Errorf("%s: %w", path, details) }
