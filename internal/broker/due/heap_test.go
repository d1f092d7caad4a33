// SPDX-License-Identifier: Apache-2.0

package due

import (
	"testing"

	"pgregory.net/rapid"
)

type thing struct{ Slot }

// TestHeap: whatever is set, the first is the one that is due first, and everything knows its time.
func TestHeap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var h Heap[*thing]
		things := make([]thing, 20)
		want := map[int]int64{}
		for range rapid.IntRange(1, 60).Draw(t, "changes") {
			i := rapid.IntRange(0, len(things)-1).Draw(t, "thing")
			at := rapid.SampledFrom([]int64{1, 2, 3, 5, 8, 13, 21, Never}).Draw(t, "at")
			if h.Set(&things[i], at, int64(i)); at == Never {
				delete(want, i)
			} else {
				want[i] = at
			}
			first, least := -1, Never
			for j := range things {
				if at, ok := want[j]; ok && at < least {
					first, least = j, at
				} else if !ok && things[j].Due() != Never || ok && things[j].Due() != at {
					t.Fatalf("%d is due at %d, want %d", j, things[j].Due(), at)
				}
			}
			if h.Due() != least || len(h) != len(want) || first >= 0 && h[0] != &things[first] {
				t.Fatalf("the first is due at %d of %d, want %d of %d", h.Due(), len(h), least, len(want))
			}
		}
	})
}
