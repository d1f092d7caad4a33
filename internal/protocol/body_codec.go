// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"encoding/base64"
	"math"
	"slices"
	"strconv"
	"strings"
)

// bodyCodec writes a Body to out, or reads one from in. A Body's fields method calls field, or one of the
// methods that do so, for each of its fields. Writing, each call appends name and value. Reading, fields is
// called once for each key in the text, and the call whose name is the key takes the value.
//
// The functions called …Value write or read a value alone. Reading, they leave it as it is where the text has
// null.
type bodyCodec struct {
	out     []byte
	in      lenient
	reading bool
	key     []byte // reading: the key to be taken
	taken   bool   // reading: it was
}

// BodyOf is satisfied by *T when that is a Body.
type BodyOf[T any] interface {
	*T
	Body
}

// field starts a field: it reports whether its value is to be written or read now.
func (c *bodyCodec) field(name string) bool {
	if c.reading {
		if c.taken || string(c.key) != name {
			return false
		}
		c.taken = true
		return true
	}
	c.comma()
	c.out = append(c.out, '"')
	c.out = append(c.out, name...)
	c.out = append(c.out, '"', ':')
	return true
}

// rename makes the key read as name when it is alias.
func (c *bodyCodec) rename(alias, name string) {
	if c.reading && !c.taken && string(c.key) == alias {
		c.key = []byte(name)
	}
}

// comma separates the next element from the one before.
func (c *bodyCodec) comma() {
	if last := c.out[len(c.out)-1]; last != '{' && last != '[' {
		c.out = append(c.out, ',')
	}
}

// when reports whether an optional field goes on: reading always, writing if it is present.
func (c *bodyCodec) when(present bool) bool { return c.reading || present }

// object writes or reads b as an object.
func (c *bodyCodec) object(b Body) {
	if !c.reading {
		c.out = append(c.out, '{')
		b.fields(c)
		c.out = append(c.out, '}')
		return
	}
	if c.in.absent() {
		return
	}
	jump, _ := c.in.follow()
	if d, ok := b.(defaulter); ok {
		d.setDefaults()
	}
	c.in.spend()
	key, taken := c.key, c.taken
	if c.in.open('{') {
		for c.in.more('}') {
			c.key, c.taken = c.in.key(), false
			if b.fields(c); !c.taken {
				c.in.skip()
			}
		}
	}
	c.key, c.taken = key, taken
	c.in.back(jump)
}

// value writes or reads a field: do does so with its value alone.
func value[T any](c *bodyCodec, name string, v *T, do func(*bodyCodec, *T)) {
	if c.field(name) {
		do(c, v)
	}
}

// optText writes or reads a string that is null when empty.
func (c *bodyCodec) optText(name string, v *string) {
	if !c.when(*v != "") || !c.field(name) {
		return
	}
	if !c.reading {
		c.out = appendJSONString(c.out, *v)
	} else if text, null := c.in.scalar(); !null && len(text) > 0 {
		*v = internText(text)
	}
}

// enum writes or reads the name of an enum's value, null when empty. names are the enum's names in the order
// of Java's ordinals: clients that send ordinals are understood. Unknown names are kept.
func (c *bodyCodec) enum(name string, v *string, names []string) {
	if !c.when(*v != "") || !c.field(name) {
		return
	}
	if !c.reading {
		c.out = appendJSONString(c.out, *v)
		return
	}
	text, null := c.in.scalar()
	switch at := slices.Index(names, aliasString(text)); {
	case null || len(text) == 0:
	case at >= 0:
		*v = names[at]
	default:
		*v = string(text)
		if n, ok := parseInt(*v); ok && n >= 0 && n < int64(len(names)) {
			*v = names[n]
		}
	}
}

// bytes writes or reads bytes as base64, nil as null. It also reads an array of Java bytes, -128 to 127.
func (c *bodyCodec) bytes(name string, v *[]byte) {
	if !c.when(*v != nil) || !c.field(name) {
		return
	}
	if !c.reading {
		c.out = append(c.out, '"')
		c.out = base64.StdEncoding.AppendEncode(c.out, *v)
		c.out = append(c.out, '"')
		return
	}
	if c.in.peek() == '[' {
		*v = []byte{}
		for c.in.open('['); c.in.more(']'); {
			n, _ := c.in.integer(math.MinInt8, math.MaxUint8)
			*v = append(*v, byte(n))
		}
		return
	}
	text, null := c.in.scalar()
	if null {
		return
	}
	decoded, err := base64.StdEncoding.AppendDecode([]byte{}, text)
	if err != nil {
		c.in.fail("expected base64")
	}
	*v = decoded
}

func textValue(c *bodyCodec, v *string) {
	if !c.reading {
		c.out = appendJSONString(c.out, *v)
	} else if text, null := c.in.scalar(); !null {
		*v = internText(text)
	}
}

// internText copies text, except the few that most subscriptions consist of.
func internText(text []byte) string {
	for _, known := range [...]string{"*", "TAG", "SINGLE_TAG"} {
		if string(text) == known {
			return known
		}
	}
	return string(text)
}

func int32Value(c *bodyCodec, v *int32) {
	if !c.reading {
		c.out = strconv.AppendInt(c.out, int64(*v), 10)
	} else if n, ok := c.in.integer(math.MinInt32, math.MaxInt32); ok {
		*v = int32(n)
	}
}

func int64Value(c *bodyCodec, v *int64) {
	if !c.reading {
		c.out = strconv.AppendInt(c.out, *v, 10)
	} else if n, ok := c.in.integer(math.MinInt64, math.MaxInt64); ok {
		*v = n
	}
}

func boolValue(c *bodyCodec, v *bool) {
	if !c.reading {
		c.out = strconv.AppendBool(c.out, *v)
	} else if truth, ok := c.in.boolean(); ok {
		*v = truth
	}
}

func decimalValue(c *bodyCodec, v *float64) {
	if !c.reading {
		c.out = appendDouble(c.out, *v)
	} else if f, ok := c.in.decimal(); ok {
		*v = f
	}
}

func languageValue(c *bodyCodec, v *LanguageCode) {
	if !c.reading {
		c.out = appendJSONString(c.out, v.String())
	} else if language, known := c.in.language(); known {
		*v = language
	}
}

// objectValue writes or reads a nested Body.
func objectValue[T any, P BodyOf[T]](c *bodyCodec, v *T) { c.object(P(v)) }

// optObject writes or reads a nested Body that is null when nil.
func optObject[T any, P BodyOf[T]](c *bodyCodec, name string, v **T) {
	if !c.when(*v != nil) || !c.field(name) {
		return
	}
	if c.reading {
		if c.in.absent() {
			return
		}
		*v = new(T)
	}
	c.object(P(*v))
}

// appendDouble appends v as Java prints a double: 0.25, 100.0, 1.0E7, and null for what is no number.
func appendDouble(dst []byte, v float64) []byte {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return append(dst, "null"...)
	}
	if abs := math.Abs(v); abs != 0 && (abs < 1e-3 || abs >= 1e7) {
		mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(v, 'E', -1, 64), "E")
		dst = append(dst, mantissa...)
		if !strings.Contains(mantissa, ".") {
			dst = append(dst, ".0"...)
		}
		dst = append(dst, 'E')
		if exponent[0] == '-' {
			dst = append(dst, '-')
		}
		return append(dst, strings.TrimLeft(exponent, "+-0")...)
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, v, 'f', -1, 64)
	if !strings.Contains(string(dst[start:]), ".") {
		dst = append(dst, ".0"...)
	}
	return dst
}
