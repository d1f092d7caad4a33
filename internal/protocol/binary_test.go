// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// binaryHeader returns a header whose lengths say what the arguments say.
func binaryHeader(code int16, flag int32, remarkLen int, remark string, extLen int, ext string) string {
	b := binary.BigEndian.AppendUint16(nil, uint16(code))
	b = append(b, byte(LanguageGo))
	b = binary.BigEndian.AppendUint16(b, 317)
	b = binary.BigEndian.AppendUint32(b, 7)
	b = binary.BigEndian.AppendUint32(b, uint32(flag))
	b = binary.BigEndian.AppendUint32(b, uint32(remarkLen))
	b = append(b, remark...)
	b = binary.BigEndian.AppendUint32(b, uint32(extLen))
	return string(append(b, ext...))
}

// entry returns one ext entry whose lengths say what the arguments say.
func entry(keyLen int, key string, valueLen int, value string) string {
	b := append(binary.BigEndian.AppendUint16(nil, uint16(keyLen)), key...)
	return string(append(binary.BigEndian.AppendUint32(b, uint32(valueLen)), value...))
}

func TestDecodeBinary(t *testing.T) {
	t.Parallel()
	entries := entry(5, "topic", 1, "T") + entry(1, "e", 0, "")
	header := binaryHeader(17, 1, 2, "no", len(entries), entries)
	got, err := DecodeFrame(frameOf(SerializeROCKETMQ, header, "body"))
	if err != nil {
		t.Fatal(err)
	}
	want := plain{
		Code: 17, Version: 317, Opaque: 7, Flag: 1, Language: LanguageGo, Serialize: SerializeROCKETMQ, Remark: "no",
		Ext: map[string]string{"topic": "T", "e": ""}, Body: "body",
	}
	if diff := cmp.Diff(want, plainOf(&got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	again := encodeAgain(&got)[FrameLengthBytes:]
	if len(again) != 4+len(header)+4 {
		t.Errorf("encoded again: %d bytes, want %d", len(again), 4+len(header)+4)
	}
}

func TestDecodeBinaryRefuses(t *testing.T) {
	t.Parallel()
	whole := len(binaryHeader(34, 0, 0, "", 0, ""))
	one := entry(1, "k", 1, "v")
	for _, tc := range []struct{ name, header string }{
		{"cut in the fixed part", binaryHeader(34, 0, 0, "", 0, "")[:whole-1]},
		{"C006 the remark is as long as the header", binaryHeader(34, 0, whole, "", 0, "")},
		{"C006 the entries are as long as the header", binaryHeader(34, 0, 0, "", whole, "")},
		{"remark one too long", binaryHeader(34, 0, 5, "", 0, "")},
		{"remark leaves no room for the entries' length", binaryHeader(34, 0, 4, "", 0, "")},
		{"remark negative", binaryHeader(34, 0, -1, "", 0, "")},
		{"remark huge", binaryHeader(34, 0, 0x7fffffff, "", 0, "")},
		{"entries negative", binaryHeader(34, 0, 0, "", -1, "")},
		{"entries shorter than what is left", binaryHeader(34, 0, 0, "", len(one)-1, one)},
		{"entries longer than what is left", binaryHeader(34, 0, 0, "", len(one)+1, one)},
		{"name cut", binaryHeader(34, 0, 0, "", 1, "\x00")},
		{"name too long", binaryHeader(34, 0, 0, "", len(one), entry(9, "k", 1, "v"))},
		{"name negative", binaryHeader(34, 0, 0, "", len(one), entry(-1, "k", 1, "v"))},
		{"value cut", binaryHeader(34, 0, 0, "", 5, "\x00\x01k\x00\x00")},
		{"value too long", binaryHeader(34, 0, 0, "", len(one), entry(1, "k", 2, "v"))},
		{"value negative", binaryHeader(34, 0, 0, "", len(one), entry(1, "k", -1, "v"))},
		{"too many", binaryHeader(34, 0, 0, "", len(one)*(MaxExtFields+1), strings.Repeat(one, MaxExtFields+1))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := DecodeFrame(frameOf(SerializeROCKETMQ, tc.header, strings.Repeat("b", 1<<10)))
			var bad *DecodeError
			if !errors.As(err, &bad) || bad.Offset < 4 || bad.Offset > 4+len(tc.header) {
				t.Fatalf("got %v, want a DecodeError inside the header", err)
			}
		})
	}
}

// TestWrappedCodes: binary headers carry 16 bits of a code, and no other code lies where the pop family
// lands.
func TestWrappedCodes(t *testing.T) {
	t.Parallel()
	for _, code := range Codes() {
		cmd := &Command{Code: int32(code), Serialize: SerializeROCKETMQ}
		got, err := DecodeFrame(AppendFrame(nil, cmd, nil)[FrameLengthBytes:])
		if err != nil || Code(got.Code) != code {
			t.Errorf("%v arrived as %v, %v", code, Code(got.Code), err)
		}
	}
	for wrapped, want := range map[int16]Code{
		3442: PopMessage, 3443: AckMessage, 3444: PeekMessage, 3445: ChangeMessageInvisibleTime, 3446: Notification,
		3447: PollingInfo, 3543: BatchAckMessage, 3441: 3441, 3500: 3500, 3544: 3544,
	} {
		got, err := DecodeFrame(frameOf(SerializeROCKETMQ, binaryHeader(wrapped, 0, 0, "", 0, ""), ""))
		if err != nil || Code(got.Code) != want {
			t.Errorf("%d is %d, %v; want %d", wrapped, got.Code, err, want)
		}
		got, err = DecodeFrame(frameOf(SerializeROCKETMQ, binaryHeader(wrapped, FlagResponse, 0, "", 0, ""), ""))
		if err != nil || got.Code != int32(wrapped) {
			t.Errorf("as an answer %d is %d, %v", wrapped, got.Code, err)
		}
	}
}
