// SPDX-License-Identifier: Apache-2.0

package message

import (
	"testing"

	"pgregory.net/rapid"
)

func TestPropertyFinderFindsWhatPropertyFinds(t *testing.T) {
	t.Parallel()
	for _, props := range []string{
		"", "a", "a\x01", "a\x01\x02", "a\x011\x02", "a\x011", "a\x011\x02a\x012\x02", "a\x011\x02a\x01\x02", "\x02a\x011", "aa\x011\x02a\x012",
		"b\x01a\x02a\x01b", "a\x01a\x01a\x02", "b\x01\x02a\x01x", "\x02\x02a\x01x\x02", "a\x01x\x02ab\x01y\x02", "b\x01a\x01c\x02",
	} {
		checkKey(t.Fatalf, props, "a")
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.RuneFrom([]rune("ab\x01\x01\x02\x02")), 0, 40, -1)
		checkKey(t.Fatalf, text.Draw(t, "props"), rapid.SampledFrom([]string{"a", "b", "ab", "aab"}).Draw(t, "name"))
	})
}

func checkKey(fatalf func(string, ...any), props, name string) {
	want, wantOK := Property(props, name)
	var keys PropertyFinder
	values := make([]string, 2)
	keys.Add("b").Add(name).Add("not asked for").Find(props, values)
	if got := values[1]; got != want || (got != "") != wantOK {
		fatalf("%q in %q: %q, Property says %q %v", name, props, got, want, wantOK)
	}
}

func BenchmarkPropertyFinder(b *testing.B) {
	props := string(AppendProperty(nil, PropertyUniqueKey, "7F0000010B0418B4AAC2154E5A3C0000"))
	for _, name := range []string{"WAIT", PropertyTags, PropertyKeys, "amount", "region", "bucket", "CLUSTER", "MSG_REGION", "TRACE_ON"} {
		props = string(AppendProperty([]byte(props), name, "value"))
	}
	names := []string{"region", "missing", "CLUSTER"}
	var keys PropertyFinder
	for _, name := range names {
		keys = keys.Add(name)
	}
	b.Run("keys", func(b *testing.B) {
		for b.Loop() {
			var values [8]string
			keys.Find(props, values[:len(names)])
		}
	})
	b.Run("Property", func(b *testing.B) {
		for b.Loop() {
			for _, name := range names {
				Property(props, name)
			}
		}
	})
}
