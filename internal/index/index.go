// SPDX-License-Identifier: Apache-2.0

package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/roquetmq/roquet/internal/disk"
	"github.com/roquetmq/roquet/internal/message"
)

// DB is the index of one commit log. Its changing methods (Queue, Queue.Add, Queue.Start, AddKey, Put,
// Delete, DeleteTopic, Checkpoint, Sync) are called by one goroutine, the applier, in log order; every other
// method may be called by any.
type DB struct {
	cfg     Config
	dir     string
	lock    *pebble.Lock
	pebble  *pebble.DB
	health  *health
	applied atomic.Int64 // durable: what Applied returns
	high    message.LogOffset

	topics  topicTable
	state   stateTable
	keys    keyIndex
	cache   chunkCache
	applier applier

	jobs       sync.WaitGroup // the running checkpoint
	background sync.Mutex     // held by what changes queues or sidecars on disk, so that only one does; held for I/O
}

// Open opens the index in dir, or creates an empty one. fs is the disk (vfs.Default). Errors: *CorruptError
// when what is there cannot be read, with the cure in its text; others when the disk fails or another process
// has the index open.
func Open(dir string, fs vfs.FS, cfg Config) (*DB, error) {
	cfg.setDefaults()
	d := &DB{cfg: cfg, dir: dir}
	d.health = newHealth(cfg.Logger, func(cause error) { d.noteDamage(fs, cause) })
	d.topics.byName = make(map[string]*topic)
	d.applier.epoch = 1
	d.keys.files = sidecarFiles{fs: fs, dir: fs.PathJoin(dir, "keys")}
	pebbleDir := fs.PathJoin(dir, "pebble")
	if err := makeDirs(fs, dir, pebbleDir, d.keys.files.dir); err != nil {
		return nil, fmt.Errorf("create index folder: %w", err)
	}
	var err error
	if d.lock, err = pebble.LockDirectory(pebbleDir, fs); err != nil {
		return nil, fmt.Errorf("index %s is in use: %w", dir, err)
	}
	if err := findDamage(dir, fs); err != nil {
		return nil, errors.Join(err, d.lock.Close())
	}
	if d.pebble, err = openPebble(pebbleDir, fs, d); err != nil {
		return nil, errors.Join(openError(dir, err), d.lock.Close())
	}
	if err := errors.Join(d.health.err(), d.load()); err != nil {
		d.health.close()
		return nil, errors.Join(err, d.pebble.Close(), d.lock.Close())
	}
	d.health.run()
	return d, nil
}

// makeDirs creates the folders and makes their names durable.
func makeDirs(fs vfs.FS, dir string, parts ...string) error {
	for _, part := range parts {
		if err := fs.MkdirAll(part, 0o755); err != nil {
			return err
		}
	}
	return errors.Join(disk.SyncDir(fs, dir), disk.SyncDir(fs, fs.PathDir(dir)))
}

// Wipe deletes the index in dir, which is not open, for a caller that rebuilds it from the log.
func Wipe(dir string, fs vfs.FS) error {
	if err := fs.RemoveAll(dir); err != nil {
		return fmt.Errorf("delete index folder: %w", err)
	}
	return disk.SyncDir(fs, fs.PathDir(dir))
}

// Close makes durable what was applied up to the last position given to Checkpoint, and releases everything.
// The applier has ended before, and nobody reads any more. An error means that more has to be replayed at the
// next start.
func (d *DB) Close() error {
	d.health.close()
	a := &d.applier
	var err error
	if a.applied != d.Applied() || len(a.dirty) > 0 || len(a.deleted) > 0 {
		err = d.Sync()
	}
	d.jobs.Wait()
	d.commitState()
	if err = errors.Join(err, d.pebble.Close(), d.lock.Close()); err != nil {
		return fmt.Errorf("close index: %w", err)
	}
	return nil
}

// Applied returns the log position up to which the index on disk is complete: replay from here, 0 =
// everything.
func (d *DB) Applied() message.LogOffset { return message.LogOffset(d.applied.Load()) }

// High returns a position that the log must reach: what Open found on disk came from before it. If the log
// ends earlier, it has lost its tail and the index is ahead: Wipe it and rebuild.
func (d *DB) High() message.LogOffset { return d.high }

// Err returns why the index cannot become durable or be read at present (disk full, damaged file), or nil.
// The store refuses new writes while it is not nil. It becomes nil again when a later attempt succeeds; after
// damage it stays.
func (d *DB) Err() error { return d.health.err() }

// load reads the marks, topics and queues, and lists the sidecars.
func (d *DB) load() error {
	format, err := d.mark(metaFormat, 4)
	if err != nil {
		return err
	}
	if format == 0 {
		// The first batch of all, so whatever Pebble keeps, this is among it.
		value := binary.BigEndian.AppendUint32(nil, formatVersion)
		if err := d.pebble.Set([]byte(metaFormat), value, pebble.NoSync); err != nil {
			return err
		}
	} else if format != formatVersion {
		return &CorruptError{Dir: d.dir, Cause: fmt.Errorf("format %d, this program knows %d", format, formatVersion)}
	}
	applied, err := d.mark(metaApplied, 8)
	if err != nil {
		return err
	}
	high, err := d.mark(metaHigh, 8)
	if err != nil {
		return err
	}
	d.applied.Store(int64(applied))
	d.high = message.LogOffset(max(applied, high))
	d.state.high = d.high
	d.applier.applied, d.applier.begun = d.Applied(), d.Applied()
	if err := d.loadQueues(); err != nil {
		return err
	}
	return d.keys.load(d.Applied())
}

// mark reads one number of the meta keyspace; 0 if it was never written.
func (d *DB) mark(key string, size int) (uint64, error) {
	value, closer, err := d.pebble.Get([]byte(key))
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, d.readError(err)
	}
	var n uint64
	for _, b := range value {
		n = n<<8 | uint64(b)
	}
	good := len(value) == size
	if err := closer.Close(); err != nil {
		return 0, d.readError(err)
	}
	if !good || int64(n) < 0 {
		return 0, d.corrupt(fmt.Errorf("mark %q is malformed", key))
	}
	return n, nil
}
