// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/roquetmq/roquet/internal/protocol"
)

// lossyInvisible bounds the invisible time of receives whose answers may be lost.
const lossyInvisible = 100 * time.Millisecond

// receive receives something for one of the groups. gRPC has its clients wait for 5 s at least, so it is asked only
// when there is something.
func (r *randomScript) receive(lossy bool) *op {
	g := r.group([]string{anyGroup, anyGroup, fifoGroup, taggedGroup}[r.random.IntN(4)])
	d := r.anyDoor()
	if g.orderly && d.name() == "remoting" { // keeps queues in order
		d = r.doors[2]
	}
	q := &receiving{
		group:     g.name,
		topic:     r.model.topic,
		count:     1 + r.random.IntN(8),
		tag:       g.tag,
		orderly:   g.orderly,
		invisible: 30 * time.Second,
	}
	switch {
	case lossy:
		if g.orderly ||
			slices.ContainsFunc(r.model.messages, func(x *modelMessage) bool { return g.hold(x).most >= g.max }) {
			return nil
		}
		d, q.invisible = r.doors[0], lossyInvisible
	case d.name() == "gRPC" && r.model.available(g, millis()) == nil:
		return nil
	case d.name() == "remoting" && r.random.IntN(2) == 0:
		q.invisible = time.Duration(20+r.random.IntN(100)) * time.Millisecond
	case d.name() == "REST" && r.random.IntN(3) == 0:
		q.invisible = time.Second
	}
	return r.receiving(g, d, q)
}

// popLate is how much later than its client waits a native receive is still looked at, in ms.
const popLate = 500

func (r *randomScript) receiving(g *modelGroup, d door, q *receiving) *op {
	var all []received
	o := &op{text: fmt.Sprintf("%s receives %d for %s, invisible %v", d.name(), q.count, g.name, q.invisible)}
	o.call = func() (err error) {
		all, err = d.receive(q)
		if err == nil {
			var bodies []string
			for i := range all {
				bodies = append(bodies, fmt.Sprintf("%s(%d)", all[i].body, all[i].attempt))
			}
			o.text += ": " + strings.Join(bodies, " ")
		}
		return err
	}
	o.settle = func(outcome fate, asked, now int64) {
		switch outcome {
		case no:
			r.model.fault("%s: refused", o.text)
		case maybe:
			r.model.receiveLost(g, q.invisible.Milliseconds(), now)
		default:
			if len(all) == 0 && d.name() == "remoting" && now-asked > q.wait.Milliseconds()+popLate {
				return // the server was not there in time: who waits no longer gets nothing, whatever there is
			}
			r.model.receive(g, all, q.invisible.Milliseconds(), asked, now, d.name())
		}
	}
	return o
}

// held picks a message that a group has, with a good handle. What had its last delivery must be held for a while
// yet, or it may be a dead letter by the time that the server is asked.
func (r *randomScript) held() (*modelGroup, *modelMessage) {
	g := r.group([]string{anyGroup, fifoGroup, taggedGroup}[r.random.IntN(3)])
	now := millis()
	return g, r.pick(func(x *modelMessage) bool {
		h := g.hold(x)
		return h.receipt.handle != "" && h.done == no && !h.dying && (!g.over(h) || h.early > now+5000)
	})
}

// settler is a door that knows the handle. gRPC's and the native protocol's are the same.
func (r *randomScript) settler(receipt *modelReceipt) door {
	if receipt.door == "REST" {
		return r.door("REST")
	}
	return r.doors[r.random.IntN(2)]
}

func (r *randomScript) ack(bool) *op {
	g, x := r.held()
	if x == nil {
		return nil
	}
	receipt := g.hold(x).receipt
	d := r.settler(&receipt)
	return &op{
		fmt.Sprintf("%s acknowledges %s of %s", d.name(), x.body, g.name),
		func() error { return d.ack(g.name, r.model.topic, receipt.handle) },
		func(outcome fate, _, _ int64) { r.model.ack(g, x, outcome) },
	}
}

// change gives a message back, or keeps it longer.
func (r *randomScript) change(lossy bool) *op {
	g, x := r.held()
	if x == nil {
		return nil
	}
	invisible := []time.Duration{0, 0, 0, 40 * time.Millisecond, 20 * time.Second}[r.random.IntN(5)]
	receipt := g.hold(x).receipt
	d := r.settler(&receipt)
	switch {
	case lossy:
		invisible = 0
	case d.name() == "REST" && invisible > 0:
		invisible = max(invisible, time.Second)
	}
	return r.changing(g, x, d, invisible)
}

func (r *randomScript) changing(g *modelGroup, x *modelMessage, d door, invisible time.Duration) *op {
	receipt := g.hold(x).receipt
	var handle string
	return &op{
		fmt.Sprintf("%s hides %s of %s for %v", d.name(), x.body, g.name, invisible),
		func() (err error) {
			handle, err = d.change(g.name, r.model.topic, receipt.handle, invisible)
			return err
		},
		func(outcome fate, asked, now int64) {
			r.model.change(g, x, handle, invisible.Milliseconds(), asked, now, outcome)
		},
	}
}

func (r *randomScript) bury(lossy bool) *op {
	g, x := r.held()
	if x == nil || lossy {
		return nil
	}
	receipt := g.hold(x).receipt
	receipt.m.handle = receipt.handle
	d := r.door(receipt.door)
	return &op{
		fmt.Sprintf("%s buries %s of %s", d.name(), x.body, g.name),
		func() error { return d.bury(g.name, r.model.topic, &receipt.m) },
		func(outcome fate, _, _ int64) {
			if outcome != yes {
				r.model.fault("%s could not bury %s", g.name, x.body)
				return
			}
			r.model.dies(g, x)
		},
	}
}

// staleAck acknowledges by a handle that was good once.
func (r *randomScript) staleAck(bool) *op {
	g := r.group([]string{anyGroup, fifoGroup, taggedGroup}[r.random.IntN(3)])
	stale := r.model.stale[g.name]
	if len(stale) == 0 {
		return nil
	}
	receipt := stale[r.random.IntN(len(stale))]
	d := r.settler(&receipt)
	return &op{
		fmt.Sprintf("%s acknowledges %s of %s by an old handle", d.name(), receipt.body, g.name),
		func() error { return d.ack(g.name, r.model.topic, receipt.handle) },
		func(outcome fate, _, _ int64) {
			if outcome == yes {
				r.model.fault("%s acknowledged %s by an old handle", g.name, receipt.body)
			}
		},
	}
}

// pull reads a queue from an offset.
func (r *randomScript) pull(bool) *op {
	queue := int32(r.random.IntN(modelQueues))
	from := int64(r.random.IntN(len(r.model.queues[queue]) + 1))
	return r.pulling(queue, from, 1+r.random.Int32N(32))
}

func (r *randomScript) pulling(queue int32, from int64, count int32) *op {
	var all []received
	return &op{
		fmt.Sprintf("pull of %s %d from %d", r.model.topic, queue, from),
		func() error {
			answer, err := r.native().call(protocol.PullMessage, &protocol.PullMessageRequestHeader{
				ConsumerGroup:  pullGroup + "-" + r.model.topic,
				Topic:          r.model.topic,
				QueueID:        queue,
				QueueOffset:    from,
				MaxMsgNums:     count,
				SysFlag:        4,
				Subscription:   "*",
				ExpressionType: protocol.ExpressionTag,
			}, nil)
			var refused *refusal
			if errors.As(err, &refused) && refused.kind == protocol.PullNotFound.String() {
				return nil
			}
			if err != nil {
				return err
			}
			records, err := recordsOf(answer.Body)
			for i := range records {
				all = append(all, receivedOf(&records[i]))
			}
			return err
		},
		func(outcome fate, _, now int64) {
			switch {
			case outcome == maybe:
			case outcome == no:
				r.model.fault("the pull of queue %d from %d was refused", queue, from)
			case len(all) == 0 && from < int64(len(r.model.queues[queue])):
				r.model.fault("queue %d has nothing at %d any more", queue, from)
			default:
				r.model.read(queue, from, all, now)
			}
		},
	}
}

// commit sets the offset of the pulling group.
func (r *randomScript) commit(bool) *op {
	queue := int32(r.random.IntN(modelQueues))
	offset := int64(r.random.IntN(len(r.model.queues[queue]) + 1))
	return &op{
		fmt.Sprintf("commit of %s %d at %d", r.model.topic, queue, offset),
		func() error {
			_, err := r.native().call(protocol.UpdateConsumerOffset, &protocol.UpdateConsumerOffsetRequestHeader{
				ConsumerGroup: pullGroup + "-" + r.model.topic,
				Topic:         r.model.topic,
				QueueID:       queue,
				CommitOffset:  offset,
			}, nil)
			return err
		},
		func(outcome fate, _, _ int64) {
			if outcome == no {
				r.model.fault("offset %d was refused", offset)
			}
			r.model.commit(queue, offset, outcome)
		},
	}
}

func (r *randomScript) query(bool) *op {
	queue := int32(r.random.IntN(modelQueues))
	offset := int64(-1)
	o := &op{text: fmt.Sprintf("query of the offset of %s %d", r.model.topic, queue)}
	o.call = func() error {
		answer, err := r.native().call(protocol.QueryConsumerOffset, &protocol.QueryConsumerOffsetRequestHeader{
			ConsumerGroup:     pullGroup + "-" + r.model.topic,
			Topic:             r.model.topic,
			QueueID:           queue,
			SetZeroIfNotFound: protocol.Some(false),
		}, nil)
		var refused *refusal
		if errors.As(err, &refused) && refused.kind == protocol.QueryNotFound.String() {
			return nil
		}
		if err == nil {
			offset, err = strconv.ParseInt(answer.Ext.Value("offset"), 10, 64)
			o.text += fmt.Sprint(": ", offset)
		}
		return err
	}
	o.settle = func(outcome fate, _, _ int64) {
		if outcome == yes {
			r.model.query(queue, offset)
		}
	}
	return o
}

// lookOut waits for what comes next: a message that is due, or one that comes back.
func (r *randomScript) lookOut() {
	g, d := r.group(anyGroup), r.doors[0]
	q := &receiving{
		group: g.name, topic: r.model.topic, count: 8, invisible: 50 * time.Millisecond, wait: 400 * time.Millisecond,
	}
	if g.orderly {
		d, q.orderly, q.invisible = r.doors[2], true, time.Second
	}
	r.do(r.receiving(g, d, q))
}

// finish decides everything, consumes everything, and compares what is left with the model.
func (r *randomScript) finish() {
	for _, x := range r.model.messages {
		if x.typ == transaction && x.stored == yes && x.ended != yes {
			r.do(r.decide(x, x.ended == maybe && x.commits || x.ended == no && r.random.IntN(2) == 0))
		}
	}
	if r.random.IntN(2) == 0 {
		r.restart(r.random.IntN(2) == 0)
	}
	for _, name := range []string{anyGroup, fifoGroup, taggedGroup} {
		r.drain(r.group(name))
	}
	for queue := range int32(modelQueues) {
		for before := -1; before < len(r.model.queues[queue]) && len(r.model.faults) == 0; {
			before = len(r.model.queues[queue])
			r.do(r.pulling(queue, int64(before), 32))
		}
	}
	if r.failed() {
		return
	}
	r.compare()
	for _, name := range []string{anyGroup, fifoGroup, taggedGroup} {
		r.deadLetters(r.group(name))
	}
	for range modelQueues {
		r.do(r.query(false))
	}
}

// required tells whether the message must be, or come, in the topic: delayed ones in the next minute count.
func (r *randomScript) required(x *modelMessage) bool {
	now := millis()
	if x.typ == delayed && x.stored == yes && x.recalled == no && x.due < now+60_000 {
		return true
	}
	return x.visible(now) == yes
}

// pending returns a message that the group has yet to consume; nil when there is none.
func (r *randomScript) pending(g *modelGroup) *modelMessage {
	for _, x := range r.model.messages {
		h := g.hold(x)
		if r.required(x) && h.done == no && !h.dying && (g.tag == "" || g.tag == x.tag) {
			return x
		}
	}
	return nil
}

// drain gives back what the group holds and consumes all that there is.
func (r *randomScript) drain(g *modelGroup) {
	for _, x := range r.model.messages {
		h := g.hold(x)
		if h.receipt.handle != "" && h.done == no && !h.dying && (!g.over(h) || h.early > millis()+5000) {
			receipt := h.receipt
			r.do(r.changing(g, x, r.settler(&receipt), 0))
		}
	}
	d := r.doors[0]
	if g.orderly {
		d = r.doors[2]
	}
	for until := time.Now().Add(patience); len(r.model.faults) == 0; {
		r.model.expire(millis())
		x := r.pending(g)
		if x == nil {
			return
		}
		if time.Now().After(until) {
			r.model.fault("%s never received %s", g.name, x.body)
			return
		}
		q := &receiving{
			group:     g.name,
			topic:     r.model.topic,
			count:     32,
			tag:       g.tag,
			orderly:   g.orderly,
			invisible: 30 * time.Second,
			wait:      time.Second,
		}
		r.do(r.receiving(g, d, q))
		for _, x := range r.model.messages {
			if h := g.hold(x); h.receipt.handle != "" && h.done == no && h.early > millis()+5000 {
				receipt := h.receipt
				r.do(&op{
					fmt.Sprintf("%s acknowledges %s of %s", d.name(), x.body, g.name),
					func() error { return d.ack(g.name, r.model.topic, receipt.handle) },
					func(outcome fate, _, _ int64) { r.model.ack(g, x, outcome) },
				})
			}
		}
	}
}

// compare compares all that was read with all that was sent.
func (r *randomScript) compare() {
	count := map[string]int{}
	for _, bodies := range r.model.queues {
		for _, body := range bodies {
			count[body]++
		}
	}
	for _, x := range r.model.messages {
		n := count[x.body]
		if n > 1 || n == 0 && r.required(x) {
			r.model.fault(
				"%s is there %d times: stored %d, ended %d, recalled %d",
				x.body,
				n,
				x.stored,
				x.ended,
				x.recalled,
			)
		}
		if x.with != nil && n != count[(*x.with)[0].body] {
			r.model.fault("%s is there %d times, and %s of its batch is not", x.body, n, (*x.with)[0].body)
		}
	}
}

// deadLetters reads the group's dead letters and compares them with the model.
func (r *randomScript) deadLetters(g *modelGroup) {
	want := r.model.dead[g.name]
	if len(want) == 0 || len(r.model.faults) > 0 {
		return
	}
	reader := "d-" + g.name
	r.srv.group(reader, false, modelTimes)
	found := map[string]bool{}
	for until := time.Now().Add(patience); len(found) < len(want) && time.Now().Before(until); {
		all, err := r.doors[0].receive(&receiving{
			group: reader, topic: "%DLQ%" + g.name, count: 32, invisible: time.Minute, wait: time.Second,
		})
		var refused *refusal
		if errors.As(err, &refused) && refused.kind == noTopic { // it is made with the first one
			<-time.After(10 * time.Millisecond)
			continue
		}
		if err != nil {
			r.model.fault("dead letters of %s: %v", g.name, err)
			return
		}
		for i := range all {
			body := all[i].body
			r.say("dead letter of %s: %s", g.name, body)
			if found[body] || !want[body] {
				r.model.fault("%s is a dead letter of %s: known %t, wanted %t", body, g.name, found[body], want[body])
			}
			found[body] = true
		}
	}
	for body := range want {
		if !found[body] {
			r.model.fault("%s is no dead letter of %s", body, g.name)
		}
	}
}
