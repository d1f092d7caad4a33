// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"unsafe"
)

func TestCache(t *testing.T) {
	t.Parallel()
	c := NewCache()
	parse := func(expression, exprType string) *Subscription {
		s, err := c.Parse(expression, exprType)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, tt := range []struct{ expression, exprType string }{{"", ""}, {"*", ""}, {"a||b", TypeTag}, {"a = 'b'", TypeSQL92}, {"*", "TAG"}} {
		s := parse(tt.expression, tt.exprType)
		if parse(tt.expression, tt.exprType) != s {
			t.Errorf("%q is parsed twice", tt.expression)
		}
	}
	if parse("a||b", TypeTag) != parse("a||b", "") {
		t.Error("no type is another type than TAG")
	}
	if parse("TAGS", TypeSQL92) == parse("TAGS", TypeTag) {
		t.Error("one expression of two types is the same")
	}
	for range 2 {
		if _, err := c.Parse("||", ""); !errors.Is(err, ErrEmpty) {
			t.Errorf("error %v", err)
		}
	}
}

func TestCacheSwitch(t *testing.T) {
	t.Parallel()
	c := NewCache()
	var unsupported *UnsupportedError
	for range 2 {
		c.SetSQL(false)
		_, err := c.Parse("a > 3", TypeSQL92)
		if want := "The broker does not support consumer to filter message by SQL92"; !errors.As(err, &unsupported) ||
			err.Error() != want {
			t.Errorf("switched off: %v", err)
		}
		if _, err := c.Parse("a", TypeTag); err != nil {
			t.Error(err)
		}
		c.SetSQL(true)
		if _, err := c.Parse("a > 3", TypeSQL92); err != nil {
			t.Error(err)
		}
	}
}

func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	c := NewCache()
	first, _ := c.Parse("first", "")
	for i := range 5 * cacheCount {
		if _, err := c.Parse(fmt.Sprint("tag", i), ""); err != nil {
			t.Fatal(err)
		}
		if s, _ := c.Parse("first", ""); s != first {
			t.Fatalf("what is used all the time is dropped after %d others", i)
		}
	}
	if len(c.mu.young) > cacheCount || len(c.mu.old) > cacheCount {
		t.Errorf("%d and %d are kept", len(c.mu.young), len(c.mu.old))
	}
	for i := range 100 {
		if _, err := c.Parse(strings.Repeat("x", 20_000)+fmt.Sprint(i), ""); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(c.mu.young) + len(c.mu.old); n > 2*cacheBytes/20_000 {
		t.Errorf("%d of 20,000 bytes are kept", n)
	}
	if s, _ := c.Parse("first", ""); s == first {
		t.Error("what nobody uses is kept")
	}
}

// TestCacheClonesItsKeys holds because requests alias network buffers.
func TestCacheClonesItsKeys(t *testing.T) {
	t.Parallel()
	c := NewCache()
	buffer := []byte("a = 'b'SQL92")
	s, err := c.Parse(unsafe.String(&buffer[0], 7), unsafe.String(&buffer[7], 5))
	if err != nil {
		t.Fatal(err)
	}
	clear(buffer)
	if again, _ := c.Parse("a = 'b'", "SQL92"); again != s {
		t.Error("the key changed with the buffer")
	}
}

func TestCacheInParallel(t *testing.T) {
	t.Parallel()
	c := NewCache()
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 3 * cacheCount {
				text := fmt.Sprint("tag", i*(g+1)%1500)
				if s, err := c.Parse(text, ""); err != nil || s.Expression() != text {
					t.Errorf("%v, %v", s, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestCacheDoesNotAllocate(t *testing.T) {
	c := NewCache()
	for _, tt := range []struct{ expression, exprType string }{{"*", "TAG"}, {"a || b || c", "TAG"}, {"a > 3 AND b IN ('x', 'y')", "SQL92"}} {
		if n := testing.AllocsPerRun(100, func() { _, _ = c.Parse(tt.expression, tt.exprType) }); n != 0 {
			t.Errorf("%q: %v allocations", tt.expression, n)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	c := NewCache()
	for _, tt := range []struct{ name, expression, exprType string }{
		{"tags", "TagA || TagB || TagC", "TAG"},
		{"SQL92", "amount BETWEEN 100 AND 199 AND region IN ('us', 'ap') AND vip IS NOT NULL", "SQL92"},
	} {
		b.Run(tt.name+"/parsed", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = Parse(tt.expression, tt.exprType)
			}
		})
		b.Run(tt.name+"/cached", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = c.Parse(tt.expression, tt.exprType)
			}
		})
	}
}
