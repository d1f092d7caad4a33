// SPDX-License-Identifier: Apache-2.0

package sql92

import (
	"cmp"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// The conversions of strings to numbers are those of Java's Integer.valueOf, Long.valueOf and Double.valueOf,
// which differ from Go's: digits of any script, no white space around integers but some around floats, a
// letter behind a float.

// parseInteger reads a signed decimal integer of so many bits.
func parseInteger(s string, bits uint) (int64, bool) {
	negative := false
	if s != "" && (s[0] == '-' || s[0] == '+') {
		negative = s[0] == '-'
		s = s[1:]
	}
	if s == "" {
		return 0, false
	}
	limit := uint64(1)<<(bits-1) - 1
	if negative {
		limit++
	}
	var n uint64
	if len(s) < 10 { // most are, and cannot overflow
		at := 0
		for ; at < len(s) && isDigit(s[at]); at++ {
			n = n*10 + uint64(s[at]-'0')
		}
		s = s[at:]
	}
	for _, r := range s {
		digit, ok := digitOf(r)
		if !ok || n > (limit-digit)/10 {
			return 0, false
		}
		n = n*10 + digit
	}
	if negative {
		return -int64(n), true
	}
	return int64(n), true
}

// digitOf returns the value of a decimal digit of any script that Java's char can hold.
func digitOf(r rune) (uint64, bool) {
	if r < 0x80 {
		return uint64(r - '0'), '0' <= r && r <= '9'
	}
	for _, digits := range unicode.Nd.R16 { // runs of ten
		if lo, hi := rune(digits.Lo), rune(digits.Hi); lo <= r && r <= hi {
			return uint64(r-lo) % 10, true
		}
	}
	return 0, false
}

// parseFloat reads a float.
func parseFloat(s string) (float64, bool) {
	s = strings.TrimFunc(s, func(r rune) bool { return r <= ' ' })
	unsigned := s
	if s != "" && (s[0] == '-' || s[0] == '+') {
		unsigned = s[1:]
	}
	switch {
	case unsigned == "NaN":
		return math.NaN(), true
	case unsigned == "Infinity" && s[0] == '-':
		return math.Inf(-1), true
	case unsigned == "Infinity":
		return math.Inf(1), true
	case len(unsigned) > 1 && unsigned[0] == '0' && (unsigned[1] == 'x' || unsigned[1] == 'X'):
		return parseHexFloat(s)
	}
	whole := span(unsigned, isDigit)
	n, digits := whole, whole
	if n < len(unsigned) && unsigned[n] == '.' {
		n++
		fraction := span(unsigned[n:], isDigit)
		n, digits = n+fraction, digits+fraction
	}
	n += exponentLen(unsigned[n:])
	if rest := unsigned[n:]; digits == 0 || len(rest) > 1 || rest != "" && !isFloatSuffix(rest[0]) {
		return 0, false
	}
	f, _ := strconv.ParseFloat(s[:len(s)-len(unsigned)+n], 64) // its only error is infinity
	return f, true
}

// parseHexFloat reads a hexadecimal float with its sign, which must have an exponent.
func parseHexFloat(s string) (float64, bool) {
	if p := strings.IndexAny(s, "pP"); p < 0 || strings.IndexByte(s, '_') >= 0 {
		return 0, false
	}
	if isFloatSuffix(s[len(s)-1]) {
		s = s[:len(s)-1]
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil || math.IsInf(f, 0)
}

func isFloatSuffix(c byte) bool { return c == 'f' || c == 'F' || c == 'd' || c == 'D' }

// parseBool reads a boolean: everything but true, in any case, is false.
func parseBool(s string) bool { return len(s) == len("true") && strings.EqualFold(s, "true") }

// compareFloats orders as Double.compareTo does: -0.0 before 0.0, and NaN behind all and equal to itself.
func compareFloats(a, b float64) int { return cmp.Compare(sortable(a), sortable(b)) }

// sortable is an integer in whose order floats are.
func sortable(f float64) int64 {
	if math.IsNaN(f) {
		return math.MaxInt64
	}
	bits := int64(math.Float64bits(f))
	if bits < 0 {
		bits ^= math.MaxInt64
	}
	return bits
}
