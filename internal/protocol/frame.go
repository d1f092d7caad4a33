// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Limits of a frame.
const (
	// MaxFrameBytes bounds a whole frame including its length word, as Apache's
	// com.rocketmq.remoting.frameMaxLength.
	MaxFrameBytes = 16 << 20

	// FrameLengthBytes is the size of the length word in front of a frame.
	FrameLengthBytes = 4

	headerWordBytes = 4
	maxHeaderBytes  = 1<<24 - 1 // the header word's length is 24 bits wide
	maxRemarkBytes  = 64 << 10  // a longer remark is cut on its way out
)

// DecodeError says why a frame cannot be read. There is no answer to such a frame: the connection is
// closed.
type DecodeError struct {
	Offset int // in the frame without its length word; -4 is the length word itself
	Reason string
}

// Error returns the reason and where.
func (e *DecodeError) Error() string {
	return fmt.Sprintf("bad frame at byte %d: %s", e.Offset, e.Reason)
}

// DecodeFrame reads a frame without its length word. The command aliases frame, and escapes in a JSON header
// are resolved in place: the header's bytes are changed, the body's never. So decode a frame once, and own
// it. It fails with a *DecodeError; then frame's header is undefined.
func DecodeFrame(frame []byte) (Command, error) {
	var c Command
	err := c.Decode(frame)
	return c, err
}

// Decode is DecodeFrame into a command that may have been used before, whose memory it reuses.
func (c *Command) Decode(frame []byte) error {
	if len(frame) < headerWordBytes {
		return badFrame(0, "%d bytes, no room for the header word", len(frame))
	}
	if len(frame) > MaxFrameBytes-FrameLengthBytes {
		return badFrame(0, "%d bytes, the most is %d", len(frame), MaxFrameBytes-FrameLengthBytes)
	}
	if err := CheckHead(frame, len(frame)); err != nil {
		return err
	}
	word := binary.BigEndian.Uint32(frame)
	end := headerWordBytes + int(word&maxHeaderBytes)
	header := frame[headerWordBytes:end:end]
	c.Code, c.Version, c.Opaque, c.Flag = 0, 0, 0, 0
	c.Language, c.Remark, c.Body = LanguageJava, "", nil
	c.Serialize = SerializeType(word >> 24)
	c.Ext.reset(header)
	if end < len(frame) {
		c.Body = frame[end:len(frame):len(frame)]
	}
	if c.Serialize == SerializeJSON {
		return c.decodeJSON(header)
	}
	return c.decodeBinary(header)
}

// CheckHead refuses a frame of size bytes, without its length word, for what its header word says: the first four
// bytes, all that it needs of frame. Decode does the same; who has only begun to read need not wait for the rest.
func CheckHead(frame []byte, size int) error {
	word := binary.BigEndian.Uint32(frame)
	if header, left := int(word&maxHeaderBytes), size-headerWordBytes; header > left {
		return badFrame(0, "header of %d bytes, %d are left", header, left)
	}
	if form := SerializeType(word >> 24); form != SerializeJSON && form != SerializeROCKETMQ {
		return badFrame(0, "serialize type %d, known are 0 and 1", form)
	}
	return nil
}

// badFrame returns the error for the frame's byte at offset.
func badFrame(offset int, format string, args ...any) error {
	return &DecodeError{Offset: offset, Reason: fmt.Sprintf(format, args...)}
}

// AppendFrame appends a whole frame, length word included, to dst: cmd's fixed part, the fields of h (nil
// for none; those of cmd.Ext are not written), cmd.Body and then the parts of body. The header's form is
// cmd.Serialize. An answer whose code is outside int16 is written as SystemError. The caller keeps bodies
// below MaxFrameBytes; a header beyond 16 MiB panics.
func AppendFrame(dst []byte, cmd *Command, h Header, body ...[]byte) []byte {
	size := 0
	for _, part := range body {
		size += len(part)
	}
	dst = AppendFrameHead(dst, cmd, h, len(cmd.Body)+size)
	dst = append(dst, cmd.Body...)
	for _, part := range body {
		dst = append(dst, part...)
	}
	return dst
}

// AppendFrameHead appends a frame up to its body, of which the caller writes exactly bodyBytes bytes
// afterwards. Otherwise like AppendFrame; cmd.Body is ignored.
func AppendFrameHead(dst []byte, cmd *Command, h Header, bodyBytes int) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0, byte(cmd.Serialize), 0, 0, 0)
	if cmd.Serialize == SerializeROCKETMQ {
		dst = appendBinaryHeader(dst, cmd, h)
	} else {
		dst[start+FrameLengthBytes] = byte(SerializeJSON)
		dst = appendJSONHeader(dst, cmd, h)
	}
	size := len(dst) - start - FrameLengthBytes - headerWordBytes
	if size > maxHeaderBytes {
		panic(fmt.Sprintf("protocol: header of %d bytes for code %d", size, cmd.Code))
	}
	putUint32(dst[start:], headerWordBytes+size+bodyBytes)
	dst[start+5], dst[start+6], dst[start+7] = byte(size>>16), byte(size>>8), byte(size)
	return dst
}

// appendExt appends the fields of h. Headers of the hot codes are called directly: through the interface the
// writer would have to live on the heap, an allocation for each answer.
func appendExt(dst []byte, form SerializeType, h Header) []byte {
	w := ExtWriter{dst: dst, binary: form == SerializeROCKETMQ}
	switch h := h.(type) {
	case *SendMessageResponseHeader:
		h.AppendExt(&w)
	case *PullMessageResponseHeader:
		h.AppendExt(&w)
	case *QueryConsumerOffsetResponseHeader:
		h.AppendExt(&w)
	default:
		escaping := w
		h.AppendExt(&escaping)
		w = escaping
	}
	return w.dst
}

// wireCode returns the code to write for cmd.
func wireCode(cmd *Command) int32 {
	if cmd.IsResponse() && (cmd.Code < math.MinInt16 || cmd.Code > math.MaxInt16) {
		return int32(SystemError)
	}
	return cmd.Code
}

// cutRemark returns a remark that fits, cut between characters.
func cutRemark(remark string) string {
	if len(remark) <= maxRemarkBytes {
		return remark
	}
	end := maxRemarkBytes
	for end > 0 && remark[end]&0xC0 == 0x80 {
		end--
	}
	return remark[:end]
}

func putUint32(dst []byte, n int) { binary.BigEndian.PutUint32(dst, uint32(n)) }
