// SPDX-License-Identifier: Apache-2.0

// Package due orders things by when they have to be looked at.
package due

import "math"

// Never is the time of what has not to be looked at.
const Never int64 = math.MaxInt64

// Slot is a thing's place in a Heap: to be embedded. The zero Slot is in none.
type Slot struct {
	at, tie int64
	place   int // in the heap, plus 1
}

func (s *Slot) slot() *Slot { return s }

// Due returns when the thing has to be looked at; Never when it is in no heap.
func (s *Slot) Due() int64 {
	if s.place == 0 {
		return Never
	}
	return s.at
}

type slotted interface{ slot() *Slot }

// Heap is things by when they are due; the zero Heap is empty. It is not safe for concurrent use.
type Heap[T slotted] []T

// Due returns when the first thing is due, Never when there is none.
func (h Heap[T]) Due() int64 {
	if len(h) == 0 {
		return Never
	}
	return h[0].slot().at
}

// Set makes x due at a time, the lower tie first among equals; Never takes it out.
func (h *Heap[T]) Set(x T, at, tie int64) {
	s := x.slot()
	i := s.place - 1
	switch {
	case at == Never && i < 0:
		return
	case at == Never:
		last := len(*h) - 1
		h.swap(i, last)
		var none T
		(*h)[last], s.place = none, 0
		if *h = (*h)[:last]; i == last {
			return
		}
	case i < 0:
		*h = append(*h, x)
		i, s.place = len(*h)-1, len(*h)
		fallthrough
	default:
		s.at, s.tie = at, tie
	}
	h.down(h.up(i))
}

func (h Heap[T]) less(i, j int) bool {
	a, b := h[i].slot(), h[j].slot()
	return a.at < b.at || a.at == b.at && a.tie < b.tie
}

func (h Heap[T]) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].slot().place, h[j].slot().place = i+1, j+1
}

// up moves what is at i up to its place, which it returns.
func (h Heap[T]) up(i int) int {
	for parent := (i - 1) / 2; i > 0 && h.less(i, parent); i, parent = parent, (parent-1)/2 {
		h.swap(i, parent)
	}
	return i
}

// down moves what is at i down to its place.
func (h Heap[T]) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h); child++ {
			if h.less(child, least) {
				least = child
			}
		}
		if least == i {
			return
		}
		h.swap(i, least)
		i = least
	}
}
