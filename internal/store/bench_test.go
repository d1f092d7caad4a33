// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"net/netip"
	"sync"
	"syscall"
	"testing"

	"github.com/roquetmq/roquet/internal/commitlog"
	"github.com/roquetmq/roquet/internal/message"
)

// cpuTime starts a measurement of the process's CPU time, which a busy machine does not spoil as it does
// the clock's. The returned function reports it, an operation.
func cpuTime(b *testing.B) func() {
	b.Helper()
	used := func() int64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return u.Utime.Nano() + u.Stime.Nano()
	}
	before := used()
	return func() { b.ReportMetric(float64(used()-before)/float64(b.N), "cpu-ns/op") }
}

func benchConfig(b *testing.B) Config {
	b.Helper()
	cfg := testConfig(b)
	cfg.Log.SegmentBytes = 0
	return cfg
}

// benchProps are the properties of a usual message, as the broker stores them.
func benchProps(i int) string {
	p := message.AppendProperty(nil, message.PropertyUniqueKey, fmt.Sprintf("7F0000010DFC18B4AAC2%012X", i))
	p = message.AppendProperty(p, message.PropertyWait, "true")
	p = message.AppendProperty(p, message.PropertyTags, "TagA")
	p = message.AppendProperty(p, message.PropertyMsgRegion, "DefaultRegion")
	p = message.AppendProperty(p, message.PropertyTraceSwitch, "true")
	return string(message.AppendProperty(p, message.PropertyCluster, "DefaultCluster"))
}

func benchMessage(i int, body []byte) message.Message {
	return message.Message{
		Topic: "BenchmarkTopic", QueueID: int32(i & 7), Body: body, Properties: benchProps(i),
		BornHost: netip.MustParseAddrPort("10.0.0.1:4711"), BornTimestamp: 1,
	}
}

// BenchmarkAppendApplied is the way from Append to Done with 512 single messages of 128 B in flight.
func BenchmarkAppendApplied(b *testing.B) {
	const inFlight = 512
	r := start(b, benchConfig(b))
	free := make(chan *Write, inFlight)
	body := make([]byte, 128)
	done := func(w *Write, err error) {
		if err != nil {
			b.Error(err)
		}
		free <- w
	}
	for i := range inFlight {
		w := &Write{Done: done}
		*w.Single() = benchMessage(i, body)
		free <- w
	}
	b.ReportAllocs()
	b.ResetTimer()
	defer cpuTime(b)()
	for range b.N {
		if err := r.Append(<-free); err != nil {
			b.Fatal(err)
		}
	}
	for range inFlight {
		<-free
	}
}

// BenchmarkAppendCall is the part of it that the caller pays: choosing offsets, encoding.
func BenchmarkAppendCall(b *testing.B) {
	s, err := Open(benchConfig(b))
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	const many = 1024
	body := make([]byte, 128)
	writes := make([]Write, many)
	for i := range writes {
		*writes[i].Single() = benchMessage(i, body)
	}
	buf := make([]byte, 0, many*400)
	b.ReportAllocs()
	b.ResetTimer()
	defer cpuTime(b)()
	for i := range b.N {
		w := &writes[i%many]
		if i%many == 0 {
			buf = buf[:0]
		}
		if _, err := s.prepare(w); err != nil {
			b.Fatal(err)
		}
		buf = w.grp.Encode(buf)
	}
}

// BenchmarkApply is the part of it that the applier pays, a message.
func BenchmarkApply(b *testing.B) {
	for _, waiting := range []bool{false, true} {
		b.Run(fmt.Sprintf("waiting=%v", waiting), func(b *testing.B) { benchmarkApply(b, waiting) })
	}
}

func benchmarkApply(b *testing.B, waiting bool) {
	s, err := Open(benchConfig(b))
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	const many = 128
	body := make([]byte, 128)
	var w Write
	for i := range many {
		w.Messages = append(w.Messages, benchMessage(i, body))
	}
	if waiting {
		for q := range int32(8) {
			s.Await("BenchmarkTopic", q, 1<<40, &Waiter{Wake: func(*Waiter) {}})
		}
	}
	if _, err := s.prepare(&w); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	pos := message.LogOffset(0)
	var buf []byte
	for i := 0; i < b.N; i += many {
		b.StopTimer()
		w.grp.store, w.grp.write, w.grp.queue = s, &w, s.queues.obtain("BenchmarkTopic", 0)
		buf = w.grp.Encode(buf[:0])
		e := commitlog.Entry{
			Position: pos,
			First:    pos + 60,
			End:      pos + 60 + message.LogOffset(len(buf)),
			Count:    many,
			Records:  buf,
		}
		pos = e.End
		b.StartTimer()
		s.applier.apply(e)
	}
}

// BenchmarkFetchBacklog reads 32 messages at a time of a backlog, the reported time is that of one message.
func BenchmarkFetchBacklog(b *testing.B) {
	r := start(b, benchConfig(b))
	const many = 400_000
	body := make([]byte, 128)
	var wg sync.WaitGroup
	for sent := 0; sent < many; sent += 1000 {
		w := &Write{Done: func(_ *Write, err error) {
			if err != nil {
				b.Error(err)
			}
			wg.Done()
		}}
		for i := range 1000 {
			w.Messages = append(w.Messages, benchMessage(i, body))
		}
		wg.Add(1)
		for r.Append(w) != nil {
		}
	}
	wg.Wait()
	b.ReportAllocs()
	b.ResetTimer()
	defer cpuTime(b)()
	into := make([][]byte, 0, 32)
	var from [8]message.QueueOffset
	queue := int32(0)
	for i := 0; i < b.N; {
		req := FetchRequest{Topic: "BenchmarkTopic", QueueID: queue, From: from[queue], Into: into}
		res := r.Fetch(&req)
		switch res.Status {
		case Found:
			i += len(res.Records)
			from[queue] = res.Next
		case OffsetOverflowOne:
			from[queue] = 0
		default:
			b.Fatal(res.Status, res.Err)
		}
		queue = (queue + 1) & 7
	}
}
