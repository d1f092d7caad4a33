// SPDX-License-Identifier: Apache-2.0

package sql92

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

const (
	goldenSeed        = 92
	goldenSets        = 40   // sets of properties
	goldenExpressions = 3200 // besides goldenByHand
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

// goldenByHand are expressions whose reading is not obvious.
var goldenByHand = []string{
	"",
	" ",
	"/* nothing */",
	"a",
	"NOT a",
	"TRUE",
	"FALSE",
	"NULL",
	"(NULL)",
	"NOT NULL",
	"5",
	"'x'",
	"-a",
	"-TRUE",
	"+TRUE",
	"+a",
	"+'x'",
	"a = a",
	"a = missing",
	"missing = a",
	"missing = missing2",
	"missing <> missing2",
	"NOT (missing <> missing2)",
	"missing = 5",
	"5 = missing",
	"a IS NULL",
	"a IS NOT NULL",
	"NOT a IS NULL",
	"NOT (a IS NULL)",
	"a IS NULL IS NULL",
	"a IS NULL = TRUE",
	"5 IS NULL",
	"NULL IS NULL",
	"TRUE IS NOT NULL",
	"-a IS NULL",
	"-5 IS NULL",
	"(a = 5) IS NULL",
	"-(a = 5) IS NULL",
	"-(TRUE = a) IS NULL",
	"a IS TRUE",
	"a IS",
	"a IS NOT",
	"a = NULL",
	"a <> NULL",
	"NULL = NULL",
	"a = -NULL",
	"a = TRUE",
	"TRUE = a",
	"a <> TRUE",
	"FALSE = a",
	"a = FALSE",
	"a = (b = c)",
	"(a = b) = c",
	"a = b = c",
	"(a = b) = (b = c)",
	"(a = b) = TRUE",
	"TRUE = FALSE",
	"TRUE = 1",
	"1 = TRUE",
	"TRUE = 'true'",
	"'true' = TRUE",
	"NULL = TRUE",
	"1 = (a = b)",
	"'true' = (a = b)",
	"(a = b) = 1",
	"NOT a = 'x'",
	"NOT a = TRUE",
	"NOT a <> TRUE",
	"NOT a > 5",
	"NOT a IN ('x')",
	"NOT a CONTAINS 'x'",
	"NOT a BETWEEN 1 AND 2",
	"(a) IN ('x')",
	"+a IN ('x')",
	"-a IN ('x')",
	"'x' IN ('x')",
	"(a = b) IN ('x')",
	"a IN ()",
	"a IN ('x',)",
	"a IN ('x'",
	"a IN 'x'",
	"a IN (5)",
	"a IN (b)",
	"a NOT IN ('x')",
	"a NOT NOT IN ('x')",
	"NOT (a IN ('5', '7'))",
	"a IN ('0','1','3','5','7','10','abc','x','true','it''s')",
	"a NOT IN ('0','1','3','5','7','10','abc','x','true','it''s')",
	"a = 5",
	"a = 5L",
	"a = 5.0",
	"a = 5.5",
	"a = '5'",
	"a = 2147483648",
	"a = -2147483648",
	"a = -2147483649",
	"a = 9223372036854775807",
	"a = -9223372036854775807",
	"a = -9223372036854775808",
	"a = 9223372036854775808",
	"a = 0.0",
	"a = .0",
	"a > 0e5",
	"a = -0.5",
	"a >= -0.5",
	"a > 5",
	"a > '5'",
	"'5' > a",
	"a > b",
	"a >= b",
	"a < b",
	"a <= b",
	"a > -b",
	"-b < a",
	"5 > a",
	"5.5 > a",
	"2147483648 > a",
	"-5 < a",
	"5 > 3",
	"5 > 5.5",
	"2147483648 > 5",
	"5 = 5.0",
	"5 = 5L",
	"5.5 > 2147483648",
	"5 < 9223372036854775807",
	"-5 > -5.5",
	"'a' = 'a'",
	"'a' = 'b'",
	"'a' <> 'b'",
	"5 = '5'",
	"'5' = 5",
	"5 = 'x'",
	"5.0 = '5'",
	"'5.0' = 5",
	"a > TRUE",
	"a > NULL",
	"a > 'x'",
	"(a > 1) > 2",
	"a > (b > 1)",
	"a > -'x'",
	"a > -TRUE",
	"a > -NULL",
	"a > -(b = 1)",
	"a > -(TRUE = b)",
	"-(TRUE = b) > a",
	"missing > -(TRUE = b)",
	"-(TRUE = b) = missing",
	"missing = -(TRUE = b)",
	"a BETWEEN 1 AND 10",
	"a NOT BETWEEN 1 AND 10",
	"a BETWEEN 10 AND 1",
	"a NOT BETWEEN 10 AND 1",
	"a BETWEEN 5 AND 5",
	"a BETWEEN 5 AND 5.5",
	"a BETWEEN 5.5 AND 5",
	"a BETWEEN 5 AND 9223372036854775807",
	"a BETWEEN 9223372036854775807 AND 5",
	"a BETWEEN '1' AND '9'",
	"a BETWEEN '1' AND 9",
	"a BETWEEN 1 AND '9'",
	"a BETWEEN NULL AND 5",
	"a BETWEEN TRUE AND 5",
	"a BETWEEN 5 AND TRUE",
	"a BETWEEN b AND c",
	"a NOT BETWEEN b AND c",
	"5 BETWEEN a AND b",
	"5 BETWEEN 1 AND 10",
	"a BETWEEN -10 AND -1",
	"a BETWEEN -1 AND -10",
	"a BETWEEN 1 AND missing",
	"a BETWEEN missing AND 1",
	"missing BETWEEN a AND b",
	"a NOT BETWEEN 1 AND missing",
	"a NOT BETWEEN missing AND 1",
	"a BETWEEN -b AND 5",
	"a BETWEEN (b) AND (c)",
	"a BETWEEN (b = c) AND 5",
	"a between 0 3",
	"(a is not null and a between 0 3)",
	"a BETWEEN 1 AND 2 AND 3",
	"a BETWEEN 1 AND 2 BETWEEN 3 AND 4",
	"a BETWEEN 1",
	"-(TRUE = a) BETWEEN 1 AND 2",
	"a BETWEEN 1 AND -(TRUE = b)",
	"a CONTAINS 'b'",
	"a NOT CONTAINS 'b'",
	"a CONTAINS ''",
	"a NOT CONTAINS ''",
	"missing CONTAINS 'x'",
	"missing NOT CONTAINS 'x'",
	"a STARTSWITH 'ab'",
	"a NOT STARTSWITH 'ab'",
	"a STARTSWITH ''",
	"a NOT STARTSWITH ''",
	"missing NOT STARTSWITH 'x'",
	"a ENDSWITH 'f'",
	"a NOT ENDSWITH 'f'",
	"a ENDSWITH ''",
	"a NOT ENDSWITH ''",
	"missing NOT ENDSWITH 'x'",
	"5 CONTAINS '5'",
	"5 NOT CONTAINS '5'",
	"'abc' CONTAINS 'b'",
	"'abc' NOT CONTAINS 'b'",
	"TRUE CONTAINS 'x'",
	"NULL CONTAINS 'x'",
	"(a = b) CONTAINS 'x'",
	"a CONTAINS b",
	"a CONTAINS 5",
	"a CONTAINS 'a' CONTAINS 'b'",
	"a CONTAINS 'a' NOT CONTAINS 'b'",
	"-(TRUE = a) CONTAINS 'x'",
	"a CONTAINS 'it''s'",
	"a CONTAINS ''''",
	"a = ''''",
	"a = ''",
	"a = 'it''s'",
	"a = 'it's'",
	"a = 'abc",
	"a = abc'",
	"a = 'a''",
	"a = '''a'",
	"a = \"x\"",
	"a = 'x",
	"a = '日本'",
	"é = 1",
	"a = 5 OR b = 5",
	"b = 5 OR a = 5",
	"a = 5 AND b = 5",
	"a > 1 AND b > 1 AND c > 1",
	"a > 1 OR b > 1 OR c > 1",
	"a = 5 OR b = 5 AND c = 5",
	"(a = 5 OR b = 5) AND c = 5",
	"NOT (a = 5) AND b = 5",
	"NOT NOT a",
	"NOT NOT NOT a",
	"NOT (a AND b)",
	"a AND b",
	"a OR b",
	"a OR TRUE",
	"TRUE OR a",
	"a AND FALSE",
	"FALSE AND a",
	"missing AND FALSE",
	"missing OR TRUE",
	"missing AND TRUE",
	"missing OR FALSE",
	"5 AND a",
	"a AND 5",
	"a OR 'x'",
	"TRUE AND NULL",
	"TRUE OR NULL",
	"FALSE OR NULL",
	"TRUE = a OR TRUE",
	"TRUE OR TRUE = a",
	"FALSE AND TRUE = a",
	"TRUE = a AND FALSE",
	"a IS NULL OR a > 5",
	"a IS NOT NULL AND a > 5",
	"a = 'x' or a = 5",
	"a = 5 or a = 'x'",
	"(a)",
	"((a = 5))",
	"(((a))) = 5",
	"()",
	"(",
	")",
	"(a",
	"a)",
	"a b",
	"a = 5 b",
	"a = 5)",
	"a = 5 AND",
	"AND a",
	"a OR",
	"a AND OR b",
	"a == 5",
	"a != 5",
	"a ! = 5",
	"a => 5",
	"a =< 5",
	"a > = 5",
	"a < > 5",
	"a LIKE 'x'",
	"a = 5;",
	"a = 5 -- c\n",
	"a = 5 /* c */",
	"/* c */ a = 5",
	"a /* x */ = /* y */ 5",
	"a = 5 /* c",
	"a = 5 */",
	"/**/a=5",
	"/***/a=5",
	"/* * / */ a=5",
	"/*/ a=5",
	"a =-5",
	"a = - 5",
	"a = - -5",
	"a = --5",
	"a = --x\n5",
	"a = +5",
	"a = ++5",
	"a = + +5",
	"a = +-+-5",
	"a = +",
	"a = -",
	"+",
	"-",
	"a = +(5)",
	"a = -(5)",
	"a = -(-(5))",
	"+(a = 5)",
	"+(a = 5",
	"+(a = 'x) OR b",
	"+(+(a > 5))",
	"-(a)",
	"a = -(b)",
	"a=5",
	"a>5",
	"a<5",
	"a<>5",
	"a>=5",
	"a<=5",
	"a=5and b=5",
	"a=5andb=5",
	"a='5'and b='5'",
	"a in('5')",
	"a is null",
	"a Is nOt nUlL",
	"A = 5",
	"a = 05",
	"a = 00",
	"a = 0",
	"a = 0x10",
	"a = 5e",
	"a = 5e5",
	"a = 5E+1",
	"a = 5e-1",
	"a = 5.e1",
	"a = .e1",
	"a = .",
	"a = 5.5.5",
	"a = 5LL",
	"a = 5.5L",
	"a = 5f",
	"a = 1_000",
	"a.b = 5",
	"a-b = 5",
	"a$ = 5",
	"_x1 = 5",
	"$y = 5",
	"$ = 5",
	"_ = 5",
	"1a = 5",
	"TAGS = 'TagA'",
	"TAGS IN ('TagA','TagB')",
	"tags = 'TagA'",
	"contains = 5",
	"a contains contains",
	"nota = 5",
	"not_ = 5",
	"isnull",
	"in = 5",
	"a\u00a0= 5",
	"a\v= 5",
	"a = '\n'",
	"a\n=\r5",
	"ａ = 5",
	"a = ５",
	"a ﹦ 5",
	"a = '5' COLLATE x",
	"a IS NULL AND",
	"a IN ('x') IN ('y')",
	"a IN ('x') CONTAINS 'x'",
	"a IN ('x') = TRUE",
	"a NOT = 5",
	"a NOT > 5",
	"a NOT",
	"a NOT 5",
	"a NOT NULL",
	"a IS NOT NOT NULL",
	"a = NOT b",
	"a = NOT 5",
	"a AND NOT b",
	"NOT 5",
	"NOT 'x'",
	"NOT -5",
	"a > NOT b",
	"a BETWEEN NOT b AND 5",
	"a STARTSWITH 'a' AND a ENDSWITH 'f' AND a CONTAINS 'cd'",
}

// questions are all sets of properties and all expressions, by hand first, each once.
func questions() (sets [][]string, expressions []string) {
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
	for _, e := range goldenByHand {
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
func questionsText() string {
	var b strings.Builder
	sets, expressions := questions()
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
