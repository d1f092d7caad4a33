// SPDX-License-Identifier: Apache-2.0

package message

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestPropertiesAsTheOriginalReadsThem(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, props string
		want        map[string]string
	}{
		{"empty", "", map[string]string{}},
		{"one", "a\x01b\x02", map[string]string{"a": "b"}},
		{"no last separator", "a\x01b\x02c\x01d", map[string]string{"a": "b", "c": "d"}},
		{"the last one of a name counts", "a\x01b\x02a\x01c\x02", map[string]string{"a": "c"}},
		{"C036 an empty value is dropped", "a\x01\x02c\x01d\x02", map[string]string{"c": "d"}},
		{"an empty name is dropped", "\x01v\x02c\x01d\x02", map[string]string{"c": "d"}},
		{"too short", "a\x02b\x02\x02c\x01d\x02", map[string]string{"c": "d"}},
		{
			"C036 commas, equals, spaces, emoji", "location\x01Beijing,China\x02q\x01a=b=c\x02s\x01   \x02e\x01😀\x02",
			map[string]string{"location": "Beijing,China", "q": "a=b=c", "s": "   ", "e": "😀"},
		},
		{
			"C030 a value with x01 keeps what follows",
			"u\x01a\x01b\x02TAGS\x01t\x02",
			map[string]string{"u": "a\x01b", "TAGS": "t"},
		},
		{
			"C030 a value with x02 keeps what follows",
			"u\x01a\x02b\x02TAGS\x01t\x02",
			map[string]string{"u": "a", "TAGS": "t"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := maps.Collect(Properties(tt.props))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("differs (-want +got):\n%s", diff)
			}
			for name, want := range tt.want {
				if v, ok := Property(tt.props, name); !ok || v != want {
					t.Errorf("Property(%q) = %q, %v, want %q", name, v, ok, want)
				}
			}
			if v, ok := Property(tt.props, "no"); ok {
				t.Errorf("Property of an absent name = %q", v)
			}
		})
	}
}

func TestPropertyDoesNotMatchParts(t *testing.T) {
	t.Parallel()
	const props = "XTAGS\x01wrong\x02TAGSX\x01wrong\x02v\x01TAGS\x02"
	if v, ok := Property(props, "TAGS"); ok {
		t.Errorf("found %q", v)
	}
}

func TestPropertiesStopsEarly(t *testing.T) {
	t.Parallel()
	n := 0
	for range Properties("a\x01b\x02c\x01d\x02") {
		n++
		break
	}
	if n != 1 {
		t.Errorf("yielded %d times", n)
	}
}

func TestValidateProperties(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, props, bad string }{
		{"empty", "", ""},
		{"plain", "a\x01b\x02c\x01d\x02", ""},
		{"no last separator", "a\x01b", ""},
		{"C035 empty value", "MAX_RECONSUME_TIMES\x01\x02", ""},
		{"empty entries", "\x02\x02a\x01b\x02", ""},
		{"C030 x01 in a value", "u\x01a\x01b\x02TAGS\x01t\x02", "u"},
		{"C030 x02 in a value", "u\x01a\x02b\x02TAGS\x01t\x02", "b"},
		{"C030 x01 in a name", "n\x01m\x01v\x02", "n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := ValidateProperties(tt.props)
			if tt.bad == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			var pe *PropertyError
			if !errors.As(err, &pe) || pe.Name != tt.bad {
				t.Errorf("error %v, want *PropertyError of %q", err, tt.bad)
			}
		})
	}
	for _, n := range []int{32767, 32768, 65536} {
		err := ValidateProperties("p\x01" + strings.Repeat("v", n-3) + "\x02")
		var se *SizeError
		if tooLarge := errors.As(
			err,
			&se,
		); tooLarge != (n > 32767) ||
			(tooLarge && (se.Limit != 32767 || se.Actual != n)) {
			t.Errorf("C031 %d bytes: %v", n, err)
		}
	}
}

func TestSetAndWithoutProperty(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, got, want string }{
		{"set new", SetProperty("a\x01b\x02", "c", "d"), "a\x01b\x02c\x01d\x02"},
		{"set on empty", SetProperty("", "c", "d"), "c\x01d\x02"},
		{"set behind a missing separator", SetProperty("a\x01b", "c", "d"), "a\x01b\x02c\x01d\x02"},
		{"replace all", SetProperty("c\x01x\x02a\x01b\x02c\x01y\x02", "c", "d"), "a\x01b\x02c\x01d\x02"},
		{"without", WithoutProperty("c\x01x\x02a\x01b\x02c\x01y\x02d\x01z", "c", "d"), "a\x01b\x02"},
		{"without nothing", WithoutProperty("a\x01b", "c"), "a\x01b"},
		{"append adds the separator", string(AppendProperties(nil, "a\x01b")), "a\x01b\x02"},
		{"append nothing", string(AppendProperties(nil, "")), ""},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, tt.got, tt.want)
		}
	}
}

func TestPropertiesAreAMap(t *testing.T) {
	t.Parallel()
	text := rapid.StringMatching(`[^\x01\x02]{1,12}`)
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.MapOf(text, text).Draw(t, "properties")
		var enc []byte
		for name, value := range want {
			enc = AppendProperty(enc, name, value)
		}
		if err := ValidateProperties(string(enc)); err != nil {
			t.Fatal(err)
		}
		name, value := text.Draw(t, "name"), text.Draw(t, "value")
		set := SetProperty(string(enc), name, value)
		without := WithoutProperty(set, name)
		want[name] = value
		if diff := cmp.Diff(want, maps.Collect(Properties(set))); diff != "" {
			t.Fatalf("after SetProperty (-want +got):\n%s", diff)
		}
		delete(want, name)
		if diff := cmp.Diff(want, maps.Collect(Properties(without))); diff != "" {
			t.Fatalf("after WithoutProperty (-want +got):\n%s", diff)
		}
	})
}

func FuzzProperties(f *testing.F) {
	f.Add("a\x01b\x02c\x01d", "c")
	f.Add("\x01\x02\x01\x01\x02\x02a", "a")
	f.Fuzz(func(t *testing.T, props, name string) {
		all := maps.Collect(Properties(props))
		for n, v := range all {
			if got, ok := Property(props, n); !ok || got != v {
				t.Fatalf("Property(%q) = %q, %v; the walk says %q", n, got, ok, v)
			}
		}
		if strings.ContainsAny(name, "\x01\x02") {
			return
		}
		_, want := all[name]
		if _, got := Property(props, name); got != want && name != "" {
			t.Fatalf("Property(%q) found %v, the walk %v", name, got, want)
		}
		if _, still := Property(WithoutProperty(props, name), name); still && name != "" {
			t.Fatalf("%q is still there", name)
		}
		if name != "" {
			if v, _ := Property(SetProperty(props, name, "v"), name); v != "v" {
				t.Fatalf("%q was not set", name)
			}
		}
		scanned := map[string]string{}
		if err := ScanProperties(
			props,
			func(n, v string) { scanned[n] = v },
		); err == nil &&
			!maps.Equal(scanned, all) {
			t.Fatalf("ScanProperties %q, Properties %q", scanned, all)
		}
	})
}

func BenchmarkProperty(b *testing.B) {
	const props = "UNIQ_KEY\x0101000000000000000000000000000000\x02KEYS\x01order-1234\x02TAGS\x01a\x02WAIT\x01true\x02"
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := Property(props, PropertyTags); !ok {
			b.Fatal("not found")
		}
	}
}
