// SPDX-License-Identifier: Apache-2.0

package commitlog

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/roquetmq/roquet/internal/message"
)

// benchConn is a producer with a window of groups in flight. Like a connection, it is woken once a batch at
// most.
type benchConn struct {
	log     *Log
	record  []byte
	credits atomic.Int64
	wake    chan struct{}
	times   []time.Duration
}

type benchGroup struct {
	conn  *benchConn
	start time.Time
}

func (g *benchGroup) Encode(dst []byte) []byte { return append(dst, g.conn.record...) }

func (g *benchGroup) Done(_ message.LogOffset, err error) {
	if err != nil {
		panic(err)
	}
	g.conn.times = append(g.conn.times, time.Since(g.start)) // one goroutine at a time settles
	g.conn.credits.Add(1)
}

// produce appends until the shared count is used up.
func (c *benchConn) produce(left *atomic.Int64, window int) {
	groups := make([]benchGroup, window)
	c.credits.Store(int64(window))
	for n := 0; ; {
		if c.credits.Load() == 0 {
			<-c.wake
			continue
		}
		if left.Add(-1) < 0 {
			break
		}
		c.credits.Add(-1)
		g := &groups[n%window] // settled in order, so the oldest is free
		n++
		g.conn, g.start = c, time.Now()
		if err := c.log.Append(g, len(c.record), false); err != nil {
			panic(err)
		}
	}
	for c.credits.Load() < int64(window) {
		<-c.wake
	}
}

func cpuTime() time.Duration {
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// benchAppend runs b.N appends of 350 bytes from conns connections with window groups in flight each.
func benchAppend(b *testing.B, cfg Config, conns, window int) {
	l, err := Open(cfg)
	if err != nil {
		b.Fatal(err)
	}
	all := make([]*benchConn, conns)
	for i := range all {
		all[i] = &benchConn{log: l, record: benchRecord(), wake: make(chan struct{}, 1)}
	}
	ctx, cancel := context.WithCancel(b.Context())
	ran := make(chan error, 1)
	go func() {
		ran <- l.Run(ctx, Handler{Apply: func(Entry) {}, Settled: func() {
			for _, c := range all {
				select {
				case c.wake <- struct{}{}:
				default:
				}
			}
		}})
	}()
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	cpu := cpuTime()
	var wg sync.WaitGroup
	for _, c := range all {
		wg.Go(func() { c.produce(&left, window) })
	}
	wg.Wait()
	b.StopTimer()
	cpu = cpuTime() - cpu
	cancel()
	if err := <-ran; err != nil {
		b.Fatal(err)
	}
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	reportBench(b, all, cpu, l.committer.index-1)
}

func reportBench(b *testing.B, all []*benchConn, cpu time.Duration, entries uint64) {
	var times []time.Duration
	for _, c := range all {
		times = append(times, c.times...)
	}
	slices.Sort(times)
	at := func(share float64) float64 { return float64(times[int(share*float64(len(times)-1))].Microseconds()) }
	b.ReportMetric(float64(cpu.Nanoseconds())/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(b.N)/float64(max(1, entries)), "groups/entry")
	b.ReportMetric(at(0.5), "p50-µs")
	b.ReportMetric(at(0.99), "p99-µs")
	b.ReportMetric(at(0.999), "p99.9-µs")
}

// benchRecord is a message record of 350 bytes.
func benchRecord() []byte { return messageRecord("bench", 351-len(messageRecord("bench", 1))) }

func benchConfig(b *testing.B, segment int64, flush FlushDiskType) Config {
	return Config{
		Dir: b.TempDir(), SegmentBytes: segment, FlushDiskType: flush,
		Disk: DiskMarks{FullPercent: 100, ReserveBytes: 1},
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, flush := range []FlushDiskType{Sync, Async} {
		for _, n := range []struct{ conns, window int }{{1, 1}, {64, 1}, {512, 1}, {8, 64}} {
			b.Run(fmt.Sprintf("%v/%dx%d", flush, n.conns, n.window), func(b *testing.B) {
				benchAppend(b, benchConfig(b, 0, flush), n.conns, n.window)
			})
		}
	}
}

// BenchmarkSegment compares segment sizes by the latency of appends.
func BenchmarkSegment(b *testing.B) {
	for _, mib := range []int64{8, 16, 32, 64} {
		b.Run(fmt.Sprintf("%dMiB", mib), func(b *testing.B) {
			benchAppend(b, benchConfig(b, mib<<20, Sync), 8, 64)
		})
	}
}

// BenchmarkSync compares ways to make an entry durable: fsync or fdatasync, on a file that grows, whose
// blocks are set aside, or whose length is set as well (what the log does).
func BenchmarkSync(b *testing.B) {
	for _, call := range []string{"fsync", "fdatasync"} {
		for _, room := range []string{"grow", "blocks", "blocks+length"} {
			for _, n := range []struct{ conns, window int }{{1, 1}, {8, 64}} {
				b.Run(fmt.Sprintf("%s/%s/%dx%d", call, room, n.conns, n.window), func(b *testing.B) {
					cfg := benchConfig(b, 0, Sync)
					cfg.FS = &variantFS{FS: vfs.Default, fsync: call == "fsync", grow: room == "grow"}
					if room == "blocks" {
						cfg.truncate = func(string, int64) error { return nil }
					}
					benchAppend(b, cfg, n.conns, n.window)
				})
			}
		}
	}
}

type variantFS struct {
	vfs.FS
	fsync, grow bool
}

func (f *variantFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.OpenReadWrite(name, c, o...)
	return &variantFile{File: file, fs: f}, err
}

type variantFile struct {
	vfs.File
	fs *variantFS
}

func (f *variantFile) SyncData() error {
	if f.fs.fsync {
		return f.File.Sync()
	}
	return f.File.SyncData()
}

func (f *variantFile) Preallocate(at, length int64) error {
	if f.fs.grow {
		return syscall.EOPNOTSUPP
	}
	return f.File.Preallocate(at, length)
}

// BenchmarkRead reads records from memory, from cached blocks, and from blocks that have to be loaded.
func BenchmarkRead(b *testing.B) {
	cfg := benchConfig(b, 0, Async)
	cfg.RingBytes = 8 << 20
	cfg.CacheBytes = 8 << 20
	r := start(b, cfg)
	var at []message.LogOffset
	for range 200 {
		g := newGroup("g")
		for range 500 {
			g.records = append(g.records, benchRecord())
		}
		pos, err := r.store(g)
		if err != nil {
			b.Fatal(err)
		}
		for i := range 500 {
			at = append(at, pos+message.LogOffset(350*i))
		}
	}
	for name, span := range map[string][]message.LogOffset{
		"ring": at[len(at)-10_000:], "cached": at[:10_000], "loaded": at[:80_000],
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				if _, err := r.Read(span[i%len(span)], 350); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	r.mustHalt()
}

func BenchmarkReplay(b *testing.B) {
	cfg := benchConfig(b, 0, Async)
	r := start(b, cfg)
	record := benchRecord()
	for range 1000 {
		g := newGroup("g")
		for range 200 {
			g.records = append(g.records, record)
		}
		if _, err := r.store(g); err != nil {
			b.Fatal(err)
		}
	}
	r.mustHalt()
	l, err := Open(cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(l.End()))
	for b.Loop() {
		if err := l.Replay(0, func(Entry) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
}
