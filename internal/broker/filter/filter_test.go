// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/roquetmq/roquet/internal/message"
)

func TestParseSubscription(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, expression, exprType string
		all                        bool
		tags                       []string
	}{
		{"empty is all", "", "", true, nil},
		{"star is all", "*", TypeTag, true, nil},
		{"one tag", "a", TypeTag, false, []string{"a"}},
		{"several, trimmed, once each", " b || a||b || ", "", false, []string{"a", "b"}},
		{"one bar belongs to the tag", "a|b", TypeTag, false, []string{"a|b"}},
		{"white space wants nothing", "  ", TypeTag, false, nil},
		{"star among tags is a tag", "*||a", TypeTag, false, []string{"*", "a"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, err := ParseSubscription("T", tt.expression, tt.exprType)
			if err != nil {
				t.Fatal(err)
			}
			if s.Topic() != "T" || s.Type() != TypeTag || s.IsAll() != tt.all || !slices.Equal(s.Tags(), tt.tags) {
				t.Errorf("topic %q type %q all %v tags %q", s.Topic(), s.Type(), s.IsAll(), s.Tags())
			}
			if (s.MatchCode() == nil) != tt.all || (s.MatchRecord() == nil) != tt.all {
				t.Errorf("tests are nil: %v, %v; want %v", s.MatchCode() == nil, s.MatchRecord() == nil, tt.all)
			}
			if s.Supported() != nil {
				t.Errorf("Supported: %v", s.Supported())
			}
		})
	}
}

func TestParseSubscriptionRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ expression, exprType string }{{"||", TypeTag}, {"||||", ""}, {" ", TypeSQL92}, {"", "X"}} {
		if _, err := ParseSubscription("T", tt.expression, tt.exprType); !errors.Is(err, ErrEmpty) {
			t.Errorf("%q %q: %v, want ErrEmpty", tt.expression, tt.exprType, err)
		}
	}
	s, err := ParseSubscription("T", "a > 3", TypeSQL92)
	var unsupported *UnsupportedError
	if !errors.As(err, &unsupported) || unsupported.Type != TypeSQL92 {
		t.Fatalf("SQL92: %v", err)
	}
	if want := "The broker does not support consumer to filter message by SQL92"; err.Error() != want {
		t.Errorf("text %q, want %q", err, want)
	}
	if !errors.As(s.Supported(), &unsupported) || s.Expression() != "a > 3" || s.Match(0, "") {
		t.Errorf("Supported %v, expression %q", s.Supported(), s.Expression())
	}
}

func record(tag string) (message.Record, int64) {
	m := message.Message{Topic: "T", Body: []byte("b")}
	if tag != "" {
		m.Properties = string(message.AppendProperty(nil, message.PropertyTags, tag))
	}
	return message.Record(m.AppendTo(nil)), message.TagsCode(tag)
}

func TestMatch(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 200)
	tests := []struct {
		name, expression, tag string
		code, exact           bool
	}{
		{"wanted", "a||b", "b", true, true},
		{"not wanted", "a||b", "c", false, false},
		{"no tag", "a", "", false, false},
		{"C063 collision is found out by the tag", "Aa", "BB", true, false},
		{"C063 200 characters", long, long, true, true},
		{"C063 emoji", "😀||z", "😀", true, true},
		{"many tags", "a||b||c||d||e||f||g||h||i||j", "j", true, true},
		{"many tags, none fits", "a||b||c||d||e||f||g||h||i||j", "k", false, false},
		{"white space wants nothing", " ", "a", false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, err := ParseSubscription("T", tt.expression, TypeTag)
			if err != nil {
				t.Fatal(err)
			}
			rec, code := record(tt.tag)
			if got := s.MatchCode()(code); got != tt.code {
				t.Errorf("by code %v, want %v", got, tt.code)
			}
			if got := s.MatchCode()(code) && s.MatchRecord()(rec); got != tt.exact {
				t.Errorf("by record %v, want %v", got, tt.exact)
			}
			if got := s.Match(code, tt.tag); got != tt.exact {
				t.Errorf("Match %v, want %v", got, tt.exact)
			}
		})
	}
	if !All("T").Match(1, "x") {
		t.Error("All does not match")
	}
}

func TestEveryTagNamedIsWanted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		tags := rapid.SliceOfN(rapid.StringMatching(`[a-zA-Z😀]{1,5}`), 1, 20).Draw(t, "tags")
		s, err := ParseSubscription("T", strings.Join(tags, " || "), "")
		if err != nil {
			t.Fatal(err)
		}
		other := rapid.StringMatching(`[a-zA-Z]{1,3}`).Draw(t, "other")
		for _, tag := range append(tags, other) {
			rec, code := record(tag)
			want := slices.Contains(tags, tag)
			if got := s.MatchCode()(code) && s.MatchRecord()(rec); got != want {
				t.Fatalf("%q: %v, want %v", tag, got, want)
			}
		}
	})
}

func FuzzParseSubscription(f *testing.F) {
	f.Add("a||b", "TAG")
	f.Add("a > 3", "SQL92")
	f.Fuzz(func(t *testing.T, expression, exprType string) {
		s, err := ParseSubscription("T", expression, exprType)
		if err == nil && !s.IsAll() {
			for _, tag := range s.Tags() {
				if !s.Match(message.TagsCode(tag), tag) {
					t.Fatalf("%q of %q is not wanted", tag, expression)
				}
			}
		}
	})
}

func TestMatchDoesNotAllocate(t *testing.T) {
	s, err := ParseSubscription("T", "a||b", "")
	if err != nil {
		t.Fatal(err)
	}
	rec, code := record("b")
	if n := testing.AllocsPerRun(100, func() { _ = s.MatchCode()(code) && s.MatchRecord()(rec) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkMatch(b *testing.B) {
	s, err := ParseSubscription("T", "a||b", "")
	if err != nil {
		b.Fatal(err)
	}
	rec, code := record("b")
	b.ReportAllocs()
	for b.Loop() {
		if !s.MatchCode()(code) || !s.MatchRecord()(rec) {
			b.Fatal("no match")
		}
	}
}
