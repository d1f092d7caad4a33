// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

type pair struct{ a, b string }

func TestMapIsAMap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var m Map[pair, int]
		want := map[pair]int{}
		key := rapid.Custom(func(t *rapid.T) pair {
			return pair{
				rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "a"),
				fmt.Sprint(rapid.IntRange(0, 99).Draw(t, "b")),
			}
		})
		t.Repeat(map[string]func(*rapid.T){
			"store": func(t *rapid.T) {
				k, v := key.Draw(t, "key"), rapid.Int().Draw(t, "value")
				m.Store(k, v)
				want[k] = v
			},
			"delete": func(t *rapid.T) {
				k := key.Draw(t, "key")
				_, ok := want[k]
				if m.Delete(k) != ok {
					t.Fatalf("delete of %v is wrong about its being there", k)
				}
				delete(want, k)
			},
			"load or store": func(t *rapid.T) {
				k := key.Draw(t, "key")
				v, ok := want[k]
				got, found := m.LoadOrStore(k, func() (pair, int) { return k, 7 })
				if !ok {
					v, want[k] = 7, 7
				}
				if got != v || found != ok {
					t.Fatalf("%v: %d, %v; want %d, %v", k, got, found, v, ok)
				}
			},
			"fill": func(t *rapid.T) {
				entries := rapid.MapOf(key, rapid.Int()).Draw(t, "entries")
				m.Fill(entries)
				for k, v := range entries {
					want[k] = v
				}
			},
			"": func(t *rapid.T) {
				if m.Len() != len(want) {
					t.Fatalf("%d keys, want %d", m.Len(), len(want))
				}
				seen := 0
				for k, v := range m.All {
					if seen++; want[k] != v {
						t.Fatalf("%v is %d, want %d", k, v, want[k])
					}
				}
				if seen != len(want) {
					t.Fatalf("%d keys seen, want %d", seen, len(want))
				}
				for k, v := range want {
					if got, ok := m.Load(k); !ok || got != v {
						t.Fatalf("%v is %d, %v; want %d", k, got, ok, v)
					}
				}
			},
		})
	})
}

func TestMapConcurrently(t *testing.T) {
	t.Parallel()
	var m Map[string, int]
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 200 {
				m.LoadOrStore(fmt.Sprint(i), func() (string, int) { return fmt.Sprint(i), i })
				if v, ok := m.Load(fmt.Sprint(i)); !ok || v != i {
					t.Errorf("%d is %d, %v", i, v, ok)
				}
				m.Store(fmt.Sprint("w", w), i)
			}
		})
	}
	wg.Wait()
	if m.Len() != 204 {
		t.Errorf("%d keys", m.Len())
	}
	for range m.All {
		break
	}
}

func TestMapAllocations(t *testing.T) {
	var m Map[pair, int]
	m.Store(pair{"a", "b"}, 1)
	keys := []pair{{"a", "b"}, {"a", "c"}}
	if n := testing.AllocsPerRun(100, func() {
		for _, k := range keys {
			m.Load(k)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
