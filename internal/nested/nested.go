// SPDX-License-Identifier: Apache-2.0

// Package nested holds maps of maps without empty ones.
package nested

// Map is values by two keys. Like any map, it is not safe for concurrent use.
type Map[K, E comparable, V any] map[K]map[E]V

// Put sets the value of e under k.
func (m Map[K, E, V]) Put(k K, e E, v V) {
	of := m[k]
	if of == nil {
		of = map[E]V{}
		m[k] = of
	}
	of[e] = v
}

// Delete takes e under k away, and k with the last one.
func (m Map[K, E, V]) Delete(k K, e E) {
	of := m[k]
	if delete(of, e); len(of) == 0 {
		delete(m, k)
	}
}
