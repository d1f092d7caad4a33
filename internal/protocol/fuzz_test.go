// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"unicode/utf8"
)

// seedFrames gives the fuzzer whole frames: those of the golden vectors and some of our own.
func seedFrames(f *testing.F, form SerializeType) [][]byte {
	f.Helper()
	seeds := [][]byte{sendFrame(f, form)}
	for _, v := range wireVectors(f) {
		if frame := v.frame[FrameLengthBytes:]; frame[0] == byte(form) {
			seeds = append(seeds, frame)
		}
	}
	return seeds
}

// checkFrame decodes any bytes. What is decoded lies inside the frame, and encoded again it decodes to the
// same.
func checkFrame(t *testing.T, frame []byte) {
	t.Helper()
	original := slices.Clone(frame)
	c, err := DecodeFrame(frame)
	var bad *DecodeError
	if err != nil {
		if !errors.As(err, &bad) || bad.Offset < 0 || bad.Offset > len(frame) {
			t.Fatalf("error %#v", err)
		}
		return
	}
	if !bytes.HasSuffix(original, c.Body) || c.Ext.Len() > MaxExtFields || len(c.Remark) > len(frame) {
		t.Fatalf("not inside the frame: %+v", plainOf(&c))
	}
	for _, h := range []Header{
		new(SendMessageRequestHeader), new(PullMessageRequestHeader), new(CreateTopicRequestHeader), new(PopMessageRequestHeader),
	} {
		var refused *Error
		if err := h.DecodeExt(&c.Ext); err != nil && !errors.As(err, &refused) {
			t.Fatalf("%T: %#v", h, err)
		}
	}
	checkSame(t, &c)
}

// checkSame encodes a decoded command, decodes that and encodes it again: same command, same bytes. A
// command whose text is no UTF-8 comes back repaired, with U+FFFD, and is compared from then on.
func checkSame(t *testing.T, c *Command) {
	t.Helper()
	first := encodeAgain(c)
	if n, err := FrameSize(first); err != nil {
		return // grew over the limit, by escapes
	} else if n != len(first)-FrameLengthBytes {
		t.Fatalf("frame size %d of %d bytes", n, len(first))
	}
	again, err := DecodeFrame(slices.Clone(first[FrameLengthBytes:]))
	if err != nil {
		t.Fatalf("%v: %q", err, first)
	}
	if second := encodeAgain(&again); !bytes.Equal(first, second) {
		t.Fatalf("encoded again differs:\n%q\n%q", first, second)
	}
	want, got := plainOf(c), plainOf(&again)
	if c.Serialize == SerializeJSON && !isUTF8(want) || len(want.Remark) > maxRemarkBytes {
		return
	}
	want.Code = wireCode(c)
	if !equalPlain(want, got) {
		t.Fatalf("decoded again differs:\n%+v\n%+v", want, got)
	}
}

func isUTF8(p plain) bool {
	ok := utf8.ValidString(p.Remark)
	for key, value := range p.Ext {
		ok = ok && utf8.ValidString(key) && utf8.ValidString(value)
	}
	return ok
}

func equalPlain(a, b plain) bool {
	if len(a.Ext) != len(b.Ext) {
		return false
	}
	for key, value := range a.Ext {
		if other, ok := b.Ext[key]; !ok || other != value {
			return false
		}
	}
	a.Ext, b.Ext = nil, nil
	return a.Code == b.Code && a.Version == b.Version && a.Opaque == b.Opaque && a.Flag == b.Flag &&
		a.Language == b.Language && a.Serialize == b.Serialize && a.Remark == b.Remark && a.Body == b.Body
}

func FuzzFrame(f *testing.F) {
	for _, form := range []SerializeType{SerializeJSON, SerializeROCKETMQ} {
		for _, seed := range seedFrames(f, form) {
			f.Add(seed)
		}
	}
	f.Fuzz(func(t *testing.T, frame []byte) { checkFrame(t, slices.Clone(frame)) })
}

func FuzzJSONHeader(f *testing.F) {
	for _, seed := range seedFrames(f, SerializeJSON) {
		size := int(seed[1])<<16 | int(seed[2])<<8 | int(seed[3])
		f.Add(seed[4 : 4+size])
	}
	f.Fuzz(func(t *testing.T, header []byte) { checkFrame(t, frameOf(SerializeJSON, string(header), "body")) })
}

func FuzzBinaryHeader(f *testing.F) {
	for _, seed := range seedFrames(f, SerializeROCKETMQ) {
		size := int(seed[1])<<16 | int(seed[2])<<8 | int(seed[3])
		f.Add(seed[4 : 4+size])
	}
	f.Fuzz(func(t *testing.T, header []byte) { checkFrame(t, frameOf(SerializeROCKETMQ, string(header), "body")) })
}
