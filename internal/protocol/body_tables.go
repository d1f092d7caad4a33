// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// listValue returns what writes or reads a list of such elements. Nulls in a list are left out.
func listValue[T any](element func(*bodyCodec, *T)) func(*bodyCodec, *[]T) {
	return func(c *bodyCodec, v *[]T) {
		if !c.reading {
			c.out = append(c.out, '[')
			for i := range *v {
				c.comma()
				element(c, &(*v)[i])
			}
			c.out = append(c.out, ']')
			return
		}
		if c.in.absent() {
			return
		}
		*v = []T{}
		jump, _ := c.in.follow()
		if c.in.open('[') {
			for c.in.more(']') {
				if !c.in.absent() {
					*v = append(*v, *new(T))
					element(c, &(*v)[len(*v)-1])
				}
			}
		}
		c.in.back(jump)
	}
}

// tableValue returns what writes or reads a map of such keys and values. Entries are written in the order of
// their keys; entries whose value is null, or whose key is a reference to nowhere, are left out.
func tableValue[K comparable, V any](keys keyKind[K], value func(*bodyCodec, *V)) func(*bodyCodec, *map[K]V) {
	return func(c *bodyCodec, v *map[K]V) {
		if !c.reading {
			c.out = append(c.out, '{')
			for _, key := range slices.SortedFunc(maps.Keys(*v), keys.compare) {
				c.comma()
				keys.write(c, key)
				c.out = append(c.out, ':')
				entry := (*v)[key]
				value(c, &entry)
			}
			c.out = append(c.out, '}')
			return
		}
		if c.in.absent() {
			return
		}
		*v = map[K]V{}
		jump, _ := c.in.follow()
		if c.in.open('{') {
			for c.in.more('}') {
				c.in.spend()
				readEntry(c, *v, keys, value)
			}
		}
		c.in.back(jump)
	}
}

func readEntry[K comparable, V any](c *bodyCodec, v map[K]V, keys keyKind[K], value func(*bodyCodec, *V)) {
	key, ok := keys.read(c)
	c.in.colon()
	switch {
	case !ok:
		c.in.skip()
	case c.in.absent():
	default:
		var entry V
		value(c, &entry)
		v[key] = entry
	}
}

// keyKind is how a map's keys are written, read and ordered.
type keyKind[K comparable] interface {
	write(c *bodyCodec, key K)
	read(c *bodyCodec) (key K, ok bool)
	compare(a, b K) int
}

// textKey is the kind of keys that are strings.
type textKey struct{}

func (textKey) write(c *bodyCodec, key string) { c.out = appendJSONString(c.out, key) }
func (textKey) compare(a, b string) int        { return cmp.Compare(a, b) }

func (textKey) read(c *bodyCodec) (string, bool) {
	text, _ := c.in.scalar()
	return string(text), true
}

// intKey is the kind of keys that are int32 or int64. They are written in quotes and read with or without.
type intKey[K int32 | int64] struct{}

func (intKey[K]) compare(a, b K) int { return cmp.Compare(a, b) }

func (intKey[K]) write(c *bodyCodec, key K) {
	c.out = append(c.out, '"')
	c.out = strconv.AppendInt(c.out, int64(key), 10)
	c.out = append(c.out, '"')
}

func (intKey[K]) read(c *bodyCodec) (K, bool) {
	low, high := int64(math.MinInt64), int64(math.MaxInt64)
	if int64(K(high)) != high {
		low, high = math.MinInt32, math.MaxInt32
	}
	n, ok := c.in.integer(low, high)
	return K(n), ok
}

// queueKey is the kind of keys that are message queues. They are written as bare objects and read as objects
// or as strings that contain one.
type queueKey struct{}

func (queueKey) write(c *bodyCodec, key MessageQueue) { c.object(&key) }
func (queueKey) compare(a, b MessageQueue) int        { return a.Compare(b) }

func (queueKey) read(c *bodyCodec) (key MessageQueue, ok bool) {
	if c.in.peek() != '"' {
		if c.in.absent() {
			return key, false
		}
		c.object(&key)
		return key, true
	}
	start := c.in.pos
	inner := newBodyReader(c.in.quoted())
	if !strings.HasPrefix(aliasString(inner.in.data), "{") {
		return key, false
	}
	inner.object(&key)
	if inner.in.failed {
		c.in.pos = start
		c.in.fail("map key: " + inner.in.reason)
	}
	return key, true
}
