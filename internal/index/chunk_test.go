// SPDX-License-Identifier: Apache-2.0

package index

import (
	"encoding/hex"
	"math"
	"slices"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/roquetmq/roquet/internal/message"
)

func TestChunkRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		base := message.QueueOffset(rapid.Int64Range(0, 1<<40).Draw(t, "base"))
		room := chunkEntries - int(base&chunkMask)
		slots := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) slot {
			return slot{
				pos:  message.LogOffset(rapid.Int64Range(0, math.MaxInt64).Draw(t, "pos")),
				tags: rapid.Int64().Draw(t, "tags"), size: rapid.Int32().Draw(t, "size"),
			}
		}), 0, room).Draw(t, "slots")
		cut := rapid.IntRange(0, len(slots)).Draw(t, "cut")
		encoded := appendChunk(nil, base, slots[:cut], slots[cut:])
		c, err := decodeChunk(chunkNumber(base), encoded, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.base != base || !slices.Equal(c.slots, slots) {
			t.Fatalf("got %+v, want %d %+v", c, base, slots)
		}
		for n := range encoded {
			if _, err := decodeChunk(chunkNumber(base), encoded[:n], nil); err == nil {
				t.Fatalf("%d of %d bytes decode", n, len(encoded))
			}
		}
	})
}

func TestTailRoundTrip(t *testing.T) {
	t.Parallel()
	slots := []slot{{pos: 100, size: 50, tags: -1}, {pos: 170, size: 60}}
	encoded := appendChunk(appendTailHead(nil, 300, 4, 5), 298, slots)
	got, err := decodeTail(encoded)
	if err != nil {
		t.Fatal(err)
	}
	if got.next != 300 || got.min != 4 || got.minPos != 5 || got.number() != 2 {
		t.Fatalf("got %+v", got)
	}
	c, err := decodeChunk(got.number(), got.chunk, nil)
	if err != nil || c.base != 298 || !slices.Equal(c.slots, slots) {
		t.Fatalf("got %+v, %v", c, err)
	}
}

// TestChunkBytes pins how compact entries are: a topic of its own in the log, and one among many.
func TestChunkBytes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		gap, bytes int
		tags       func(i int) int64
	}{
		"one queue, no tags":       {300, 5, func(int) int64 { return 0 }},
		"8000 queues, three tags":  {2_400_000, 10, func(i int) int64 { return []int64{65, 2_000_000, -77_777}[i%3] }},
		"8000 queues, random tags": {2_400_000, 11, func(i int) int64 { return int64(int32(i * 2_654_435_761)) }},
		"due times in millis":      {300_000, 7, func(i int) int64 { return 1_800_000_000_000 + int64(i)*1000 }},
	} {
		slots := make([]slot, chunkEntries)
		for i := range slots {
			slots[i] = slot{pos: message.LogOffset(1<<40 + i*c.gap), size: int32(300 + i%2), tags: c.tags(i)}
		}
		if n := (len(appendChunk(nil, 0, slots)) + chunkEntries - 1) / chunkEntries; n > c.bytes {
			t.Errorf("%s: %d bytes an entry, want at most %d", name, n, c.bytes)
		}
	}
}

func FuzzDecodeChunk(f *testing.F) {
	f.Add(appendChunk(nil, 130, []slot{{pos: 1, size: 2, tags: 3}, {pos: 4, size: 5, tags: -6}}))
	f.Add(appendChunk(nil, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := decodeChunk(3, b, nil)
		if err != nil {
			return
		}
		if len(c.slots) > chunkEntries || chunkNumber(c.base) != 3 ||
			len(c.slots) > 0 && chunkNumber(c.end()-1) != 3 {
			t.Fatalf("decoded %d entries from %d", len(c.slots), c.base)
		}
		again, err := decodeChunk(3, appendChunk(nil, c.base, c.slots), nil)
		if err != nil || again.base != c.base || !slices.Equal(again.slots, c.slots) {
			t.Fatalf("encoding changes it: %+v, %+v, %v", c, again, err)
		}
	})
}

func FuzzDecodeTail(f *testing.F) {
	f.Add(appendChunk(appendTailHead(nil, 300, 4, 5), 298, []slot{{pos: 1}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := decodeTail(b)
		if err == nil && (got.min < 0 || got.next < got.min || got.minPos < 0) {
			t.Fatalf("accepted %+v", got)
		}
	})
}

func FuzzSidecar(f *testing.F) {
	files := sidecarFiles{fs: vfs.NewMem(), dir: "/"}
	table := &keyTable{KeyRange: KeyRange{From: 10, To: 900}}
	for i := range 300 {
		table.add(keyHash(i*2_654_435_761), message.LogOffset(10+i))
	}
	f.Add(files.encode(table), uint32(7))
	f.Fuzz(func(t *testing.T, b []byte, h uint32) {
		files := sidecarFiles{fs: vfs.NewMem(), dir: "/"}
		c := files.sidecar(table.KeyRange)
		file, err := files.fs.Create(c.path, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.Write(slices.Clone(b)); err != nil {
			t.Fatal(err)
		}
		found, err := files.read(c, keyHash(h))
		if err == nil && len(found) > len(b)/keyEntryBytes {
			t.Fatalf("found %d entries in %d bytes", len(found), len(b))
		}
	})
}

// TestFormats pins the bytes on disk: a change here needs another formatVersion, and docs/format/index.md.
func TestFormats(t *testing.T) {
	t.Parallel()
	slots := []slot{{pos: 1000, size: 300, tags: 2_614_215}, {pos: 1300, size: 299, tags: 2_614_215}}
	table := &keyTable{KeyRange: KeyRange{From: 1000, To: 2000}}
	table.add(hashKey(KeyUnique, xxhash.Sum64String("orders"), "0A"), 1007)
	for _, c := range []struct {
		name, want string
		got        []byte
	}{
		{"chunk", "010202e807d8048e8fbf02ac020100", appendChunk(nil, 130, slots)},
		{"tail", "018401060701" + "0202e807d8048e8fbf02ac020100", appendChunk(appendTailHead(nil, 132, 6, 7), 130, slots)},
		{"tail key", "030000000780000002", appendQueueKey(nil, spaceTail, 7, 2)},
		{"chunk key", "05000000078000000200000000000000ff", appendChunkKey(nil, 7, 2, 255)},
		{"state key", "1003" + "6162", appendStateKey(nil, message.SpaceOffset, []byte("ab"))},
		{
			"sidecar", "726f716b65797331" + "e803000000000000" + "d007000000000000" + "01000000" + "00000000" +
				"60431673" + "00000000" + "01000000" + "a1605e5b" + "07000000" + "ab7c1ac8",
			sidecarFiles{}.encode(table),
		},
	} {
		if got := hex.EncodeToString(c.got); got != c.want {
			t.Errorf("%s is %s, want %s", c.name, got, c.want)
		}
	}
}

// TestHotPathAllocations pins what the applier and the pull path allocate.
func TestHotPathAllocations(t *testing.T) {
	d := mustOpen(t, vfs.NewMem(), Config{})
	defer mustClose(t, d)
	topic := []byte("a-topic-of-some-length")
	q := d.Queue(string(topic), 0)
	pos := message.LogOffset(1)
	for range 1000 {
		q.Add(Entry{Offset: q.Next(), Pos: pos, Size: 300})
		pos += 300
	}
	var dst [32]Entry
	key := "7F0000010A8C18B4AAC20123456789AB"
	for name, c := range map[string]struct {
		most float64
		fn   func()
	}{
		"find": {0, func() { _ = d.LookupQueue("a-topic-of-some-length", 0) }},
		"read": {0, func() { _, _ = q.Read(500, dst[:]) }},
		"min":  {0, func() { _ = q.Min(0) }},
		"add": {0.1, func() {
			q.Add(Entry{Offset: q.Next(), Pos: pos, Size: 300})
			pos += 300
		}},
		"key": {0.1, func() { d.AddKey(KeyUnique, topic, key, pos) }},
	} {
		if n := testing.AllocsPerRun(1000, c.fn); n > c.most {
			t.Errorf("%s allocates %.2f times", name, n)
		}
	}
}
