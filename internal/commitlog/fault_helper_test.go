// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

var errInjected = errors.New("injected failure")

// damage says what a failing write leaves behind.
type damage int

const (
	nothing  damage = iota // fails before anything happens
	half                   // a short write: the first half of the entry is there
	complete               // all is done, and reported as failed
)

func (d damage) String() string { return [...]string{"nothing", "half", "complete"}[d] }

// faultyDisk is the disk of a log on which one operation, or all from one on, can be made to fail: those of
// the log's own file system calls, of the library's writes and opens, and truncations. They are counted
// together.
type faultyDisk struct {
	damage damage
	err    error
	last   int    // the operations [failAt, last] fail
	only   string // and only those whose name begins so

	mu     sync.Mutex
	failAt int // -1: none
	count  int
	what   []string // the operations that failed
}

func newFaultyDisk(failAt int) *faultyDisk {
	return &faultyDisk{failAt: failAt, last: failAt, err: errInjected}
}

// operation counts an operation, and returns the error if it is one that fails.
func (d *faultyDisk) operation(what string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.count
	d.count++
	if d.failAt < 0 || n < d.failAt || n > d.last || !strings.HasPrefix(what, d.only) {
		return nil
	}
	d.what = append(d.what, what)
	return d.err
}

func (d *faultyDisk) fired() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return fmt.Sprint(d.what)
}

// heal ends all failures.
func (d *faultyDisk) heal() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failAt = -1
}

// breakFrom makes every operation from now on fail whose name begins with only.
func (d *faultyDisk) breakFrom(err error, only string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failAt, d.last, d.err, d.only = d.count, 1<<60, err, only
}

// install puts the disk under a configuration.
func (d *faultyDisk) install(cfg *Config) {
	cfg.FS = errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpGetDiskUsage {
			return nil // asked at times of its own; see TestDiskMarks
		}
		return d.operation(operationName(op))
	}))
	cfg.truncate = func(path string, size int64) error {
		if err := d.operation("truncate"); err != nil {
			return err
		}
		return os.Truncate(path, size)
	}
	cfg.OpenWAL = func(dir string, segmentBytes int64) (WAL, error) {
		if err := d.operation("open wal"); err != nil {
			return nil, err
		}
		w, err := OpenWAL(dir, segmentBytes)
		if err != nil {
			return nil, err
		}
		return &faultyWAL{WAL: w, disk: d, dir: dir}, nil
	}
}

func operationName(op errorfs.Op) string {
	base := filepath.Base(op.Path)
	switch op.Kind {
	case errorfs.OpFilePreallocate:
		return "write: preallocate " + base // both want space
	case errorfs.OpFileSyncData, errorfs.OpFileSync:
		return "sync " + base
	default:
		return fmt.Sprintf("op%d %s", op.Kind, base)
	}
}

// faultyWAL is tidwall/wal on a faultyDisk.
type faultyWAL struct {
	WAL
	disk *faultyDisk
	dir  string
}

func (w *faultyWAL) Write(index uint64, data []byte) error {
	failed := w.disk.operation("write")
	if failed == nil {
		return w.WAL.Write(index, data)
	}
	if w.disk.damage == nothing {
		return failed
	}
	path, err := newestSegment(w.dir)
	if err == nil {
		err = w.WAL.Write(index, data)
	}
	if err == nil && w.disk.damage == half {
		err = zeroSecondHalf(path, data)
	}
	return errors.Join(failed, err)
}

func newestSegment(dir string) (string, error) {
	list, err := listSegments(vfs.Default, dir)
	if err != nil || len(list) == 0 {
		return "", errors.Join(err, errors.New("no segment"))
	}
	return list[len(list)-1].Path, nil
}

// zeroSecondHalf makes an entry look as if only its first half had reached its file.
func zeroSecondHalf(path string, entry []byte) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	at := lastIndex(content, entry)
	if at < 0 {
		return errors.New("the entry is not in its file")
	}
	clear(content[at+len(entry)/2 : at+len(entry)])
	return os.WriteFile(path, content, 0o600)
}

func lastIndex(b, entry []byte) int {
	for i := len(b) - len(entry); i >= 0; i-- {
		if binary.BigEndian.Uint32(b[i:]) == entryMagic && string(b[i:i+len(entry)]) == string(entry) {
			return i
		}
	}
	return -1
}

// copyDir copies the files of a log as a kill -9 would leave them.
func copyDir(t testing.TB, dir string) string {
	t.Helper()
	for {
		to := t.TempDir()
		err := os.CopyFS(to, os.DirFS(dir))
		if err == nil {
			if err := os.Remove(filepath.Join(to, lockName)); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			return to
		}
		if !errors.Is(err, os.ErrNotExist) { // the log removed a file meanwhile: once more
			t.Fatal(err)
		}
	}
}
