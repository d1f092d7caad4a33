// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"strings"
	"sync"
	"sync/atomic"
)

// Bounds of one generation of a Cache; it holds two.
const (
	cacheCount = 1024
	cacheBytes = 256 << 10 // of expressions; what is made of them is up to some twenty times as much
)

// Cache keeps parsed subscriptions, because clients send theirs with every pull, and knows whether SQL92 is
// switched on. It is bounded by number and by size: when a generation is full, what was not asked for during it
// and the one before it is dropped. What cannot be parsed is not kept. All methods are safe for concurrent use.
type Cache struct {
	all    *Subscription
	sqlOff atomic.Bool
	mu     struct {
		sync.RWMutex
		young, old map[cacheKey]*Subscription
		bytes      int // of the expressions in young
	}
}

type cacheKey struct{ expression, exprType string }

// NewCache returns an empty Cache, with SQL92 switched on.
func NewCache() *Cache {
	c := &Cache{all: All()}
	c.mu.young = map[cacheKey]*Subscription{}
	return c
}

// SetSQL switches all types but TAG on or off. What was parsed stays usable.
func (c *Cache) SetSQL(on bool) { c.sqlOff.Store(!on) }

// Parse is the function Parse, but allocates nothing for what it was asked lately. The strings may alias a
// buffer. Errors: ErrEmpty, *UnsupportedError, also when the type is switched off, *sql92.SyntaxError.
func (c *Cache) Parse(expression, exprType string) (*Subscription, error) {
	switch {
	case !IsSQL(exprType) && isAll(expression):
		return c.all, nil
	case !IsSQL(exprType):
		exprType = TypeTag
	case c.sqlOff.Load():
		return nil, &UnsupportedError{Type: strings.Clone(exprType)}
	}
	if s := c.find(cacheKey{expression, exprType}); s != nil {
		return s, nil
	}
	s, err := Parse(expression, exprType)
	if err != nil {
		return nil, err
	}
	c.keep(s)
	return s, nil
}

func (c *Cache) find(key cacheKey) *Subscription {
	c.mu.RLock()
	s, young := c.mu.young[key]
	if !young {
		s = c.mu.old[key]
	}
	c.mu.RUnlock()
	if s != nil && !young {
		c.keep(s)
	}
	return s
}

// keep puts a subscription into the young generation.
func (c *Cache) keep(s *Subscription) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := cacheKey{s.expression, s.exprType}
	if _, ok := c.mu.young[key]; ok {
		return
	}
	if len(c.mu.young) >= cacheCount || c.mu.bytes+len(key.expression) > cacheBytes {
		c.mu.old, c.mu.young, c.mu.bytes = c.mu.young, map[cacheKey]*Subscription{}, 0
	}
	c.mu.young[key] = s
	c.mu.bytes += len(key.expression)
}
