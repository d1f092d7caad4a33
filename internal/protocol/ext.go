// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"iter"
	"slices"
	"strings"
)

// MaxExtFields bounds the ext fields of one frame. Real headers carry fewer than 30.
const MaxExtFields = 1024

// inlineFields is how many fields an Ext holds without allocating: a V2 send of a signing 5.x client has 17
// at most.
const inlineFields = 16

// Ext is the ordered list of a frame's ext fields: names and values as text. After decoding, the strings it
// returns alias the frame. When a name occurs twice, the later field counts. The zero Ext is empty.
type Ext struct {
	src    []byte // the bytes all fields point into
	n      int
	inline [inlineFields]extField
	more   []extField // fields from inlineFields on
}

// extField is one field as ranges of Ext.src. It holds no pointers, so a Command is cheap for the garbage
// collector.
type extField struct {
	key, value span
}

// span is a range of a header, which is at most 16 MiB long.
type span struct {
	off, len uint32
}

// Len returns the number of fields.
func (e *Ext) Len() int { return e.n }

// At returns the field at index i, 0 <= i < Len, in the order of the frame.
func (e *Ext) At(i int) (key, value string) {
	f := e.field(i)
	return e.text(f.key), e.text(f.value)
}

// Get returns the value of the field called key, and whether there is one.
func (e *Ext) Get(key string) (string, bool) {
	if i := e.find(key); i >= 0 {
		return e.text(e.field(i).value), true
	}
	return "", false
}

// Value returns the value of the field called key, "" when there is none.
func (e *Ext) Value(key string) string {
	value, _ := e.Get(key)
	return value
}

// Sorted yields the fields in ascending order of their names, of a repeated name the one that counts.
func (e *Ext) Sorted() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		sorted := make([]int, 0, e.n) // indexes
		for i := range e.n {
			at, again := slices.BinarySearchFunc(sorted, e.text(e.field(i).key), func(of int, key string) int {
				return strings.Compare(e.text(e.field(of).key), key)
			})
			if again {
				sorted[at] = i
			} else {
				sorted = slices.Insert(sorted, at, i)
			}
		}
		for _, i := range sorted {
			if !yield(e.At(i)) {
				return
			}
		}
	}
}

// reset empties e and lets fields point into src. It keeps what was allocated for more than inlineFields
// fields.
func (e *Ext) reset(src []byte) {
	e.src = src[:len(src):len(src)]
	e.n = 0
	e.more = e.more[:0]
}

func (e *Ext) push(f extField) {
	if e.n < inlineFields {
		e.inline[e.n] = f
	} else {
		e.more = append(e.more, f)
	}
	e.n++
}

func (e *Ext) field(i int) *extField {
	if i < inlineFields {
		return &e.inline[i]
	}
	return &e.more[i-inlineFields]
}

func (e *Ext) text(s span) string { return aliasString(e.src[s.off : s.off+s.len]) }

// find returns the index of the last field called key, or -1.
func (e *Ext) find(key string) int {
	for i := e.n - 1; i >= 0; i-- {
		if e.text(e.field(i).key) == key {
			return i
		}
	}
	return -1
}
