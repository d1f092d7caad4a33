// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
)

const (
	holdEnv        = "ROQUET_REMOTING_HOLD" // makes the test binary hold idle connections: "addr conns"
	idleConnsEnv   = "ROQUET_REMOTING_IDLE" // how many connections the memory test opens
	idleConns      = 4000                   // without the variable; a process here has 20,000 descriptors at most
	maxIdleBytes   = 5600                   // heap and stack of one idle connection; 4 KiB of it are the stack
	fixedIdleBytes = 1 << 20                // of the server besides, whatever their number
)

// holdMain opens connections that each make one call and then keep silent until standard input ends.
func holdMain(spec string) {
	var addr string
	var conns int
	if _, err := fmt.Sscan(spec, &addr, &conns); err != nil {
		panic(err)
	}
	frame := frameOf(codeEcho, 1, nil, []byte("hello"))
	for range conns {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			panic(err)
		}
		if _, err := nc.Write(frame); err != nil {
			panic(err)
		}
		if _, err := tryReadFrame(nc); err != nil {
			panic(err)
		}
		defer nc.Close()
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin) // ends when the test lets go
}

// TestIdleConnectionMemory: one goroutine and at most maxIdleBytes of heap and stack for a connection that
// was used once.
func TestIdleConnectionMemory(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector's shadow memory counts")
	}
	conns := idleConns
	if n, err := strconv.Atoi(os.Getenv(idleConnsEnv)); err == nil {
		conns = n
	}
	h := start(t, echoRoutes())
	before, goroutines := memoryInUse(), runtime.NumGoroutine()

	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holdEnv+"="+h.addr()+" "+strconv.Itoa(conns))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	if n := runtime.NumGoroutine() - goroutines; n > conns {
		t.Errorf("%d goroutines for %d connections", n, conns)
	}
	used := int64(memoryInUse()) - int64(before)
	t.Logf("%d idle connections: %d bytes of heap and stack each", conns, used/int64(conns))
	if used > int64(conns)*maxIdleBytes+fixedIdleBytes {
		t.Errorf("%d bytes each, limit %d", used/int64(conns), maxIdleBytes)
	}
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all connections end", func() bool { return h.Open() == 0 })
}

// memoryInUse is live heap plus stacks after collection.
func memoryInUse() uint64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
