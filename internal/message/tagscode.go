// SPDX-License-Identifier: Apache-2.0

package message

import "unicode/utf8"

// TagsCode returns the number a queue entry keeps of a message's tag: Java's String.hashCode over the UTF-16
// units of the whole TAGS value, sign-extended; 0 for no tag.
func TagsCode(tag string) int64 {
	var h int32
	for i := range len(tag) {
		if tag[i] >= utf8.RuneSelf {
			return wideTagsCode(h, tag[i:])
		}
		h = 31*h + int32(tag[i])
	}
	return int64(h)
}

// wideTagsCode goes on where the first non-ASCII character was met.
func wideTagsCode(h int32, tag string) int64 {
	for _, c := range tag {
		if c >= 0x10000 {
			c -= 0x10000
			h = 31*h + (0xD800 + c>>10)
			c = 0xDC00 + c&0x3FF
		}
		h = 31*h + c
	}
	return int64(h)
}
