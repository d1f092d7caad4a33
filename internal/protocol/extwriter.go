// SPDX-License-Identifier: Apache-2.0

package protocol

import "strconv"

// ExtWriter takes the fields of a Header and appends them to a frame in its form. Fields must come in
// ascending order of their names.
type ExtWriter struct {
	dst    []byte
	binary bool
}

// String writes a text field. name must be plain ASCII without quotes or backslashes.
func (w *ExtWriter) String(name, value string) {
	w.name(name)
	w.text(value)
}

// Int writes a number. name as in String.
func (w *ExtWriter) Int(name string, value int64) {
	w.name(name)
	if !w.binary {
		w.dst = append(w.dst, '"')
		w.dst = strconv.AppendInt(w.dst, value, 10)
		w.dst = append(w.dst, '"', ',')
		return
	}
	at := len(w.dst)
	w.dst = append(w.dst, 0, 0, 0, 0)
	w.dst = strconv.AppendInt(w.dst, value, 10)
	putUint32(w.dst[at:], len(w.dst)-at-4)
}

// Bool writes true or false. name as in String.
func (w *ExtWriter) Bool(name string, value bool) {
	w.name(name)
	w.text(strconv.FormatBool(value))
}

func (w *ExtWriter) name(name string) {
	if w.binary {
		w.dst = append(w.dst, byte(len(name)>>8), byte(len(name)))
		w.dst = append(w.dst, name...)
		return
	}
	w.dst = append(w.dst, '"')
	w.dst = append(w.dst, name...)
	w.dst = append(w.dst, '"', ':')
}

func (w *ExtWriter) text(value string) {
	if w.binary {
		w.dst = appendLongString(w.dst, value)
		return
	}
	w.dst = appendJSONString(w.dst, value)
	w.dst = append(w.dst, ',')
}
