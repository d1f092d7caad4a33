// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"encoding/hex"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// escaped reads on in a string that began at start and whose first escape is at i. It writes what the
// escapes mean over them: the result is never longer. Properties are full of escapes (fastjson writes their
// separators as \u0001 and \u0002), so this is the way of most sends, and a buffer of its own would be an
// allocation for each.
func (r *lenient) escaped(start, i int) []byte {
	b, w := r.data, i
	for i < len(b) && b[i] == '\\' {
		var n int
		if w, n = r.escape(w, i); n == 0 {
			r.pos = i
			r.fail("an unknown escape")
			return nil
		}
		i += n
		next := stringEnd(b, i)
		w += copy(b[w:], b[i:next])
		i = next
	}
	if i == len(b) {
		r.fail("string without end")
		return nil
	}
	r.pos = i + 1
	return b[start:w]
}

// escape resolves the escape at i into b[w:] and returns the position behind what it wrote and how many
// bytes it read, 0 for an escape that is unknown or cut.
func (r *lenient) escape(w, i int) (int, int) {
	b := r.data
	if len(b)-i < 2 {
		return w, 0
	}
	c := b[i+1]
	if c == 'u' {
		if len(b)-i >= 6 && b[i+2] == '0' && b[i+3] == '0' && b[i+4] == '0' && b[i+5]-'0' <= 9 {
			b[w] = b[i+5] - '0' // the separators of properties
			return w + 1, 6
		}
		return r.unicode(w, i)
	}
	at := strings.IndexByte(escapeLetters, c)
	if at < 0 {
		return w, 0
	}
	b[w] = escapeMeanings[at]
	return w + 1, 2
}

// What may stand behind a backslash besides u, and what it means. fastjson 1 reads and old ones write the digits.
const (
	escapeLetters  = "\"\\/'btnvfr01234567"
	escapeMeanings = "\"\\/'\b\t\n\v\f\r\x00\x01\x02\x03\x04\x05\x06\x07"
)

// unicode resolves \uXXXX, two of them for a surrogate pair. Half a pair becomes U+FFFD.
func (r *lenient) unicode(w, i int) (int, int) {
	b := r.data
	u, ok := hexUnit(b, i+2)
	if !ok {
		return w, 0
	}
	if u < utf8.RuneSelf {
		b[w] = byte(u)
		return w + 1, 6
	}
	n := 6
	if utf16.IsSurrogate(u) {
		pair := rune(utf8.RuneError)
		if len(b)-i >= 12 && b[i+6] == '\\' && b[i+7] == 'u' {
			if low, ok := hexUnit(b, i+8); ok {
				pair = utf16.DecodeRune(u, low)
			}
		}
		if u = pair; pair != utf8.RuneError {
			n = 12
		}
	}
	return w + utf8.EncodeRune(b[w:w+utf8.UTFMax], u), n
}

// hexUnit reads four hexadecimal digits at pos.
func hexUnit(b []byte, pos int) (rune, bool) {
	if len(b)-pos < 4 {
		return 0, false
	}
	var u [2]byte
	_, err := hex.Decode(u[:], b[pos:pos+4])
	return rune(u[0])<<8 | rune(u[1]), err == nil
}
