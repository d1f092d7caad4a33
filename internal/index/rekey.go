// SPDX-License-Identifier: Apache-2.0

package index

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/roquetmq/roquet/internal/disk"
	"github.com/roquetmq/roquet/internal/message"
)

// load finds the sidecars on disk. Those behind applied are of a checkpoint that did not end, and deleted:
// replay brings their keys. So are those whose range a larger one has.
func (k *keyIndex) load(applied message.LogOffset) error {
	names, err := k.files.fs.List(k.files.dir)
	if err != nil {
		return err
	}
	var found []KeyRange
	for _, name := range names {
		r, ok := parseSidecarName(name)
		switch {
		case ok && r.To <= applied:
			found = append(found, r)
		case ok, strings.HasSuffix(name, disk.Partial):
			if err := k.files.fs.Remove(k.files.fs.PathJoin(k.files.dir, name)); err != nil {
				return err
			}
		}
	}
	slices.SortFunc(found, func(a, b KeyRange) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(b.To, a.To))
	})
	end := message.LogOffset(-1)
	for _, r := range found {
		if r.From < end {
			if err := k.files.fs.Remove(k.files.sidecar(r).path); err != nil {
				return err
			}
			continue
		}
		k.sidecars = append(k.sidecars, k.files.sidecar(r))
		end = r.To
	}
	k.open = &keyTable{KeyRange: KeyRange{From: applied}}
	return nil
}

// MissingKeys returns the ranges in [first, Applied) whose keys are not on disk: lost or damaged sidecars.
// Normally none. The caller reads the log from each From to To and gives the keys to RewriteKeys. Any
// goroutine, while serving too.
func (d *DB) MissingKeys(first message.LogOffset) []KeyRange {
	k := &d.keys
	k.mu.Lock()
	defer k.mu.Unlock()
	var missing []KeyRange
	hole := func(to message.LogOffset) {
		if first < to {
			missing = append(missing, KeyRange{From: first, To: to})
		}
	}
	for _, s := range k.sidecars {
		if s.damaged.Load() || s.To <= first {
			continue
		}
		hole(s.From)
		first = s.To
	}
	end := k.open.From
	if len(k.frozen) > 0 {
		end = k.frozen[0].From
	}
	hole(end)
	return missing
}

// KeyWriter writes the sidecars of one KeyRange. It is for one goroutine, which may be another than the
// applier.
type KeyWriter struct {
	db      *DB
	all     KeyRange
	table   *keyTable
	written []*sidecar
}

// RewriteKeys returns a writer for the keys of r, which came from MissingKeys. The range stays missing until
// Close.
func (d *DB) RewriteKeys(r KeyRange) *KeyWriter {
	return &KeyWriter{db: d, all: r, table: &keyTable{KeyRange: KeyRange{From: r.From}}}
}

// Add is as DB.AddKey. Positions outside the range are ignored.
func (w *KeyWriter) Add(kind KeyKind, topic []byte, key string, pos message.LogOffset) {
	if pos >= w.table.From && pos < w.all.To {
		w.table.add(hashKey(kind, xxhash.Sum64(topic), key), pos)
	}
}

// Checkpoint is called after each log entry with its end, as DB.Checkpoint; so a long range becomes several
// sidecars.
func (w *KeyWriter) Checkpoint(end message.LogOffset) error {
	if end >= w.all.To || int64(end-w.table.From) < w.db.cfg.CheckpointBytes {
		return nil
	}
	return w.end(end)
}

// Close makes what was added durable and findable. A writer that was not closed leaves the range missing.
func (w *KeyWriter) Close() error {
	if w.table.From < w.all.To {
		if err := w.end(w.all.To); err != nil {
			return err
		}
	}
	w.db.background.Lock()
	defer w.db.background.Unlock()
	return w.db.keys.replace(w.all, w.written)
}

func (w *KeyWriter) end(to message.LogOffset) error {
	w.table.To = to
	s, err := w.db.keys.files.write(w.table)
	if err != nil {
		return fmt.Errorf("rewrite keys: %w", err)
	}
	w.written = append(w.written, s)
	w.table = &keyTable{KeyRange: KeyRange{From: to}}
	return nil
}

// replace puts written in place of the damaged sidecars of r.
func (k *keyIndex) replace(r KeyRange, written []*sidecar) error {
	k.mu.Lock()
	var gone []*sidecar
	kept := k.sidecars[:0:0]
	for _, s := range k.sidecars {
		if s.damaged.Load() && s.From < r.To && s.To > r.From {
			s.dropped.Store(true)
			gone = append(gone, s)
			continue
		}
		kept = append(kept, s)
	}
	k.sidecars = append(kept, written...)
	slices.SortFunc(k.sidecars, func(a, b *sidecar) int { return cmp.Compare(a.From, b.From) })
	k.mu.Unlock()
	var errs []error
	for _, g := range gone {
		if !slices.ContainsFunc(written, func(s *sidecar) bool { return s.path == g.path }) {
			errs = append(errs, removeIfThere(k.files.fs, g.path))
		}
	}
	return errors.Join(errs...)
}

// mergeLast makes one sidecar of the last two if both together are small: each restart ends one, and lookups
// open all.
func (k *keyIndex) mergeLast(maxSpan int64) error {
	k.mu.Lock()
	n := len(k.sidecars)
	if n < 2 {
		k.mu.Unlock()
		return nil
	}
	a, b := k.sidecars[n-2], k.sidecars[n-1]
	k.mu.Unlock()
	if a.To != b.From || int64(b.To-a.From) > maxSpan || a.damaged.Load() || b.damaged.Load() {
		return nil
	}
	t := &keyTable{KeyRange: KeyRange{From: a.From, To: b.To}}
	for _, s := range []*sidecar{a, b} {
		if err := k.files.readAll(s, t); err != nil {
			s.damaged.Store(true)
			return &KeysError{Range: s.KeyRange, File: s.path, Cause: err}
		}
	}
	m, err := k.files.write(t)
	if err != nil {
		return err
	}
	k.mu.Lock()
	a.merged.Store(m)
	b.merged.Store(m)
	k.sidecars = append(slices.Clone(k.sidecars[:n-2]), m)
	k.mu.Unlock()
	return errors.Join(k.files.fs.Remove(a.path), k.files.fs.Remove(b.path))
}

// readAll adds all entries of c to t, in log order.
func (s sidecarFiles) readAll(c *sidecar, t *keyTable) (err error) {
	f, err := s.fs.Open(c.path, vfs.SequentialReadsOption)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	head, err := s.readHead(f, c.KeyRange)
	if err != nil {
		return err
	}
	var all []uint64
	for b := range 1 << head.bits {
		entries, err := s.readBucket(f, head, b)
		if err != nil {
			return err
		}
		for i := 0; i < len(entries); i += keyEntryBytes {
			all = append(all, binary.LittleEndian.Uint64(entries[i:]))
		}
	}
	slices.SortFunc(all, func(x, y uint64) int { return cmp.Compare(uint32(x), uint32(y)) })
	for _, e := range all {
		t.add(keyHash(e>>32), c.From+message.LogOffset(uint32(e)))
	}
	return nil
}

// dropBefore forgets and deletes the sidecars of ranges that end at pos or before.
func (k *keyIndex) dropBefore(pos message.LogOffset) error {
	k.mu.Lock()
	n := 0
	for n < len(k.sidecars) && k.sidecars[n].To <= pos {
		k.sidecars[n].dropped.Store(true)
		n++
	}
	gone := k.sidecars[:n]
	k.sidecars = slices.Clone(k.sidecars[n:])
	k.mu.Unlock()
	var errs []error
	for _, s := range gone {
		errs = append(errs, removeIfThere(k.files.fs, s.path))
	}
	return errors.Join(errs...)
}
