// SPDX-License-Identifier: Apache-2.0

package sql92

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// SyntaxError says where and why an expression is refused.
type SyntaxError struct {
	Offset int // in bytes, from 0
	Line   int // from 1
	Column int // in characters, from 1
	Reason string
}

// Error names the position and the reason.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("SQL92 expression refused at line %d, column %d: %s", e.Line, e.Column, e.Reason)
}

// newSyntaxError finds the line and column of an offset in text. A line ends with \n, \r or both.
func newSyntaxError(text string, offset int, reason string) *SyntaxError {
	e := &SyntaxError{Offset: offset, Line: 1, Reason: reason}
	before := text[:offset]
	lines := strings.ReplaceAll(before, "\r\n", "\n")
	e.Line += strings.Count(lines, "\n") + strings.Count(lines, "\r")
	e.Column = utf8.RuneCountInString(before[strings.LastIndexAny(before, "\r\n")+1:]) + 1
	return e
}

// maxQuoted bounds how much of an expression an error repeats, in bytes.
const maxQuoted = 40

// quoted is a piece of the expression as an error shows it.
func quoted(piece string) string {
	if len(piece) <= maxQuoted {
		return "\"" + piece + "\""
	}
	cut := maxQuoted
	for cut > 0 && !utf8.RuneStart(piece[cut]) {
		cut--
	}
	return "\"" + piece[:cut] + "…\""
}
