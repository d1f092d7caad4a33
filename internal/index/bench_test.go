// SPDX-License-Identifier: Apache-2.0

package index

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/roquetmq/roquet/internal/message"
)

const benchRecordBytes = 300

func openBench(b *testing.B, cfg Config) *DB {
	b.Helper()
	d, err := Open(b.TempDir(), vfs.Default, cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := d.Close(); err != nil {
			b.Error(err)
		}
	})
	return d
}

// BenchmarkApply is what the applier does for a message: find the queue, Add, AddKey, and a Checkpoint every
// 128 messages. Checkpoints run beside it, as they do in the broker; cpu-ns/op says what all of it costs.
// p50-µs and p99.9-µs are of batches of 128.
func BenchmarkApply(b *testing.B) {
	for _, queues := range []int{1, 4, 8000} {
		for _, keys := range []int{0, 1, 2} {
			b.Run(fmt.Sprintf("queues=%d/keys=%d", queues, keys), func(b *testing.B) { benchApply(b, queues, keys) })
		}
	}
}

func benchApply(b *testing.B, queues, keys int) {
	d := openBench(b, Config{})
	topics := make([][]byte, (queues+3)/4)
	for i := range topics {
		topics[i] = fmt.Appendf(nil, "BenchTopic%05d", i)
	}
	key := "7F0000010A8C18B4AAC2" + "0123456789AB"
	pos := message.LogOffset(0)
	batches := make([]time.Duration, 0, b.N/128+1)
	b.ReportAllocs()
	cpu := cpuTime()
	b.ResetTimer()
	for i := 0; i < b.N; {
		began := time.Now()
		for range 128 {
			topic, id := topics[i/4%len(topics)], int32(i%min(queues, 4))
			q := d.LookupQueue(string(topic), id)
			if q == nil {
				q = d.Queue(string(topic), id)
			}
			q.Add(Entry{Offset: q.Next(), Pos: pos, Size: benchRecordBytes, TagsCode: int64(i % 7)})
			for k := range keys {
				d.AddKey(KeyUnique, topic, key[k:], pos)
			}
			pos += benchRecordBytes
			i++
		}
		if err := d.Checkpoint(pos); err != nil {
			b.Fatal(err)
		}
		batches = append(batches, time.Since(began))
	}
	b.StopTimer()
	if err := d.Sync(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64((cpuTime()-cpu).Nanoseconds())/float64(b.N), "cpu-ns/op")
	slices.Sort(batches)
	b.ReportMetric(float64(batches[len(batches)*999/1000].Microseconds()), "p99.9-µs")
	b.ReportMetric(float64(batches[len(batches)/2].Microseconds()), "p50-µs")
}

// BenchmarkRead reads 32 entries at a time.
func BenchmarkRead(b *testing.B) {
	const entries = 400_000
	fill := func(b *testing.B, cfg Config) (*DB, *Queue) {
		d := openBench(b, cfg)
		q := d.Queue("topic", 0)
		for i := range entries {
			q.Add(
				Entry{
					Offset: message.QueueOffset(i),
					Pos:    message.LogOffset(i * benchRecordBytes),
					Size:   benchRecordBytes,
				},
			)
		}
		return d, q
	}
	var dst [32]Entry
	b.Run("memory", func(b *testing.B) {
		_, q := fill(b, Config{})
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if n, err := q.Read(message.QueueOffset(i*32%entries), dst[:]); n == 0 || err != nil {
				b.Fatal(n, err)
			}
		}
	})
	b.Run("pebble sequential", func(b *testing.B) {
		d, q := fill(b, Config{})
		_ = d.Checkpoint(1 << 40)
		if err := d.Sync(); err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if n, err := q.Read(message.QueueOffset(i*32%entries), dst[:]); n == 0 || err != nil {
				b.Fatal(n, err)
			}
		}
	})
	b.Run("pebble random", func(b *testing.B) {
		d, q := fill(b, Config{})
		_ = d.Checkpoint(1 << 40)
		if err := d.Sync(); err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if n, err := q.Read(message.QueueOffset(i*7919%entries), dst[:]); n == 0 || err != nil {
				b.Fatal(n, err)
			}
		}
	})
}

// BenchmarkIdleQueues measures what a queue costs that has one message and is left alone, and opening many of
// them.
func BenchmarkIdleQueues(b *testing.B) {
	const queues = 100_000
	dir := b.TempDir()
	d, err := Open(dir, vfs.Default, Config{})
	if err != nil {
		b.Fatal(err)
	}
	before := heapBytes()
	for i := range queues {
		q := d.Queue(fmt.Sprintf("IdleTopic%06d", i/4), int32(i%4))
		q.Add(Entry{Pos: message.LogOffset(i * benchRecordBytes), Size: benchRecordBytes})
	}
	resident := heapBytes()
	_ = d.Checkpoint(queues * benchRecordBytes)
	for range 3 {
		if err := d.Sync(); err != nil {
			b.Fatal(err)
		}
	}
	idle := heapBytes()
	if err := d.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		d, err := Open(dir, vfs.Default, Config{})
		if err != nil {
			b.Fatal(err)
		}
		if n := len(d.Topics()); n != queues/4 {
			b.Fatal(n)
		}
		if err := d.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(resident-before)/queues, "warm-B/queue")
	b.ReportMetric(float64(idle-before)/queues, "idle-B/queue")
}

// BenchmarkState writes and deletes state as a timer does, and reads one key in between now and then.
func BenchmarkState(b *testing.B) {
	d := openBench(b, Config{})
	value := make([]byte, 40)
	b.ReportAllocs()
	cpu := cpuTime()
	for i := 0; b.Loop(); i++ {
		key := fmt.Appendf(nil, "%016d", i)
		pos := message.LogOffset(i * benchRecordBytes)
		d.Put(message.SpaceTimer, key, value, pos)
		if i > 1000 {
			d.Delete(message.SpaceTimer, fmt.Appendf(key[:0], "%016d", i-1000), pos)
		}
		if err := d.Checkpoint(pos); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((cpuTime()-cpu).Nanoseconds())/float64(b.N), "cpu-ns/op")
}

// BenchmarkFindKeys looks up a key that is nowhere: all sidecars are asked.
func BenchmarkFindKeys(b *testing.B) {
	d := openBench(b, Config{CheckpointBytes: 32 << 20})
	pos := message.LogOffset(0)
	for i := range 100 * (32 << 20) / benchRecordBytes {
		d.AddKey(KeyUnique, []byte("topic"), fmt.Sprintf("key-%d", i), pos)
		pos += benchRecordBytes
		if err := d.Checkpoint(pos); err != nil {
			b.Fatal(err)
		}
	}
	if err := d.Sync(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		for range d.FindKeys(KeyUnique, "topic", "absent", 0, pos) {
			continue
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(d.keys.sidecars)), "µs/sidecar")
}

func heapBytes() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
