// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

var (
	scripts = flag.Int("scripts", 4, "random scripts of TestModel")
	workers = flag.Int("workers", 2, "servers of TestModel that run scripts at the same time")
)

// scriptsPerServer is after how many scripts a server begins with an empty folder.
const scriptsPerServer = 25

// TestModel runs random scripts through all doors against the model: messages of every kind, receives,
// acknowledgements, other invisible times, decisions, recalls, pulls and offsets; and in between the server is
// killed, with something under way or without, or stopped, and started again on what it left. The seed of a script
// that fails is printed with all it did; -seed repeats that script.
func TestModel(t *testing.T) {
	t.Parallel()
	first, count := rand.Uint64(), *scripts
	if *seedFlag != 0 {
		first, count = *seedFlag, 1
	}
	t.Logf("seeds %d to %d", first, first+uint64(count)-1)
	var next atomic.Int64
	for worker := range min(*workers, count) {
		t.Run(fmt.Sprint("server", worker), func(t *testing.T) {
			t.Parallel()
			runScripts(t, func() (uint64, string, bool) {
				n := next.Add(1) - 1
				return first + uint64(n), fmt.Sprint("s", n), n < int64(count)
			})
		})
	}
}

// runScripts runs scripts against one server after the other.
func runScripts(t *testing.T, next func() (seed uint64, name string, ok bool)) {
	t.Helper()
	var srv *server
	for done := 1; !t.Failed(); done++ {
		seed, name, ok := next()
		if !ok {
			break
		}
		if srv == nil {
			srv = startChild(t, t.TempDir())
		}
		runRandom(t, srv, seed, name)
		if done%scriptsPerServer == 0 {
			srv.verify()
			srv = nil
			t.Logf("%d scripts", done)
		}
	}
	if srv != nil {
		srv.verify()
	}
}

// randomScript is a script under way.
type randomScript struct {
	t      *testing.T
	srv    *server
	random *rand.Rand
	models []*model // one a topic
	model  *model   // that of the present step
	doors  []door
	bodies int
	trace  strings.Builder
	begun  time.Time
}

// Consumer groups of a topic.
const (
	anyGroup    = "g" // gets everything
	fifoGroup   = "f" // in order of message groups
	taggedGroup = "s" // gets one tag
	pullGroup   = "p" // pulls
	modelTimes  = 3   // how often a message comes again
	modelQueues = 2
)

func runRandom(t *testing.T, srv *server, seed uint64, suffix string) {
	t.Helper()
	r := &randomScript{t: t, srv: srv, random: rand.New(rand.NewPCG(seed, 1)), begun: time.Now()}
	defer r.hangUp()
	r.dial()
	for _, typ := range []string{normal, fifo, delayed, transaction} {
		r.topic(typ, suffix)
	}
	for range 40 + r.random.IntN(60) {
		if r.failed() {
			break
		}
		r.step()
	}
	for _, r.model = range r.models {
		if !r.failed() {
			r.finish()
		}
	}
	if *seedFlag != 0 {
		t.Log("\n" + r.trace.String())
	}
	for _, m := range r.models {
		if len(m.faults) > 0 {
			t.Errorf("seed %d:\n%s\nfaults of %s:\n%s", seed, r.trace.String(), m.topic, strings.Join(m.faults, "\n"))
		}
	}
}

// topic makes a topic for messages of a type, and its groups.
func (r *randomScript) topic(typ, suffix string) {
	m := newModel(strings.ToLower(typ)+"-"+suffix, typ)
	r.models = append(r.models, m)
	r.srv.topic(m.topic, typ, modelQueues)
	for _, g := range []struct {
		name, tag string
		orderly   bool
	}{{anyGroup, "", false}, {fifoGroup, "", true}, {taggedGroup, "a", false}} {
		name := g.name + "-" + m.topic
		r.srv.group(name, g.orderly, modelTimes)
		m.group(name, g.orderly || typ == fifo, g.tag, modelTimes) // case C111
	}
	r.srv.group(pullGroup+"-"+m.topic, false, modelTimes)
}

func (r *randomScript) failed() bool {
	for _, m := range r.models {
		if len(m.faults) > 0 {
			return true
		}
	}
	return false
}

func (r *randomScript) dial() {
	r.doors = []door{newRemoting(r.t, r.srv.addr), newGRPC(r.t, r.srv.addr, "model"), newREST(r.srv.addr)}
}

func (r *randomScript) hangUp() {
	for _, d := range r.doors {
		d.close()
	}
}

func (r *randomScript) door(name string) door {
	for _, d := range r.doors {
		if d.name() == name {
			return d
		}
	}
	r.t.Fatalf("no door %s", name)
	return nil
}

func (r *randomScript) anyDoor() door { return r.doors[r.random.IntN(len(r.doors))] }

func (r *randomScript) native() *remotingDoor {
	d, _ := r.doors[0].(*remotingDoor)
	return d
}

func (r *randomScript) group(name string) *modelGroup { return r.model.groups[name+"-"+r.model.topic] }

func (r *randomScript) say(format string, args ...any) {
	fmt.Fprintf(&r.trace, "%6d "+format+"\n", append([]any{time.Since(r.begun).Milliseconds()}, args...)...)
}

func millis() int64 { return time.Now().UnixMilli() }

// op is something to do: a call, and what the model makes of its answer. outcome is maybe when the answer was lost;
// call's own results are then worth nothing.
type op struct {
	text   string
	call   func() error
	settle func(outcome fate, asked, now int64)
}

// step does something at random.
func (r *randomScript) step() {
	r.model = r.models[[]int{0, 0, 0, 1, 1, 1, 2, 2, 3, 3}[r.random.IntN(10)]]
	r.model.expire(millis())
	switch n := r.random.IntN(100); {
	case n < 1:
		r.restart(false)
	case n < 3:
		r.restart(true)
	case n < 7:
		r.crashDuring(r.choose(true))
	case n < 9:
		r.lookOut()
	default:
		r.do(r.choose(false))
	}
}

func outcomeOf(err error) fate {
	var refused *refusal
	switch {
	case err == nil:
		return yes
	case errors.As(err, &refused):
		return no
	default:
		return maybe
	}
}

func (r *randomScript) do(o *op) {
	asked := millis()
	err := o.call()
	r.say("%s: %v", o.text, orOK(err))
	outcome := outcomeOf(err)
	if outcome == maybe {
		r.model.fault("%s: %v", o.text, err)
		return
	}
	o.settle(outcome, asked, millis())
}

func orOK(err error) string {
	if err == nil {
		return "ok"
	}
	return err.Error()
}

// restart kills the server, or stops it, and starts it again.
func (r *randomScript) restart(crash bool) {
	r.say("restart, killed: %t", crash)
	r.hangUp()
	if crash {
		r.srv.kill()
	} else {
		r.srv.stop()
	}
	r.again(crash)
}

func (r *randomScript) again(crash bool) {
	r.srv.start()
	r.dial()
	for _, m := range r.models {
		m.restart(crash, millis())
	}
}

// crashDuring kills the server while something is under way.
func (r *randomScript) crashDuring(o *op) {
	after := time.Duration(r.random.IntN(2500)) * time.Microsecond
	asked := millis()
	answered := make(chan error, 1)
	go func() { answered <- o.call() }()
	<-time.After(after)
	r.srv.kill()
	err := <-answered
	r.say("killed after %v during %s: %v", after, o.text, orOK(err))
	r.hangUp()
	o.settle(outcomeOf(err), asked, millis())
	r.again(true)
}

// choose composes something to do. With lossy it is something whose answer may be lost.
func (r *randomScript) choose(lossy bool) *op {
	type choice struct {
		weight int
		make   func(lossy bool) *op
	}
	choices := []choice{
		{24, r.send},
		{5, r.batch},
		{5, r.prepare},
		{10, r.end},
		{5, r.recall},
		{30, r.receive},
		{24, r.ack},
		{10, r.change},
		{3, r.bury},
		{3, r.staleAck},
		{6, r.pull},
		{4, r.commit},
		{3, r.query},
	}
	total := 0
	for _, c := range choices {
		total += c.weight
	}
	for {
		n := r.random.IntN(total)
		for _, c := range choices {
			if n -= c.weight; n >= 0 {
				continue
			}
			if o := c.make(lossy); o != nil { // nil: there is nothing to do it to
				return o
			}
			break
		}
	}
}

func (r *randomScript) message() *modelMessage {
	r.bodies++
	x := &modelMessage{outgoing: &outgoing{
		topic: r.model.topic,
		typ:   r.model.typ,
		body:  fmt.Sprint("m", r.bodies),
		queue: int32(r.random.IntN(modelQueues)),
	}}
	x.tag = []string{"", "a", "b"}[r.random.IntN(3)]
	if r.random.IntN(3) == 0 {
		x.keys = []string{"k1", x.body}
	}
	if r.random.IntN(3) == 0 {
		x.props = map[string]string{"p": "v, w=x"}
	}
	return x
}

// send sends a message: normal, with a message group, or delayed.
func (r *randomScript) send(lossy bool) *op {
	x, d := r.message(), r.anyDoor()
	switch x.typ {
	case transaction:
		return r.prepare(lossy)
	case fifo:
		d = r.doors[1+r.random.IntN(2)] // the other clients choose queues otherwise
		x.group = []string{"x", "y", "z"}[r.random.IntN(3)]
	case delayed:
		if x.delay = time.Duration(50+r.random.IntN(300)) * time.Millisecond; r.random.IntN(3) == 0 {
			x.delay = time.Hour
		}
		if d.name() == "remoting" && r.random.IntN(4) == 0 {
			x.level, x.delay = 1, time.Second
		}
	}
	var s sent
	return &op{
		fmt.Sprintf("%s sends %s %s group=%q delay=%v", d.name(), x.typ, x.body, x.group, x.delay),
		func() error {
			all, err := d.send(x.outgoing)
			if err == nil {
				s = all[0]
			}
			return err
		},
		func(outcome fate, asked, now int64) {
			x.due = asked + x.delay.Milliseconds()
			r.sent(x, outcome, s, d)
		},
	}
}

func (r *randomScript) sent(x *modelMessage, outcome fate, s sent, d door) {
	if outcome == no {
		r.model.fault("%s refused to send %s", d.name(), x.body)
	}
	r.model.send(x, outcome, s, d.name())
}

func (r *randomScript) batch(bool) *op {
	if r.model.typ != normal {
		return nil
	}
	d := r.anyDoor()
	var all []*modelMessage
	var messages []*outgoing
	for range 2 + r.random.IntN(3) {
		x := r.message()
		if len(all) > 0 {
			x.queue = all[0].queue
		}
		x.with = &all
		all, messages = append(all, x), append(messages, x.outgoing)
	}
	var answers []sent
	return &op{
		fmt.Sprintf("%s sends a batch from %s to %s", d.name(), messages[0].body, messages[len(messages)-1].body),
		func() (err error) {
			answers, err = d.send(messages...)
			return err
		},
		func(outcome fate, _, _ int64) {
			for i, x := range all {
				var s sent
				if outcome == yes {
					s = answers[i]
				}
				r.sent(x, outcome, s, d)
			}
		},
	}
}

func (r *randomScript) prepare(bool) *op {
	if r.model.typ != transaction {
		return nil
	}
	x, d := r.message(), r.anyDoor()
	x.half = true
	var s sent
	return &op{
		fmt.Sprintf("%s prepares %s", d.name(), x.body),
		func() (err error) {
			s, err = d.prepare(x.outgoing)
			return err
		},
		func(outcome fate, _, _ int64) { r.sent(x, outcome, s, d) },
	}
}

// pick returns a message for which ok holds; nil when there is none.
func (r *randomScript) pick(ok func(x *modelMessage) bool) *modelMessage {
	var found []*modelMessage
	for _, x := range r.model.messages {
		if ok(x) {
			found = append(found, x)
		}
	}
	if len(found) == 0 {
		return nil
	}
	return found[r.random.IntN(len(found))]
}

// end decides on a transaction: for the first time, the same again, or otherwise, which is refused.
func (r *randomScript) end(bool) *op {
	x := r.pick(func(x *modelMessage) bool { return x.typ == transaction && x.stored == yes })
	if x == nil {
		return nil
	}
	commits := r.random.IntN(3) > 0
	if x.ended != no && r.random.IntN(4) > 0 || x.ended == maybe {
		commits = x.commits
	}
	return r.decide(x, commits)
}

func (r *randomScript) decide(x *modelMessage, commits bool) *op {
	d := r.door(x.by)
	return &op{
		fmt.Sprintf("%s ends %s, commit: %t", d.name(), x.body, commits),
		func() error { return d.end(x.outgoing, x.sent, commits) },
		func(outcome fate, _, _ int64) {
			if x.ended == yes && x.commits != commits {
				if outcome == yes {
					r.model.fault("the decision on %s was changed", x.body)
				}
				return
			}
			r.model.end(x, commits, outcome)
		},
	}
}

func (r *randomScript) recall(bool) *op {
	x := r.pick(func(x *modelMessage) bool {
		return x.typ == delayed && x.stored == yes && x.recalled == no && !x.seen && x.sent.recall != ""
	})
	if x == nil {
		return nil
	}
	d := r.anyDoor()
	return &op{
		fmt.Sprintf("%s recalls %s", d.name(), x.body),
		func() error { return d.recall(r.model.topic, x.sent) },
		func(outcome fate, _, now int64) {
			switch {
			case outcome == yes && now < x.due-1000:
				x.recalled = yes
			case outcome == no && now < x.due-1000:
				r.model.fault("%s could not be recalled", x.body)
			default:
				x.recalled = maybe
			}
		},
	}
}
