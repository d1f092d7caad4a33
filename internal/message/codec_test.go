// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// golden_test.go holds values that Java computed.
func TestTagsCode(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, tag string
		want      int64
	}{
		{"none", "", 0},
		{"one letter", "a", 97},
		{"word", "TagA", 2598919},
		{"collision one", "Aa", 2112},
		{"collision two", "BB", 2112},
		{"C063 200 characters overflow", strings.Repeat("x", 200), int64(javaHash(strings.Repeat("x", 200)))},
		{"C063 negative", "polygenelubricants", -2147483648},
		{"C063 emoji is two units", "😀", 1772899},
		{"BMP", "é", 233},
		{"mixed", "a😀b", int64(javaHash("a😀b"))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := TagsCode(tt.tag); got != tt.want {
				t.Errorf("TagsCode(%q) = %d, want %d", tt.tag, got, tt.want)
			}
		})
	}
}

func javaHash(s string) int32 {
	var h int32
	for _, c := range s {
		for _, unit := range utf16Units(c) {
			h = 31*h + unit
		}
	}
	return h
}

func utf16Units(c rune) []int32 {
	if c < 0x10000 {
		return []int32{c}
	}
	return []int32{0xD800 | (c-0x10000)>>10, 0xDC00 | (c-0x10000)&0x3FF}
}

func TestTagsCodeIsJavasHash(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		tag := rapid.String().Draw(t, "tag")
		if got := TagsCode(tag); got != int64(javaHash(tag)) {
			t.Fatalf("TagsCode(%q) = %d, want %d", tag, got, javaHash(tag))
		}
	})
}

func TestOffsetMsgID(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		host netip.AddrPort
		off  LogOffset
		want string
	}{
		{"ipv4", netip.MustParseAddrPort("192.168.0.1:10911"), 1234, "C0A8000100002A9F00000000000004D2"},
		{
			"C149 ipv6", netip.MustParseAddrPort("[2001:db8::1]:10911"), 1 << 40,
			"20010DB800000000000000000000000100002A9F0000010000000000",
		},
		{"largest", netip.MustParseAddrPort("255.255.255.255:65535"), 1<<63 - 1, "FFFFFFFF0000FFFF7FFFFFFFFFFFFFFF"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			id := OffsetMsgID(tt.host, tt.off)
			if id != tt.want {
				t.Errorf("id %s, want %s", id, tt.want)
			}
			for _, s := range []string{id, strings.ToLower(id)} {
				host, off, err := ParseOffsetMsgID(s)
				if err != nil || host != tt.host || off != tt.off {
					t.Errorf("ParseOffsetMsgID(%s) = %v, %d, %v", s, host, off, err)
				}
			}
		})
	}
}

func TestParseOffsetMsgIDRefuses(t *testing.T) {
	t.Parallel()
	for _, id := range []string{
		"", "C0A80001", "C0A8000100002A9F00000000000004D", "G0A8000100002A9F00000000000004D2",
		"C0A8000100012A9F00000000000004D2", // port above 65535
		"C0A8000100002A9FF0000000000004D2", // negative position
		"0102030405060708090A0B0C0D0E0F101112",
	} {
		var format *FormatError
		if _, _, err := ParseOffsetMsgID(id); !errors.As(err, &format) {
			t.Errorf("%q: %v, want *FormatError", id, err)
		}
	}
}

func FuzzParseOffsetMsgID(f *testing.F) {
	f.Add("C0A8000100002A9F00000000000004D2")
	f.Add("20010DB800000000000000000000000100002A9F0000010000000000")
	f.Fuzz(func(t *testing.T, id string) {
		host, off, err := ParseOffsetMsgID(id)
		if err != nil || host.Addr().Is4In6() {
			return
		}
		if got := OffsetMsgID(host, off); got != strings.ToUpper(id) {
			t.Fatalf("%s became %s", id, got)
		}
	})
}

func TestUniqueIDs(t *testing.T) {
	t.Parallel()
	now := time.Date(2024, 2, 1, 0, 0, 1, 500e6, time.UTC)
	ids := NewUniqueIDs(netip.MustParseAddr("10.0.0.1"), 0x12345, 0xCAFEBABE)
	first, second := string(ids.Append(nil, now)), string(ids.Append(nil, now.In(time.FixedZone("far", 14*3600))))
	if want := "0A000001" + "2345" + "CAFEBABE" + "000005DC" + "0001"; first != want {
		t.Errorf("first id %s, want %s", first, want)
	}
	if want := first[:len(first)-4] + "0002"; second != want {
		t.Errorf("second id %s, want %s", second, want)
	}
	six := string(NewUniqueIDs(netip.MustParseAddr("2001:db8::1"), 1, 2).Append(nil, now))
	if len(six) != 56 {
		t.Errorf("IPv6 id has %d characters", len(six))
	}
}

type batchEntry struct {
	Flag  int32
	Body  string
	Props string
}

func decodeBatch(body []byte) ([]batchEntry, error) {
	var got []batchEntry
	err := DecodeBatch(body, func(flag int32, body []byte, props string) error {
		got = append(got, batchEntry{flag, string(body), props})
		return nil
	})
	return got, err
}

func TestBatchRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var want []batchEntry
		var enc []byte
		for range rapid.IntRange(0, 5).Draw(t, "count") {
			e := batchEntry{
				rapid.Int32().Draw(t, "flag"),
				rapid.String().Draw(t, "body"),
				rapid.String().Draw(t, "props"),
			}
			want = append(want, e)
			enc = AppendBatchEntry(enc, e.Flag, []byte(e.Body), e.Props)
		}
		got, err := decodeBatch(enc)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("differs (-want +got):\n%s", diff)
		}
	})
}

func TestDecodeBatchRefuses(t *testing.T) {
	t.Parallel()
	good := AppendBatchEntry(AppendBatchEntry(nil, 1, []byte("one"), "a\x01b\x02"), 2, []byte("two"), "")
	firstLen := len(AppendBatchEntry(nil, 1, []byte("one"), "a\x01b\x02"))
	for n := range good {
		if n == 0 || n == firstLen {
			continue // whole entries
		}
		var format *FormatError
		if _, err := decodeBatch(good[:n]); !errors.As(err, &format) {
			t.Errorf("cut to %d bytes: %v, want *FormatError", n, err)
		}
	}
	negativeBody := bytes.Clone(good)
	binary.BigEndian.PutUint32(negativeBody[16:], 1<<31)
	if _, err := decodeBatch(negativeBody); err == nil {
		t.Error("negative body length accepted")
	}
	wrapped := AppendBatchEntry(nil, 0, nil, strings.Repeat("p", 32768))
	var se *SizeError
	if _, err := decodeBatch(wrapped); !errors.As(err, &se) || se.Limit != 32767 || se.Actual != 32768 {
		t.Errorf("C031 properties of 32768 bytes in a batch: %v", err)
	}
	wrapped = AppendBatchEntry(nil, 0, nil, strings.Repeat("p", 65536))
	if _, err := decodeBatch(wrapped); err == nil {
		t.Error("C031 properties of 65536 bytes in a batch accepted")
	}
	if _, err := decodeBatch(AppendBatchEntry(nil, 0, nil, strings.Repeat("p", 32767))); err != nil {
		t.Errorf("C031 properties of 32767 bytes in a batch: %v", err)
	}
}

func TestDecodeBatchReturnsTheCallersError(t *testing.T) {
	t.Parallel()
	stop := errors.New("stop")
	n := 0
	err := DecodeBatch(
		AppendBatchEntry(AppendBatchEntry(nil, 0, nil, ""), 0, nil, ""),
		func(int32, []byte, string) error {
			n++
			return stop
		},
	)
	if !errors.Is(err, stop) || n != 1 {
		t.Errorf("error %v after %d calls", err, n)
	}
}

func FuzzDecodeBatch(f *testing.F) {
	f.Add(AppendBatchEntry(AppendBatchEntry(nil, 1, []byte("one"), "a\x01b\x02"), 2, []byte("two"), ""))
	f.Fuzz(func(t *testing.T, body []byte) {
		var again []byte
		err := DecodeBatch(body, func(flag int32, b []byte, props string) error {
			again = AppendBatchEntry(again, flag, b, props)
			return nil
		})
		if len(again) > len(body) {
			t.Fatalf("%d bytes out of %d", len(again), len(body))
		}
		if err == nil && len(again) != len(body) {
			t.Fatalf("accepted %d bytes, used %d", len(body), len(again))
		}
	})
}

func TestStateLayout(t *testing.T) {
	t.Parallel()
	s := State{Space: SpaceOffset, Delete: true, Key: []byte("k"), Value: []byte("vv")}
	want := "\x00\x00\x00\x13RQS1\x03\x01\x00\x01\x00\x00\x00\x02kvv"
	if got := string(s.AppendTo(nil)); got != want {
		t.Errorf("AppendTo %q, want %q", got, want)
	}
}

func TestStateRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := State{
			Space: Space(rapid.Byte().Draw(t, "space")), Delete: rapid.Bool().Draw(t, "delete"),
			Key: rapid.SliceOf(rapid.Byte()).Draw(t, "key"), Value: rapid.SliceOf(rapid.Byte()).Draw(t, "value"),
		}
		rec := want.AppendTo(nil)
		if len(rec) != want.EncodedLen() || !Record(rec).IsState() || Record(rec).IsMessage() ||
			Record(rec).Size() != len(rec) {
			t.Fatalf("record of %d bytes, EncodedLen %d", len(rec), want.EncodedLen())
		}
		got, err := DecodeState(rec)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("differs (-want +got):\n%s", diff)
		}
		if n := rapid.IntRange(0, len(rec)-1).Draw(t, "cut"); n < len(rec) {
			if _, err := DecodeState(rec[:n]); err == nil {
				t.Fatalf("cut to %d bytes: no error", n)
			}
		}
	})
}

func TestStateValidate(t *testing.T) {
	t.Parallel()
	fits := State{Key: make([]byte, MaxStateKeyBytes)}
	if err := fits.Validate(); err != nil {
		t.Error(err)
	}
	large := State{Key: make([]byte, MaxStateKeyBytes+1)}
	var se *SizeError
	if err := large.Validate(); !errors.As(err, &se) || se.Actual != MaxStateKeyBytes+1 {
		t.Errorf("Validate: %v", err)
	}
}

func FuzzDecodeState(f *testing.F) {
	s := State{Space: SpaceOffset, Delete: true, Key: []byte("k"), Value: []byte("vv")}
	f.Add(s.AppendTo(nil))
	f.Fuzz(func(t *testing.T, rec []byte) {
		got, err := DecodeState(rec)
		if err == nil && !bytes.Equal(got.AppendTo(nil), rec) {
			t.Fatal("does not encode to the same bytes")
		}
	})
}

func TestIsQueued(t *testing.T) {
	t.Parallel()
	for flag, want := range map[int32]bool{
		TransactionNone: true, TransactionCommit: true, TransactionPrepared: false, TransactionRollback: false,
		SysFlagCompressed | TransactionCommit | SysFlagBornHostV6: true, SysFlagCompressed | TransactionPrepared: false,
	} {
		if got := IsQueued(flag); got != want {
			t.Errorf("IsQueued(%#x) = %v", flag, got)
		}
	}
}

func TestErrorTexts(t *testing.T) {
	t.Parallel()
	tests := []struct {
		err  error
		want string
	}{
		{
			&SizeError{What: "properties", Limit: 32767, Actual: 32768},
			"properties of 32768 bytes exceeds the limit of 32767 bytes",
		},
		{&FormatError{What: "body", Reason: "is short", At: 3}, "body at byte 3: is short"},
		{&ChecksumError{Want: 1, Got: 2}, "body checksum is 00000002, the record states 00000001"},
		{&PropertyError{Name: "a", Reason: "is bad"}, `property "a" is bad`},
	}
	for _, tt := range tests {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("%T: %q, want %q", tt.err, got, tt.want)
		}
	}
}
