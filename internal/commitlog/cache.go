// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"sync"
	"time"
)

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
	used       int64 // when enter was called last, in seconds
	uses       int   // enter without leave
	gone       bool  // out of the cache

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
	e, err := c.enter(key, size, load)
	if err != nil {
		return nil, err
	}
	c.leave(e)
	return e.block, nil
}

// enter is get for a block that is mapped, and must stay so until leave.
func (c *blockCache) enter(key blockKey, size int64, load func() (*block, error)) (*cachedBlock, error) {
	e := c.entry(key, size)
	e.once.Do(func() { e.block, e.err = load() })
	if e.err != nil {
		c.forget(key)
		c.leave(e)
	}
	return e, e.err
}

func (c *blockCache) leave(e *cachedBlock) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.uses--
	e.unmapLocked()
}

// unmapLocked gives a mapping back that nobody uses and nobody can find.
func (e *cachedBlock) unmapLocked() {
	if e.gone && e.uses == 0 && e.block != nil && e.block.mapped {
		unmap(e.block.data)
	}
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
	e.uses++
	e.used = time.Now().Unix()
	e.prev, e.next = &c.order, c.order.next
	e.prev.next, e.next.prev = e, e
	for c.bytes > c.limit && c.order.prev != e {
		c.removeLocked(c.order.prev)
	}
	return e
}

// forget removes a block, if it is there.
func (c *blockCache) forget(key blockKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.byKey[key]; e != nil {
		c.removeLocked(e)
	}
}

// forgetUnused removes what was last used before a time in seconds.
func (c *blockCache) forgetUnused(before int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.order.prev != &c.order && c.order.prev.used < before {
		c.removeLocked(c.order.prev)
	}
}

func (c *blockCache) removeLocked(e *cachedBlock) {
	e.prev.next, e.next.prev = e.next, e.prev
	delete(c.byKey, e.key)
	c.bytes -= e.bytes
	e.gone = true
	e.unmapLocked()
}
