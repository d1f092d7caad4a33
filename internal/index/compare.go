// SPDX-License-Identifier: Apache-2.0

package index

import (
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"
	"github.com/roquetmq/roquet/internal/message"
)

// KeyComparer compares the sidecars with the keys of the log, both ways: none may be missing and none too
// much. It reads each sidecar once, where a look-up of every key would open it as often. It is for one
// goroutine, on an index that nobody changes.
type KeyComparer struct {
	db       *DB
	first    message.LogOffset
	left     []*sidecar // not compared yet, ascending
	log      *keyTable  // keys of the log in the range of left[0]
	compared uint64
	errs     []error
}

// CompareKeys returns a comparer for a log that begins at first. What a sidecar knows of the log before that
// is passed over.
func (d *DB) CompareKeys(first message.LogOffset) *KeyComparer {
	d.keys.mu.Lock()
	defer d.keys.mu.Unlock()
	c := &KeyComparer{db: d, first: first, left: slices.Clone(d.keys.sidecars)}
	c.begin()
	return c
}

func (c *KeyComparer) begin() {
	if len(c.left) > 0 {
		c.log = &keyTable{KeyRange: c.left[0].KeyRange}
	}
}

// Add is as DB.AddKey: it gets all keys of the log, in log order. Those that no sidecar is for are passed
// over.
func (c *KeyComparer) Add(kind KeyKind, topic []byte, key string, pos message.LogOffset) {
	for len(c.left) > 0 && pos >= c.left[0].To {
		c.end()
	}
	if len(c.left) > 0 && pos >= c.left[0].From {
		c.log.add(hashKey(kind, xxhash.Sum64(topic), key), pos)
	}
}

// Close ends the comparison. It returns how many keys of sidecars were compared, and a *KeysError for each
// sidecar that cannot be read or says something else than the log.
func (c *KeyComparer) Close() (compared uint64, errs []error) {
	for len(c.left) > 0 {
		c.end()
	}
	return c.compared, c.errs
}

// end compares the first sidecar that is left.
func (c *KeyComparer) end() {
	s := c.left[0]
	stored := &keyTable{KeyRange: s.KeyRange}
	err := c.db.keys.files.readAll(s, stored)
	if err == nil {
		err = c.compare(stored)
	}
	if err != nil {
		c.errs = append(c.errs, &KeysError{Range: s.KeyRange, File: s.path, Cause: err})
	}
	c.left = c.left[1:]
	c.begin()
}

func (c *KeyComparer) compare(stored *keyTable) error {
	got, want := stored.sorted(c.first), c.log.sorted(c.first)
	c.compared += uint64(len(got))
	if !slices.Equal(got, want) {
		return fmt.Errorf("its %d keys are not the %d that the log has in this range", len(got), len(want))
	}
	return nil
}

// sorted returns the table's entries of positions from first on, by hash and position.
func (t *keyTable) sorted(first message.LogOffset) []uint64 {
	all := make([]uint64, 0, t.count())
	for _, page := range t.pages {
		for _, e := range page {
			if t.From+message.LogOffset(uint32(e)) >= first {
				all = append(all, e)
			}
		}
	}
	slices.Sort(all)
	return all
}
