// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/roquetmq/roquet/internal/message"
)

var rewrite = flag.Bool("rewrite", false, "write what the scenarios of testdata print into them")

// TestScenarios runs the scripts of testdata: commands and, behind a line "----", what they print. Commands
// are the cases of (*scenario).do. Time is virtual; what comes to a topic of users is printed as it comes.
func TestScenarios(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
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
			synctest.Test(t, func(t *testing.T) { got = runScenario(t, string(script)) })
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

func runScenario(t *testing.T, script string) string {
	t.Helper()
	s := &scenario{t: t, sent: map[string]*SendRequest{}, seen: map[memQueueKey]message.QueueOffset{}}
	s.txWorld = newTxWorld(t)
	s.start()
	defer func() { s.stop() }()
	var out strings.Builder
	for i, block := range strings.Split(strings.TrimRight(script, "\n"), "\n\n") {
		if i > 0 {
			out.WriteString("\n")
		}
		commands, _, isBlock := strings.Cut(block, "\n----")
		out.WriteString(commands + "\n")
		if !isBlock {
			continue // a comment
		}
		out.WriteString("----\n")
		s.out = &out
		for line := range strings.SplitSeq(commands, "\n") {
			if words := strings.Fields(line); words[0] != "#" {
				s.do(words)
				s.settle()
				if s.open != 0 {
					t.Fatalf("%s: %d requests have no answer, or more than one", line, s.open)
				}
				after := ""
				if words[0] == "pass" {
					after = "after " + words[1] + " "
				}
				s.arrivals(after)
			}
		}
	}
	return out.String()
}

// txWorld is a world with timers, recalls and transactions.
type txWorld struct {
	*world
	recalls *Recalls
	tx      *Transactions
	checked func(to Channel, check *TransactionCheck) error
	stop    func()
}

func newTxWorld(tb testing.TB, configure ...func(*worldConfig)) *txWorld {
	tb.Helper()
	return openTxWorld(tb, newMemStore(), configure...)
}

func openTxWorld(tb testing.TB, st *memStore, configure ...func(*worldConfig)) *txWorld {
	tb.Helper()
	base := []func(*worldConfig){func(c *worldConfig) { c.sender.BrokerName = "b" }}
	w := &txWorld{world: openWorld(tb, st, append(base, configure...)...)}
	w.recalls = NewRecalls("b", w.topics, w.delays, st)
	w.sender.UseRecalls(w.recalls)
	w.checked = func(Channel, *TransactionCheck) error { return nil }
	var err error
	w.tx, err = NewTransactions(TransactionsConfig{
		Send:   func(to Channel, check *TransactionCheck) error { return w.checked(to, check) },
		Logger: quiet(),
	}, w.topics, w.clients, w.stats, st)
	if err != nil {
		tb.Fatal(err)
	}
	st.OnState(message.SpaceTransaction, w.tx.OnState)
	return w
}

// start runs what runs by itself. To be called in a bubble.
func (w *txWorld) start() {
	ctx, cancel := context.WithCancel(context.Background())
	var g errgroup.Group
	g.Go(func() error { return w.delays.Run(ctx) })
	g.Go(func() error { return w.tx.Run(ctx) })
	w.stop = func() {
		cancel()
		_ = g.Wait() // both end without an error
	}
}

// pass lets virtual time pass.
func (w *txWorld) pass(d time.Duration) {
	step := max(d/200, time.Millisecond)
	if d > time.Minute {
		step = max(d/1000, time.Second)
	}
	for ; d > 0; d -= step {
		time.Sleep(min(step, d))
		w.settle()
	}
}

// crash is the end of the process and a start: what was not durable is gone.
func (w *txWorld) crash(tb testing.TB) *txWorld {
	tb.Helper()
	synctest.Wait()
	w.stop()
	next := openTxWorld(tb, w.st.reopened())
	next.checked = w.checked
	next.start()
	return next
}

// scenario runs commands.
type scenario struct {
	t *testing.T
	*txWorld
	out  *strings.Builder
	sent map[string]*SendRequest // by body
	seen map[memQueueKey]message.QueueOffset
	open int // requests without an answer
}

//lint:long a flat switch of commands
func (s *scenario) do(words []string) {
	arg := map[string]string{}
	var rest []string
	for _, w := range words[1:] {
		if name, value, ok := strings.Cut(w, "="); ok {
			arg[name] = value
		} else {
			rest = append(rest, w)
		}
	}
	switch words[0] {
	case "topic":
		queues, err := strconv.Atoi(arg["queues"])
		s.must(err)
		s.topic(s.t, rest[0], int32(queues))
	case "delete-topic":
		s.topics.Delete(rest[0], func(err error) { s.must(err) })
	case "pass":
		d, err := time.ParseDuration(rest[0])
		s.must(err)
		s.pass(d)
	case "send":
		s.doSend(rest[0], rest[1], arg)
	case "recall":
		s.doRecall(rest[0], arg)
	case "end":
		s.doEnd(rest[0], rest[1], arg)
	case "producer":
		s.doProducer(rest[0], arg)
	case "resume":
		s.doResume(rest[0])
	case "stats":
		s.printStats()
	case "show":
		s.show(rest[0])
	case "damage":
		s.st.damaged[s.sent[rest[0]].write.Messages[0].LogOffset] = errors.New("flipped bit")
	case "refuse":
		s.st.refuse = map[string]error{"yes": errors.New("disk full"), "no": nil}[rest[0]]
	case "lose": // the batch that is on its way fails
		s.st.fail = map[string]error{"yes": errors.New("broken"), "no": nil}[rest[0]]
	case "crash":
		damaged := s.st.damaged
		s.txWorld = s.crash(s.t)
		s.st.damaged = damaged
	case "carry": // retention cuts all that is there
		cut := s.st.endOfLog()
		done := make(chan error, 1)
		delays, tx := s.delays, s.tx
		go func() {
			done <- errors.Join(delays.CarryForward(s.t.Context(), cut), tx.CarryForward(s.t.Context(), cut))
		}()
		s.settle()
		s.must(<-done)
		s.dropAll(cut)
	default:
		s.t.Fatalf("no command %q", words[0])
	}
}

func (s *scenario) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// dropAll forgets every record in front of cut.
func (s *scenario) dropAll(cut message.LogOffset) {
	s.st.mu.Lock()
	defer s.st.mu.Unlock()
	for _, q := range s.st.queues {
		for q.first < q.next() && q.pos[q.first] < cut {
			delete(s.st.records, q.pos[q.first])
			q.first++
		}
	}
}

// doSend sends body to topic; the other arguments are properties, TIMER_DELIVER_MS relative to now, and the
// queue.
func (s *scenario) doSend(topic, body string, arg map[string]string) {
	var o outcome
	req := sendRequest(topic, body, &o)
	pairs := []string{"UNIQ_KEY", "u-" + body}
	names := make([]string, 0, len(arg))
	for name := range arg {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		value := arg[name]
		switch name {
		case "queue":
			n, err := strconv.Atoi(value)
			s.must(err)
			req.QueueID = int32(n)
			continue
		case "UNIQ_KEY":
			pairs = pairs[2:]
		case "TIMER_DELIVER_MS":
			if d, err := time.ParseDuration(value); err == nil && value != "0" {
				value = strconv.FormatInt(time.Now().Add(d).UnixMilli(), 10)
			}
		}
		pairs = append(pairs, name, value)
	}
	req.Properties = props(pairs...)
	s.sender.Send(req)
	s.settle()
	if o.calls != 1 {
		s.t.Fatalf("Done was called %d times", o.calls)
	}
	if o.err != nil {
		fmt.Fprintf(s.out, "%s: %v\n", body, o.err)
		return
	}
	s.sent[body] = req
	m := &req.Result().Messages[0]
	s.out.WriteString(body + " stored in " + m.Topic + "/" + strconv.Itoa(int(m.QueueID)) + "/" +
		strconv.Itoa(int(m.QueueOffset)))
	if req.Result().RecallHandle != "" {
		s.out.WriteString(", can be called back")
	}
	s.out.WriteString("\n")
}

func (s *scenario) doRecall(body string, arg map[string]string) {
	req := s.sent[body]
	topic, handle := req.Topic, req.Result().RecallHandle
	if arg["topic"] != "" {
		topic = arg["topic"]
	}
	if arg["handle"] != "" {
		handle = arg["handle"]
	}
	s.open++
	s.recalls.Recall(topic, handle, func(id string, err error) {
		s.open--
		fmt.Fprintf(s.out, "recall %s: %s %v\n", body, id, err)
	})
}

func (s *scenario) doEnd(body, decision string, arg map[string]string) {
	sent := s.sent[body]
	m := &sent.Result().Messages[0]
	req := &EndRequest{
		LogOffset: m.LogOffset, QueueOffset: m.QueueOffset, Group: "p", TransactionID: sent.Result().UniqueKey,
		Topic: sent.Topic, Decision: map[string]Decision{"commit": Commit, "rollback": Rollback}[decision],
		FromCheck: arg["check"] != "",
	}
	if arg["group"] != "" {
		req.Group = arg["group"]
	}
	if arg["offset"] != "" {
		n, err := strconv.Atoi(arg["offset"])
		s.must(err)
		req.QueueOffset = message.QueueOffset(n)
	}
	if arg["id"] != "" {
		req.LogOffset, req.TransactionID, req.Group = -1, arg["id"], ""
	}
	if arg["pos"] != "" {
		n, err := strconv.Atoi(arg["pos"])
		s.must(err)
		req.LogOffset = message.LogOffset(n)
	}
	req.Done = func(_ *EndRequest, err error) {
		s.open--
		fmt.Fprintf(s.out, "%s %s: %v\n", decision, body, err)
	}
	s.open++
	s.tx.End(req)
}

// doProducer connects a producer of a group, which answers checks as it is told.
func (s *scenario) doProducer(client string, arg map[string]string) {
	id := uint64(client[len(client)-1])
	if arg["group"] == "" {
		s.clients.Disconnected(channel(id), time.Now())
		return
	}
	s.clients.Heartbeat(channel(id), &Heartbeat{ClientID: client, Producers: []string{arg["group"]}}, time.Now())
	answer := arg["answers"]
	s.checked = func(to Channel, c *TransactionCheck) error {
		if arg["broken"] != "" {
			return errors.New("connection reset")
		}
		m, err := message.Decode(c.Record)
		s.must(err)
		fmt.Fprintf(s.out, "%s is asked about %s in %s/%d, check %d (%s)\n", client, m.Body, m.Topic, m.QueueID,
			c.Checks, property(&m, message.PropertyTransactionCheckTimes))
		if answer == "" || answer == "unknown" {
			return nil
		}
		decision := map[string]Decision{"commit": Commit, "rollback": Rollback}[answer]
		s.tx.End(&EndRequest{
			LogOffset: c.LogOffset, QueueOffset: c.QueueOffset, Group: c.Group,
			TransactionID: c.UniqueKey, Decision: decision, FromCheck: true, Done: func(_ *EndRequest, err error) {
				fmt.Fprintf(s.out, "%s of %s: %v\n", answer, m.Body, err)
			},
		})
		return nil
	}
}

// doResume resumes the newest parked message of that body.
func (s *scenario) doResume(body string) {
	pos := message.LogOffset(-1)
	for _, m := range s.messages(s.t, TransCheckMaxTimeTopic, 0) {
		if string(m.Body) == body {
			pos = m.LogOffset
		}
	}
	if pos < 0 {
		pos = s.sent[body].Result().Messages[0].LogOffset
	}
	s.open++
	s.tx.Resume(pos, nil, func(err error) {
		s.open--
		fmt.Fprintf(s.out, "resume %s: %v\n", body, err)
	})
}

func (s *scenario) printStats() {
	d := s.delays.Stats()
	fmt.Fprintf(
		s.out,
		"waiting %d %v, delivered %d, late %v\n",
		d.Waiting,
		s.delays.Waiting(),
		d.Delivered,
		d.Late,
	)
	var committed, rolledBack int64
	s.stats.EachTopic(func(_ string, m *TopicMeter) {
		committed += m.Committed.Load()
		rolledBack += m.RolledBack.Load()
	})
	fmt.Fprintf(s.out, "open %v, committed %d, rolled back %d\n", s.tx.OpenByTopic(), committed, rolledBack)
}

// show prints the properties of the last message of a topic's queue 0, without those of every message.
func (s *scenario) show(topic string) {
	all := s.messages(s.t, topic, 0)
	m := &all[len(all)-1]
	fmt.Fprintf(s.out, "%s sysFlag=%#x", m.Body, m.SysFlag)
	if m.PreparedTransactionOffset != 0 {
		fmt.Fprint(s.out, " prepared")
	}
	for name, value := range message.Properties(m.Properties) {
		switch name {
		case message.PropertyMsgRegion, message.PropertyTraceSwitch, message.PropertyCluster:
			continue
		case message.PropertyTimerOutMillis, message.PropertyTimerDeliverMillis:
			n, err := strconv.ParseInt(value, 10, 64)
			s.must(err)
			value = "in " + time.Until(time.UnixMilli(n)).String()
		}
		fmt.Fprintf(s.out, " %s=%s", name, value)
	}
	fmt.Fprintln(s.out)
}

// arrivals prints what came to the topics of users since the last time.
func (s *scenario) arrivals(after string) {
	s.st.mu.Lock()
	keys := make([]memQueueKey, 0, len(s.st.queues))
	for key := range s.st.queues {
		if key.topic != ScheduleTopic && key.topic != TimerTopic && key.topic != TransHalfTopic {
			keys = append(keys, key)
		}
	}
	s.st.mu.Unlock()
	slices.SortFunc(keys, func(a, b memQueueKey) int {
		return strings.Compare(fmt.Sprint(a.topic, a.id), fmt.Sprint(b.topic, b.id))
	})
	for _, key := range keys {
		minimum, maximum, _ := s.st.Bounds(key.topic, key.id)
		for off := max(s.seen[key], minimum); off < maximum; off++ {
			rec, err := s.st.At(key.topic, key.id, off)
			s.must(err)
			fmt.Fprintf(s.out, "%s%s/%d/%d %s\n", after, key.topic, key.id, off, rec.Body())
		}
		s.seen[key] = maximum
	}
}
