// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// plain is a command as plain values, for comparing.
type plain struct {
	Code, Version, Opaque, Flag int32
	Language                    LanguageCode
	Serialize                   SerializeType
	Remark                      string
	Ext                         map[string]string
	Body                        string
}

func plainOf(c *Command) plain {
	p := plain{
		Code:      c.Code,
		Version:   c.Version,
		Opaque:    c.Opaque,
		Flag:      c.Flag,
		Language:  c.Language,
		Serialize: c.Serialize,
		Remark:    strings.Clone(c.Remark),
		Body:      string(c.Body),
	}
	for key, value := range c.Ext.All() {
		if p.Ext == nil {
			p.Ext = map[string]string{}
		}
		p.Ext[strings.Clone(key)] = strings.Clone(value)
	}
	return p
}

// frameOf returns a frame without its length word.
func frameOf(form SerializeType, header, body string) []byte {
	frame := binary.BigEndian.AppendUint32(nil, uint32(form)<<24|uint32(len(header)))
	return append(append(frame, header...), body...)
}

func TestFrameSize(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		prefix string
		want   int // -1 for an error
	}{
		{"least", "\x00\x00\x00\x04", 4},
		{"more bytes may follow", "\x00\x00\x01\x00junk", 256},
		{"most", "\x00\xff\xff\xfc", MaxFrameBytes - 4},
		{"C002 two bytes", "\x00\x00\x00\x02", -1},
		{"zero", "\x00\x00\x00\x00", -1},
		{"one over", "\x00\xff\xff\xfd", -1},
		{"negative", "\xff\xff\xff\xff", -1},
		{"C003 HTTP", "GET ", -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			n, err := FrameSize([]byte(tc.prefix))
			var bad *DecodeError
			if tc.want < 0 && (!errors.As(err, &bad) || bad.Offset != -4) {
				t.Fatalf("got %d, %v; want a DecodeError at -4", n, err)
			}
			if tc.want >= 0 && (err != nil || n != tc.want) {
				t.Fatalf("got %d, %v; want %d", n, err, tc.want)
			}
		})
	}
}

func TestDecodeFrameRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, frame string
	}{
		{"empty", ""},
		{"C002 a: two bytes", "\x00\x00"},
		{"C002 b: serialize type 7F", string(frameOf(0x7F, `{"code":1}`, ""))},
		{"C002 c: header is an array", string(frameOf(SerializeJSON, `[]`, ""))},
		{"header longer than the frame", "\x00\x00\x00\x05{}"},
		{"header length uses all 24 bits", "\x00\xff\xff\xff{}"},
		{"no JSON header", "\x00\x00\x00\x00body"},
		{"no binary header", "\x01\x00\x00\x00body"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := DecodeFrame([]byte(tc.frame))
			var bad *DecodeError
			if !errors.As(err, &bad) || bad.Error() == "" {
				t.Fatalf("got %v, want a DecodeError", err)
			}
		})
	}
	if _, err := DecodeFrame(make([]byte, MaxFrameBytes-3)); err == nil {
		t.Error("a frame over the limit was read")
	}
}

func TestDecodeAliasesFrame(t *testing.T) {
	t.Parallel()
	frame := sendFrame(t, SerializeJSON)
	c, err := DecodeFrame(frame)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Body) != 128 || cap(c.Body) != 128 || &c.Body[0] != &frame[len(frame)-128] {
		t.Errorf("the body is not the end of the frame: %d bytes, capacity %d", len(c.Body), cap(c.Body))
	}
	before := c.Ext.Value("b")
	c.Ext.Set("b", "other")
	if before != "orders" || c.Ext.Value("b") != "other" || c.Ext.Value("a") != "please_rename_unique_group_name" {
		t.Errorf("Set disturbed the decoded fields: %q %q %q", before, c.Ext.Value("b"), c.Ext.Value("a"))
	}
}

func TestDecodeReusesCommand(t *testing.T) {
	t.Parallel()
	var c Command
	if err := c.Decode(sendFrame(t, SerializeJSON)); err != nil {
		t.Fatal(err)
	}
	if err := c.Decode(frameOf(SerializeJSON, `{}`, "")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(plain{}, plainOf(&c)); diff != "" {
		t.Errorf("something of the first frame is left (-want +got):\n%s", diff)
	}
}

func TestAppendFrame(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		cmd    Command
		header Header
		want   string // the JSON header
	}{
		{
			"request",
			Command{Code: 105, Version: 513},
			&GetRouteInfoRequestHeader{Topic: "T"},
			`{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":0,` +
				`"serializeTypeCurrentRPC":"JSON","version":513}`,
		},
		{
			"nothing to say",
			Command{Flag: FlagResponse, Opaque: -1, Language: LanguageGo},
			nil,
			`{"code":0,"flag":1,"language":"GO","opaque":-1,"serializeTypeCurrentRPC":"JSON","version":0}`,
		},
		{
			"a header without fields",
			Command{},
			&HeartbeatResponseHeader{},
			`{"code":0,"extFields":{},"flag":0,"language":"JAVA","opaque":0,"serializeTypeCurrentRPC":"JSON","version":0}`,
		},
		{
			"remark with escapes",
			Command{Code: 1, Flag: 1, Remark: "a\"b\\c/\x00\x08\t\n\x0b\f\r\x1f\x7f é中😀\xff"},
			nil,
			`{"code":1,"flag":1,"language":"JAVA","opaque":0,"remark":"a\"b\\c/\u0000\b\t\n\u000b\f\r\u001f` + "\x7f é中😀\uFFFD" +
				`","serializeTypeCurrentRPC":"JSON","version":0}`,
		},
		{
			"an answer's code stays in int16",
			Command{Code: math.MaxInt16 + 1, Flag: FlagResponse},
			nil,
			`{"code":1,"flag":1,"language":"JAVA","opaque":0,"serializeTypeCurrentRPC":"JSON","version":0}`,
		},
		{
			"a request's does not",
			Command{Code: int32(NotifyUnsubscribeLite)},
			nil,
			`{"code":200073,"flag":0,"language":"JAVA","opaque":0,"serializeTypeCurrentRPC":"JSON","version":0}`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.cmd.Body = []byte("one")
			got := AppendFrame([]byte("before"), &tc.cmd, tc.header, []byte("two"), nil, []byte("three"))
			want := append(binary.BigEndian.AppendUint32([]byte("before"), uint32(4+len(tc.want)+11)),
				frameOf(SerializeJSON, tc.want, "onetwothree")...)
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAppendFrameHead(t *testing.T) {
	t.Parallel()
	for _, form := range []SerializeType{SerializeJSON, SerializeROCKETMQ} {
		cmd := &Command{Code: 11, Serialize: form, Body: []byte("ignored")}
		whole := AppendFrame(nil, &Command{Code: 11, Serialize: form}, nil, []byte("body"))
		parts := append(AppendFrameHead(nil, cmd, nil, 4), "body"...)
		if !slices.Equal(whole, parts) {
			t.Errorf("%v: %q and %q differ", form, whole, parts)
		}
	}
}

func TestLongRemarkIsCut(t *testing.T) {
	t.Parallel()
	cmd := &Command{Remark: strings.Repeat("é", maxRemarkBytes)}
	got, err := DecodeFrame(AppendFrame(nil, cmd, nil)[FrameLengthBytes:])
	if err != nil || len(got.Remark) != maxRemarkBytes || got.Remark != cmd.Remark[:maxRemarkBytes] {
		t.Errorf("got %d bytes, %v", len(got.Remark), err)
	}
	cmd.Remark = "x" + cmd.Remark
	got, err = DecodeFrame(AppendFrame(nil, cmd, nil)[FrameLengthBytes:])
	if err != nil || len(got.Remark) != maxRemarkBytes-1 {
		t.Errorf("not cut between characters: %d bytes, %v", len(got.Remark), err)
	}
}

func TestUnknownSerializeTypeIsWrittenAsJSON(t *testing.T) {
	t.Parallel()
	frame := AppendFrame(nil, &Command{Code: 3, Serialize: 9}, nil)
	if c, err := DecodeFrame(frame[FrameLengthBytes:]); err != nil || c.Code != 3 || c.Serialize != SerializeJSON {
		t.Errorf("got %+v, %v", plainOf(&c), err)
	}
}

// FrameSize reads the length word at the start of prefix, which has at least FrameLengthBytes bytes, and
// returns how many bytes follow it. It fails with a *DecodeError when the frame is too short for a header
// word or larger than MaxFrameBytes.
func FrameSize(prefix []byte) (int, error) {
	n := int64(binary.BigEndian.Uint32(prefix))
	if n < headerWordBytes {
		return 0, badFrame(-FrameLengthBytes, "length %d, the least is %d", n, headerWordBytes)
	}
	if n > MaxFrameBytes-FrameLengthBytes {
		return 0, badFrame(-FrameLengthBytes, "length %d, the most is %d", n, MaxFrameBytes-FrameLengthBytes)
	}
	return int(n), nil
}
