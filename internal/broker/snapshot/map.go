// SPDX-License-Identifier: Apache-2.0

// Package snapshot holds maps that are read on every request and changed rarely.
package snapshot

import (
	"hash/maphash"
	"maps"
	"sync"
	"sync/atomic"
)

// shardCount bounds what one change copies to 1/256 of the map.
const shardCount = 256

// Map is a map whose readers take no lock and allocate nothing: a change copies one shard of 256 and swaps it
// in. The zero Map is empty and ready. All methods are safe for concurrent use. K must hold no pointers but
// those of strings, or Load allocates.
type Map[K comparable, V any] struct {
	seed   maphash.Seed // written once, before ready
	ready  atomic.Bool
	count  atomic.Int64
	shards [shardCount]atomic.Pointer[map[K]V]

	mu sync.Mutex // one writer at a time
}

// Load returns the value of key.
func (m *Map[K, V]) Load(key K) (V, bool) {
	if m.ready.Load() {
		if shard := m.shards[m.shard(key)].Load(); shard != nil {
			v, ok := (*shard)[key]
			return v, ok
		}
	}
	var none V
	return none, false
}

// Store sets the value of key.
func (m *Map[K, V]) Store(key K, v V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.storeLocked(key, v)
}

// LoadOrStore returns the value of key if there is one, else stores what create returns. create is called at
// most once, with the map's lock held, and gives the key to keep (a clone of a string that aliases a buffer)
// and the value.
func (m *Map[K, V]) LoadOrStore(key K, create func() (K, V)) (V, bool) {
	if v, ok := m.Load(key); ok {
		return v, true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if v, ok := m.Load(key); ok {
		return v, true
	}
	kept, v := create()
	m.storeLocked(kept, v)
	return v, false
}

// Delete removes key and tells whether it was there.
func (m *Map[K, V]) Delete(key K) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.Load(key); !ok {
		return false
	}
	shard := &m.shards[m.shard(key)]
	next := maps.Clone(*shard.Load())
	delete(next, key)
	shard.Store(&next)
	m.count.Add(-1)
	return true
}

// Len returns the number of keys.
func (m *Map[K, V]) Len() int { return int(m.count.Load()) }

// All calls yield for every key in no order, each shard as it was at one moment. It fits a range statement.
func (m *Map[K, V]) All(yield func(K, V) bool) {
	for i := range m.shards {
		shard := m.shards[i].Load()
		if shard == nil {
			continue
		}
		for k, v := range *shard {
			if !yield(k, v) {
				return
			}
		}
	}
}

func (m *Map[K, V]) storeLocked(key K, v V) {
	m.seedLocked()
	shard := &m.shards[m.shard(key)]
	next := map[K]V{}
	if old := shard.Load(); old != nil {
		next = make(map[K]V, len(*old)+1)
		maps.Copy(next, *old)
	}
	if _, ok := next[key]; !ok {
		m.count.Add(1)
	}
	next[key] = v
	shard.Store(&next)
}

func (m *Map[K, V]) seedLocked() {
	if !m.ready.Load() {
		m.seed = maphash.MakeSeed()
		m.ready.Store(true)
	}
}

func (m *Map[K, V]) shard(key K) uint8 {
	return uint8(maphash.Comparable(m.seed, key))
}

// Fill stores all of entries at once, which is cheaper than one Store each when there are many: for loading.
func (m *Map[K, V]) Fill(entries map[K]V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seedLocked()
	var next [shardCount]map[K]V
	for k, v := range entries {
		i := m.shard(k)
		if next[i] == nil {
			next[i] = map[K]V{}
			if old := m.shards[i].Load(); old != nil {
				maps.Copy(next[i], *old)
			}
		}
		if _, ok := next[i][k]; !ok {
			m.count.Add(1)
		}
		next[i][k] = v
	}
	for i := range next {
		if next[i] != nil {
			m.shards[i].Store(&next[i])
		}
	}
}
