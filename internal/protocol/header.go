// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"strconv"
	"strings"
)

// Header is the typed form of a code's ext fields. headers_gen.go implements it for every header of
// headers.txt.
//
// DecodeExt overwrites the header with the fields of ext; unknown fields are ignored, strings alias the
// frame. It fails with an *Error of code SystemError whose remark names the field that is missing or
// malformed.
//
// AppendExt writes the fields in ascending order of their names. It must not keep w.
type Header interface {
	DecodeExt(ext *Ext) error
	AppendExt(w *ExtWriter)
}

// HeaderOf is satisfied by *H when that is a Header.
type HeaderOf[H any] interface {
	*H
	Header
}

// errInProcess is what reading a header gives that never comes over a wire.
var errInProcess = errors.New("header exists inside the process only")

// Optional is a header field that may be absent where absent is not the same as zero.
type Optional[T any] struct {
	Value   T // zero when absent
	Present bool
}

// Some returns a present value.
func Some[T any](value T) Optional[T] { return Optional[T]{Value: value, Present: true} }

// Or returns the value, or fallback when it is absent.
func (o Optional[T]) Or(fallback T) T {
	if o.Present {
		return o.Value
	}
	return fallback
}

// fieldReader turns field texts into values for the generated decoders. An empty number or boolean counts
// as absent: binary headers cannot tell the two apart. The first malformed value is remembered; the rest is
// still read.
type fieldReader struct {
	header string
	seen   uint32 // bits of the required fields that were there
	err    *Error
}

// readInt reads a number of dst's size.
func readInt[T int32 | int64](r *fieldReader, dst *T, key, value string, bit uint32) {
	if value == "" {
		return
	}
	n, ok := parseInt(value)
	if !ok || int64(T(n)) != n {
		if r.err == nil {
			want := "a 64-bit integer"
			if _, short := any(*dst).(int32); short {
				want = "a 32-bit integer"
			}
			value = value[:min(len(value), maxQuoted)]
			r.err = Errorf(SystemError, "%s: field %s is %q, want %s", r.header, key, value, want)
		}
		return
	}
	*dst = T(n)
	r.seen |= bit
}

func readBool(dst *bool, value string) {
	if value != "" {
		*dst = parseBool(value)
	}
}

// bad reports whether a value was malformed or one of the required fields is missing.
func (r *fieldReader) bad(required uint32) bool { return r.err != nil || r.seen != required }

// fault returns the error of a bad header. names are the required fields in the order of their bits.
func (r *fieldReader) fault(names ...string) error {
	if r.err != nil {
		return r.err
	}
	for i, name := range names {
		if r.seen&(1<<i) == 0 {
			return Errorf(SystemError, "%s: required field %s is missing", r.header, name)
		}
	}
	return nil
}

// maxQuoted bounds how much of a malformed value an error repeats, in bytes.
const maxQuoted = 64

// parseBool reads a boolean as Java does: "true" in any case, everything else is false.
func parseBool(text string) bool {
	return text == "true" || (len(text) == 4 && strings.EqualFold(text, "true"))
}

// parseInt reads a decimal int64 with an optional sign, as Java's Long.parseLong does.
func parseInt(text string) (int64, bool) {
	if len(text) == 0 || len(text) > 18 {
		n, err := strconv.ParseInt(text, 10, 64)
		return n, err == nil
	}
	digits := text
	if text[0] == '-' || text[0] == '+' {
		digits = text[1:]
	}
	if digits == "" {
		return 0, false
	}
	var n int64
	for i := range len(digits) {
		d := digits[i] - '0'
		if d > 9 {
			return 0, false
		}
		n = n*10 + int64(d)
	}
	if text[0] == '-' {
		n = -n
	}
	return n, true
}
