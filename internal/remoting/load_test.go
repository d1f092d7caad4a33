// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/roquetmq/roquet/internal/protocol"
)

// loadEnv makes the test binary a load generator, so that its CPU time is not the server's: "addr conns
// inFlight calls".
const loadEnv = "ROQUET_REMOTING_LOAD"

// sendFrame is what a Java client sends for a message of 128 bytes.
func sendFrame(opaque int32) []byte {
	h := &protocol.SendMessageRequestHeader{
		ProducerGroup:         "bench_group",
		Topic:                 "bench_topic",
		DefaultTopic:          "TBW102",
		DefaultTopicQueueNums: 4,
		QueueID:               3,
		BornTimestamp:         1732900000000,
		Properties:            "UNIQ_KEY\x017F0000010000000000000000000000\x02WAIT\x01true\x02",
		ReconsumeTimes:        protocol.Some[int32](0),
		UnitMode:              protocol.Some(false),
		Batch:                 protocol.Some(false),
	}
	return frameOf(protocol.SendMessageV2, opaque, h, make([]byte, 128))
}

// runLoad keeps inFlight calls open on each connection until calls are done on each.
func runLoad(addr string, conns, inFlight, calls int) error {
	var wg sync.WaitGroup
	failed := make(chan error, conns)
	for range conns {
		wg.Go(func() {
			if err := loadConn(addr, inFlight, calls); err != nil {
				failed <- err
			}
		})
	}
	wg.Wait()
	close(failed)
	return <-failed
}

func loadConn(addr string, inFlight, calls int) error {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer nc.Close()
	frame := sendFrame(1)
	r := bufio.NewReaderSize(nc, 64<<10)
	var out []byte
	for range inFlight {
		out = append(out, frame...)
	}
	sent, got := inFlight, 0
	for got < calls {
		if len(out) > 0 {
			if _, err := nc.Write(out); err != nil {
				return err
			}
			out = out[:0]
		}
		for {
			var word [4]byte
			if _, err := io.ReadFull(r, word[:]); err != nil {
				return err
			}
			if _, err := r.Discard(int(binary.BigEndian.Uint32(word[:]))); err != nil {
				return err
			}
			got++
			if sent < calls {
				out = append(out, frame...)
				sent++
			}
			if r.Buffered() < 4 {
				break
			}
		}
	}
	return nil
}

func loadMain(spec string) {
	var addr string
	var conns, inFlight, calls int
	if _, err := fmt.Sscan(spec, &addr, &conns, &inFlight, &calls); err != nil {
		panic(err)
	}
	if err := runLoad(addr, conns, inFlight, calls); err != nil {
		panic(err)
	}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// batcher answers calls as the commit log does: one goroutine, all that gathered, one flush.
type batcher struct {
	mu    sync.Mutex
	calls []*Call
	wake  chan struct{}
}

func (b *batcher) put(c *Call) {
	b.mu.Lock()
	b.calls = append(b.calls, c)
	first := len(b.calls) == 1
	b.mu.Unlock()
	if first {
		select {
		case b.wake <- struct{}{}:
		default:
		}
	}
}

func (b *batcher) run(ctx context.Context, s *Server) {
	var spare []*Call
	header := &protocol.SendMessageResponseHeader{MsgID: "7F00000100002A9F0000000000001234", QueueID: 3}
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.wake:
		}
		b.mu.Lock()
		calls := b.calls
		b.calls = spare[:0]
		b.mu.Unlock()
		for i, c := range calls {
			c.ReplyLater(Response{Header: header})
			calls[i] = nil
		}
		spare = calls
		s.FlushPending()
	}
}

// BenchmarkCallCPU reports the server's CPU time for a call, the load generator being another process.
func BenchmarkCallCPU(b *testing.B) {
	async := &batcher{wake: make(chan struct{}, 1)}
	header := &protocol.SendMessageResponseHeader{MsgID: "7F00000100002A9F0000000000001234", QueueID: 3}
	sync := HandleBody(func(*Call) (Response, error) { return Response{Header: header}, nil })
	for _, tc := range []struct {
		name            string
		process         Processor
		conns, inFlight int
		hooks           []Hook
	}{
		{"8x64/inline", sync, 8, 64, nil},
		{"8x64/batched", func(_ context.Context, c *Call) { async.put(c) }, 8, 64, nil},
		{"8x64/batched+header", HandleAsync(func(c *Call, _ *protocol.SendMessageRequestHeader) { async.put(c) }), 8, 64, nil},
		{"64x1/batched", func(_ context.Context, c *Call) { async.put(c) }, 64, 1, nil},
		{"1x1/batched", func(_ context.Context, c *Call) { async.put(c) }, 1, 1, nil},
	} {
		b.Run(tc.name, func(b *testing.B) {
			h := start(
				b,
				[]Route{
					{Code: protocol.SendMessageV2, Lane: NewLane(LaneConfig{Name: "send"}), Processor: tc.process},
				},
			)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			go async.run(ctx, h.Server)
			calls := b.N/tc.conns + 1
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), loadEnv+"="+h.addr()+" "+strconv.Itoa(tc.conns)+" "+
				strconv.Itoa(tc.inFlight)+" "+strconv.Itoa(max(calls, tc.inFlight)))
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			cpu := cpuTime()
			b.ResetTimer()
			if out, err := cmd.CombinedOutput(); err != nil {
				b.Fatalf("%v: %s", err, out)
			}
			b.StopTimer()
			used := cpuTime() - cpu
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(used.Nanoseconds())/float64(b.N), "cpu-ns/op")
			b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(b.N), "alloc-B/op")
			b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(b.N), "mallocs/op")
		})
	}
}
