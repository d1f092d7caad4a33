// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/roquetmq/roquet/internal/broker/filter/sql92"
	"github.com/roquetmq/roquet/internal/message"
)

func TestParse(t *testing.T) {
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
			s, err := Parse(tt.expression, tt.exprType)
			if err != nil {
				t.Fatal(err)
			}
			if s.Type() != TypeTag || s.all != tt.all || !slices.Equal(s.tags, tt.tags) {
				t.Errorf("type %q all %v tags %q", s.Type(), s.all, s.tags)
			}
			if (s.MatchCode() == nil) != tt.all || (s.MatchRecord() == nil) != tt.all {
				t.Errorf("tests are nil: %v, %v; want %v", s.MatchCode() == nil, s.MatchRecord() == nil, tt.all)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ expression, exprType string }{{"||", TypeTag}, {"||||", ""}, {" ", TypeSQL92}, {"", "X"}} {
		if _, err := Parse(tt.expression, tt.exprType); !errors.Is(err, ErrEmpty) {
			t.Errorf("%q %q: %v, want ErrEmpty", tt.expression, tt.exprType, err)
		}
	}
	var unsupported *UnsupportedError
	if s, err := Parse("a > 3", "sql92"); s != nil || !errors.As(err, &unsupported) || unsupported.Type != "sql92" {
		t.Errorf("unknown type: %v", err)
	}
	var syntax *sql92.SyntaxError
	if s, err := Parse("a >", TypeSQL92); s != nil || !errors.As(err, &syntax) || syntax.Column != 4 {
		t.Errorf("C067 malformed SQL92: %v", err)
	}
}

func TestSQL(t *testing.T) {
	t.Parallel()
	for expression, decides := range map[string]bool{ // whether the tag's code decides
		"TAGS = 'a' OR TAGS = '😀'":                      true,
		"TAGS IS NOT NULL AND TAGS IN ('a', '😀', 'Aa')": true,
		"TAGS NOT IN ('b') AND TAGS <> 'BB'":            false,
	} {
		s, err := Parse(expression, TypeSQL92)
		if err != nil || s.Type() != TypeSQL92 || s.all || len(s.tags) != 0 ||
			(s.MatchCode() != nil) != decides {
			t.Fatalf("%+v, %v", s, err)
		}
		for tag, want := range map[string]bool{"a": true, "😀": true, "b": false, "BB": false, "": false} {
			rec, code := record(tag)
			if s.Match(rec) != want || s.MatchRecord()(rec) != want {
				t.Errorf("%s: %q matches %v", expression, tag, !want)
			}
			if decides && s.MatchCode()(code) != want && tag != "BB" { // which collides with Aa
				t.Errorf("%s: %q by its code %v", expression, tag, !want)
			}
		}
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
			s, err := Parse(tt.expression, TypeTag)
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
			if got := s.Match(rec); got != tt.exact {
				t.Errorf("Match %v, want %v", got, tt.exact)
			}
		})
	}
	if rec, _ := record("x"); !All().Match(rec) {
		t.Error("All does not match")
	}
}

func TestEveryTagNamedIsWanted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		tags := rapid.SliceOfN(rapid.StringMatching(`[a-zA-Z😀]{1,5}`), 1, 20).Draw(t, "tags")
		s, err := Parse(strings.Join(tags, " || "), "")
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

func FuzzParse(f *testing.F) {
	f.Add("a||b", "TAG")
	f.Add("a > 3", "SQL92")
	f.Fuzz(func(t *testing.T, expression, exprType string) {
		s, err := Parse(expression, exprType)
		if err == nil && !s.all {
			for _, tag := range s.tags {
				if !s.MatchCode()(message.TagsCode(tag)) || !s.wantsTag(tag) {
					t.Fatalf("%q of %q is not wanted", tag, expression)
				}
			}
		}
	})
}

func TestMatchDoesNotAllocate(t *testing.T) {
	s, err := Parse("a||b", "")
	if err != nil {
		t.Fatal(err)
	}
	rec, code := record("b")
	if n := testing.AllocsPerRun(100, func() { _ = s.MatchCode()(code) && s.MatchRecord()(rec) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkMatch(b *testing.B) {
	s, err := Parse("a||b", "")
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
