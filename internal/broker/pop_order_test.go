// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roquetmq/roquet/internal/broker/pop"
	"github.com/roquetmq/roquet/internal/message"
)

// From the moment on that a group becomes orderly, or a topic one for FIFO messages, nobody gets a message while another
// one of its message group is with somebody: not who waits since before, and not while messages are in work that were
// received before.
func TestOrderBeginsAtOnce(t *testing.T) {
	t.Parallel()
	for name, orderly := range map[string]func(*testing.T, *popWorld){
		"group": func(t *testing.T, w *popWorld) {
			w.group(t, "g", func(c *GroupConfig) { c.ConsumeMessageOrderly = true })
		},
		"topic": func(t *testing.T, w *popWorld) {
			w.topic(t, "T", 1, func(c *TopicConfig) {
				c.Attributes = map[string]string{"+" + AttributeMessageType: TypeFIFO}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := openPopWorld(t, newMemStore(), nil)
				w.start()
				defer func() { w.stop() }()
				w.topic(t, "T", 1)
				w.group(t, "g")
				one := func(wait time.Duration) chan popAnswer {
					got := w.pops(func(r *PopRequest) { r.MaxCount, r.Wait, r.Order = 1, wait, OrderConfigured })
					w.settle()
					return got
				}
				send := func(body string) { w.mustSend(t, "T", body, withProps("__SHARDINGKEY", "a")); w.settle() }
				for i := range 2 { // both are handed out: the group minds no order
					send(fmt.Sprint(i))
				}
				before := [2]chan popAnswer{one(0), one(0)}
				w.popper.Release((<-before[0]).req) // and comes again, although the other one is in work
				w.pass(10 * time.Millisecond)
				before[0] = one(0)
				waiting := [2]chan popAnswer{one(time.Minute), one(time.Minute)}
				orderly(t, w)
				send("2")
				send("3")
				if len(waiting[0])+len(waiting[1]) != 0 {
					t.Fatal("received while messages of the group are in work that were received before")
				}
				for i, got := range []chan popAnswer{before[0], before[1], waiting[0], waiting[1]} {
					a := <-got
					r := a.req.Result()
					if a.err != nil || len(r.Messages) != 1 || r.Messages[0].Offset != message.QueueOffset(i) {
						t.Fatalf("receive %d: %+v, %v", i, r.Messages, a.err)
					}
					if i == 2 && len(waiting[1]) != 0 {
						t.Fatal("two receives have a message of the group")
					}
					ack := &SettleRequest{
						Group: "g", Topic: "T", Handles: []pop.Handle{r.Handle(0)},
						Done: func(req *SettleRequest, err error) {
							if err != nil || req.Results[0] != nil {
								t.Error(err, req.Results)
							}
						},
					}
					w.popper.Ack(ack)
					w.settle()
				}
			})
		})
	}
}

// A message that its consumer made a dead letter becomes one, whatever the consumer says next of it while the dead letter
// topic is being created. When it cannot become one, the handle is good again.
func TestForwardIsNotPassed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := openPopWorld(t, newMemStore(), nil)
		w.start()
		defer func() { w.stop() }()
		w.topic(t, "T", 1)
		w.group(t, "g")
		w.mustSend(t, "T", "b")
		got := w.pops()
		w.settle()
		handle := (<-got).req.Result().Handle(0)
		var told []error
		about := func() *SettleRequest {
			return &SettleRequest{
				Group: "g", Topic: "T", Handles: []pop.Handle{handle}, Invisible: time.Minute,
				Done: func(req *SettleRequest, err error) { told = append(told, errors.Join(err, req.Results[0])) },
			}
		}
		all := func() {
			told = nil
			w.popper.ForwardToDLQ(about())
			w.popper.Ack(about())
			w.popper.ChangeInvisible(about())
			w.popper.ForwardToDLQ(about())
			w.settle()
			for i, err := range told {
				if stale := errors.As(err, new(*pop.HandleError)); stale != (i < 3) {
					t.Errorf("answer %d: %v", i, err) // the first one is answered last
				}
			}
		}
		w.st.setErrors(nil, errors.New("full"))
		all()
		if len(told) != 4 || told[3] == nil {
			t.Fatalf("while nothing can be stored: %v", told)
		}
		w.st.setErrors(nil, nil)
		all()
		if len(told) != 4 || told[3] != nil {
			t.Fatalf("answers %v", told)
		}
		w.only(t, "%DLQ%g", 0)
	})
}
