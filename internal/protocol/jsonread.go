// SPDX-License-Identifier: Apache-2.0

package protocol

// decodeJSON reads a JSON header as liberally as Apache's fastjson does: members in any order, unknown ones
// skipped, numbers quoted or bare, the language by name or ordinal, ext values of any kind, a comma before
// the closing brace.
func (c *Command) decodeJSON(b []byte) error {
	r := jsonReader{b: b}
	if r.peek() != '{' {
		return r.failure("an object is wanted")
	}
	r.pos++
	for key, ok := r.member(true); ok; key, ok = r.member(false) {
		switch aliasString(b[key.off : key.off+key.len]) {
		case "code":
			c.Code = r.int32()
		case "extFields":
			r.fields(&c.Ext)
		case "flag":
			c.Flag = r.int32()
		case "language":
			c.Language = r.language()
		case "opaque":
			c.Opaque = r.int32()
		case "remark":
			remark, _ := r.value()
			c.Remark = aliasString(b[remark.off : remark.off+remark.len])
		case "version":
			c.Version = r.int32()
		default:
			r.value()
		}
	}
	if r.err == nil && r.peek() != 0 {
		return r.failure("more after the object")
	}
	if r.err != nil {
		return r.err
	}
	return nil
}

// jsonReader reads a header and resolves the escapes of its strings in place. After the first error it sits
// at the end, so that every loop ends.
type jsonReader struct {
	b   []byte
	pos int
	err *DecodeError
}

// jsonKind is the kind of a JSON value.
type jsonKind uint8

const (
	jsonNull   jsonKind = iota
	jsonString          // the span is what is between the quotes, escapes resolved
	jsonOther           // number, boolean, object or array; the span is its text
)

// fail remembers the error for the current byte and ends the reading.
func (r *jsonReader) fail(reason string) {
	if r.err == nil {
		r.err = &DecodeError{Offset: headerWordBytes + min(r.pos, len(r.b)), Reason: "JSON header: " + reason}
	}
	r.pos = len(r.b)
}

func (r *jsonReader) failure(reason string) error {
	r.fail(reason)
	return r.err
}

// peek skips white space and returns the byte it then stands on, 0 at the end.
func (r *jsonReader) peek() byte {
	if r.pos < len(r.b) && r.b[r.pos] > ' ' {
		return r.b[r.pos]
	}
	return r.skipSpace()
}

func (r *jsonReader) skipSpace() byte {
	for r.pos < len(r.b) {
		switch c := r.b[r.pos]; c {
		case ' ', '\t', '\n', '\r':
			r.pos++
		case 0:
			r.fail("a zero byte")
		default:
			return c
		}
	}
	return 0
}

// member moves behind the colon of the next member of an object and returns its name. It returns false
// behind the closing brace, and after an error.
func (r *jsonReader) member(first bool) (span, bool) {
	if !first {
		if key, ok := r.plainMember(); ok {
			return key, true
		}
	}
	c := r.peek()
	if c == ',' && !first {
		r.pos++
		c = r.peek()
	} else if !first && c != '}' {
		r.fail("a comma or a closing brace is wanted")
		return span{}, false
	}
	if c == '}' {
		r.pos++
		return span{}, false
	}
	if c != '"' {
		r.fail("a name is wanted")
		return span{}, false
	}
	key := r.str()
	if r.peek() != ':' {
		r.fail("a colon is wanted")
		return span{}, false
	}
	r.pos++
	return key, true
}

// fields reads the object of the ext fields. Fields that are null are left out.
func (r *jsonReader) fields(ext *Ext) {
	if c := r.peek(); c != '{' {
		if _, kind := r.value(); kind != jsonNull {
			r.fail("extFields is no object")
		}
		return
	}
	r.pos++
	r.plainFields(ext)
	for key, ok := r.member(ext.n == 0); ok; key, ok = r.member(false) {
		value, kind := r.value()
		if kind == jsonNull {
			continue
		}
		if ext.n >= MaxExtFields {
			r.fail("too many ext fields")
			return
		}
		ext.push(extField{key: key, value: value})
	}
}

// int32 reads a number, bare or quoted. null and the empty string are 0.
func (r *jsonReader) int32() int32 {
	if n, ok := r.plainInt(); ok {
		return n
	}
	at := r.pos
	text, _ := r.value()
	if text.len == 0 {
		return 0
	}
	n, ok := parseInt(aliasString(r.b[text.off : text.off+text.len]))
	if !ok || int64(int32(n)) != n {
		r.pos = at
		r.fail("a 32-bit integer is wanted")
	}
	return int32(n)
}

func (r *jsonReader) language() LanguageCode {
	text, kind := r.value()
	name := aliasString(r.b[text.off : text.off+text.len])
	switch kind {
	case jsonString:
		return ParseLanguage(name)
	case jsonOther:
		return parseLanguageNumber(name)
	default:
		return LanguageJava
	}
}

// value reads any value. After an error and for null its span is empty.
func (r *jsonReader) value() (span, jsonKind) {
	switch c := r.peek(); c {
	case '"':
		return r.str(), jsonString
	case '{', '[':
		return r.nested(), jsonOther
	}
	start := r.pos
	for r.pos < len(r.b) && isScalar(r.b[r.pos]) {
		r.pos++
	}
	if r.pos == start {
		r.fail("a value is wanted")
		return span{}, jsonNull
	}
	if string(r.b[start:r.pos]) == "null" {
		return span{}, jsonNull
	}
	return span{off: uint32(start), len: uint32(r.pos - start)}, jsonOther
}

// isScalar reports whether c may be part of a number or a word.
func isScalar(c byte) bool {
	return c-'0' <= 9 || c|0x20-'a' <= 25 || c == '-' || c == '+' || c == '.'
}

// nested skips an object or array, without recursion, and leaves its text as it is.
func (r *jsonReader) nested() span {
	start, depth := r.pos, 0
	for ; r.pos < len(r.b); r.pos++ {
		switch r.b[r.pos] {
		case '"':
			r.skipString()
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				r.pos++
				return span{off: uint32(start), len: uint32(r.pos - start)}
			}
		}
	}
	r.fail("it ends inside an object or array")
	return span{}
}

// skipString moves from the opening to the closing quote of a string.
func (r *jsonReader) skipString() {
	for r.pos++; r.pos < len(r.b); r.pos++ {
		switch r.b[r.pos] {
		case '"':
			return
		case '\\':
			r.pos++
		}
	}
}

// str reads the string whose opening quote it stands on.
func (r *jsonReader) str() span {
	b, start := r.b, r.pos+1
	i := stringEnd(b, start)
	switch {
	case i == len(b):
		r.fail("it ends inside a string")
		return span{}
	case b[i] == '\\':
		return r.escaped(start, i)
	}
	r.pos = i + 1
	return span{off: uint32(start), len: uint32(i - start)}
}
