// SPDX-License-Identifier: Apache-2.0

package protocol

import "encoding/binary"

// The ROCKETMQ header, big-endian. A text of length 0 is an absent one. Source: RocketMQSerializable.java.
//
//	off  size  field
//	0    2     code
//	2    1     language
//	3    2     version
//	5    4     opaque
//	9    4     flag
//	13   4+n   length and remark
//	..   4     length of all entries
//	..   2+n   each entry: length and name,
//	     4+n              length and value
const binaryFixedBytes = 13

// headerStart is where a header begins in its frame.
const headerStart = headerWordBytes

// decodeBinary reads a ROCKETMQ header. Every length is checked against what is left of the header.
func (c *Command) decodeBinary(b []byte) error {
	if len(b) < binaryFixedBytes+8 {
		return badFrame(headerStart, "header of %d bytes, the least is %d", len(b), binaryFixedBytes+8)
	}
	c.Code = int32(int16(binary.BigEndian.Uint16(b)))
	c.Language = languageOf(int64(b[2]))
	c.Version = int32(int16(binary.BigEndian.Uint16(b[3:])))
	c.Opaque = int32(binary.BigEndian.Uint32(b[5:]))
	c.Flag = int32(binary.BigEndian.Uint32(b[9:]))
	if !c.IsResponse() {
		c.Code = unwrapCode(c.Code)
	}
	pos := binaryFixedBytes
	remark, pos, err := longString(b, pos)
	if err != nil {
		return err
	}
	c.Remark = aliasString(b[remark.off : remark.off+remark.len])
	if len(b)-pos < 4 {
		return badFrame(headerStart+pos, "%d bytes left, no room for the length of the entries", len(b)-pos)
	}
	size := int64(int32(binary.BigEndian.Uint32(b[pos:])))
	pos += 4
	if size != int64(len(b)-pos) {
		return badFrame(headerStart+pos-4, "entries of %d bytes, %d are left", size, len(b)-pos)
	}
	for pos < len(b) {
		var f extField
		if f.key, pos, err = shortString(b, pos); err != nil {
			return err
		}
		if f.value, pos, err = longString(b, pos); err != nil {
			return err
		}
		if c.Ext.n >= MaxExtFields {
			return badFrame(headerStart+pos, "more than %d ext fields", MaxExtFields)
		}
		c.Ext.push(f)
	}
	return nil
}

// shortString reads a text with a 16-bit length at pos and returns the position behind it.
func shortString(b []byte, pos int) (span, int, error) {
	if len(b)-pos < 2 {
		return span{}, pos, badFrame(headerStart+pos, "%d bytes left, a name has its length first", len(b)-pos)
	}
	n := int(int16(binary.BigEndian.Uint16(b[pos:])))
	pos += 2
	if n < 0 || n > len(b)-pos {
		return span{}, pos, badFrame(headerStart+pos-2, "name of %d bytes, %d are left", n, len(b)-pos)
	}
	return span{off: uint32(pos), len: uint32(n)}, pos + n, nil
}

// longString reads a text with a 32-bit length at pos and returns the position behind it.
func longString(b []byte, pos int) (span, int, error) {
	if len(b)-pos < 4 {
		return span{}, pos, badFrame(headerStart+pos, "%d bytes left, a text has its length first", len(b)-pos)
	}
	n := int64(int32(binary.BigEndian.Uint32(b[pos:])))
	pos += 4
	if n < 0 || n > int64(len(b)-pos) {
		return span{}, pos, badFrame(headerStart+pos-4, "text of %d bytes, %d are left", n, len(b)-pos)
	}
	return span{off: uint32(pos), len: uint32(n)}, pos + int(n), nil
}

// appendBinaryHeader appends cmd's ROCKETMQ header. Codes beyond 16 bits wrap, as Apache's do.
func appendBinaryHeader(dst []byte, cmd *Command, h Header) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(wireCode(cmd)))
	dst = append(dst, byte(cmd.Language))
	dst = binary.BigEndian.AppendUint16(dst, uint16(cmd.Version))
	dst = binary.BigEndian.AppendUint32(dst, uint32(cmd.Opaque))
	dst = binary.BigEndian.AppendUint32(dst, uint32(cmd.Flag))
	dst = appendLongString(dst, cutRemark(cmd.Remark))
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	if h != nil {
		dst = appendExt(dst, cmd.Serialize, h)
	}
	putUint32(dst[start:], len(dst)-start-4)
	return dst
}

func appendLongString(dst []byte, text string) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(text)))
	return append(dst, text...)
}
