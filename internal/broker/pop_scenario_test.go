// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roquetmq/roquet/internal/broker/filter"
	"github.com/roquetmq/roquet/internal/broker/pop"
	"github.com/roquetmq/roquet/internal/message"
)

// popWorld is a world with a Popper.
type popWorld struct {
	*world
	popper *Popper
	config func(*PopperConfig)
	stop   func()
}

func openPopWorld(tb fataler, st *memStore, configure func(*PopperConfig)) *popWorld {
	tb.Helper()
	w := &popWorld{world: openWorld(tb, st), config: configure, stop: func() {}}
	cfg := PopperConfig{
		BrokerName: "b",
		BrokerAddr: "10.0.0.1",
		LogEnd:     st.endOfLog,
		Filters:    filter.NewCache(),
		Flush:      func() {},
		Logger:     quiet(),
	}
	if configure != nil {
		configure(&cfg)
	}
	var err error
	if w.popper, err = NewPopper(cfg, w.topics, w.groups, w.offsets, w.stats, st); err != nil {
		tb.Fatal(err)
	}
	return w
}

// start runs the Popper. To be called in a bubble.
func (w *popWorld) start() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.popper.Run(ctx) }()
	synctest.Wait()
	w.stop = func() {
		cancel()
		<-done // it ends without an error
	}
}

// pass lets virtual time pass, in steps, so that what is stored becomes durable at once.
func (w *popWorld) pass(d time.Duration) {
	end := time.Now().Add(d)
	for step := max(d/500, time.Millisecond); time.Now().Before(end); w.settle() {
		pass(min(step, time.Until(end)))
	}
}

// crash is the end of the process and a start: what was not durable is gone.
func (w *popWorld) crash(tb fataler) *popWorld {
	tb.Helper()
	synctest.Wait()
	w.stop()
	next := openPopWorld(tb, w.st.reopened(), w.config)
	next.start()
	return next
}

// deleteTopic deletes a topic as the real store does it.
func (w *popWorld) deleteTopic(tb fataler, name string) {
	tb.Helper()
	var o outcome
	w.topics.Delete(name, func(err error) {
		w.st.remove(name)
		o.done(err)
	})
	w.settle()
	o.want(tb, 1, true)
}

// TestPopScenarios runs the scripts of testdata/pop: commands and, behind a line "----", what they print.
// Time is virtual and begins at 2000-01-01; answers are printed when they come.
func TestPopScenarios(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/pop/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scenarios", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			script, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got string
			synctest.Test(t, func(t *testing.T) { got = runPopScenario(t, string(script)) })
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			} else if got != string(script) {
				t.Errorf("%s printed\n%s", file, got)
			}
		})
	}
}

// popScenario runs commands.
type popScenario struct {
	*popWorld
	t       *testing.T
	out     strings.Builder
	handles map[string]pop.Handle
	began   time.Time
	open    int // requests without an answer
}

func runPopScenario(t *testing.T, script string) string {
	s := &popScenario{
		popWorld: openPopWorld(t, newMemStore(), nil), t: t, handles: map[string]pop.Handle{},
		began: time.Now(),
	}
	s.start()
	defer func() { s.stop() }()
	for i, block := range strings.Split(strings.TrimRight(script, "\n"), "\n\n") {
		if i > 0 {
			s.out.WriteString("\n")
		}
		commands, _, _ := strings.Cut(block, "\n----")
		s.out.WriteString(commands + "\n----\n")
		for line := range strings.SplitSeq(commands, "\n") {
			if words := strings.Fields(line); words[0] != "#" {
				s.do(words)
				s.settle()
			}
		}
	}
	return s.out.String()
}

func (s *popScenario) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// millis is the time since the beginning.
func (s *popScenario) millis() int64 { return time.Since(s.began).Milliseconds() }

func (s *popScenario) print(format string, args ...any) {
	fmt.Fprintf(&s.out, "%6d "+format+"\n", append([]any{s.millis()}, args...)...)
}

//lint:long a flat switch of commands
func (s *popScenario) do(words []string) {
	arg := map[string]string{}
	var rest []string
	for _, w := range words[1:] {
		if name, value, ok := strings.Cut(w, "="); ok {
			arg[name] = value
		} else {
			rest = append(rest, w)
		}
	}
	number := func(name string, fallback int) int {
		if n, err := strconv.Atoi(arg[name]); err == nil {
			return n
		}
		return fallback
	}
	duration := func(text string, fallback time.Duration) time.Duration {
		if d, err := time.ParseDuration(text); err == nil {
			return d
		}
		return fallback
	}
	switch words[0] {
	case "topic":
		s.topic(s.t, rest[0], int32(number("queues", 1)))
	case "group":
		s.group(s.t, rest[0], func(c *GroupConfig) { c.RetryMaxTimes = int32(number("max", 16)) })
	case "delete-topic":
		s.deleteTopic(s.t, rest[0])
	case "delete-group":
		s.groups.Delete(rest[0], s.offsets, s.must)
	case "send":
		s.send1(rest[0], rest[1], int32(number("queue", 0)), arg)
	case "receive":
		s.receive(rest[0], rest[1], int32(number("queue", -1)), arg, &PopRequest{
			MaxCount: number("max", 32), Invisible: duration(arg["invisible"], 10*time.Second),
			Wait: duration(arg["wait"], 0), Peer: uint64(number("peer", 0)),
		})
	case "disconnect":
		s.popper.Disconnected(uint64(number("peer", 0)))
	case "ack":
		s.ack(rest[0], rest[1], rest[2:])
	case "renew":
		s.renew(rest[0], rest[1], rest[2:], arg, duration(arg["invisible"], RetryPolicyDelay))
	case "forward":
		s.open++
		s.popper.ForwardToDLQ(&SettleRequest{
			Group: rest[0], Topic: rest[1], Handles: s.named(rest[2:3]),
			Done: func(req *SettleRequest, err error) {
				s.open--
				s.print("forwarded %v", cmp.Or(err, req.Results[0]))
			},
		})
	case "forge":
		h, err := pop.ParseHandle(strings.ReplaceAll(arg["text"], "_", " "))
		if err != nil {
			s.print("%v", err)
		}
		s.handles[arg["as"]] = h
	case "pass":
		s.pass(duration(rest[0], 0))
	case "crash":
		s.popWorld = s.crash(s.t)
	case "skip-young": // from the next crash on no queue is young
		s.config = func(c *PopperConfig) { c.LogEnd = func() message.LogOffset { return youngBytes << 1 } }
	case "fail":
		s.st.setErrors(nil, errors.New("injected failure"))
	case "refuse":
		s.st.setErrors(errors.New("injected refusal"), nil)
	case "recover":
		s.st.setErrors(nil, nil)
	case "reset":
		to := message.QueueOffset(number("to", 0))
		s.offsets.Reset(rest[0], rest[1], map[int32]message.QueueOffset{0: to}, s.must)
	case "commit":
		s.offsets.Commit(rest[0], rest[1], 0, message.QueueOffset(number("at", 0)))
	case "offsets":
		s.showOffsets(rest[0], rest[1])
	case "messages":
		s.showMessages(rest[0])
	case "waiting":
		s.print("%d receives of %s wait", s.popper.PollingCount(rest[0], rest[1], AllQueues), rest[0])
	case "peek":
		found, _, err := s.popper.Peek(&PeekRequest{Group: rest[0], Topic: rest[1], QueueID: -1, MaxCount: 32})
		for _, rec := range found {
			s.print("peek %d/%d %s", rec.QueueID(), rec.QueueOffset(), rec.Body())
		}
		s.must(err)
	default:
		s.t.Fatalf("unknown command %v", words)
	}
}

func (s *popScenario) send1(topic, body string, queue int32, arg map[string]string) {
	n := 1
	if arg["n"] != "" {
		n, _ = strconv.Atoi(arg["n"])
	}
	for i := range n {
		text := body
		if n > 1 {
			text = fmt.Sprint(body, i)
		}
		s.mustSend(s.t, topic, text, func(r *SendRequest) {
			r.QueueID = queue
			pairs := []string{"UNIQ_KEY", "u-" + text}
			if arg["tag"] != "" {
				pairs = append(pairs, "TAGS", arg["tag"])
			}
			if arg["key"] != "" {
				pairs = append(pairs, message.PropertyShardingKey, arg["key"])
			}
			r.Properties = props(pairs...)
		})
	}
}

func (s *popScenario) receive(group, topic string, queue int32, arg map[string]string, req *PopRequest) {
	req.Group, req.Topic, req.QueueID, req.AttemptID = group, topic, queue, arg["attempt"]
	req.Order = map[string]PopOrder{"queue": OrderQueue, "group": OrderGroup}[arg["order"]]
	req.Filter.Text = arg["filter"]
	if arg["init"] == "max" {
		req.InitMode = FromMax
	}
	name := arg["as"]
	s.open++
	req.Done = func(req *PopRequest, err error) {
		s.open--
		r := req.Result()
		switch {
		case err != nil:
			s.print("%s: %v", name, err)
		case r.Outcome == PopFound && len(r.Messages) == 0:
			s.print("%s: there is something", name)
		case r.Outcome == PopFound:
			s.showResult(name, r, arg["info"] != "")
		case r.Outcome == PopPollingFull:
			s.print("%s: polling full", name)
		default:
			s.print("%s: nothing", name)
		}
	}
	if arg["notify"] != "" {
		s.popper.Notify(req)
		return
	}
	s.popper.Pop(req)
}

func (s *popScenario) showResult(name string, r *PopResult, info bool) {
	for i := range r.Messages {
		m := &r.Messages[i]
		s.must(m.Record.Check())
		if m.Record.ReconsumeTimes() != m.ReconsumeTimes || string(m.Record.Topic()) == "" {
			s.t.Errorf("record and answer differ: %d, %d", m.Record.ReconsumeTimes(), m.ReconsumeTimes)
		}
		s.handles[fmt.Sprint(name, i)] = r.Handle(i)
		extra := ""
		if first, ok := message.Property(m.Record.Properties(), message.PropertyFirstPopTime); ok {
			n, err := strconv.ParseInt(first, 10, 64)
			s.must(err)
			extra = fmt.Sprintf(" first=%d", n-s.began.UnixMilli())
		}
		s.print("%s%d: %s/%d/%d %s times=%d%s", name, i, m.Record.Topic(), m.QueueID, m.Offset, m.Record.Body(),
			m.ReconsumeTimes, extra)
	}
	if info {
		h := s.handles[name+"0"]
		s.print("handle [%s] start [%s] offsets [%s] counts [%s] rest %d", h.String(),
			r.AppendStartOffsetInfo(nil), r.AppendMsgOffsetInfo(nil), r.AppendOrderCountInfo(nil), r.Rest)
	}
}

func (s *popScenario) named(names []string) (handles []pop.Handle) {
	for _, name := range names {
		h, ok := s.handles[name]
		if !ok {
			s.t.Fatalf("no handle %s", name)
		}
		handles = append(handles, h)
	}
	return handles
}

func reason(err error) string {
	var bad *pop.HandleError
	if !errors.As(err, &bad) {
		return fmt.Sprint(err)
	}
	return map[pop.HandleReason]string{
		pop.Malformed: "malformed", pop.OtherBroker: "of another broker",
		pop.NotGivenOut: "never given out", pop.Stale: "stale",
	}[bad.Reason]
}

func (s *popScenario) ack(group, topic string, names []string) {
	s.open++
	s.popper.Ack(&SettleRequest{
		Group: group, Topic: topic, Handles: s.named(names),
		Done: func(req *SettleRequest, err error) {
			s.open--
			if err != nil {
				s.print("ack: %v", err)
				return
			}
			for i, err := range req.Results {
				s.print("ack %s: %s", names[i], cmpOK(err))
			}
		},
	})
}

func cmpOK(err error) string {
	if err == nil {
		return "ok"
	}
	return reason(err)
}

func (s *popScenario) renew(group, topic string, names []string, arg map[string]string, invisible time.Duration) {
	s.open++
	s.popper.ChangeInvisible(&SettleRequest{
		Group: group, Topic: topic, Handles: s.named(names), Invisible: invisible,
		Suspend: arg["suspend"] != "", Done: func(req *SettleRequest, err error) {
			s.open--
			if err != nil {
				s.print("renew: %v", err)
				return
			}
			for i, err := range req.Results {
				if err == nil {
					s.handles[fmt.Sprint(arg["as"], i)] = req.Handles[i]
				}
				s.print("renew %s: %s", names[i], cmpOK(err))
			}
		},
	})
}

func (s *popScenario) showOffsets(group, topic string) {
	offsets := s.offsets.Offsets(group, topic)
	for _, id := range slices.Sorted(maps.Keys(offsets)) {
		pulled, _ := s.offsets.QueryPull(group, topic, id)
		progress, _ := s.popper.Progress(group, topic, id)
		s.print("queue %d: committed %d, pulled %d, in flight %d", id, offsets[id], pulled, progress.InFlight)
	}
	if len(offsets) == 0 {
		s.print("no offsets")
	}
}

func (s *popScenario) showMessages(topic string) {
	for _, m := range s.messages(s.t, topic, 0) {
		var all []string
		for name, value := range message.Properties(m.Properties) {
			if name != message.PropertyOriginMessageID {
				all = append(all, name+"="+value)
			} else if value != "" {
				all = append(all, name)
			}
		}
		slices.Sort(all)
		s.print("%s %s times=%d %v", topic, m.Body, m.ReconsumeTimes, all)
	}
}
