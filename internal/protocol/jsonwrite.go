// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// appendJSONHeader appends cmd's JSON header the way fastjson 2 writes a RemotingCommand: keys sorted,
// absent ones left out, no white space. The ext fields are sorted too, where Apache's come in the order of
// a Java HashMap.
func appendJSONHeader(dst []byte, cmd *Command, h Header) []byte {
	dst = append(dst, `{"code":`...)
	dst = strconv.AppendInt(dst, int64(wireCode(cmd)), 10)
	if h != nil {
		dst = append(dst, `,"extFields":{`...)
		dst = appendExt(dst, cmd.Serialize, h)
		if dst[len(dst)-1] == ',' {
			dst = dst[:len(dst)-1]
		}
		dst = append(dst, '}')
	}
	dst = append(dst, `,"flag":`...)
	dst = strconv.AppendInt(dst, int64(cmd.Flag), 10)
	dst = append(dst, `,"language":"`...)
	dst = append(dst, cmd.Language.String()...)
	dst = append(dst, `","opaque":`...)
	dst = strconv.AppendInt(dst, int64(cmd.Opaque), 10)
	if cmd.Remark != "" {
		dst = append(dst, `,"remark":`...)
		dst = appendJSONString(dst, cutRemark(cmd.Remark))
	}
	dst = append(dst, `,"serializeTypeCurrentRPC":"JSON","version":`...)
	dst = strconv.AppendInt(dst, int64(cmd.Version), 10)
	return append(dst, '}')
}

const hexDigits = "0123456789abcdef"

// appendJSONString appends text as a JSON string with fastjson 2's escapes: quote, backslash and what is
// below U+0020. Bytes that are no UTF-8 become U+FFFD each.
func appendJSONString(dst []byte, text string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := plainLen(aliasBytes(text)); i < len(text); {
		c := text[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(text[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(append(dst, text[start:i]...), "\uFFFD"...)
				start = i + 1
			}
			i += n
			continue
		}
		dst = appendEscape(append(dst, text[start:i]...), c)
		i++
		start = i
	}
	dst = append(dst, text[start:]...)
	return append(dst, '"')
}

func appendEscape(dst []byte, c byte) []byte {
	if at := strings.IndexByte("\"\\\b\t\n\f\r", c); at >= 0 {
		return append(dst, '\\', "\"\\btnfr"[at])
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xF])
}
