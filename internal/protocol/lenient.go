// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bounds of what one JSON body may cost. A body that passes one is refused as a whole.
const (
	maxBodyBytes    = 16 << 20 // no frame is larger
	maxBodyDepth    = 64       // nesting; the deepest real body has eight levels
	maxBodyObjects  = 1 << 18  // objects and map entries: a three-byte {}, may become a struct of some hundred bytes
	maxRefScanBytes = 1 << 20  // text read again in all to resolve "$ref"
)

// lenient reads JSON as the peers of twelve years write it: what encoding/json takes, and besides
//   - object keys without quotes ({0:1}, {a:1}), and whole objects as keys ({{"queueId":1}:5});
//   - missing, doubled and trailing commas, and anything at all behind the body;
//   - {"$ref":"$.a.b[0]"} in place of an object or array that was already written (see lenient_ref.go).
//
// Errors are sticky: the first one is kept, the position moves to the end, and every later call does nothing.
// It allocates for strings with escapes only; all other results alias the text.
type lenient struct {
	data     []byte
	pos      int
	depth    int
	objects  int // spent of maxBodyObjects
	refBytes int // spent of maxRefScanBytes
	errPos   int // where the first error happened
	reason   string
	failed   bool
	inPlace  bool // escapes are resolved in data itself
}

// fail keeps the first error.
func (r *lenient) fail(reason string) {
	if !r.failed {
		r.failed, r.reason, r.errPos = true, reason, r.pos
	}
	r.pos = len(r.data)
}

// expected fails with what was wanted and what stands there.
func (r *lenient) expected(what string) {
	if c := r.peek(); c == 0 && r.pos >= len(r.data) {
		r.fail("expected " + what + ", found the end")
	} else {
		r.fail(fmt.Sprintf("expected %s, found %q", what, rune(c)))
	}
}

// peek skips white space and returns the byte it stops at, 0 at the end.
func (r *lenient) peek() byte {
	if r.pos < len(r.data) && r.data[r.pos] > ' ' {
		return r.data[r.pos]
	}
	return r.skipSpace()
}

func (r *lenient) skipSpace() byte {
	for r.pos < len(r.data) {
		switch c := r.data[r.pos]; c {
		case ' ', '\t', '\n', '\r':
			r.pos++
		default:
			return c
		}
	}
	return 0
}

// open enters an object or array; bracket is '{' or '['.
func (r *lenient) open(bracket byte) bool {
	if r.peek() != bracket {
		r.expected(map[byte]string{'{': "an object", '[': "an array"}[bracket])
		return false
	}
	if r.depth >= maxBodyDepth {
		r.fail("nested more than " + strconv.Itoa(maxBodyDepth) + " levels deep")
		return false
	}
	r.depth++
	r.pos++
	return true
}

// more reports whether another element follows, and leaves the object or array that bracket closes when none
// does.
func (r *lenient) more(bracket byte) bool {
	for r.peek() == ',' {
		r.pos++
	}
	switch r.peek() {
	case bracket:
		r.pos++
		r.depth--
		return false
	case 0:
		r.expected(strconv.Quote(string(rune(bracket))))
		return false
	}
	return true
}

// spend counts one object or map entry.
func (r *lenient) spend() {
	if r.objects++; r.objects > maxBodyObjects {
		r.fail("more than " + strconv.Itoa(maxBodyObjects) + " objects")
	}
}

// key reads an object's next key and its colon. A key that is itself an object is returned as its text.
func (r *lenient) key() []byte {
	key, _ := r.scalar()
	r.colon()
	return key
}

// colon reads the colon behind a key.
func (r *lenient) colon() {
	if r.peek() != ':' {
		r.expected("a colon")
		return
	}
	r.pos++
}

// scalar reads any value as text: a string's content, a number or word as it stands, an object or array as
// its text. null is true for the word null.
func (r *lenient) scalar() (text []byte, null bool) {
	switch r.peek() {
	case '"':
		return r.quoted(), false
	case '{', '[':
		start := r.pos
		r.skip()
		return r.data[start:r.pos], false
	}
	word := r.word()
	return word, string(word) == "null"
}

// absent consumes what stands for nothing, the word null or a reference to nowhere, and reports whether it
// did.
func (r *lenient) absent() bool {
	start := r.pos
	switch r.peek() {
	case 'n':
		if string(r.word()) == "null" {
			return true
		}
		r.pos = start
	case '{':
		depth := r.depth
		jump, found := r.follow()
		if r.failed {
			return true
		}
		r.depth = depth
		if jump.resume > 0 && !found {
			return true
		}
		r.pos = start
	}
	return false
}

// word reads an unquoted key, number or literal.
func (r *lenient) word() []byte {
	r.peek()
	start := r.pos
	for r.pos < len(r.data) && isWordByte(r.data[r.pos]) {
		r.pos++
	}
	if r.pos == start {
		r.expected("a value")
		return nil
	}
	return r.data[start:r.pos]
}

func isWordByte(c byte) bool { return c > ' ' && strings.IndexByte(`,:"{}[]`, c) < 0 }

// skip reads over one value of any kind, whose nesting is bounded by itself.
func (r *lenient) skip() {
	depth := r.depth
	r.depth = 0
	r.skipValue()
	r.depth = depth
}

func (r *lenient) skipValue() {
	switch r.peek() {
	case '"':
		r.skipQuoted()
	case '{':
		for more := r.open('{') && r.more('}'); more; more = r.more('}') {
			r.skipValue()
			r.colon()
			r.skipValue()
		}
	case '[':
		for more := r.open('[') && r.more(']'); more; more = r.more(']') {
			r.skipValue()
		}
	default:
		r.word()
	}
}

// skipQuoted reads over a string.
func (r *lenient) skipQuoted() {
	for i := r.pos + 1; i < len(r.data); i++ {
		switch r.data[i] {
		case '"':
			r.pos = i + 1
			return
		case '\\':
			i++
		}
	}
	r.fail("string without end")
}

// quoted reads a string's content. Without escapes it aliases the text.
func (r *lenient) quoted() []byte {
	start := r.pos + 1
	end := stringEnd(r.data, start)
	switch {
	case end == len(r.data):
		r.fail("string without end")
		return nil
	case r.data[end] == '"':
		r.pos = end + 1
		return r.data[start:end]
	case r.inPlace:
		return r.escaped(start, end)
	}
	if r.skipQuoted(); r.failed {
		return nil
	}
	copied := lenient{data: bytes.Clone(r.data[start:r.pos])} // the escapes are resolved in place
	text := copied.escaped(0, end-start)
	if copied.failed {
		r.pos = start
		r.fail("string with an unknown escape")
	}
	return text
}

// integer reads a whole number: bare or in quotes, also as 5.0 or 5e0 or with Java's suffix L. null and ""
// are no number: ok is false.
func (r *lenient) integer(low, high int64) (n int64, ok bool) {
	start := r.pos
	text, null := r.scalar()
	if null || len(text) == 0 {
		return 0, false
	}
	n, ok = parseInteger(text)
	if !ok || n < low || n > high {
		r.pos = start
		r.fail(fmt.Sprintf("expected a whole number of %d to %d, found %.40q", low, high, text))
		return 0, false
	}
	return n, true
}

func parseInteger(text []byte) (int64, bool) {
	if last := len(text) - 1; text[last] == 'L' || text[last] == 'l' {
		text = text[:last]
	}
	if n, ok := parseInt(aliasString(text)); ok {
		return n, true
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int64(f), true
}

// decimal reads a number, bare or in quotes. null and "" are no number: ok is false.
func (r *lenient) decimal() (f float64, ok bool) {
	start := r.pos
	text, null := r.scalar()
	if null || len(text) == 0 {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		r.pos = start
		r.fail(fmt.Sprintf("expected a number, found %.40q", text))
		return 0, false
	}
	return f, true
}

// boolean reads true or false in any case, bare or in quotes, or 1 or 0. Other texts are false, as Java has
// it; null and "" are no truth value: ok is false.
func (r *lenient) boolean() (truth, ok bool) {
	text, null := r.scalar()
	if null || len(text) == 0 {
		return false, false
	}
	return string(text) == "1" || parseBool(aliasString(text)), true
}
