// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roquetmq/roquet/internal/broker/transaction"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// TestC071OneLimitForAllDoors: there is one limit; the error names it and the value.
func TestC071OneLimitForAllDoors(t *testing.T) {
	t.Parallel()
	w := newTxWorld(t)
	w.topic(t, "T", 1)
	_, err := w.send(t, "T", "b", withProps("TIMER_DELAY_SEC", "3456001"))
	if !refusal(IllegalMessage, `3456000000ms (40 days): TIMER_DELAY_SEC "3456001" is too far ahead`)(err) {
		t.Errorf("error %v", err)
	}
	_, err = w.send(t, "T", "b", withProps("TIMER_DELAY_SEC", "3456001", "TRAN_MSG", "true"))
	if !refusal(IllegalMessage, "timer message illegal")(err) {
		t.Errorf("a half message: %v", err)
	}
	w.mustSend(t, "T", "b", withProps("TIMER_DELAY_SEC", "3456000"))
	if _, maximum, _ := w.st.Bounds("T", 0); maximum != 0 {
		t.Error("something was delivered")
	}
}

func TestTransactionsCanBeRefused(t *testing.T) {
	t.Parallel()
	w := newTxWorld(t)
	w.topic(t, "T", 1)
	w.sender.SetTransactionsDisabled(true)
	_, err := w.send(t, "T", "b", withProps("TRAN_MSG", "true"))
	if !denied("sending transaction message")(err) {
		t.Errorf("error %v", err)
	}
	w.sender.SetTransactionsDisabled(false)
	req := w.mustSend(t, "T", "b", withProps("TRAN_MSG", "true"))
	half := w.only(t, TransHalfTopic, 0)
	id := req.Result().UniqueKey
	if id == "" || property(&half, "__transactionId__") != id || property(&half, "UNIQ_KEY") != id {
		t.Errorf("transaction %q, properties %q", id, half.Properties)
	}
}

// TestHalfMessageWithFullProperties: a half message that has no room for the number of its checks is checked, parked
// and resumed all the same.
func TestHalfMessageWithFullProperties(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newTxWorld(t)
		w.topic(t, "T", 1)
		w.tx.SetTiming(transaction.Config{Timeout: time.Millisecond, Interval: time.Millisecond, MaxChecks: 2})
		w.clients.Heartbeat(channel(7), &Heartbeat{ClientID: "c", Producers: []string{"p"}}, time.Now())
		var asked []message.Record
		w.checked = func(_ Channel, check *TransactionCheck) error {
			asked = append(asked, check.Record)
			return nil
		}
		own := props("TRAN_MSG", "true", "PGROUP", "p", "UNIQ_KEY", "u")
		added := props("__transactionId__", "u", "REAL_TOPIC", "T", "REAL_QID", "0")
		fill := props("x", strings.Repeat("x", message.MaxPropertiesBytes-len(own)-len(added)-3))
		w.mustSend(t, "T", "b", func(req *SendRequest) { req.Properties = own + fill })
		half := w.only(t, TransHalfTopic, 0)
		if len(half.Properties) != message.MaxPropertiesBytes {
			t.Fatalf("%d bytes of properties", len(half.Properties))
		}
		for range 20 { // checks and parkings are writes that come after one another
			time.Sleep(2 * time.Millisecond)
			w.tx.tick()
			w.st.apply()
		}
		if len(asked) != 2 {
			t.Fatalf("asked %d times", len(asked))
		}
		if m, err := message.Decode(
			asked[0],
		); err != nil || m.Properties != half.Properties ||
			asked[0].Check() != nil {
			t.Errorf("asked about %d bytes of properties, %v, %v", len(m.Properties), err, asked[0].Check())
		}
		parked := w.only(t, TransCheckMaxTimeTopic, 0)
		var o outcome
		w.tx.Resume(parked.LogOffset, nil, o.done)
		w.st.apply()
		o.want(t, 1, true)
	})
}

func TestRecallsCanBeRefused(t *testing.T) {
	t.Parallel()
	w := newTxWorld(t)
	w.topic(t, "T", 1)
	handle := w.mustSend(t, "T", "b", withProps("TIMER_DELAY_SEC", "60")).Result().RecallHandle
	w.recalls.SetDisabled(true)
	var o outcome
	recall := func() {
		o = outcome{}
		w.recalls.Recall("T", handle, func(_ string, err error) { o.done(err) })
		w.st.apply()
	}
	recall()
	o.want(t, 1, false)
	if !denied("recallMessageEnable is false")(o.err) {
		t.Errorf("error %v", o.err)
	}
	w.recalls.SetDisabled(false)
	w.st.refuse = errors.New("full")
	recall()
	o.want(t, 1, false)
	w.st.refuse = nil
	recall()
	o.want(t, 1, true)
	w.delays.runLater(errors.New("stopping"))
	recall()
	o.want(t, 1, false)
}

// A message that calls back another one finds it also when it was sent right behind it, before either is stored.
func TestCancelIsNotPassed(t *testing.T) {
	t.Parallel()
	w := newTxWorld(t)
	w.topic(t, "T", 1)
	var first, second outcome
	for _, send := range []struct {
		o     *outcome
		props string
	}{
		{&first, props("UNIQ_KEY", "u1", "TIMER_DELAY_SEC", "60")},
		{&second, props("UNIQ_KEY", "u2", "TIMER_DELAY_SEC", "60", message.PropertyTimerDelUniqueKey, "T+u1")},
	} {
		req := sendRequest("T", "b", send.o)
		req.Properties = send.props
		w.sender.Send(req)
	}
	w.st.apply()
	first.want(t, 1, true)
	second.want(t, 1, true)
	w.deliverAll(t, time.Now().Add(time.Hour))
	if n := len(w.messages(t, "T", 0)); n != 0 || len(w.timers()) != 0 {
		t.Errorf("%d messages were delivered, %d timers are left", n, len(w.timers()))
	}

	w.st.setErrors(nil, errors.New("full"))
	_, err := w.send(t, "T", "b", withProps("TIMER_DELAY_SEC", "60", message.PropertyTimerDelUniqueKey, "none"))
	if err == nil {
		t.Error("answered although it is not stored")
	}
}

// TestRecallDuringDelivery: who calls back a message that is on its way is told how that ends.
func TestRecallDuringDelivery(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		t.Run(fmt.Sprint("fails ", fails), func(t *testing.T) {
			t.Parallel()
			w := newTxWorld(t)
			w.topic(t, "T", 1)
			handle := w.mustSend(t, "T", "b", withProps("TIMER_DELAY_SEC", "60")).Result().RecallHandle
			w.delays.deliver(time.Now().Add(time.Minute)) // its delivery is on its way
			var o outcome
			w.recalls.Recall("T", handle, func(_ string, err error) { o.done(err) })
			if o.calls != 0 {
				t.Fatalf("answered too early: %v", o.err)
			}
			if fails {
				w.st.fail = errors.New("broken")
			}
			w.st.apply()
			w.st.fail = nil
			w.delays.runLater(nil)
			w.st.apply()
			o.want(t, 1, fails)
			_, maximum, _ := w.st.Bounds("T", 0)
			if delivered := maximum == 1; delivered == fails {
				t.Errorf("delivered %v", delivered)
			}
			if !fails && !refusal(IllegalOperation, "was delivered at")(o.err) {
				t.Errorf("error %v", o.err)
			}
		})
	}
}

// TestClockSetBack: who waits for a time waits no longer for that.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	t.Run("a level counts from the clock", func(t *testing.T) {
		t.Parallel()
		m := message.Message{Topic: "T"}
		w := &store.Write{}
		park(w, &m, 2, 5*time.Second)
		w.Messages = []message.Message{m}
		now := time.Now()
		w.Messages[0].StoreTimestamp = now.Add(time.Hour).UnixMilli() // it never goes back
		w.Assigned(w)
		k, ok := decodeTimerKey(w.State[0].Key)
		due := time.UnixMilli(k.due)
		if !ok || due.Before(now.Add(4*time.Second)) || due.After(now.Add(time.Minute)) {
			t.Errorf("due in %v", time.Until(due))
		}
	})
	t.Run("a retry", func(t *testing.T) {
		t.Parallel()
		d := newDueKeys()
		now := time.Now()
		k := timerKey{due: now.UnixMilli(), level: 1}
		d.take(k)
		d.release(k, now.Add(deliveryRetry).UnixMilli())
		earlier := now.Add(-time.Hour).UnixMilli()
		if _, next, ok := d.begin(earlier, 1); ok || next > earlier+deliveryRetry.Milliseconds() {
			t.Errorf("looks again in %d ms", next-earlier)
		}
	})
	t.Run("a timer", func(t *testing.T) {
		t.Parallel()
		w := newTxWorld(t)
		w.topic(t, "T", 1)
		now := time.Now()
		w.delays.deliver(now.Add(24 * time.Hour)) // the clock is ahead, and is set back
		w.mustSend(t, "T", "b", withProps("TIMER_DELAY_SEC", "10"))
		in := time.UnixMilli(w.delays.deliver(now)).Sub(now)
		if in < 9*time.Second || in > 20*time.Second {
			t.Errorf("looks again in %v", in)
		}
		w.deliverAll(t, now.Add(20*time.Second))
		w.only(t, "T", 0)
	})
}

// TestReadAhead: what will be due is in memory before, and nothing stays there.
func TestReadAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const many = 100
		w := newTxWorld(t)
		w.topic(t, "T", 1)
		w.start()
		defer w.stop()
		var handle string
		for i := range many {
			handle = w.mustSend(t, "T", fmt.Sprint(i), withProps("TIMER_DELAY_SEC", "60")).Result().RecallHandle
		}
		ready := func() int {
			w.delays.ahead.mu.Lock()
			defer w.delays.ahead.mu.Unlock()
			return len(w.delays.ahead.mu.ready)
		}
		w.pass(50 * time.Second)
		if n := ready(); n != 0 {
			t.Errorf("%d messages were read 10 s ahead", n)
		}
		w.pass(9 * time.Second)
		if n := ready(); n != many {
			t.Errorf("%d messages were read a second ahead, want %d", n, many)
		}
		var o outcome
		w.recalls.Recall("T", handle, func(_ string, err error) { o.done(err) })
		w.settle()
		o.want(t, 1, true)
		w.pass(2 * time.Second)
		if n := ready(); n != 0 || w.delays.ahead.mu.bytes != 0 {
			t.Errorf("%d messages of %d bytes are left", n, w.delays.ahead.mu.bytes)
		}
		if got := w.messages(t, "T", 0); len(got) != many-1 {
			t.Errorf("%d delivered", len(got))
		}
	})
}

// TestLargeMessagesDueTogether: deliveries that are on their way are bounded by bytes.
func TestLargeMessagesDueTogether(t *testing.T) {
	t.Parallel()
	const many = 40
	w := newTxWorld(t)
	w.topic(t, "T", 1)
	for range many {
		w.mustSend(t, "T", string(make([]byte, 1<<20)), withProps("TIMER_DELAY_SEC", "1"))
	}
	later := time.Now().Add(time.Minute)
	w.delays.deliver(later)
	size := 0
	for _, write := range w.st.pending {
		for i := range write.Messages {
			size += write.Messages[i].EncodedLen()
		}
	}
	if size > maxUndeliveredBytes+maxDeliveryBytes+1<<21 {
		t.Errorf("%d bytes are on their way", size)
	}
	w.deliverAll(t, later)
	if n := len(w.messages(t, "T", 0)); n != many {
		t.Errorf("%d delivered", n)
	}
}

func TestTimerViews(t *testing.T) {
	t.Parallel()
	w := newTxWorld(t)
	w.topic(t, "T", 1)
	if _, ok, err := w.delays.NextDue(); ok || err != nil {
		t.Errorf("something is due, %v", err)
	}
	now := time.Now()
	for _, s := range []string{"3", "30", "31", "3000"} {
		w.mustSend(t, "T", "b", withProps("TIMER_DELAY_SEC", s))
	}
	w.mustSend(t, "T", "b", delayed("18"))
	due, ok, err := w.delays.NextDue()
	if in := time.UnixMilli(due).Sub(now); !ok || err != nil || in < 2*time.Second || in > time.Minute {
		t.Errorf("the first is due in %v, %v, %v", in, ok, err)
	}
	bounds := []time.Duration{10 * time.Second, time.Minute, 2 * time.Minute, time.Hour}
	counts, err := w.delays.Distribution(now, bounds)
	if err != nil || fmt.Sprint(counts) != "[1 2 0 1]" {
		t.Errorf("distribution %v, %v", counts, err)
	}
	if pending, err := w.delays.Pending(); err != nil || len(pending) != 1 {
		t.Errorf("pending levels %v, %v", pending, err)
	}
	var l DelayStats
	for _, late := range []time.Duration{-time.Second, 0, 5 * time.Millisecond, 6 * time.Millisecond, time.Hour} {
		l.note(late)
	}
	sum := time.Hour + 11*time.Millisecond
	if fmt.Sprint(l.Lateness) != "[3 1 0 0 0 0 0 0 0 0 1]" || l.Late != time.Hour || l.LateSum != sum {
		t.Errorf("lateness %+v", l)
	}
}

// TestReplies: a reply goes to the connection of who asked, and is stored.
func TestReplies(t *testing.T) {
	t.Parallel()
	w := newTxWorld(t)
	topic := SystemNames{Cluster: "C"}.ReplyTopic()
	w.clients.Heartbeat(channel(7), &Heartbeat{ClientID: "asker", Producers: []string{"p", "q"}}, time.Now())
	w.clients.Heartbeat(channel(9), &Heartbeat{ClientID: "refuser", Producers: []string{"p"}}, time.Now())
	push := func(to Channel, req *SendRequest, properties string, done func(error)) {
		if to.ID() == 9 {
			done(errors.New("connection reset"))
			return
		}
		at, ok := message.Property(properties, message.PropertyPushReplyTime)
		if id, _ := message.Property(properties, "CORRELATION_ID"); to.ID() != 7 || id != "c1" || !ok || at == "" {
			t.Errorf("pushed to %d: %q", to.ID(), properties)
		}
		done(nil)
	}
	for _, tt := range []struct {
		name   string
		topic  string
		change func(*SendRequest)
		want   func(error) bool
	}{
		{name: "stored", topic: topic},
		{
			name: "nobody", topic: topic, change: withProps("CORRELATION_ID", "c1"),
			want: refusal(Failed, "properties[REPLY_TO_CLIENT] is null"),
		},
		{
			name: "gone", topic: topic, change: withProps("REPLY_TO_CLIENT", "x"),
			want: refusal(Failed, "channel of <x> not found"),
		},
		{
			name: "refused", topic: topic, change: withProps("REPLY_TO_CLIENT", "refuser"),
			want: refusal(Failed, "push reply message to refuser fail: "),
		},
		{name: "no topic", topic: "none", want: refusal(TopicNotExist, "topic[none]")},
		{
			name: "no queue", topic: topic, change: func(r *SendRequest) { r.QueueID = 1 },
			want: refusal(IllegalParameter, "queueId[1]"),
		},
		{name: "system topic", topic: TransHalfTopic, want: denied("Sending message to topic[")},
		{
			name: "malformed", topic: topic, change: func(r *SendRequest) { r.Properties = "x" },
			want: asError[*message.PropertyError](nil),
		},
	} {
		cfg := RepliesConfig{Push: push, Logger: quiet()}
		replies := NewReplies(cfg, w.topics, w.clients, w.sender)
		_, before, _ := w.st.Bounds(topic, 0)
		var o outcome
		req := sendRequest(tt.topic, "re: x", &o)
		req.Properties = props("CORRELATION_ID", "c1", "REPLY_TO_CLIENT", "asker", "MSG_TYPE", "reply")
		if tt.change != nil {
			tt.change(req)
		}
		replies.Reply(req, func(_ *SendRequest, stored bool, err error) {
			o.done(err)
			if stored != (tt.want == nil) {
				t.Errorf("%s: stored %v", tt.name, stored)
			}
		})
		w.st.apply()
		if o.calls != 1 || (tt.want == nil) != (o.err == nil) || tt.want != nil && !tt.want(o.err) {
			t.Errorf("%s: answered %d times, %v", tt.name, o.calls, o.err)
		}
		want := map[bool]message.QueueOffset{true: 1}[tt.want == nil]
		if _, after, _ := w.st.Bounds(topic, 0); after-before != want {
			t.Errorf("%s: %d messages stored", tt.name, after-before)
		}
	}
}

func TestProducerByID(t *testing.T) {
	t.Parallel()
	c := NewClients(ClientsConfig{Logger: quiet()})
	now := time.Now()
	is := func(id string, want uint64) {
		t.Helper()
		m, ok := c.ProducerByID(id)
		if ok != (want != 0) || ok && m.Channel.ID() != want {
			t.Errorf("%s is at %v, want %d", id, m, want)
		}
	}
	beat := func(ch uint64, id string, groups ...string) {
		c.Heartbeat(channel(ch), &Heartbeat{ClientID: id, Producers: groups}, now)
	}
	is("a", 0)
	beat(1, "a", "p", "q")
	is("a", 1)
	c.Unregister(channel(1), "q", "", now)
	is("a", 1) // it is still in p
	beat(2, "a", "p")
	is("a", 2) // it came back on another connection
	c.Disconnected(channel(1), now)
	is("a", 2)
	beat(2, "b", "p") // the same connection under another name
	is("a", 0)
	is("b", 2)
	c.Disconnected(channel(2), now)
	is("b", 0)
	if n := len(c.mu.byClient); n != 0 {
		t.Errorf("%d are left", n)
	}
}
