// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDecodeJSON(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, header string
		want         plain
	}{
		{
			"as fastjson writes it",
			`{"code":310,"extFields":{"a":"g","b":"t"},"flag":2,"language":"GO","opaque":7,"serializeTypeCurrentRPC":"JSON","version":317}`,
			plain{Code: 310, Flag: 2, Language: LanguageGo, Opaque: 7, Version: 317, Ext: map[string]string{"a": "g", "b": "t"}},
		},
		{
			"white space, unknown and nested members, any order",
			" {\t\"x\" : [1,{\"]\":\"\\\"}\"}] ,\r\n \"opaque\" : -5 , \"y\":{}, \"extFields\" : { \"k\" : \"v\" , \"l\" : \"w\" } , \"code\":34 } ",
			plain{Code: 34, Opaque: -5, Ext: map[string]string{"k": "v", "l": "w"}},
		},
		{
			"numbers quoted, null and empty",
			`{"code":"12","flag":null,"opaque":"","version":"-3","remark":null,"extFields":null,"language":null}`,
			plain{Code: 12, Version: -3},
		},
		{
			"ext values of every kind", // as fastjson 2 coerces them, but for white space inside nested ones
			`{"extFields":{"i":1,"f":-1.50,"t":true,"n":null,"o":{"q":[1]},"l":[1,2],"e":"","s":"x"}}`,
			plain{Ext: map[string]string{
				"i": "1", "f": "-1.50", "t": "true", "o": `{"q":[1]}`, "l": "[1,2]", "e": "", "s": "x",
			}},
		},
		{"unknown language", `{"language":"FORTRAN"}`, plain{Language: LanguageOther}},
		{"language by ordinal", `{"language":12}`, plain{Language: LanguageRust}},
		{"language ordinal unknown", `{"language":99}`, plain{Language: LanguageOther}},
		{"language of another kind", `{"language":[]}`, plain{Language: LanguageOther}},
		{"remark of another kind", `{"remark":5}`, plain{Remark: "5"}},
		{"comma before the brace", `{"code":10,"extFields":{"a":"b",},}`, plain{Code: 10, Ext: map[string]string{"a": "b"}}},
		{
			"commas too many and missing, names without quotes",
			`{,code:1,,"extFields":{"a":"b" "c":"d",,}"flag":2}`,
			plain{Code: 1, Flag: 2, Ext: map[string]string{"a": "b", "c": "d"}},
		},
		{"later wins", `{"code":1,"code":2,"extFields":{"a":"1","a":"2"}}`, plain{Code: 2, Ext: map[string]string{"a": "2"}}},
		{"extremes", `{"code":-2147483648,"opaque":2147483647}`, plain{Code: -2147483648, Opaque: 2147483647}},
		{
			"escapes", `{"extFields":{"\u0061\/":"\"\\\/\b\t\n\f\r\v\0\7\'|\u0001\u000B\u001f\u00e9\u4e2D"}}`,
			plain{Ext: map[string]string{"a/": "\"\\/\b\t\n\f\r\v\x00\x07'|\x01\x0b\x1fé中"}},
		},
		{
			"surrogates", `{"remark":"\uD83D\uDE00|\uD83D|\uDE00\uD83D|\uD83D\u0041|\ud83dx"}`,
			plain{Remark: "😀|\uFFFD|\uFFFD\uFFFD|\uFFFDA|\uFFFDx"},
		},
		{"raw control characters", "{\"remark\":\"a\nb\x01\"}", plain{Remark: "a\nb\x01"}},
		{"names of one character", `{"extFields":{"":"x","\"":"q","\\":"s"}}`, plain{Ext: map[string]string{"": "x", `"`: "q", `\`: "s"}}},
		{
			"long plain values", `{"extFields":{"seventeen_letters":"` + strings.Repeat("0123456789abcdef", 9) + `"}}`,
			plain{Ext: map[string]string{"seventeen_letters": strings.Repeat("0123456789abcdef", 9)}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c, err := DecodeFrame(frameOf(SerializeJSON, tc.header, ""))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, plainOf(&c)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeJSONRefuses(t *testing.T) {
	t.Parallel()
	manyFields := `{"extFields":{` + strings.Repeat(`"k":"v",`, MaxExtFields+1) + `}}`
	manyNumbers := `{"extFields":{` + strings.Repeat(`"k":1,`, MaxExtFields+1) + `}}`
	for _, header := range []string{
		``, ` `, `[]`, `null`, `"x"`, `1`, `{`, `}`, `{"`, `{"code`, `{"code"`, `{"code"}`, `{"code":`, `{"code":}`, `{"code":1`,
		`{"code":1,`, `{"code" 1}`, `{"code":1}x`, `{"code":1}{}`,
		`{"code":2147483648}`, `{"code":99999999999999999999}`, `{"code":1.5}`, `{"code":"x"}`, `{"code":true}`, `{"code":{}}`,
		`{"code":0x10}`, `{"remark":"x`, `{"remark":"\`, `{"remark":"\"`, `{"remark":"\q"}`, `{"remark":"\u12"}`, `{"remark":"\u12`,
		`{"remark":"\u00g0"}`, `{"extFields":"x"}`, `{"extFields":[]}`, `{"extFields":1}`, `{"extFields":{`,
		`{"extFields":{"a`, `{"extFields":{"a"`, `{"extFields":{"a":`, `{"extFields":{"a":"`, `{"extFields":{"a":"b`, `{"extFields":{"a":"b"`,
		`{"extFields":{"a":"b",`, `{"extFields":{"a":"b"}`, `{"extFields":{"a":"\`, `{"extFields":{"a":"\u0001`,
		`{"extFields":{"a":"\x"}}`, `{"extFields":{"\":"b"}}`, `{"x":[}`, `{"x":[[`, `{"x":{"a":"`, `{"x":{"a":"\`, "{\"code\":1}\x00", "{\x00}",
		manyFields, manyNumbers,
	} {
		t.Run(fmt.Sprintf("%.40s", header), func(t *testing.T) {
			t.Parallel()
			c, err := DecodeFrame(frameOf(SerializeJSON, header, "body"))
			var bad *DecodeError
			if !errors.As(err, &bad) {
				t.Fatalf("got %v, want a DecodeError; command %+v", err, plainOf(&c))
			}
			if bad.Offset < 0 || bad.Offset > 4+len(header) {
				t.Errorf("offset %d is outside the header", bad.Offset)
			}
		})
	}
}

// TestDeepNesting shows that nesting costs neither stack nor time beyond its length.
func TestDeepNesting(t *testing.T) {
	t.Parallel()
	for _, depth := range []int{maxBodyDepth, maxBodyDepth + 1, 1 << 20} {
		header := `{"x":` + strings.Repeat("[", depth) + strings.Repeat("]", depth) + `,"code":9}`
		c, err := DecodeFrame(frameOf(SerializeJSON, header, ""))
		if fits := depth <= maxBodyDepth; fits != (err == nil) || fits && c.Code != 9 {
			t.Errorf("%d deep: code %d, %v", depth, c.Code, err)
		}
	}
}

func TestJSONKeepsManyFields(t *testing.T) {
	t.Parallel()
	var cmd Command
	want := map[string]string{}
	for i := range 3 * inlineFields {
		key, value := fmt.Sprintf("key%02d", i), strings.Repeat("v\x01", i)
		cmd.Ext.Set(key, value)
		want[key] = value
	}
	for _, form := range []SerializeType{SerializeJSON, SerializeROCKETMQ} {
		cmd.Serialize = form
		got, err := DecodeFrame(encodeAgain(&cmd)[FrameLengthBytes:])
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, plainOf(&got).Ext); diff != "" {
			t.Errorf("%v (-want +got):\n%s", form, diff)
		}
	}
}
