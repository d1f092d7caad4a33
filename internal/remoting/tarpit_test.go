// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestTarpit(t *testing.T) {
	t.Parallel()
	var pit tarpit
	bad, good := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	now := time.Unix(1000, 0)
	for _, step := range []struct {
		faults int
		after  time.Duration
		want   time.Duration
	}{
		{0, 0, 0},
		{freeFaults, 0, 0},
		{1, 0, time.Second},
		{9, 0, 10 * time.Second},
		{0, 4500 * time.Millisecond, 6 * time.Second}, // one is forgiven each second
		{0, 500 * time.Millisecond, 5 * time.Second},
		{1000, 0, (mostFaults - freeFaults) * time.Second},
		{0, time.Hour, 0},
	} {
		for range step.faults {
			pit.blame(bad, now)
		}
		now = now.Add(step.after)
		if got := pit.delay(bad, now, time.Second); got != step.want {
			t.Errorf("%+v: %v", step, got)
		}
		if got := pit.delay(good, now, time.Second); got != 0 {
			t.Errorf("%+v: the other one waits %v", step, got)
		}
	}
	if len(pit.faults) != 0 {
		t.Errorf("%d addresses are remembered", len(pit.faults))
	}
	for i := range 3 * mostFaultyAddrs {
		pit.blame(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), now)
	}
	if len(pit.faults) > mostFaultyAddrs {
		t.Errorf("%d addresses are remembered", len(pit.faults))
	}
}

// TestWaitingInTheTarpitCostsNoRoom: whatever those sent who wait for their faults, nothing of it is read before
// their time, so that an attacker cannot fill the memory with what is not even looked at yet.
func TestWaitingInTheTarpitCostsNoRoom(t *testing.T) {
	h := start(t, echoRoutes(), withLimits(Limits{FaultDelay: time.Hour}))
	from := netip.MustParseAddr("127.0.0.1")
	for range mostFaults {
		h.eng.tarpit.blame(from, time.Now())
	}
	const conns = 200
	before := memoryInUse()
	claim := rawFrame(15<<20, 2, "{}"+strings.Repeat("x", 60<<10))
	for range conns {
		write(t, h.dial(t), claim)
	}
	eventually(t, "all are accepted", func() bool { return h.Open() == conns })
	each := (int64(memoryInUse()) - int64(before)) / conns
	t.Logf("%d bytes each", each)
	if each > 24<<10 { // both ends of the connection, in this process
		t.Errorf("%d bytes for a connection that waits", each)
	}
}

// TestOpeningsAfterTheWait: of who has to wait nothing is lost, whatever it speaks and in whatever pieces it comes.
func TestOpeningsAfterTheWait(t *testing.T) {
	t.Parallel()
	h := start(t, echoRoutes(), withLimits(Limits{FaultDelay: time.Millisecond}))
	for range mostFaults {
		h.eng.tarpit.blame(netip.MustParseAddr("127.0.0.1"), time.Now())
	}
	large := string(frameOf(codeEcho, 7, nil, []byte(strings.Repeat("x", 100<<10))))
	for name, pieces := range map[string][]string{
		"a frame":                    {large},
		"a frame in pieces":          {large[:1], large[1:20], large[20:]},
		"behind a header":            {"PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\n" + large},
		"behind a header, in pieces": {"PRO", "XY UNKNOWN\r\n", large},
	} {
		nc := h.dial(t)
		for _, piece := range pieces {
			write(t, nc, []byte(piece))
		}
		if got := readFrame(t, nc); got.Opaque != 7 || len(got.Body) != 100<<10 {
			t.Errorf("%s: %d bytes", name, len(got.Body))
		}
	}
	nc := h.dial(t)
	write(t, nc, []byte("GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
	if answer, err := io.ReadAll(nc); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200") {
		t.Errorf("%q %v", answer, err)
	}
}
