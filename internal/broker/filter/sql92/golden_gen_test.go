// SPDX-License-Identifier: Apache-2.0

package sql92

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

const (
	goldenSeed        = 92
	goldenSets        = 40   // sets of properties
	goldenExpressions = 3200 // besides those by hand
	goldenBytes       = 200  // of an expression
)

// generator makes questions for the original. The same seed gives the same questions.
type generator struct{ *rand.Rand }

func newGenerator() *generator { return &generator{rand.New(rand.NewPCG(goldenSeed, goldenSeed))} }

func (g *generator) pick(of ...string) string { return of[g.IntN(len(of))] }

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

var goldenNames = []string{"a", "b", "c", "TAGS", "_x1", "$y", "A"}

var goldenValues = []string{
	"0",
	"1",
	"3",
	"5",
	"5",
	"5",
	"7",
	"10",
	"-1",
	"-5",
	"+5",
	"05",
	"5.0",
	"5.5",
	"-5.5",
	"1e3",
	"1E-3",
	".5",
	"5.",
	"5f",
	"5D",
	"5L",
	"2147483647",
	"2147483648",
	"-2147483648",
	"-2147483649",
	"9223372036854775807",
	"9223372036854775808",
	"-9223372036854775808",
	"-9223372036854775809",
	"1e308",
	"1e309",
	"-1e309",
	"4.9e-324",
	"1e-400",
	"NaN",
	"-NaN",
	"nan",
	"Infinity",
	"-Infinity",
	"Inf",
	"0.0",
	"-0.0",
	"-0",
	"0x10",
	"0x1p3",
	"0X1.8P1f",
	"1_000",
	" 5",
	"5 ",
	" 5.5 ",
	"\t5.5",
	"５",
	"٥",
	"5５",
	"𝟓",
	"true",
	"TRUE",
	"True",
	"tRue",
	"false",
	"yes",
	"truе",
	"null",
	"NULL",
	"x",
	"abc",
	"abcdef",
	"ABC",
	"xyz",
	"it's",
	"''",
	"'",
	" ",
	"é",
	"日本",
	"😀",
	"a b",
	"--",
	"TagA",
	"TagB",
	"-",
	"+",
	".",
	"e5",
	"5e",
	"1e+",
	"d",
	"+-5",
	"- 5",
	"1.2.3",
	"5ee3",
}

// properties makes one set of properties, as name, value, name, value …
func (g *generator) properties() []string {
	var set []string
	for _, name := range goldenNames {
		if g.chance(80) {
			set = append(set, name, g.pick(goldenValues...))
		}
	}
	return set
}

func (g *generator) expression() string {
	var e string
	switch n := g.IntN(100); {
	case n < 55:
		e = g.sensible(3)
	case n < 85:
		e = g.or(2)
	default:
		e = g.damaged(g.sensible(2))
	}
	return e
}

// sensible makes what people write.
func (g *generator) sensible(depth int) string {
	if depth > 0 && g.chance(60) {
		left, right := g.sensible(depth-1), g.sensible(depth-1)
		switch g.IntN(6) {
		case 0:
			return g.word("NOT") + "(" + left + ")"
		case 1:
			return "(" + left + ") " + g.word("OR") + " (" + right + ")"
		case 2, 3:
			return left + " " + g.word("OR") + " " + right
		default:
			return left + " " + g.word("AND") + " " + right
		}
	}
	p, not := g.name(), ""
	if g.chance(35) {
		not = g.word("NOT") + " "
	}
	switch g.IntN(8) {
	case 0:
		return p + g.pick(
			"=",
			"<>",
			" = ",
			" <> ",
		) + g.pick(
			g.number(),
			g.text(),
			g.word("TRUE"),
			g.word("FALSE"),
			g.name(),
		)
	case 1, 2:
		return p + " " + g.pick(">", ">=", "<", "<=", "=", "<>") + " " + g.signed()
	case 3:
		return p + " " + not + g.word(
			"BETWEEN",
		) + " " + g.signed() + " " + g.word(
			"AND",
		) + " " + g.pick(
			g.signed(),
			g.signed(),
			g.name(),
		)
	case 4:
		return p + " " + g.word("IS") + " " + not + g.word("NULL")
	case 5:
		list := g.text()
		for range g.IntN(12) {
			list += g.pick(",", " , ") + g.text()
		}
		return p + " " + not + g.word("IN") + g.pick("(", " ( ") + list + ")"
	case 6:
		return p + " " + not + g.word(g.pick("CONTAINS", "STARTSWITH", "ENDSWITH")) + " " + g.text()
	default:
		return g.signed() + " " + g.pick(">", ">=", "<", "<=", "=", "<>") + " " + p
	}
}

// or and the functions behind it make whatever the grammar allows, sensible or not.
func (g *generator) or(depth int) string {
	e := g.and(depth)
	for g.chance(20) {
		e += " " + g.word("OR") + g.blank() + g.and(depth)
	}
	return e
}

func (g *generator) and(depth int) string {
	e := g.equality(depth)
	for g.chance(20) {
		e += " " + g.word("AND") + g.blank() + g.equality(depth)
	}
	return e
}

func (g *generator) equality(depth int) string {
	e := g.comparison(depth)
	for g.chance(25) {
		switch g.IntN(4) {
		case 0:
			e += g.pick("=", " = ") + g.comparison(depth)
		case 1:
			e += g.pick("<>", " <> ") + g.comparison(depth)
		case 2:
			e += " IS NULL"
		default:
			e += " IS NOT NULL"
		}
	}
	return e
}

func (g *generator) comparison(depth int) string {
	e := g.unary(depth)
	for g.chance(25) {
		not := g.pick(" ", " ", g.blank()+"NOT ")
		switch g.IntN(4) {
		case 0, 1:
			e += " " + g.pick(">", ">=", "<", "<=") + " " + g.unary(depth)
		case 2:
			e += not + "BETWEEN " + g.unary(depth) + " AND " + g.unary(depth)
		default:
			e += not + g.pick("CONTAINS", "STARTSWITH", "ENDSWITH", "IN(") + " " + g.text()
			if strings.Contains(e, "IN( ") && !strings.HasSuffix(e, ")") && g.chance(95) {
				e += ")"
			}
		}
	}
	return e
}

func (g *generator) unary(depth int) string {
	e := g.primary(depth)
	for g.chance(20) {
		e = g.pick("+", "- ", "NOT ") + e
	}
	return e
}

func (g *generator) primary(depth int) string {
	if depth > 0 && g.chance(35) {
		return "(" + g.blank() + g.or(depth-1) + ")"
	}
	return g.pick(g.name(), g.name(), g.name(), g.number(), g.text(), g.pick("TRUE", "FALSE", "NULL"))
}

func (g *generator) name() string {
	return g.pick("a", "a", "a", "b", "b", "c", "TAGS", "_x1", "$y", "A", "missing")
}

func (g *generator) text() string {
	v := g.pick(goldenValues...)
	if g.chance(5) {
		v = ""
	}
	return "'" + strings.ReplaceAll(v, "'", "''") + "'"
}

func (g *generator) number() string {
	return g.pick(
		"0",
		"1",
		"3",
		"5",
		"5",
		"7",
		"10",
		"5L",
		"5l",
		"100",
		"2147483647",
		"2147483648",
		"9223372036854775807",
		"9223372036854775808",
		"5.5",
		"5.",
		".5",
		"5.0",
		"0.0",
		"1e3",
		"1E308",
		"1e309",
		"4.9E-324",
		"1e-330",
		"5e0",
		"007",
		"0L",
		"1.5e+2",
	)
}

func (g *generator) signed() string {
	return g.pick("", "", "", "-", "+") + g.pick("3", "5", "5", "7", g.number())
}

// word writes a keyword in some case.
func (g *generator) word(s string) string {
	switch g.IntN(4) {
	case 0:
		return strings.ToLower(s)
	case 1:
		return s[:1] + strings.ToLower(s[1:])
	}
	return s
}

func (g *generator) blank() string {
	return g.pick(
		" ",
		" ",
		" ",
		"  ",
		"\t",
		"\n",
		"\r\n",
		"\f",
		" /* c */ ",
		"/**/",
		" /* * ** / */",
		" -- c\n",
		" --\r",
		" --'x\r\n",
	)
}

// damaged changes one place of an expression.
func (g *generator) damaged(e string) string {
	at := g.IntN(len(e) + 1)
	for at < len(e) && e[at] >= 0x80 && e[at] < 0xc0 {
		at++
	}
	rest := e[at:]
	switch g.IntN(4) {
	case 0:
		return e[:at]
	case 1:
		for i := range rest {
			if i > 0 {
				return e[:at] + rest[i:]
			}
		}
	case 2:
		return rest + e[:at]
	}
	junk := []string{
		"'",
		"(",
		")",
		"=",
		"<",
		">",
		"-",
		"+",
		",",
		"1",
		".",
		"x",
		" not ",
		" and ",
		" or ",
		" null ",
		"/*",
		"*/",
		"&",
		"é",
		"\"",
		"[",
		"%",
	}
	return e[:at] + g.pick(junk...) + rest
}

// byHand reads the expressions of testdata/byhand.txt, whose reading is not obvious: one a line, escaped.
func byHand(tb testing.TB) (expressions []string) {
	tb.Helper()
	text, err := os.ReadFile("testdata/byhand.txt")
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		expressions = append(expressions, unescaper.Replace(strings.TrimSuffix(line, "\n")))
	}
	return expressions
}

// questions are all sets of properties and all expressions, by hand first, each once.
func questions(tb testing.TB) (sets [][]string, expressions []string) {
	g := newGenerator()
	for range goldenSets {
		sets = append(sets, g.properties())
	}
	seen := map[string]bool{}
	add := func(e string) {
		if !seen[e] {
			seen[e] = true
			expressions = append(expressions, e)
		}
	}
	for _, e := range byHand(tb) {
		add(e)
	}
	for n := len(expressions); len(expressions) < n+goldenExpressions; {
		if e := g.expression(); len(e) <= goldenBytes {
			add(e)
		}
	}
	return sets, expressions
}

var (
	escaper   = strings.NewReplacer("\\", "\\\\", "\n", "\\n", "\r", "\\r", "\t", "\\t", "\f", "\\f", "\v", "\\v")
	unescaper = strings.NewReplacer("\\\\", "\\", "\\n", "\n", "\\r", "\r", "\\t", "\t", "\\f", "\f", "\\v", "\v")
)

// questionsText is what testdata/Answers.java reads: a line P for each set of properties, a line E for each
// expression.
func questionsText(tb testing.TB) string {
	tb.Helper()
	var b strings.Builder
	sets, expressions := questions(tb)
	for _, set := range sets {
		b.WriteString("P")
		for _, s := range set {
			fmt.Fprintf(&b, "\t%s", escaper.Replace(s))
		}
		b.WriteString("\n")
	}
	for _, e := range expressions {
		fmt.Fprintf(&b, "E\t%s\n", escaper.Replace(e))
	}
	return b.String()
}
