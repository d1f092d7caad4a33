// SPDX-License-Identifier: Apache-2.0

package commitlog

import "sync"

// blockKey names a block: its segment's first index and its number in the segment's table.
type blockKey struct {
	segment uint64
	number  int
}

// blockCache keeps recently read blocks, least recently used out first. A block that several readers miss at
// once is loaded once. Safe for concurrent use.
type blockCache struct {
	limit int64

	mu    sync.Mutex
	bytes int64
	byKey map[blockKey]*cachedBlock
	order cachedBlock // a ring: order.next is the most recently used, order.prev the one to go
}

type cachedBlock struct {
	key        blockKey
	bytes      int64
	prev, next *cachedBlock

	once  sync.Once
	block *block
	err   error
}

func newBlockCache(limit int64) *blockCache {
	c := &blockCache{limit: limit, byKey: map[blockKey]*cachedBlock{}}
	c.order.prev, c.order.next = &c.order, &c.order
	return c
}

// get returns the block, loading it if it is not there; size is what it will take. A failed load is not kept.
func (c *blockCache) get(key blockKey, size int64, load func() (*block, error)) (*block, error) {
	e := c.entry(key, size)
	e.once.Do(func() { e.block, e.err = load() })
	if e.err != nil {
		c.forget(e)
	}
	return e.block, e.err
}

// entry returns the block's place in the cache, a new one if it has none. Others make room for it.
func (c *blockCache) entry(key blockKey, size int64) *cachedBlock {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, hit := c.byKey[key]
	if hit {
		e.prev.next, e.next.prev = e.next, e.prev
	} else {
		e = &cachedBlock{key: key, bytes: size}
		c.byKey[key] = e
		c.bytes += size
	}
	e.prev, e.next = &c.order, c.order.next
	e.prev.next, e.next.prev = e, e
	for c.bytes > c.limit && c.order.prev != e {
		c.removeLocked(c.order.prev)
	}
	return e
}

// forget removes a block whose load failed, if it is still there.
func (c *blockCache) forget(e *cachedBlock) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byKey[e.key] == e {
		c.removeLocked(e)
	}
}

func (c *blockCache) removeLocked(e *cachedBlock) {
	e.prev.next, e.next.prev = e.next, e.prev
	delete(c.byKey, e.key)
	c.bytes -= e.bytes
}
