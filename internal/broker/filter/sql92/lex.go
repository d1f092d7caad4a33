// SPDX-License-Identifier: Apache-2.0

package sql92

import (
	"slices"
	"strings"
)

// symbol is a kind of token.
type symbol uint8

const (
	symEnd symbol = iota
	symBad        // what cannot be a token
	symString
	symInteger
	symFloat
	symProperty
	symOpen
	symClose
	symComma
	symPlus
	symMinus
	symEqual
	symNotEqual
	symGreater
	symGreaterEqual
	symLess
	symLessEqual
	symNot // this and what follows: the keywords, as keyword lists them
	symAnd
	symOr
	symBetween
	symIn
	symTrue
	symFalse
	symNull
	symIs
	symContains
	symStartsWith
	symEndsWith
)

// keyword returns the keyword that word is, or symProperty.
func keyword(word string) symbol {
	words := [...]string{
		"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH",
	}
	if i := slices.IndexFunc(words[:], func(w string) bool { return strings.EqualFold(w, word) }); i >= 0 {
		return symNot + symbol(i)
	}
	return symProperty
}

// token is one token: text[at:end] of the expression.
type token struct {
	sym     symbol
	at, end int
}

// lexer splits an expression into tokens. Of tokens that begin at the same place the longest counts.
type lexer struct {
	text string
	at   int
}

// next returns the next token; at the end, and from then on, symEnd.
func (l *lexer) next() token {
	l.skipBlanks()
	t := token{at: l.at}
	t.sym, l.at = l.scan(l.at)
	t.end = l.at
	return t
}

// skipBlanks moves on over white space and comments.
func (l *lexer) skipBlanks() {
	for {
		l.at += span(l.text[l.at:], isBlank)
		n := commentLen(l.text[l.at:])
		if n == 0 {
			return
		}
		l.at += n
	}
}

// commentLen returns the length of the comment that rest begins with, 0 if there is none. A line comment
// needs its line end, or else the two signs are two signs.
func commentLen(rest string) int {
	switch {
	case strings.HasPrefix(rest, "--"):
		return strings.IndexAny(rest, "\r\n") + 1
	case strings.HasPrefix(rest, "/*"):
		if end := strings.Index(rest[2:], "*/"); end >= 0 {
			return 2 + end + 2
		}
	}
	return 0
}

// scan recognises the token that begins at text[at], and returns where it ends.
func (l *lexer) scan(at int) (symbol, int) {
	rest := l.text[at:]
	if rest == "" {
		return symEnd, at
	}
	switch c := rest[0]; {
	case c == '\'':
		if n := stringLen(rest); n > 0 {
			return symString, at + n
		}
		return symBad, len(l.text)
	case isDigit(c) || c == '.':
		sym, n := number(rest)
		return sym, at + n
	case isLetter(c):
		n := span(rest, func(c byte) bool { return isLetter(c) || isDigit(c) })
		return keyword(rest[:n]), at + n
	}
	if i := slices.Index([]string{"<>", ">=", "<="}, rest[:min(2, len(rest))]); i >= 0 {
		return [...]symbol{symNotEqual, symGreaterEqual, symLessEqual}[i], at + 2
	}
	if i := strings.IndexByte("(),+-=><", rest[0]); i >= 0 {
		return [...]symbol{symOpen, symClose, symComma, symPlus, symMinus, symEqual, symGreater, symLess}[i], at + 1
	}
	return symBad, at + 1
}

// stringLen returns the length of the string literal that rest begins with, 0 if it does not end.
func stringLen(rest string) int {
	for i := 1; i < len(rest); i++ {
		if rest[i] != '\'' {
			continue
		}
		if i+1 == len(rest) || rest[i+1] != '\'' {
			return i + 1
		}
		i++
	}
	return 0
}

// number recognises an integer or a float.
func number(rest string) (symbol, int) {
	whole := span(rest, isDigit)
	n, sym := whole, symInteger
	if n < len(rest) && rest[n] == '.' {
		n++
		fraction := span(rest[n:], isDigit)
		if whole+fraction == 0 {
			return symBad, n
		}
		n, sym = n+fraction, symFloat
	}
	if e := exponentLen(rest[n:]); e > 0 {
		return symFloat, n + e
	}
	switch {
	case sym == symFloat:
	case rest[0] == '0':
		n = 1 // an integer has no leading zeros: 01 is two tokens
	case n < len(rest) && (rest[n] == 'l' || rest[n] == 'L'):
		n++
	}
	return sym, n
}

// exponentLen returns the length of the exponent that rest begins with, 0 if there is none.
func exponentLen(rest string) int {
	if rest == "" || rest[0] != 'e' && rest[0] != 'E' {
		return 0
	}
	n := 1
	if n < len(rest) && (rest[n] == '+' || rest[n] == '-') {
		n++
	}
	digits := span(rest[n:], isDigit)
	if digits == 0 {
		return 0
	}
	return n + digits
}

// span returns how many bytes of s from its begin on are in the class.
func span(s string, class func(byte) bool) int {
	for i := range len(s) {
		if !class(s[i]) {
			return i
		}
	}
	return len(s)
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isLetter(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c == '$'
}
