// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roquetmq/roquet/internal/broker/pop"
	"github.com/roquetmq/roquet/internal/store"
)

// TestC082TimersKnowNoTimeZone: a broker in another time zone and with little memory delivers at the same time as
// any other. It runs itself in such a process.
func TestC082TimersKnowNoTimeZone(t *testing.T) {
	t.Parallel()
	if os.Getenv("ROQUET_TEST_ZONE") == "" {
		for _, zone := range []string{"Asia/Kathmandu", "America/St_Johns"} {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestC082TimersKnowNoTimeZone$")
			cmd.Env = append(os.Environ(), "ROQUET_TEST_ZONE=1", "TZ="+zone, "GOMEMLIMIT=24MiB")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("in %s: %v\n%s", zone, err, out)
			}
		}
		return
	}
	b := openWaitingDisk(t, store.Config{Dir: t.TempDir()})
	defer b.stop()
	b.send(t, "create the topic")
	sent := time.Now()
	b.send(t, "level", "DELAY", "1")
	b.send(t, "milliseconds", "TIMER_DELAY_MS", "1000")
	b.send(t, "seconds", "TIMER_DELAY_SEC", "1")
	exactly(t, b.await(t, "T", 4), 4)
	if took := time.Since(sent); took < time.Second || took > 20*time.Second {
		t.Errorf("they came after %v", took)
	}
}

// TestC104EveryMessageHasAHandle: in all orders, the first time and again, and each is good for an acknowledgement.
func TestC104EveryMessageHasAHandle(t *testing.T) {
	t.Parallel()
	for name, order := range map[string]PopOrder{"free": Unordered, "queue": OrderQueue, "group": OrderGroup} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := openPopWorld(t, newMemStore(), nil)
				w.start()
				defer func() { w.stop() }()
				w.topic(t, "T", 2)
				w.group(t, "g")
				for i := range 6 {
					w.mustSend(t, "T", fmt.Sprint(i), func(r *SendRequest) {
						r.QueueID, r.Properties = int32(i%2), props("__SHARDINGKEY", fmt.Sprint("k", i%3))
					})
				}
				for attempt := range 3 {
					answer := w.pops(func(r *PopRequest) { r.Order = order })
					w.settle()
					a := <-answer
					if a.err != nil || len(a.req.Result().Messages) != 6 {
						t.Fatalf("attempt %d: %d messages, %v", attempt, len(a.req.Result().Messages), a.err)
					}
					var handles []pop.Handle
					for i := range a.req.Result().Messages {
						made := a.req.Result().Handle(i)
						h, err := pop.ParseHandle(made.String())
						if err != nil {
							t.Fatal(err)
						}
						handles = append(handles, h)
					}
					if attempt < 2 {
						w.pass(11 * time.Second)
						continue
					}
					acked := make(chan error, 1)
					req := &SettleRequest{Group: "g", Topic: "T", Handles: handles}
					req.Done = func(_ *SettleRequest, err error) { acked <- err }
					w.popper.Ack(req)
					w.settle()
					if err := <-acked; err != nil {
						t.Fatal(err)
					}
					for i, err := range req.Results {
						if err != nil {
							t.Errorf("handle %d: %v", i, err)
						}
					}
				}
			})
		})
	}
}
