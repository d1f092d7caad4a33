// SPDX-License-Identifier: Apache-2.0

package message

import (
	"encoding/hex"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// golden reads testdata/golden.txt, which says how it was made.
func golden(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("testdata/golden.txt")
	if err != nil {
		t.Fatal(err)
	}
	vectors := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name != "#" {
			vectors[name] = value
		}
	}
	return vectors
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRecordsOfTheOriginal(t *testing.T) {
	t.Parallel()
	vectors := golden(t)
	born4, born6 := netip.MustParseAddrPort("10.1.2.3:50000"), netip.MustParseAddrPort("[2001:db8::7]:50000")
	store4, store6 := netip.MustParseAddrPort("10.1.2.4:10911"), netip.MustParseAddrPort("[2001:db8::8]:10911")
	tests := []struct {
		name        string
		topic       string
		off         LogOffset
		born, store netip.AddrPort
		hostBits    int32
	}{
		{"v4", "orders", 1 << 40, born4, store4, 0},
		{"v6", "orders", 1 << 40, born6, store6, SysFlagBornHostV6 | SysFlagStoreHostV6},
		{"bornv6", "orders", 1 << 40, born6, store4, SysFlagBornHostV6},
		{"long", strings.Repeat("t", 128), 0, born4, store6, SysFlagStoreHostV6},
	}
	for _, tt := range tests {
		t.Run("C149 "+tt.name, func(t *testing.T) {
			t.Parallel()
			rec := unhex(t, vectors[tt.name])
			want := Message{
				Topic: tt.topic, QueueID: 3, Flag: -7, QueueOffset: 41, LogOffset: tt.off,
				SysFlag: CompressionZLIB | tt.hostBits, BornTimestamp: 1700000000001, StoreTimestamp: 1700000000002,
				BornHost: tt.born, StoreHost: tt.store, ReconsumeTimes: 2, PreparedTransactionOffset: 99,
				Body: []byte("héllo"), Properties: "KEYS\x01k1 k2\x02user\x01värde\x02TAGS\x01a\x02",
			}
			got, err := Decode(rec)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, compareHosts); diff != "" {
				t.Errorf("decoded differs (-want +got):\n%s", diff)
			}
			if err := Record(rec).Check(); err != nil {
				t.Error(err)
			}
			if again := hex.EncodeToString(want.AppendTo(nil)); again != vectors[tt.name] {
				t.Errorf("encoded\n     %s\nwant %s", again, vectors[tt.name])
			}
		})
	}
}

func TestBatchOfTheOriginal(t *testing.T) {
	t.Parallel()
	body := unhex(t, golden(t)["batch"])
	got, err := decodeBatch(body)
	if err != nil {
		t.Fatal(err)
	}
	want := []batchEntry{
		{5, "one", "KEYS\x01k1\x02WAIT\x01true\x02TAGS\x01a\x02"},
		{0, "", "u\x01v\x02WAIT\x01true\x02"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decoded differs (-want +got):\n%s", diff)
	}
	var again []byte
	for _, e := range want {
		again = AppendBatchEntry(again, e.Flag, []byte(e.Body), e.Props)
	}
	if hex.EncodeToString(again) != golden(t)["batch"] {
		t.Errorf("encoded %x, want %x", again, body)
	}
}

func TestIDsAndHashesOfTheOriginal(t *testing.T) {
	t.Parallel()
	vectors := golden(t)
	if got := OffsetMsgID(netip.MustParseAddrPort("10.1.2.4:10911"), 1<<40); got != vectors["id4"] {
		t.Errorf("IPv4 id %s, want %s", got, vectors["id4"])
	}
	if got := OffsetMsgID(netip.MustParseAddrPort("[2001:db8::8]:10911"), 1234); got != vectors["id6"] {
		t.Errorf("IPv6 id %s, want %s", got, vectors["id6"])
	}
	letters := make([]byte, 200)
	for i := range letters {
		letters[i] = byte('a' + i%26)
	}
	for name, tag := range map[string]string{"hash200": string(letters), "hashemoji": "tag😀x", "hashzh": "订单标签"} {
		if got := strconv.FormatInt(TagsCode(tag), 10); got != vectors[name] {
			t.Errorf("C063 %s: %s, want %s", name, got, vectors[name])
		}
	}
}
