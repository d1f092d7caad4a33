// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roquetmq/roquet/internal/broker/filter"
	"github.com/roquetmq/roquet/internal/broker/filter/sql92"
	"github.com/roquetmq/roquet/internal/message"
)

// sql makes a pull carry an SQL92 expression.
func sql(expression string) func(*PullRequest) {
	return func(r *PullRequest) { r.Subscription = PullExpression{Text: expression, Type: filter.TypeSQL92} }
}

// tellSQL is the heartbeat of a consumer of T in group g.
func (w *world) tellSQL(expression string, version int64) {
	w.clients.Heartbeat(channel(1), &Heartbeat{ClientID: "c", Consumers: []ConsumerData{{
		Group: "g", Type: ConsumePassively, Model: Clustering, Subscriptions: []SubscriptionData{
			{Topic: "T", SubString: expression, ExpressionType: filter.TypeSQL92, SubVersion: version},
		},
	}}}, time.Now())
}

func (w *world) sendNumbers(tb fataler, n int) {
	tb.Helper()
	for i := range n {
		w.mustSend(tb, "T", fmt.Sprint(i), withProps("UNIQ_KEY", fmt.Sprint("u", i), "n", fmt.Sprint(i)))
	}
}

func TestPullBySQL(t *testing.T) {
	t.Parallel()
	w := newPullWorld(t)
	w.sendNumbers(t, 10)
	w.mustSend(t, "T", "none", withProps("UNIQ_KEY", "x"))
	w.mustSend(t, "T", "text", withProps("UNIQ_KEY", "x", "n", "many"))
	tests := []struct {
		expression string
		outcome    PullOutcome
		found      []string
	}{
		{"n > 6", PullFound, []string{"7", "8", "9"}},
		{"n IN ('1', 'many') OR n IS NULL", PullFound, []string{"1", "none", "text"}},
		{"n BETWEEN 100 AND 200", PullRetryImmediately, nil},
	}
	for _, tt := range tests {
		carried := w.mustPull(t, 0, sql(tt.expression))
		w.tellSQL(tt.expression, 1)
		told := w.mustPull(t, 0, func(r *PullRequest) { r.SysFlag &^= PullSubscription })
		for _, r := range []*PullResult{carried, told} {
			if r.Outcome != tt.outcome || !slices.Equal(bodies(r), tt.found) || r.Next != 12 {
				t.Errorf("%s: outcome %d, next %d, found %q", tt.expression, r.Outcome, r.Next, bodies(r))
			}
		}
	}
}

// TestMalformedSQL is case C067.
func TestMalformedSQL(t *testing.T) {
	t.Parallel()
	w := newPullWorld(t)
	w.sendNumbers(t, 1)
	for _, expression := range []string{
		"(a is not null and a between 0 3)", "a = 'x", strings.Repeat("(", 10_000), "a = '" + strings.Repeat("x", 64<<10) + "'",
	} {
		_, err := w.pull(t, 0, sql(expression))
		var syntax *sql92.SyntaxError
		if !errors.Is(err, SubscriptionIllegal) || !errors.As(err, &syntax) ||
			!strings.Contains(err.Error(), "line 1, column ") {
			t.Errorf("%.40s: %v", expression, err)
		}
		w.tellSQL(expression, 1)
		_, err = w.pull(t, 0, func(r *PullRequest) { r.SysFlag &^= PullSubscription })
		if !errors.Is(err, FilterDataMissing) || !errors.As(err, &syntax) {
			t.Errorf("told %.40s: %v", expression, err)
		}
	}
	if _, err := w.pull(t, 0, sql(" ")); !errors.Is(err, filter.ErrEmpty) {
		t.Errorf("C067 empty: %v", err)
	}
}

func TestSQLSwitchedOff(t *testing.T) {
	t.Parallel()
	filters := filter.NewCache()
	w := newPullWorld(t, func(c *worldConfig) { c.puller.Filters = filters })
	w.sendNumbers(t, 3)
	w.tellSQL("n > 1", 1)
	told := func(r *PullRequest) { r.SysFlag &^= PullSubscription }
	for _, change := range []func(*PullRequest){sql("n > 1"), told} {
		filters.SetSQL(false)
		if _, err := w.pull(
			t,
			0,
			change,
		); !asError(
			func(e *filter.UnsupportedError) bool { return e.Type == "SQL92" },
		)(
			err,
		) {
			t.Errorf("switched off: %v", err)
		}
		filters.SetSQL(true)
		if r := w.mustPull(t, 0, change); len(r.Records) != 1 {
			t.Errorf("switched on again: %q", bodies(r))
		}
	}
	if _, err := w.pull(
		t,
		0,
		func(r *PullRequest) { r.Subscription.Text, r.Subscription.Type = "n > 1", "SQL" },
	); !asError[*filter.UnsupportedError](
		nil,
	)(
		err,
	) {
		t.Errorf("unknown type: %v", err)
	}
}

// TestNewerSQL is case C068: until its heartbeat came, a consumer with a newer expression is told so, and skips
// nothing.
func TestNewerSQL(t *testing.T) {
	t.Parallel()
	w := newPullWorld(t)
	w.sendNumbers(t, 10)
	w.tellSQL("n = 1", 1)
	newer := func(r *PullRequest) { r.SysFlag, r.Subscription.Version = r.SysFlag&^PullSubscription, 2 }
	if _, err := w.pull(t, 0, newer); !errors.Is(err, SubscriptionOld) {
		t.Fatalf("C068: %v", err)
	}
	w.tellSQL("n >= 8", 2)
	if r := w.mustPull(t, 0, newer); !slices.Equal(bodies(r), []string{"8", "9"}) {
		t.Errorf("C068 after the heartbeat: %q", bodies(r))
	}
}

// TestHeldPullBySQL: a pull that waits is woken by what it wants alone, and moves on over the rest.
func TestHeldPullBySQL(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newPullWorld(t)
		stop := runPuller(t, w)
		defer stop()
		w.sendNumbers(t, 1)
		got := w.held(1, sql("n >= 20"))
		for range 2 {
			w.sendNumbers(t, 20)
			synctest.Wait()
		}
		if len(got) != 0 {
			t.Fatal("answered without a message that it wants")
		}
		w.mustSend(t, "T", "wanted", withProps("n", "20"))
		if a := now(
			t,
			got,
		); a.err != nil || !slices.Equal(bodies(&a.result), []string{"wanted"}) ||
			a.result.Next != 42 {
			t.Errorf("%v, next %d, %q", a.err, a.result.Next, bodies(&a.result))
		}
	})
}

// TestTypesDiffer is case C069: one text of two types is two subscriptions.
func TestTypesDiffer(t *testing.T) {
	t.Parallel()
	tag := subscriptions{"T": {Topic: "T", SubString: "TAGS"}}
	named := subscriptions{"T": {Topic: "T", SubString: "TAGS", ExpressionType: filter.TypeTag}}
	sql := subscriptions{"T": {Topic: "T", SubString: "TAGS", ExpressionType: filter.TypeSQL92}}
	if topic, ok := differing(tag, sql); !ok || topic != "T" {
		t.Error("C069: not told apart")
	}
	if _, ok := differing(tag, named); ok {
		t.Error("C069: no type is another type than TAG")
	}
}

// TestRetriesMatchSQL is case C065: what is sent back keeps its properties, so that the expression that chose it
// chooses it again.
func TestRetriesMatchSQL(t *testing.T) {
	t.Parallel()
	t.Run("C065 sent back", func(t *testing.T) {
		t.Parallel()
		w := newPullWorld(t)
		w.sendNumbers(t, 5)
		r := w.mustPull(t, 0, sql("n > 3"))
		if err := w.sendBack(t, "g", message.Record(r.Records[0]).LogOffset()); err != nil {
			t.Fatal(err)
		}
		c := w.only(t, ScheduleTopic, 2)
		w.mustSend(t, "%RETRY%g", "again", func(s *SendRequest) {
			s.Properties = message.WithoutProperty(c.Properties, message.PropertyDelayLevel)
		})
		for expression, want := range map[string]int{"n > 3": 1, "n > 4": 0, "RETRY_TOPIC = 'T'": 1} {
			r := w.mustPull(t, 0, sql(expression), func(p *PullRequest) { p.Topic = "%RETRY%g" })
			if len(r.Records) != want {
				t.Errorf("%s: %q", expression, bodies(r))
			}
		}
	})
	t.Run("C065 popped", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := openPopWorld(t, newMemStore(), nil)
			w.start()
			defer func() { w.stop() }()
			w.topic(t, "T", 1)
			w.group(t, "g")
			w.sendNumbers(t, 5)
			for attempt := range int32(2) {
				var got []string
				w.popper.Pop(&PopRequest{
					Group: "g", Topic: "T", QueueID: AllQueues, MaxCount: 32, Invisible: 10 * time.Second,
					Filter: PullExpression{Text: "n > 3", Type: filter.TypeSQL92},
					Done: func(req *PopRequest, err error) {
						if err != nil {
							t.Error(err)
						}
						for _, m := range req.Result().Messages {
							got = append(got, fmt.Sprintf("%s times=%d", m.Record.Body(), m.ReconsumeTimes))
						}
					},
				})
				w.settle()
				if want := []string{fmt.Sprintf("4 times=%d", attempt)}; !slices.Equal(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
				w.pass(11 * time.Second)
			}
		})
	})
}

// TestPullBySQLAllocatesNoMore: an expression costs a pull no allocation beyond those of a pull of everything.
func TestPullBySQLAllocatesNoMore(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	w := newPullWorld(t)
	w.sendNumbers(t, 32)
	measure := func(expression PullExpression) float64 {
		var o outcome
		req := pullRequest(0, &o)
		return testing.AllocsPerRun(100, func() {
			req.Subscription = expression
			w.puller.Pull(req)
		})
	}
	all := measure(PullExpression{})
	for _, e := range []PullExpression{{Text: "a || b || c"}, {Text: "n >= 0", Type: filter.TypeSQL92}, {Text: "n > 1 AND n < 3", Type: filter.TypeSQL92}} {
		if n := measure(e); n > all {
			t.Errorf("%q: %v allocations, everything: %v", e.Text, n, all)
		}
	}
}
