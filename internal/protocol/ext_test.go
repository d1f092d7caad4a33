// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"iter"
	"slices"
	"strconv"
	"testing"
)

func TestExt(t *testing.T) {
	t.Parallel()
	var e Ext
	if _, ok := e.Get("x"); ok || e.Len() != 0 || e.Value("x") != "" {
		t.Error("the zero Ext is not empty")
	}
	for i := range 40 {
		e.Set("k"+strconv.Itoa(i), strconv.Itoa(i))
	}
	e.Set("k7", "seven")
	e.Set("k20", "")
	if e.Len() != 40 || e.Value("k7") != "seven" || e.Value("k39") != "39" {
		t.Errorf("%d fields, k7=%q, k39=%q", e.Len(), e.Value("k7"), e.Value("k39"))
	}
	if value, ok := e.Get("k20"); !ok || value != "" {
		t.Errorf("an empty value is %q, %v", value, ok)
	}
	c := e.Clone()
	c.Set("k0", "changed")
	c.Set("new", "x")
	if e.Value("k0") != "0" || e.Len() != 40 || c.Len() != 41 || c.Value("k39") != "39" {
		t.Error("the clone shares memory with its original")
	}
	for key := range e.All() {
		if key != "k0" {
			t.Errorf("the first is %s", key)
		}
		break
	}
}

func TestExtOrder(t *testing.T) {
	t.Parallel()
	var e Ext
	e.reset([]byte("b0c1a2b3b4a5"))
	for i := range uint32(6) {
		e.push(extField{key: span{off: 2 * i, len: 1}, value: span{off: 2*i + 1, len: 1}})
	}
	var got []string
	for key, value := range e.Sorted() {
		got = append(got, key+value)
	}
	if !slices.Equal(got, []string{"a5", "b4", "c1"}) {
		t.Errorf("got %v, want the last a, b and c", got)
	}
}

func TestLanguages(t *testing.T) {
	t.Parallel()
	for l := LanguageJava; l <= LanguageNodeJS; l++ {
		if ParseLanguage(l.String()) != l {
			t.Errorf("%d: %s does not come back", l, l)
		}
	}
	if LanguageCode(200).String() != "OTHER" || ParseLanguage("java") != LanguageOther {
		t.Error("unknown languages are not OTHER")
	}
	if SerializeType(5).String() != "UNKNOWN" || SerializeROCKETMQ.String() != "ROCKETMQ" {
		t.Error("names of serialize types")
	}
}

func TestCodes(t *testing.T) {
	t.Parallel()
	codes := Codes()
	if !slices.IsSorted(codes) ||
		len(codes) != 169 { // 164 of RequestCode.java, 5 of them shorts for the controller's log
		t.Errorf("%d codes", len(codes))
	}
	if SendMessageV2.String() != "SEND_MESSAGE_V2" || SendMessageV2 != 310 || !PopMessage.Known() || Code(9).Known() {
		t.Error("names of request codes")
	}
	if Code(9).String() != "9" || ResponseCode(77).String() != "77" || TopicNotExist.String() != "TOPIC_NOT_EXIST" {
		t.Error("names of response codes")
	}
	var err error = &Error{Code: TopicNotExist, Remark: "no such topic"}
	if err.Error() != "TOPIC_NOT_EXIST: no such topic" {
		t.Errorf("got %q", err)
	}
}

// Set gives the field called key the value, adding the field when there is none. It copies both strings.
// Set on a decoded Ext copies the header first, so the frame is left alone.
func (e *Ext) Set(key, value string) {
	store := func(text string) span {
		s := span{off: uint32(len(e.src)), len: uint32(len(text))}
		e.src = append(e.src, text...)
		return s
	}
	if i := e.find(key); i >= 0 {
		e.field(i).value = store(value)
		return
	}
	e.push(extField{key: store(key), value: store(value)})
}

// fieldsOf is a header of all fields of an Ext, whatever their names are.
type fieldsOf struct{ *Ext }

func (fieldsOf) DecodeExt(*Ext) error { return nil }

func (h fieldsOf) AppendExt(w *ExtWriter) {
	for key, value := range h.Sorted() {
		if w.binary {
			w.name(key)
		} else {
			w.dst = append(appendJSONString(w.dst, key), ':')
		}
		w.text(value)
	}
}

// encodeAgain returns the frame of a decoded command, its ext fields sorted by name.
func encodeAgain(c *Command) []byte {
	if c.Ext.Len() == 0 {
		return AppendFrame(nil, c, nil)
	}
	return AppendFrame(nil, c, fieldsOf{&c.Ext})
}

// Clone returns a copy that shares no memory with the frame.
func (e *Ext) Clone() Ext {
	c := Ext{n: e.n, inline: e.inline}
	c.src = append([]byte(nil), e.src...)
	c.more = append([]extField(nil), e.more...)
	return c
}

// All yields the fields in order, repeated names included.
func (e *Ext) All() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for i := range e.n {
			if !yield(e.At(i)) {
				return
			}
		}
	}
}
