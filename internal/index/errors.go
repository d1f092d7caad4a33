// SPDX-License-Identifier: Apache-2.0

package index

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/roquetmq/roquet/internal/disk"
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

// damagedName is the file that says why an index is damaged. Not all damage is met when an index is opened; what
// was met once must not be met again and again.
const (
	damagedName   = "damaged"
	maxDamageNote = 4096
)

// noteDamage leaves a note for the next Open, if cause is one that only a rebuild cures.
func (d *DB) noteDamage(fsys vfs.FS, cause error) {
	var damaged *CorruptError
	if !errors.As(cause, &damaged) {
		return
	}
	if err := disk.Replace(fsys, fsys.PathJoin(d.dir, damagedName), []byte(damaged.Cause.Error())); err != nil {
		d.cfg.Logger.Warn("index cannot note that it is damaged", "error", err)
	}
}

// findDamage returns what an earlier run noted as a *CorruptError.
func findDamage(dir string, fsys vfs.FS) error {
	f, err := fsys.Open(fsys.PathJoin(dir, damagedName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open index %s: %w", dir, err)
	}
	note, err := io.ReadAll(io.LimitReader(f, maxDamageNote))
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("open index %s: %w", dir, err)
	}
	return &CorruptError{Dir: dir, Cause: fmt.Errorf("found earlier: %s", note)}
}
