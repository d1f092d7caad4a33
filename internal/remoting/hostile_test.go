// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roquetmq/roquet/internal/protocol"
)

// rawFrame is a frame with that header word and content; total is the length word.
func rawFrame(total uint32, word uint32, rest string) []byte {
	b := binary.BigEndian.AppendUint32(nil, total)
	return append(binary.BigEndian.AppendUint32(b, word), rest...)
}

// binaryHeader is a ROCKETMQ header whose remark and ext lengths say what they are told.
func binaryHeader(remarkLen, extLen uint32, rest string) string {
	b := make([]byte, 13)
	b = binary.BigEndian.AppendUint32(b, remarkLen)
	b = binary.BigEndian.AppendUint32(b, extLen)
	return string(b) + rest
}

// hostileFrames are the cases that must close the connection, by id or name.
func hostileFrames() map[string][]byte {
	lying := binaryHeader(21, 0, "body")
	lyingExt := binaryHeader(0, 21, "body")
	return map[string][]byte{
		"C002a shorter than the header word": append(binary.BigEndian.AppendUint32(nil, 2), 'a', 'b'),
		"C002b unknown serialize type":       rawFrame(6, 0x7F000002, "{}"),
		"C002c header is a list":             rawFrame(6, 2, "[]"),
		"C006 remark as long as the header":  rawFrame(uint32(4+len(lying)), 0x01000000|21, lying),
		"C006 ext as long as the header":     rawFrame(uint32(4+len(lyingExt)), 0x01000000|21, lyingExt),
		"header longer than the frame":       rawFrame(8, 100, "abcd"),
		"unknown type of a large frame":      rawFrame(15<<20, 0x7F000002, "{}"),
		"header longer than a large frame":   rawFrame(1<<20, 2<<20, "{}"),
		"over the limit":                     rawFrame(16<<20, 2, "{}"),
		"empty frame":                        make([]byte, 4),
		"broken JSON":                        rawFrame(11, 7, `{"code"`),
		"not a protocol":                     []byte("SSH-2.0-OpenSSH_9.2\r\n"),
		"TLS hello":                          []byte("\x16\x03\x01\x02\x00\x01"),
	}
}

func TestHostileFramesCloseTheConnection(t *testing.T) {
	t.Parallel()
	h := start(t, echoRoutes())
	for name, frame := range hostileFrames() {
		t.Run(name, func(t *testing.T) {
			nc := h.dial(t)
			write(t, nc, frame)
			wantClosed(t, nc)
			if strings.HasPrefix(name, "not") || strings.HasPrefix(name, "TLS") {
				return
			}
			nc = h.dial(t) // the same after a good frame
			write(t, nc, append(frameOf(codeEcho, 1, nil, nil), frame...))
			if got := readFrame(t, nc); got.Opaque != 1 {
				t.Fatalf("%+v", got)
			}
			wantClosed(t, nc)
		})
	}
	eventually(t, "all are gone", func() bool { return h.Open() == 0 })
	h.wantLog(t, "connection closed for its fault")
}

// attack sends garbage of one kind or another on a fresh connection.
func attack(rng *rand.Rand, addr string, bad [][]byte) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(patience)) // an attacker that is not served just goes on
	good := sendFrame(rng.Int32())
	var b []byte
	switch rng.IntN(6) {
	case 0: // random bytes
		b = make([]byte, rng.IntN(4096))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
	case 1: // a good frame with flipped bytes behind the length
		b = good
		for range 1 + rng.IntN(8) {
			b[4+rng.IntN(len(b)-4)] ^= byte(1 + rng.IntN(255))
		}
	case 2: // cut
		b = good[:rng.IntN(len(good))]
	case 3: // a large claim, of which a little comes
		b = rawFrame(uint32(15<<20), 2, "{}"+strings.Repeat("x", rng.IntN(300<<10)))
	case 4: // good frames and answers nobody asked for
		cmd := protocol.Command{Opaque: rng.Int32(), Flag: protocol.FlagResponse}
		b = protocol.AppendFrame(slices.Repeat(good, 10), &cmd, nil)
	default:
		b = bad[rng.IntN(len(bad))]
	}
	for len(b) > 0 { // in pieces
		n := min(len(b), 1+rng.IntN(64<<10))
		if _, err := nc.Write(b[:n]); err != nil {
			return
		}
		b = b[n:]
	}
	if rng.IntN(2) == 0 { // half of them leave it to the server to notice the end
		_ = nc.(*net.TCPConn).CloseWrite()
	}
	_ = nc.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	_, _ = io.Copy(io.Discard, nc) // its error is the server's verdict or our deadline
}

// TestHostileNeighbours: 64 connections send garbage while a client works. It sees no error, memory stays
// flat, and nothing is left over.
func TestHostileNeighbours(t *testing.T) {
	h := start(t, echoRoutes(), withLimits(Limits{FrameTimeout: time.Second, FaultDelay: 1}))
	c := h.client(t)
	invoke(t, c, codeEcho, nil, nil)
	var bad [][]byte
	for _, frame := range hostileFrames() {
		bad = append(bad, frame)
	}
	calm := percentile99(t, c, func(done int) bool { return done == 500 })
	goroutines, memory := runtime.NumGoroutine(), memoryInUse()

	var attackers sync.WaitGroup
	var stop atomic.Bool
	var attacks atomic.Int64
	for i := range 64 {
		attackers.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			for !stop.Load() {
				attack(rng, h.addr(), bad)
				attacks.Add(1)
			}
		})
	}
	under := percentile99(t, c, func(done int) bool { return done >= 500 && attacks.Load() > 1000 })
	growth := int64(memoryInUse()) - int64(memory)
	stop.Store(true)
	attackers.Wait()
	t.Logf("p99 %v calm, %v under %d attacks; memory grew by %d KiB", calm, under, attacks.Load(), growth>>10)
	if growth > 64<<20 {
		t.Errorf("memory grew by %d MiB", growth>>20)
	}
	eventually(t, "all are gone but the client", func() bool { return h.Open() == 1 })
	eventually(t, "their goroutines ended", func() bool { return runtime.NumGoroutine() <= goroutines })
	if growth := int64(memoryInUse()) - int64(memory); growth > 4<<20 {
		t.Errorf("%d KiB are left over", growth>>10)
	}
	if got := h.eng.frames; !got.TryAcquire(h.eng.limits.ReadMemoryBytes) {
		t.Error("read memory is still booked")
	}
}

// percentile99 makes calls one after the other until there are enough; any error fails the test.
func percentile99(t *testing.T, c *Client, enough func(done int) bool) time.Duration {
	t.Helper()
	var took []time.Duration
	for !enough(len(took)) {
		begun := time.Now()
		if got := invoke(t, c, codeEcho, nil, []byte("ping")); string(got.Body) != "ping" {
			t.Fatalf("%+v", got)
		}
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}

// TestSlowReader: a client that asks and does not read is first not read from any more, then closed, and
// costs a bounded amount of memory; others do not notice.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	answer := make([]byte, 256<<10)
	served := new(atomic.Int64)
	limits := Limits{SoftOutBytes: 1 << 20, MaxOutBytes: 8 << 20, WriteTimeout: 500 * time.Millisecond}
	h := start(t, []Route{
		{Code: codeAsync, Lane: NewLane(LaneConfig{}), Processor: func(_ context.Context, c *Call) {
			served.Add(1)
			c.Reply(Response{Body: answer})
		}},
		{Code: codeEcho, Lane: NewLane(LaneConfig{}), Processor: HandleBody(echo)},
	}, withLimits(limits))
	nc := h.dial(t)
	if err := nc.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	var burst []byte
	for i := range 1000 { // asks for 256 MiB
		burst = append(burst, frameOf(codeAsync, int32(i), nil, nil)...)
	}
	write(t, nc, burst)
	eventually(t, "it is closed", func() bool { return h.Open() == 0 })
	if n := served.Load(); n > 200 { // socket buffers take some MiB
		t.Errorf("%d requests of a client that does not read were executed", n)
	}
	h.wantLog(t, ErrSlowReader.Error())
	if h.eng.backlog.Load() != 0 {
		t.Errorf("%d bytes are still counted", h.eng.backlog.Load())
	}
	invoke(t, h.client(t), codeEcho, nil, nil)
}

// TestLateReader: a client that reads late, but in time, gets everything in order.
func TestLateReader(t *testing.T) {
	t.Parallel()
	answer := make([]byte, 100<<10)
	h := start(t, []Route{{Code: codeAsync, Lane: NewLane(LaneConfig{}), Processor: func(_ context.Context, c *Call) {
		c.Reply(Response{Body: answer})
	}}}, withLimits(Limits{SoftOutBytes: 256 << 10}))
	nc := h.dial(t)
	var burst []byte
	const calls = 500
	for i := range calls {
		burst = append(burst, frameOf(codeAsync, int32(i), nil, nil)...)
	}
	write(t, nc, burst)
	var conn *Conn
	eventually(t, "the reader waits for us", func() bool {
		for _, conn = range h.conns(true) {
			return conn.state.full.Load()
		}
		return false
	})
	for i := range calls {
		if got := readFrame(t, nc); got.Opaque != int32(i) || len(got.Body) != len(answer) {
			t.Fatalf("answer %d is for %d", i, got.Opaque)
		}
	}
}

// TestTooMuchOwed: answers made elsewhere count too, and beyond the limit the connection is closed at once.
func TestTooMuchOwed(t *testing.T) {
	t.Parallel()
	calls := make(chan *Call, 1000)
	h := start(
		t,
		[]Route{
			{
				Code:      codeAsync,
				Lane:      NewLane(LaneConfig{}),
				Processor: func(_ context.Context, c *Call) { calls <- c },
			},
		},
		withLimits(Limits{SoftOutBytes: 64 << 10, MaxOutBytes: 1 << 20}),
	)
	nc := h.dial(t)
	for i := range 300 {
		write(t, nc, frameOf(codeAsync, int32(i), nil, nil))
	}
	eventually(t, "all are in flight", func() bool { return len(calls) == 300 })
	answer := make([]byte, 256<<10)
	for range 300 {
		(<-calls).Reply(Response{Body: answer})
	}
	eventually(t, "it is closed", func() bool { return h.Open() == 0 })
	h.wantLog(t, "bytes not taken, limit 1048576")
}
