// SPDX-License-Identifier: Apache-2.0

package protocol

import "math"

// decodeJSON reads a JSON header: members in any order, unknown ones skipped, numbers quoted or bare, the language by
// name or ordinal, ext values of any kind, and what else lenient takes.
func (c *Command) decodeJSON(b []byte) error {
	r := lenient{data: b, inPlace: true}
	r.open('{')
	for key, more := r.member(); more; key, more = r.member() {
		switch aliasString(key) {
		case "code":
			c.Code = r.number()
		case "extFields":
			r.fields(&c.Ext)
		case "flag":
			c.Flag = r.number()
		case "language":
			c.Language, _ = r.language()
		case "opaque":
			c.Opaque = r.number()
		case "remark":
			if text, null := r.scalar(); !null {
				c.Remark = aliasString(text)
			}
		case "version":
			c.Version = r.number()
		default:
			r.scalar()
		}
	}
	if r.peek(); r.pos < len(b) {
		r.fail("more after the object")
	}
	if r.failed {
		return &DecodeError{Offset: headerWordBytes + min(r.errPos, len(b)), Reason: "JSON header: " + r.reason}
	}
	return nil
}

// member reads the name of the next member of an object; false behind the closing brace, and after an error.
func (r *lenient) member() (key []byte, ok bool) {
	if key, ok = r.plainMember(); ok {
		return key, true
	}
	if !r.more('}') {
		return nil, false
	}
	key = r.key()
	return key, !r.failed
}

// fields reads the object of the ext fields. Fields that are null are left out.
func (r *lenient) fields(ext *Ext) {
	if r.peek() != '{' {
		if _, null := r.scalar(); !null {
			r.fail("extFields is no object")
		}
		return
	}
	r.open('{')
	r.plainFields(ext)
	for key, more := r.member(); more; key, more = r.member() {
		value, null := r.scalar()
		switch {
		case null || r.failed:
		case ext.n >= MaxExtFields:
			r.fail("too many ext fields")
		default:
			ext.push(extField{key: r.spanOf(key), value: r.spanOf(value)})
		}
	}
}

// spanOf is where a text lies that was read in place.
func (r *lenient) spanOf(text []byte) span {
	return span{off: uint32(cap(r.data) - cap(text)), len: uint32(len(text))}
}

// number reads a number, bare or quoted. null and the empty string are 0.
func (r *lenient) number() int32 {
	if n, ok := r.plainInt(); ok {
		return n
	}
	n, _ := r.integer(math.MinInt32, math.MaxInt32)
	return int32(n)
}

// language reads a language by its name or ordinal; known is false for null.
func (r *lenient) language() (language LanguageCode, known bool) {
	text, null := r.scalar()
	if null {
		return LanguageJava, false
	}
	if n, ok := parseInt(aliasString(text)); ok {
		return languageOf(n), true
	}
	return ParseLanguage(aliasString(text)), true
}
