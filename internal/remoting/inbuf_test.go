// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roquetmq/roquet/internal/protocol"
	"pgregory.net/rapid"
)

// feeder plays a socket: it gives its bytes in the pieces that sizes say, and a pause before each.
type feeder struct {
	data  []byte
	sizes func() int
}

func (f *feeder) read(p []byte) int {
	n := min(len(p), len(f.data), f.sizes())
	copy(p, f.data[:n])
	f.data = f.data[n:]
	return n
}

// pump reads frames out of the feeder as a connection does, over a raw socket or a blocking one.
func pump(eng *engine, f *feeder, blocking bool, each func([]byte)) error {
	var in inbuf
	for {
		var need int
		for {
			frame, n, err := in.next(eng.limits.MaxFrameBytes)
			if err != nil {
				return err
			}
			if need = n; frame == nil {
				break
			}
			each(frame)
		}
		if len(f.data) == 0 {
			eng.releaseFrame(&in)
			return nil
		}
		if err := eng.fitFrame(&in, need); err != nil {
			return err
		}
		if blocking {
			in.private(need)
		} else {
			in.reserve(&eng.chunks, need)
			in.rest(&eng.chunks, need) // nothing there yet
			in.reserve(&eng.chunks, need)
		}
		n := f.read(in.room())
		in.data = in.data[:len(in.data)+n]
		in.last = n
	}
}

func testEngine(tb testing.TB) *engine {
	tb.Helper()
	var limits Limits
	limits.setDefaults()
	reg, err := NewRegistry(RegistryConfig{}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return newEngine(reg, limits, nil)
}

// TestFramesSurviveAnyCutting: whatever the sizes of frames and reads, the frames come out whole, in order,
// and stay unchanged while later ones are read.
func TestFramesSurviveAnyCutting(t *testing.T) {
	t.Parallel()
	eng := testEngine(t)
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		blocking := rapid.Bool().Draw(t, "blocking")
		largest := rapid.SampledFrom([]int{10, 600, 5000, 70_000, 400_000}).Draw(t, "largest")
		piece := rapid.SampledFrom([]int{1, 100, 1500, 70_000, 1 << 20}).Draw(t, "piece")
		if piece <= 100 {
			largest = min(largest, 5000)
		}
		var stream []byte
		var want [][]byte
		for range rapid.IntRange(1, 60).Draw(t, "frames") {
			frame := bytes.Repeat([]byte{byte(rng.Uint32())}, rng.IntN(largest))
			want = append(want, frame)
			stream = binary.BigEndian.AppendUint32(stream, uint32(len(frame)))
			stream = append(stream, frame...)
			if len(stream) > 1<<20 {
				break
			}
		}
		var got [][]byte
		f := &feeder{data: stream, sizes: func() int { return 1 + rng.IntN(piece) }}
		if err := pump(eng, f, blocking, func(b []byte) { got = append(got, b) }); err != nil {
			t.Fatal(err)
		}
		if len(got) != len(want) {
			t.Fatalf("%d frames, want %d", len(got), len(want))
		}
		for i := range got {
			if !bytes.Equal(got[i], want[i]) {
				t.Fatalf("frame %d of %d bytes changed", i, len(want[i]))
			}
		}
		if !eng.frames.TryAcquire(eng.limits.ReadMemoryBytes) {
			t.Fatal("read memory is still booked")
		}
		eng.frames.Release(eng.limits.ReadMemoryBytes)
	})
}

// TestClaimsCostNothing: the memory of an unfinished frame follows what has arrived, not what was announced.
func TestClaimsCostNothing(t *testing.T) {
	eng := testEngine(t)
	for _, arrived := range []int{4, 100, 5000, 100_000} {
		head := binary.BigEndian.AppendUint32(nil, 15<<20)
		head = append(head, make([]byte, arrived-4)...)
		const conns = 50
		ins := make([]inbuf, conns)
		before := memoryInUse()
		for i := range ins {
			in := &ins[i]
			rest, need := head, lengthBytes
			for len(rest) > 0 {
				if err := eng.fitFrame(in, need); err != nil {
					t.Fatal(err)
				}
				in.reserve(&eng.chunks, need)
				n := copy(in.room(), rest)
				rest = rest[n:]
				in.data = in.data[:len(in.data)+n]
				_, need, _ = in.next(protocol.MaxFrameBytes)
				in.rest(&eng.chunks, need)
			}
		}
		each := (int64(memoryInUse()) - int64(before)) / conns
		if most := int64(2*arrived + 2*quietBytes); each > most {
			t.Errorf("%d bytes arrived of 15 MiB: %d bytes held, want at most %d", arrived, each, most)
		}
		for i := range ins {
			eng.releaseFrame(&ins[i])
		}
		runtime.KeepAlive(ins)
	}
}

func TestReadMemoryIsBounded(t *testing.T) {
	t.Parallel()
	limits := Limits{ReadMemoryBytes: 1 << 20, FrameTimeout: 10 * time.Millisecond, MaxFrameBytes: 1 << 20}
	limits.setDefaults()
	eng := testEngine(t)
	eng2 := newEngine(eng.reg, limits, nil)
	for range 2 { // the second one grows beyond the limit, alone
		if err := eng2.bookFrame(&inbuf{}, 900<<10); err != nil {
			t.Fatal(err)
		}
	}
	stream := binary.BigEndian.AppendUint32(nil, 800<<10)
	stream = append(stream, make([]byte, 800<<10)...)
	f := &feeder{data: stream, sizes: func() int { return 1 << 20 }}
	if err := pump(
		eng2,
		f,
		false,
		func([]byte) { t.Error("a frame that does not fit") },
	); !errors.Is(
		err,
		ErrReadMemory,
	) {
		t.Fatalf("%v", err)
	}
}

func TestFrameSizeLimit(t *testing.T) {
	t.Parallel()
	for _, total := range []uint32{protocol.MaxFrameBytes - 3, 1 << 31, 0xFFFFFFFF} {
		in := inbuf{data: binary.BigEndian.AppendUint32(nil, total)}
		var size *FrameSizeError
		if _, _, err := in.next(protocol.MaxFrameBytes); !errors.As(err, &size) || size.Bytes != int64(total)+4 {
			t.Errorf("%d: %v", total, err)
		}
	}
	in := inbuf{data: binary.BigEndian.AppendUint32(nil, protocol.MaxFrameBytes-4)}
	if _, need, err := in.next(protocol.MaxFrameBytes); err != nil || need != protocol.MaxFrameBytes {
		t.Errorf("%d %v", need, err)
	}
}

// FuzzInput: any bytes in any pieces give frames or an error, never a panic, and never a frame beyond the
// input.
func FuzzInput(f *testing.F) {
	f.Add(frameOf(codeEcho, 1, nil, []byte("body")), uint8(3), true)
	for _, frame := range hostileFrames() {
		f.Add(frame, uint8(100), false)
	}
	eng := testEngine(f)
	f.Fuzz(func(t *testing.T, data []byte, piece uint8, blocking bool) {
		total := 0
		feed := &feeder{data: data, sizes: func() int { return 1 + int(piece) }}
		err := pump(eng, feed, blocking, func(b []byte) { total += lengthBytes + len(b) })
		if total > len(data) {
			t.Fatalf("%d bytes of frames out of %d, %v", total, len(data), err)
		}
	})
}

// FuzzOpening: the PROXY parsers and the classifier take anything, and a header never ends beyond the input.
func FuzzOpening(f *testing.F) {
	f.Add([]byte("PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\n"))
	f.Add([]byte(proxyV2Signature + "\x21\x11\x00\x0c0123456789ab"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var h proxyHeader
		var ok bool
		var err error
		switch classify(data) {
		case kindProxyV1:
			h, ok, err = parseProxyV1(data)
		case kindProxyV2:
			h, ok, err = parseProxyV2(data)
		}
		if ok && (err != nil || h.size > len(data) || h.size == 0) {
			t.Fatalf("%+v of %d bytes, %v", h, len(data), err)
		}
	})
}

// TestLargeFramesFinish: large frames that have begun together, more than there is memory for, finish one after the
// other; none keeps what another needs.
func TestLargeFramesFinish(t *testing.T) {
	t.Parallel()
	limits := Limits{ReadMemoryBytes: 1 << 20, FrameTimeout: 5 * time.Second, MaxFrameBytes: 1 << 20}
	h := start(t, echoRoutes(), withLimits(limits))
	frame := frameOf(codeEcho, 1, nil, make([]byte, 900<<10))
	goOn, conns := make(chan struct{}), make([]net.Conn, 4)
	var writers sync.WaitGroup
	for i := range conns {
		nc := h.dial(t)
		conns[i] = nc
		writers.Go(func() {
			_, err := nc.Write(frame[:600<<10])
			<-goOn
			if _, err2 := nc.Write(frame[600<<10:]); errors.Join(err, err2) != nil {
				t.Error(err, err2)
			}
		})
	}
	eventually(t, "the memory is taken", func() bool {
		const most = 200 << 10
		left := h.eng.frames.TryAcquire(most)
		if left {
			h.eng.frames.Release(most)
		}
		return !left
	})
	close(goOn)
	for _, nc := range conns {
		if got, err := tryReadFrame(nc); err != nil || len(got.Body) != 900<<10 {
			t.Errorf("%d bytes, %v", len(got.Body), err)
		}
	}
	writers.Wait()
}

// TestScarceMemoryHurries: frames that trickle must not keep the read memory from a neighbour who sends his at once.
func TestScarceMemoryHurries(t *testing.T) {
	t.Parallel()
	limits := Limits{ReadMemoryBytes: 1 << 20, FrameTimeout: 8 * time.Second, MaxFrameBytes: 1 << 20}
	h := start(t, echoRoutes(), withLimits(limits))
	frame := frameOf(codeEcho, 1, nil, make([]byte, 900<<10))
	var trickling sync.WaitGroup
	for range 3 { // one within the limit, one that grows beyond it, one that waits
		nc := h.dial(t)
		trickling.Go(func() {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			_, err := nc.Write(frame[:600<<10])
			for at := 600 << 10; err == nil && at < len(frame); at++ {
				<-tick.C
				_, err = nc.Write(frame[at : at+1])
			}
		})
	}
	eventually(t, "the memory is taken", func() bool { return h.eng.scarce.Load() > 0 })
	good := h.dial(t)
	write(t, good, frame)
	if got, err := tryReadFrame(good); err != nil || len(got.Body) != 900<<10 {
		t.Errorf("%d bytes, %v", len(got.Body), err)
	}
	trickling.Wait()
	h.wantLog(t, ErrSilentFrame.Error())
}

// TestFreedMemoryIsTaken: who waits for read memory gets what others give back, also while a slow frame has the turn
// to grow beyond the limit.
func TestFreedMemoryIsTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limits := Limits{ReadMemoryBytes: 1 << 20, FrameTimeout: 10 * time.Second, MaxFrameBytes: 1 << 20}
		limits.setDefaults()
		eng := newEngine(testEngine(t).reg, limits, nil)
		var first, slow, next inbuf
		for _, in := range []*inbuf{&first, &slow} {
			if err := eng.bookFrame(in, 900<<10); err != nil {
				t.Fatal(err)
			}
		}
		if !slow.turn {
			t.Fatal("the second frame was booked within the limit")
		}
		booked := make(chan error, 1)
		go func() { booked <- eng.bookFrame(&next, 900<<10) }()
		synctest.Wait()
		eng.releaseFrame(&first)
		if err := <-booked; err != nil || next.booked != 900<<10 || next.turn {
			t.Errorf("%d bytes booked, turn %v: %v", next.booked, next.turn, err)
		}
	})
}
