// SPDX-License-Identifier: Apache-2.0

package index

import (
	"iter"
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/roquetmq/roquet/internal/message"
)

// KeyKind says what a key is, so that a KEYS token and a unique key of the same text are told apart.
type KeyKind byte

// Kinds of keys.
const (
	KeyOrdinary KeyKind = 'K' // a token of property KEYS
	KeyUnique   KeyKind = 'U' // property UNIQ_KEY
)

// KeyRange is a range of log positions, [From, To), from the end of one log entry to the end of another.
type KeyRange struct{ From, To message.LogOffset }

// keyHash is what is kept of a key. 32 bits: a table of 200,000 keys answers one lookup in 20,000 with a
// record of another key, which the caller finds out by looking at it, and half the memory and disk is saved.
type keyHash uint32

func hashKey(kind KeyKind, topicHash uint64, key string) keyHash {
	h := (topicHash + uint64(kind)) * 0x9e3779b97f4a7c15
	h ^= xxhash.Sum64String(key)
	h ^= h >> 29
	return keyHash(h * 0xbf58476d1ce4e5b9 >> 32)
}

const (
	keyPageEntries = 8192
	// A table's positions are 32 bits relative to its start. It is ended long before they run out, when
	// checkpoints fail.
	maxKeyTableSpan = 1 << 30
)

// keyTable holds the keys of a range of the log, in the order of their positions: hash in the upper 32 bits,
// position relative to the range in the lower. Pages are appended to and never changed.
type keyTable struct {
	KeyRange // To is 0 while it is open
	pages    [][]uint64
}

func (t *keyTable) add(h keyHash, pos message.LogOffset) {
	last := len(t.pages) - 1
	if last < 0 || len(t.pages[last]) == keyPageEntries {
		size := keyPageEntries
		if last < 0 {
			size = 64 // an idle broker
		}
		t.pages = append(t.pages, make([]uint64, 0, size))
		last++
	}
	t.pages[last] = append(t.pages[last], uint64(h)<<32|uint64(pos-t.From))
}

func (t *keyTable) count() int {
	n := 0
	for _, p := range t.pages {
		n += len(p)
	}
	return n
}

// find appends the positions of entries with hash h, newest first.
func (t *keyTable) find(dst []message.LogOffset, h keyHash) []message.LogOffset {
	for _, page := range slices.Backward(t.pages) {
		dst = findKey(dst, page, h, t.From)
	}
	return dst
}

func findKey(dst []message.LogOffset, entries []uint64, h keyHash, from message.LogOffset) []message.LogOffset {
	for _, e := range slices.Backward(entries) {
		if keyHash(e>>32) == h {
			dst = append(dst, from+message.LogOffset(uint32(e)))
		}
	}
	return dst
}

// keyIndex is all keys: the open table, tables that are being written, and sidecars.
type keyIndex struct {
	files sidecarFiles
	mu    sync.Mutex
	open  *keyTable
	// frozen tables are waiting for their sidecar or being written to it, ascending.
	frozen []*keyTable
	// sidecars are the files on disk, ascending, not overlapping.
	sidecars []*sidecar
}

// AddKey notes that the record at pos of topic has the key. Applier only; positions ascend. What is known
// already (replay from before Applied) is ignored. Checkpoints write the keys down: nothing else to call.
func (d *DB) AddKey(kind KeyKind, topic []byte, key string, pos message.LogOffset) {
	h := hashKey(kind, xxhash.Sum64(topic), key)
	k := &d.keys
	k.mu.Lock()
	defer k.mu.Unlock()
	if pos >= k.open.From {
		k.open.add(h, pos)
	}
}

// limitSpan ends the open table at applied if it has grown too long.
func (k *keyIndex) limitSpan(applied message.LogOffset) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if applied-k.open.From > maxKeyTableSpan {
		k.freezeLocked(applied)
	}
}

// freezeLocked ends the open table at end and begins the next one there.
func (k *keyIndex) freezeLocked(end message.LogOffset) {
	if end <= k.open.From {
		return
	}
	k.open.To = end
	k.frozen = append(k.frozen, k.open)
	k.open = &keyTable{KeyRange: KeyRange{From: end}}
}

// freeze ends the open table at the applied position and returns all tables that have no sidecar.
func (k *keyIndex) freeze(applied message.LogOffset) []*keyTable {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.freezeLocked(applied)
	return slices.Clone(k.frozen)
}

// write makes t durable, and lets go of its memory.
func (k *keyIndex) write(t *keyTable) error {
	s, err := k.files.write(t)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sidecars = append(k.sidecars, s) // tables are written in log order
	k.frozen = slices.DeleteFunc(k.frozen, func(f *keyTable) bool { return f == t })
	return nil
}

// snapshot returns what a search looks through: tables and sidecars, each ascending.
func (k *keyIndex) snapshot() ([]keyTable, []*sidecar) {
	k.mu.Lock()
	defer k.mu.Unlock()
	tables := make([]keyTable, 0, len(k.frozen)+1)
	for _, t := range append(slices.Clip(k.frozen), k.open) {
		tables = append(tables, keyTable{KeyRange: t.KeyRange, pages: slices.Clone(t.pages)})
	}
	return tables, slices.Clone(k.sidecars)
}

// FindKeys yields the positions in [from, to) of records that may have the key, newest first, each once.
// Hashes collide: the caller compares topic and key on the record. A *KeysError (a damaged sidecar: see
// MissingKeys) is yielded with position -1, and the walk goes on behind it. Any goroutine.
func (d *DB) FindKeys(
	kind KeyKind, topic, key string, from, to message.LogOffset,
) iter.Seq2[message.LogOffset, error] {
	h := hashKey(kind, xxhash.Sum64String(topic), key)
	return func(yield func(message.LogOffset, error) bool) {
		last := noPosition
		each := func(found []message.LogOffset, err error) bool {
			if err != nil {
				return yield(noPosition, err)
			}
			for _, pos := range found {
				if pos == last || pos < from || pos >= to {
					continue
				}
				last = pos
				if !yield(pos, nil) {
					return false
				}
			}
			return true
		}
		tables, sidecars := d.keys.snapshot()
		for i := range slices.Backward(tables) {
			if !each(tables[i].find(nil, h), nil) {
				return
			}
		}
		for _, s := range slices.Backward(sidecars) {
			if s.To <= from || s.From >= to {
				continue
			}
			if !each(d.keys.files.lookup(s, h)) {
				return
			}
		}
	}
}
