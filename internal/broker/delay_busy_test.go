// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roquetmq/roquet/internal/commitlog"
	"github.com/roquetmq/roquet/internal/store"
)

// What is due together is delivered in the order it was stored, also when the store takes less of it for a while.
func TestDeliveriesDoNotPassRefusedOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.topic(t, "T", 1)
		busy := &busyLog{memStore: w.st, refuse: 1}
		w.delays.log = busy
		var o outcome
		for i := range 3 * maxDeliveryCount {
			req := sendRequest("T", fmt.Sprint(i), &o)
			req.Properties = props("DELAY", "1")
			w.sender.Send(req)
		}
		w.st.apply()
		for range 3 {
			pass(2 * time.Second)
			w.deliverAll(t, time.Now())
		}
		all := w.messages(t, "T", 0)
		for i, m := range all {
			if string(m.Body) != fmt.Sprint(i) {
				t.Fatalf("message %d is %s", i, m.Body)
			}
		}
		if len(all) != 3*maxDeliveryCount || busy.refuse != 0 {
			t.Errorf("%d delivered", len(all))
		}
	})
}

// busyLog refuses the first deliveries.
type busyLog struct {
	*memStore
	refuse int
}

func (b *busyLog) Append(w *store.Write) error {
	if b.refuse > 0 {
		b.refuse--
		return &commitlog.BusyError{}
	}
	return b.memStore.Append(w)
}
