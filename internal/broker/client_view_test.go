// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The view of a group after any series of joins, changed subscriptions, repeated client ids and leaves is the
// one that looking at every member would make.
func TestGroupViewFollowsItsMembers(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 7))
		var l listener
		c := NewClients(l.config())
		for step := range 200 {
			id := 1 + uint64(random.IntN(25))
			if random.IntN(3) == 0 {
				c.Disconnected(channel(id), at(float64(step)))
			} else {
				hb := consumer(fmt.Sprint("c", random.IntN(20)), "g", "t1", fmt.Sprint("t", random.IntN(3)))
				for i := range hb.Consumers[0].Subscriptions {
					hb.Consumers[0].Subscriptions[i].SubVersion = int64(random.IntN(50))
				}
				c.Heartbeat(channel(id), hb, at(float64(step)))
			}
			checkView(t, c, seed, step)
		}
	}
}

func checkView(t *testing.T, c *Clients, seed uint64, step int) {
	t.Helper()
	group, ok := c.consumers.Load("g")
	if !ok {
		return
	}
	got := group.view.Load()
	group.publish(nil)
	want := group.view.Load()
	group.view.Store(got)
	ids := func(v *ConsumerGroup) (all []uint64) {
		for _, ch := range v.channels {
			all = append(all, ch.ID())
		}
		return all
	}
	if !slices.Equal(ids(got), ids(want)) || !slices.Equal(got.clientIDs, want.clientIDs) {
		t.Fatalf("seed %d step %d: channels %v, client ids %v; want %v, %v", seed, step, ids(got), got.clientIDs,
			ids(want), want.clientIDs)
	}
	if diff := cmp.Diff(want.Subscriptions, got.Subscriptions); diff != "" {
		t.Fatalf("seed %d step %d: subscriptions differ (-want +got):\n%s", seed, step, diff)
	}
}
