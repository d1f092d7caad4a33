// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"net/netip"
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
