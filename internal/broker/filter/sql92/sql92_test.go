// SPDX-License-Identifier: Apache-2.0

package sql92

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/roquetmq/roquet/internal/message"
)

func mustCompile(tb testing.TB, text string) *Expression {
	tb.Helper()
	e, err := Compile(text)
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

// TestRefusalsNameThePosition is case C067.
func TestRefusalsNameThePosition(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, text, want string }{
		{"empty", "", `line 1, column 1: expected a property, a constant or "(", but the expression ends`},
		{
			"comment only",
			" /* x */\n",
			`line 2, column 1: expected a property, a constant or "(", but the expression ends`,
		},
		{
			"C067 BETWEEN without AND",
			"(a is not null and a between 0 3)",
			`line 1, column 32: expected AND and the upper bound of BETWEEN, found "3"`,
		},
		{"C067 unbalanced quote", "a = 'x", `line 1, column 5: this string has no closing quote`},
		{"quote too many", "a = 'it's'", `line 1, column 9: expected AND, OR, an operator or the end, found "s"`},
		{"open parenthesis", "b = 1 AND (a = 1", `line 1, column 11: this parenthesis is not closed`},
		{
			"closing parenthesis",
			"a = 1) OR b = 2",
			`line 1, column 6: expected AND, OR, an operator or the end, found ")"`,
		},
		{"missing in parentheses", "(a = 1 b)", `line 1, column 8: expected AND, OR, an operator or ")", found "b"`},
		{"columns are characters", "a = '日本😀' & b", `line 1, column 11: "&" means nothing here`},
		{"a character of several bytes", "a = é", `line 1, column 5: "é" means nothing here`},
		{"lines", "a = 1 AND\r\n\n  b =\r= 2", `line 4, column 1: expected a property, a constant or "(", found "="`},
		{"open comment", "a = 1 /* b", `line 1, column 7: this comment is not closed`},
		{"operator of another language", "a != 1", `line 1, column 3: "!" means nothing here`},
		{"value alone", "a = 1 OR 5", `line 1, column 10: this is a value, not a condition`},
		{"NULL compared", "a = NULL", `line 1, column 5: NULL cannot be compared: use IS NULL or IS NOT NULL`},
		{"boolean and constant", "TRUE = 1", `line 1, column 1: a boolean cannot be compared with this constant`},
		{"IS", "a IS 5", `line 1, column 6: expected NULL or NOT NULL behind IS, found "5"`},
		{
			"string ordered",
			"b = 1 OR a > 'x'",
			`line 1, column 14: only numbers and properties can be compared with >, >=, <, <= and BETWEEN`,
		},
		{
			"NOT binds to one operand",
			"NOT a > 5",
			`line 1, column 1: only numbers and properties can be compared with >, >=, <, <= and BETWEEN`,
		},
		{
			"NOT before >",
			"a NOT > 5",
			`line 1, column 7: expected BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH behind NOT, found ">"`,
		},
		{
			"BETWEEN descending",
			"a BETWEEN 5 AND 3",
			`line 1, column 11: the lower bound of BETWEEN is above the upper one`,
		},
		{"IN without list", "a IN 'x'", `line 1, column 6: expected "(" behind IN, found "'x'"`},
		{"IN with a number", "a IN ('x', 5)", `line 1, column 12: expected a string in single quotes, found "5"`},
		{
			"IN unclosed",
			"a IN ('x'",
			`line 1, column 10: expected "," or ")" in the list of IN, but the expression ends`,
		},
		{"IN on a constant", "'x' IN ('x')", `line 1, column 1: the left side of IN must be a property`},
		{
			"CONTAINS without string",
			"a CONTAINS b",
			`line 1, column 12: expected a string in single quotes, found "b"`,
		},
		{"integer", "a = 9223372036854775808", `line 1, column 5: "9223372036854775808" is beyond 64 bits`},
		{"float", "a = 1e309", `line 1, column 5: "1e309" is greater than 1.7976931348623157E308`},
		{"zero is no float", "a = 0.0", `line 1, column 5: "0.0" is less than 4.9E-324, the least float`},
		{
			"long token",
			"a = 1 '" + strings.Repeat("é", 100) + "'",
			`line 1, column 7: expected AND, OR, an operator or the end, found "'` +
				strings.Repeat("é", 19) + `…"`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e, err := Compile(tt.text)
			var syntax *SyntaxError
			if !errors.As(err, &syntax) || e != nil {
				t.Fatalf("%v, %v", e, err)
			}
			if want := "SQL92 expression refused at " + tt.want; err.Error() != want {
				t.Errorf("\n got %s\nwant %s", err, want)
			}
		})
	}
}

// TestLimits is case C067: nothing that is deep or long overflows the stack.
func TestLimits(t *testing.T) {
	t.Parallel()
	const deep = 10_000
	nested := func(n int, before, middle, behind string) string {
		return strings.Repeat(before, n) + middle + strings.Repeat(behind, n)
	}
	for name, text := range map[string]string{
		"C067 parentheses": nested(deep, "(", "a = 1", ")"),
		"open":             nested(deep, "(", "", ""),
		"NOT":              nested(deep/2, "NOT ", "a", ""),
		"minus":            nested(deep, "- ", "a", "") + " = 1",
		"plus":             nested(deep, "+", "a", "") + " = 1",
		"equalities":       nested(deep, "", "a", " =b"),
		"IS NULL":          nested(deep/3, "", "a", " IS NULL"),
		"CONTAINS":         nested(deep/8, "", "a", " CONTAINS 'x'"),
		"mixed":            nested(deep/8, "NOT -(a = ", "b", ")"),
	} {
		_, err := Compile(text)
		if err == nil || !strings.Contains(err.Error(), "nested deeper than 500 levels") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, text := range []string{
		nested(400, "(", "a = 1", ")"), nested(200, "NOT (", "a = 1", ")"), nested(2500, "", "a = 1", " OR a = 1"),
		nested(400, "(", "a = 1", ") OR b = 2"), "a IN ('x'" + strings.Repeat(",'some text'", 2500) + ")",
	} {
		e := mustCompile(t, text)
		if !e.Match(encode([]string{"a", "1"})) && !strings.Contains(text, "IN") {
			t.Errorf("%.40s… does not match", text)
		}
	}
	long := "a = '" + strings.Repeat("x", MaxBytes) + "'"
	if _, err := Compile(
		long,
	); err == nil ||
		!strings.Contains(err.Error(), "column 32769: 32774 bytes are more than the 32768") {
		t.Errorf("C067 long: %v", err)
	}
	if _, err := Compile(long[:5] + long[11:]); err != nil {
		t.Errorf("%d bytes: %v", MaxBytes, err)
	}
}

func TestEvaluate(t *testing.T) {
	t.Parallel()
	set := encode([]string{"a", "5", "b", "x", "TAGS", "TagA", "tag", "😀", "long", strings.Repeat("y", 200)})
	for text, want := range map[string]byte{
		"a > 3":                  'T',
		"a > 3.5 AND b <> 'y'":   'T',
		"missing = 5":            'N',
		"missing IS NULL":        'T',
		"b > 3":                  'X',
		"b > 3 OR a = 5":         'X', // a failure ends it all
		"a = 5 OR b > 3":         'T', // unless nobody looks
		"tag = '😀'":              'T', // C063
		"tag STARTSWITH '😀'":     'T',
		"long ENDSWITH 'yyy'":    'T',
		"a = 5 --":               'T', // a comment at the end needs no line end
		"a = 5 -- b = 'x'":       'T',
		"a = --5":                'T', // without a line end -- is two signs, as in the original
		"a BETWEEN 5 AND 5":      'T',
		"a NOT BETWEEN 6 AND 5":  'T',
		"TAGS IN ('TagA','Tag')": 'T',
	} {
		e, err := Compile(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		} else if got := e.evaluate(set); got != want {
			t.Errorf("%q is %c, want %c", text, got, want)
		}
	}
}

func TestRequired(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"TAGS = 'x'":                               {"x"},
		"'x' = TAGS":                               {"x"},
		"TAGS = a":                                 nil,
		"TAGS = 5":                                 nil,
		"TAGS <> 'x'":                              nil,
		"NOT (TAGS = 'x')":                         nil,
		"TAGS CONTAINS 'x'":                        nil,
		"a = 'x'":                                  nil,
		"a IN ('x') OR TAGS = 'y'":                 nil,
		"TAGS NOT IN ('x')":                        nil,
		"(TAGS = 'x') IS NULL":                     nil,
		"TAGS IN ('y', 'x')":                       {"x", "y"},
		"TAGS IN ('x', 'y') OR TAGS = 'z'":         {"x", "y", "z"},
		"TAGS = 'x' OR a = 1":                      nil,
		"a > 1 AND TAGS = 'x'":                     {"x"},
		"TAGS IN ('x', 'y') AND TAGS IN ('z')":     {"z"},
		"(TAGS = 'x' AND a = 1) OR TAGS IN ('y')":  {"x", "y"},
		"TAGS IS NOT NULL AND NOT (TAGS IN ('x'))": nil,
	} {
		if got := mustCompile(t, text).Required("TAGS"); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// TestBetweenEvaluatesOnce holds against an expression whose evaluation would double with each level.
func TestBetweenEvaluatesOnce(t *testing.T) {
	t.Parallel()
	text := "a"
	for range 100 {
		text = "-(" + text + " BETWEEN 1 AND 2)"
	}
	if got := mustCompile(t, text+" = 1").evaluate(encode([]string{"a", "2"})); got != 'N' {
		t.Errorf("%c", got)
	}
}

// TestTextIsCloned holds because expressions come in strings that alias network buffers.
func TestTextIsCloned(t *testing.T) {
	t.Parallel()
	buffer := []byte("name = 'value'")
	e := mustCompile(t, unsafe.String(&buffer[0], len(buffer)))
	clear(buffer)
	if !e.Match(encode([]string{"name", "value"})) || e.String() != "name = 'value'" {
		t.Errorf("%q", e)
	}
}

const (
	usualExpression = "amount BETWEEN 100 AND 199 AND (region = 'eu' OR region IN ('us', 'ap')) AND vip IS NOT NULL AND name NOT CONTAINS 'test'"
	rareExpression  = "bucket = 7"
)

func usualProperties(bucket string) string {
	return encode([]string{
		"UNIQ_KEY",
		"7F0000010B0418B4AAC2154E5A3C0000",
		"WAIT",
		"true",
		"TAGS",
		"TagA",
		"KEYS",
		"order-4711",
		"amount",
		"150",
		"region",
		"eu",
		"vip",
		"true",
		"name",
		"somebody",
		"bucket",
		bucket,
		"CLUSTER",
		"DefaultCluster",
		"MSG_REGION",
		"DefaultRegion",
		"TRACE_ON",
		"true",
	})
}

func TestMatchDoesNotAllocate(t *testing.T) {
	set := usualProperties("7")
	for _, text := range []string{
		usualExpression, rareExpression, "amount > 1.5", "name > 5", "amount > bucket", "vip = TRUE", "-amount IS NULL", "bucket = 7L",
		"a1 IS NULL AND a2 IS NULL AND a3 IS NULL AND a4 IS NULL AND a5 IS NULL AND a6 IS NULL AND a7 IS NULL AND a8 IS NULL AND bucket = 7",
	} {
		e := mustCompile(t, text)
		if n := testing.AllocsPerRun(100, func() { e.Match(set) }); n != 0 {
			t.Errorf("%q: %v allocations", text, n)
		}
	}
}

func TestConcurrentMatches(t *testing.T) {
	t.Parallel()
	e, set := mustCompile(t, usualExpression), usualProperties("1")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				if !e.Match(set) {
					t.Error("no match")
				}
			}
		})
	}
	wg.Wait()
}

func FuzzCompile(f *testing.F) {
	for _, e := range byHand(f) {
		f.Add(e, "a\x015\x02b\x01x\x02")
	}
	f.Add(usualExpression, usualProperties("7"))
	f.Add(strings.Repeat("(", MaxDepth+1), "")
	f.Fuzz(func(t *testing.T, text, properties string) {
		e, err := Compile(text)
		if err != nil {
			var syntax *SyntaxError
			if !errors.As(err, &syntax) || syntax.Offset < 0 || syntax.Offset > len(text) || syntax.Line < 1 ||
				syntax.Column < 1 {
				t.Fatalf("%q: %#v", text, err)
			}
			return
		}
		got := e.evaluate(properties)
		if got == '?' || (got == 'T') != e.Match(properties) {
			t.Fatalf("%q is %c, Match %v", text, got, e.Match(properties))
		}
		for _, name := range goldenNames {
			value, _ := message.Property(properties, name)
			if values := e.Required(name); got == 'T' && values != nil && !slices.Contains(values, value) {
				t.Fatalf("%q is TRUE for %s = %q, requires %q", text, name, value, values)
			}
		}
		wrapped, err := Compile("(" + text + "\n)")
		if err == nil && !strings.Contains(text, "--") && wrapped.evaluate(properties) != got {
			t.Fatalf("%q is %c, in parentheses %c", text, got, wrapped.evaluate(properties))
		}
		if err != nil && len(text) < MaxBytes-3 && !strings.Contains(err.Error(), "nested deeper") &&
			!strings.Contains(text, "--") {
			t.Fatalf("%q in parentheses: %v", text, err)
		}
	})
}

func BenchmarkMatch(b *testing.B) {
	for name, text := range map[string]string{"usual": usualExpression, "rare": rareExpression} {
		b.Run(name, func(b *testing.B) {
			e, set := mustCompile(b, text), usualProperties("8")
			b.ReportAllocs()
			for b.Loop() {
				e.Match(set)
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		mustCompile(b, usualExpression)
	}
}
