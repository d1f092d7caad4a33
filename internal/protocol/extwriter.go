// SPDX-License-Identifier: Apache-2.0

package protocol

import "strconv"

// ExtWriter takes the fields of a Header and appends them to a frame in its form. Fields must come in
// ascending order of their names; fields that the command's own Ext has besides are merged in between, and
// lose to the header's.
type ExtWriter struct {
	dst    []byte
	binary bool
	extra  *Ext
	order  []int // indexes of extra still to be written, by name
}

// String writes a text field. name must be plain ASCII without quotes or backslashes.
func (w *ExtWriter) String(name, value string) {
	w.begin(name)
	w.text(value)
}

// Int writes a number. name as in String.
func (w *ExtWriter) Int(name string, value int64) {
	w.begin(name)
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
	w.begin(name)
	if value {
		w.text("true")
	} else {
		w.text("false")
	}
}

// begin writes the extra fields that sort before name, and name.
func (w *ExtWriter) begin(name string) {
	if len(w.order) > 0 {
		w.merge(name)
	}
	w.name(name)
}

// merge writes the extra fields that sort before name and drops the one that is called name.
func (w *ExtWriter) merge(name string) {
	for len(w.order) > 0 {
		key, value := w.extra.At(w.order[0])
		if key > name {
			return
		}
		if key < name {
			w.extraField(key, value)
		}
		w.order = w.order[1:]
	}
}

// rest writes the extra fields that are left.
func (w *ExtWriter) rest() {
	for _, i := range w.order {
		w.extraField(w.extra.At(i))
	}
	w.order = nil
}

func (w *ExtWriter) extraField(key, value string) {
	if w.binary {
		w.name(key)
	} else {
		w.dst = appendJSONString(w.dst, key)
		w.dst = append(w.dst, ':')
	}
	w.text(value)
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
