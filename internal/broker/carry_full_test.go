// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"testing"
	"time"

	"github.com/roquetmq/roquet/internal/commitlog"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// TestCarryForwardOverTheDiskMark: producers are refused, but what waits is carried forward all the same, for
// that is how retention makes room.
func TestCarryForwardOverTheDiskMark(t *testing.T) {
	t.Parallel()
	cfg := store.Config{Dir: t.TempDir()}
	disk := openWaitingDisk(t, cfg)
	disk.send(t, "waits", message.PropertyTimerDelaySeconds, "3600")
	disk.send(t, "half", message.PropertyTransactionPrepared, "true", message.PropertyProducerGroup, "p")
	disk.stop()
	cfg.Log.Disk = commitlog.DiskMarks{FullPercent: 1, ReserveBytes: 1, Interval: time.Hour}
	disk = openWaitingDisk(t, cfg)
	defer disk.stop()
	var full *commitlog.DiskFullError
	if _, cause := disk.store.Health(); !errors.As(cause, &full) {
		t.Fatalf("health: %v", cause)
	}
	cut := disk.store.End()
	for _, carry := range []func() error{
		func() error { return disk.delays.CarryForward(t.Context(), cut) },
		func() error { return disk.tx.CarryForward(t.Context(), cut) },
	} {
		end := disk.store.End()
		if err := carry(); err != nil {
			t.Fatal(err)
		}
		if disk.store.End() == end {
			t.Error("nothing was carried forward")
		}
	}
}
