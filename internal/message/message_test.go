// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var (
	hostV4 = netip.MustParseAddrPort("10.1.2.3:10911")
	hostV6 = netip.MustParseAddrPort("[2001:db8::7]:10911")

	compareHosts = cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })
)

func sample() Message {
	return Message{
		Topic: "orders", QueueID: 3, Flag: 7, QueueOffset: 41, LogOffset: 1 << 40, SysFlag: SysFlagCompressed,
		BornTimestamp: 1700000000001, StoreTimestamp: 1700000000002, BornHost: hostV4, StoreHost: hostV4,
		ReconsumeTimes: 2, PreparedTransactionOffset: 99, Body: []byte("hello"),
		Properties: "KEYS\x01k1\x02TAGS\x01a\x02",
	}
}

func TestAppendToLayout(t *testing.T) {
	t.Parallel()
	m := Message{
		Topic:                     "T",
		QueueID:                   1,
		Flag:                      2,
		QueueOffset:               3,
		LogOffset:                 4,
		SysFlag:                   1,
		BornTimestamp:             5,
		StoreTimestamp:            6,
		BornHost:                  netip.MustParseAddrPort("1.2.3.4:5"),
		StoreHost:                 netip.MustParseAddrPort("6.7.8.9:10"),
		ReconsumeTimes:            7,
		PreparedTransactionOffset: 8,
		Body:                      []byte("b"),
		Properties:                "p\x01v\x02",
	}
	want := "\x00\x00\x00\x61" + "\xda\xa3\x20\xa7" + "\x71\xbe\xef\xf9" + "\x00\x00\x00\x01" + "\x00\x00\x00\x02" +
		"\x00\x00\x00\x00\x00\x00\x00\x03" + "\x00\x00\x00\x00\x00\x00\x00\x04" + "\x00\x00\x00\x01" +
		"\x00\x00\x00\x00\x00\x00\x00\x05" + "\x01\x02\x03\x04\x00\x00\x00\x05" +
		"\x00\x00\x00\x00\x00\x00\x00\x06" + "\x06\x07\x08\x09\x00\x00\x00\x0a" + "\x00\x00\x00\x07" +
		"\x00\x00\x00\x00\x00\x00\x00\x08" + "\x00\x00\x00\x01b" + "\x01T" + "\x00\x04p\x01v\x02"
	if got := string(m.AppendTo(nil)); got != want {
		t.Errorf("AppendTo:\n got %x\nwant %x", got, want)
	}
}

func TestMessageRoundTrip(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		change  func(*Message)
		magic   uint32
		sysFlag int32
		len     int
	}{
		{"ipv4", func(*Message) {}, MagicV1, SysFlagCompressed, 91 + 5 + 6 + 15},
		{
			"C149 ipv6 born host",
			func(m *Message) { m.BornHost = hostV6 },
			MagicV1,
			SysFlagCompressed | SysFlagBornHostV6,
			103 + 26,
		},
		{
			"C149 ipv6 store host",
			func(m *Message) { m.StoreHost = hostV6 },
			MagicV1,
			SysFlagCompressed | SysFlagStoreHostV6,
			103 + 26,
		},
		{
			"C149 ipv6 both", func(m *Message) { m.BornHost, m.StoreHost = hostV6, hostV6 }, MagicV1,
			SysFlagCompressed | SysFlagBornHostV6 | SysFlagStoreHostV6, 115 + 26,
		},
		{
			"stale host bits are corrected",
			func(m *Message) { m.SysFlag = SysFlagBornHostV6 | SysFlagStoreHostV6 },
			MagicV1,
			0,
			91 + 26,
		},
		{
			"topic of 127 stays v1",
			func(m *Message) { m.Topic = strings.Repeat("t", 127) },
			MagicV1,
			SysFlagCompressed,
			91 + 127 + 20,
		},
		{
			"topic of 128 is v2",
			func(m *Message) { m.Topic = strings.Repeat("t", 128) },
			MagicV2,
			SysFlagCompressed,
			92 + 128 + 20,
		},
		{"no body", func(m *Message) { m.Body = nil }, MagicV1, SysFlagCompressed, 91 + 21},
		{
			"C031 properties at the limit",
			func(m *Message) { m.Properties = strings.Repeat("p", MaxPropertiesBytes) },
			MagicV1,
			SysFlagCompressed,
			91 + 11 + MaxPropertiesBytes,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := sample()
			tt.change(&m)
			rec := m.AppendTo([]byte("before"))[len("before"):]
			if len(rec) != tt.len || len(rec) != m.EncodedLen() {
				t.Errorf("length %d, EncodedLen %d, want %d", len(rec), m.EncodedLen(), tt.len)
			}
			if got := Record(rec).Magic(); got != tt.magic {
				t.Errorf("magic %x, want %x", got, tt.magic)
			}
			got, err := Decode(rec)
			if err != nil {
				t.Fatal(err)
			}
			m.SysFlag = tt.sysFlag
			if len(m.Body) == 0 {
				m.Body = []byte{}
			}
			if diff := cmp.Diff(m, got, compareHosts); diff != "" {
				t.Errorf("decoded differs (-want +got):\n%s", diff)
			}
			if err := Record(rec).Check(); err != nil {
				t.Errorf("Check: %v", err)
			}
		})
	}
}

func TestHostsThatAreNotPlain(t *testing.T) {
	t.Parallel()
	m := sample()
	m.BornHost = netip.AddrPort{}
	m.StoreHost = netip.MustParseAddrPort("[::ffff:10.1.2.3]:10911")
	got, err := Decode(m.AppendTo(nil))
	if err != nil {
		t.Fatal(err)
	}
	if want := netip.MustParseAddrPort("0.0.0.0:0"); got.BornHost != want {
		t.Errorf("zero host read back as %v, want %v", got.BornHost, want)
	}
	if got.StoreHost != hostV4 {
		t.Errorf("mapped address read back as %v, want %v", got.StoreHost, hostV4)
	}
}

func TestTailProperties(t *testing.T) {
	t.Parallel()
	const tail = "MSG_REGION\x01r\x02"
	tests := []struct{ name, props, tail, want string }{
		{"none", "a\x01b\x02", "", "a\x01b\x02"},
		{"none and no last separator", "a\x01b", "", "a\x01b"},
		{"alone", "", tail, tail},
		{"behind a separator", "a\x01b\x02", tail, "a\x01b\x02" + tail},
		{"separator was missing", "a\x01b", tail, "a\x01b\x02" + tail},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := sample()
			m.Properties, m.TailProperties = tt.props, tt.tail
			rec := m.AppendTo(nil)
			if len(rec) != m.EncodedLen() {
				t.Errorf("length %d, EncodedLen %d", len(rec), m.EncodedLen())
			}
			if got := Record(rec).Properties(); got != tt.want {
				t.Errorf("properties %q, want %q", got, tt.want)
			}
			if err := Record(rec).Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestValidateSizes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*Message)
		want   *SizeError
	}{
		{"fits", func(*Message) {}, nil},
		{"C031 32767", func(m *Message) { m.Properties = strings.Repeat("p", 32767) }, nil},
		{
			"C031 32768",
			func(m *Message) { m.Properties = strings.Repeat("p", 32768) },
			&SizeError{"properties", 32767, 32768},
		},
		{
			"C031 65536",
			func(m *Message) { m.Properties = strings.Repeat("p", 65536) },
			&SizeError{"properties", 32767, 65536},
		},
		{
			"the tail counts",
			func(m *Message) { m.Properties, m.TailProperties = strings.Repeat("p", 32765), "x\x02" },
			&SizeError{"properties", 32767, 32768},
		},
		{"topic", func(m *Message) { m.Topic = strings.Repeat("t", 32768) }, &SizeError{"topic", 32767, 32768}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := sample()
			tt.change(&m)
			err := m.Validate()
			if tt.want == nil {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			var got *SizeError
			if !errors.As(err, &got) || *got != *tt.want {
				t.Errorf("Validate: %v, want %v", err, tt.want)
			}
		})
	}
}

func TestRecordInPlace(t *testing.T) {
	t.Parallel()
	for _, change := range []func(*Message){
		func(*Message) {},
		func(m *Message) { m.BornHost = hostV6 },
		func(m *Message) { m.StoreHost, m.Topic = hostV6, strings.Repeat("t", 200) },
	} {
		m := sample()
		change(&m)
		rec := Record(m.AppendTo(nil))
		binary.BigEndian.PutUint64(rec[queueOffsetAt:], 77)
		SetLogOffset(rec, 1<<41)
		binary.BigEndian.PutUint64(rec[rec.storeTimestampAt():], 1800000000000)
		want := m
		want.QueueOffset, want.LogOffset, want.StoreTimestamp, want.SysFlag = 77, 1<<41, 1800000000000, rec.SysFlag()
		got := Message{
			Topic: string(rec.Topic()), QueueID: rec.QueueID(), Flag: rec.Flag(), QueueOffset: rec.QueueOffset(),
			LogOffset: rec.LogOffset(), SysFlag: rec.SysFlag(), BornTimestamp: rec.BornTimestamp(),
			StoreTimestamp: rec.StoreTimestamp(), BornHost: rec.BornHost(), StoreHost: rec.StoreHost(),
			ReconsumeTimes: rec.ReconsumeTimes(), PreparedTransactionOffset: rec.PreparedTransactionOffset(),
			Body: rec.Body(), Properties: rec.Properties(),
		}
		if diff := cmp.Diff(want, got, compareHosts); diff != "" {
			t.Errorf("in place differs (-want +got):\n%s", diff)
		}
		if !rec.IsMessage() || rec.IsState() || !rec.IsWhole() || rec.Size() != len(rec) {
			t.Errorf(
				"message %v state %v whole %v size %d",
				rec.IsMessage(),
				rec.IsState(),
				rec.IsWhole(),
				rec.Size(),
			)
		}
	}
}

func TestCheckFindsEveryFlippedBit(t *testing.T) {
	t.Parallel()
	m := sample()
	good := m.AppendTo(nil)
	bodyAt := bytes.Index(good, m.Body)
	for i := bodyAt; i < bodyAt+len(m.Body); i++ {
		bad := bytes.Clone(good)
		bad[i] ^= 4
		var sum *ChecksumError
		if err := Record(bad).Check(); !errors.As(err, &sum) {
			t.Errorf("body byte %d flipped: %v, want *ChecksumError", i, err)
		}
	}
	for _, i := range []int{0, 1, 2, 3, 4, 5, 6, bodyAt - 1, bodyAt - 2, bodyAt - 4, bodyAt + len(m.Body), len(good) - 16} {
		bad := bytes.Clone(good)
		bad[i] ^= 4
		if err := Record(bad).Check(); err == nil {
			t.Errorf("length byte %d flipped: no error", i)
		}
	}
	for n := range good {
		var format *FormatError
		if _, err := Decode(good[:n]); !errors.As(err, &format) {
			t.Errorf("cut to %d bytes: %v, want *FormatError", n, err)
		}
	}
}

func genMessage(t *rapid.T) Message {
	hosts := rapid.SampledFrom([]netip.AddrPort{hostV4, hostV6, netip.MustParseAddrPort("0.0.0.0:0")})
	return Message{
		Topic:                     rapid.StringN(0, 60, 255).Draw(t, "topic"),
		QueueID:                   rapid.Int32().Draw(t, "queueID"),
		Flag:                      rapid.Int32().Draw(t, "flag"),
		QueueOffset:               QueueOffset(rapid.Int64().Draw(t, "queueOffset")),
		LogOffset:                 LogOffset(rapid.Int64().Draw(t, "logOffset")),
		SysFlag:                   rapid.Int32().Draw(t, "sysFlag"),
		BornTimestamp:             rapid.Int64().Draw(t, "born"),
		StoreTimestamp:            rapid.Int64().Draw(t, "store"),
		BornHost:                  hosts.Draw(t, "bornHost"),
		StoreHost:                 hosts.Draw(t, "storeHost"),
		ReconsumeTimes:            rapid.Int32().Draw(t, "reconsume"),
		PreparedTransactionOffset: LogOffset(rapid.Int64().Draw(t, "prepared")),
		Body:                      rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "body"),
		Properties:                rapid.StringN(0, 100, 400).Draw(t, "properties"),
	}
}

func TestDecodeUndoesAppendTo(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := genMessage(t)
		rec := m.AppendTo(nil)
		got, err := Decode(rec)
		if err != nil {
			t.Fatal(err)
		}
		m.SysFlag = m.SysFlag&^(SysFlagBornHostV6|SysFlagStoreHostV6) | got.SysFlag&(SysFlagBornHostV6|SysFlagStoreHostV6)
		if diff := cmp.Diff(m, got, compareHosts); diff != "" {
			t.Fatalf("differs (-want +got):\n%s", diff)
		}
	})
}

func FuzzDecode(f *testing.F) {
	m := sample()
	f.Add(m.AppendTo(nil))
	m.BornHost, m.StoreHost, m.Topic = hostV6, hostV6, strings.Repeat("t", 200)
	f.Add(m.AppendTo(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, rec []byte) {
		got, err := Decode(rec)
		if err != nil {
			if Record(rec).IsWhole() || Record(rec).Check() == nil {
				t.Fatalf("Decode fails (%v) where Check does not", err)
			}
			return
		}
		// Ports are 32 bits wide on disk, CRC and 4-in-6 addresses are normalised: compare after one more
		// round.
		again := got.AppendTo(nil)
		third, err := Decode(again)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(third.AppendTo(nil), again) {
			t.Fatal("encoding is not stable")
		}
		if third.Topic != got.Topic || third.Properties != got.Properties || !bytes.Equal(third.Body, got.Body) {
			t.Fatal("content changed")
		}
	})
}

func TestAllocations(t *testing.T) {
	m := sample()
	m.TailProperties = "MSG_REGION\x01r\x02"
	buf := make([]byte, 0, 4096)
	rec := m.AppendTo(nil)
	var sink Message
	tests := []struct {
		name string
		fn   func()
	}{
		{"AppendTo", func() { buf = m.AppendTo(buf[:0]) }},
		{"Decode", func() { sink, _ = Decode(rec) }},
		{"Check", func() { _ = Record(rec).Check() }},
		{"Property", func() { _, _ = Property(sink.Properties, PropertyTags) }},
		{"TagsCode", func() { _ = TagsCode("a tag") }},
		{"Properties", func() {
			for name := range Properties(sink.Properties) {
				_ = name
			}
		}},
		{"ScanProperties", func() {
			tags := ""
			_ = ScanProperties(sink.Properties, func(name, value string) {
				if name == PropertyTags {
					tags = value
				}
			})
			_ = tags
		}},
	}
	for _, tt := range tests {
		if n := testing.AllocsPerRun(100, tt.fn); n != 0 {
			t.Errorf("%s: %v allocations, want none", tt.name, n)
		}
	}
}

func BenchmarkAppendTo(b *testing.B) {
	m := sample()
	m.Body = make([]byte, 128)
	buf := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		buf = m.AppendTo(buf[:0])
	}
}

func BenchmarkDecode(b *testing.B) {
	m := sample()
	m.Body = make([]byte, 128)
	rec := m.AppendTo(nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(rec); err != nil {
			b.Fatal(err)
		}
	}
}
