// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roquetmq/roquet/internal/protocol"
)

// oddProperties are values that programs have split, trimmed or mangled. Cases C034, C036.
func oddProperties() map[string]string {
	return map[string]string{
		"location": "Beijing,China", "q": "a=b=c", "spaces": "   ", "emoji": "😀 ü", "json": `{"a":"b\\n"}`,
		"Mixed_Case-1": "x", "url": "/a?b=c&d%25", "long": strings.Repeat("ä", 20), "number": "007",
	}
}

// kind is a kind of message and how it is sent.
type kind struct {
	name, topicType string
	send            func(d door, topic string) (want []expected, err error)
}

// expected is a message that has to come.
type expected struct {
	m   *outgoing
	typ string // as it is received
	id  string
}

func message1(topic, typ, body string) *outgoing {
	return &outgoing{
		topic: topic, typ: typ, body: body, tag: "red", keys: []string{"key-" + body, "k2"}, props: oddProperties(),
	}
}

// sendAll sends messages and expects them to come as they are.
func sendAll(d door, messages ...*outgoing) ([]expected, error) {
	all, err := d.send(messages...)
	var want []expected
	for i := range all {
		want = append(want, expected{messages[i], messages[i].typ, all[i].id})
	}
	return want, err
}

func kinds() []kind {
	return []kind{
		{"normal", normal, func(d door, topic string) ([]expected, error) {
			return sendAll(d, message1(topic, normal, "one"))
		}},
		{"plain", normal, func(d door, topic string) ([]expected, error) {
			return sendAll(d, &outgoing{topic: topic, typ: normal, body: " ", props: map[string]string{}})
		}},
		{"batch", normal, func(d door, topic string) ([]expected, error) {
			return sendAll(
				d,
				message1(topic, normal, "b1"),
				message1(topic, normal, "b2"),
				message1(topic, normal, "b3"),
			)
		}},
		{"fifo", fifo, func(d door, topic string) ([]expected, error) {
			var want []expected
			for i := range 3 {
				m := message1(topic, fifo, fmt.Sprint("f", i))
				m.group = "orders/7"
				more, err := sendAll(d, m)
				if err != nil {
					return nil, err
				}
				want = append(want, more...)
			}
			return want, nil
		}},
		{"delayed", delayed, func(d door, topic string) ([]expected, error) {
			m := message1(topic, delayed, "d")
			m.delay = 200 * time.Millisecond
			return sendAll(d, m)
		}},
		{"priority", priority, func(d door, topic string) ([]expected, error) {
			m := message1(topic, priority, "p")
			m.priority = 3
			return sendAll(d, m)
		}},
		{"transactional", transaction, func(d door, topic string) ([]expected, error) {
			var want []expected
			for _, body := range []string{"rolled back", "committed"} {
				m := message1(topic, transaction, body)
				s, err := d.prepare(m)
				if err == nil {
					err = d.end(m, s, body == "committed")
				}
				if err != nil {
					return nil, err
				}
				want = []expected{{m, transaction, s.id}}
			}
			return want, nil
		}},
	}
}

// text is what has to be received of a message, of the attempt and place apart.
func (e *expected) text(attempt int, offset int64, handle string) string {
	m := &received{
		id: e.id, typ: e.typ, body: e.m.body, tag: e.m.tag, group: e.m.group, keys: e.m.keys, props: e.m.props,
		attempt: attempt, offset: offset, timed: e.m.delay > 0, handle: handle,
	}
	return m.text(func(id string) string { return id })
}

// TestPairs: a message of any kind that is sent by one door is received by each, with all that it had, and its
// acknowledgement by that door is good. Cases C034, C036.
func TestPairs(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	all := doors(t, srv.addr)
	for i, from := range all {
		for _, k := range kinds() {
			if k.topicType == priority && from.name() == "REST" {
				continue // which does not know it
			}
			t.Run(from.name()+"/"+k.name, func(t *testing.T) {
				t.Parallel()
				topic := from.name() + "-" + k.name
				srv.topic(topic, k.topicType, 1)
				want, err := k.send(from, topic)
				if err != nil {
					t.Fatal(err)
				}
				for j := range all { // the other doors first
					receiveWhole(t, srv, all[(i+j+1)%len(all)], topic, want)
				}
				readWhole(t, all, topic, want)
			})
		}
	}
}

// receiveWhole receives and acknowledges what is expected, in order, and nothing else.
func receiveWhole(t *testing.T, srv *server, to door, topic string, want []expected) {
	t.Helper()
	group := "by-" + to.name() + "-" + topic
	orderly := want[0].m.group != ""
	srv.group(group, orderly, 16)
	var got []received
	for len(got) < len(want) {
		more, err := to.receive(&receiving{
			group: group, topic: topic, count: 32, wait: 20 * time.Second, invisible: time.Minute, orderly: orderly,
		})
		if err != nil || len(more) == 0 {
			t.Fatalf("%s: %d messages of %d, %v", to.name(), len(got), len(want), err)
		}
		got = append(got, more...)
	}
	if len(got) != len(want) {
		t.Fatalf("%s: %d messages, want %d", to.name(), len(got), len(want))
	}
	for i := range got {
		m := &got[i]
		if m.topic != topic || m.queue != 0 || m.handle == "" {
			t.Errorf("%s: topic %q queue %d handle %q", to.name(), m.topic, m.queue, m.handle)
		}
		same(t, to.name(), m, want[i].text(1, int64(i), m.handle))
		if err := to.ack(group, topic, m.handle); err != nil {
			t.Errorf("%s: %v", to.name(), err)
		}
	}
}

func same(t *testing.T, by string, m *received, want string) {
	t.Helper()
	if got := m.text(func(id string) string { return id }); got != want {
		t.Errorf("%s:\ngot  %s\nwant %s", by, got, want)
	}
}

// readWhole reads the messages without receiving them: by pulls, in the browser, by id and key.
func readWhole(t *testing.T, all []door, topic string, want []expected) {
	t.Helper()
	native, _ := all[0].(*remotingDoor)
	web, _ := all[2].(*restDoor)
	answer, err := native.call(protocol.PullMessage, &protocol.PullMessageRequestHeader{
		ConsumerGroup: "reader", Topic: topic, MaxMsgNums: 32, SysFlag: 4, Subscription: "*", ExpressionType: "TAG",
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	records, err := recordsOf(answer.Body)
	if err != nil || len(records) != len(want) {
		t.Fatalf("%d messages pulled, want %d: %v", len(records), len(want), err)
	}
	var browsed restMessages
	path := "/topics/" + url.PathEscape(topic)
	if err := web.call(http.MethodGet, path+"/queues/0/messages", nil, &browsed); err != nil {
		t.Fatal(err)
	}
	for i := range want {
		text := want[i].text(1, int64(i), "")
		m := receivedOf(&records[i])
		same(t, "pulled", &m, text)
		m = browsed.Messages[i].received()
		same(t, "browsed", &m, text)
		one := restMessage{}
		if err := web.call(http.MethodGet, "/messages/"+want[i].id+"?topic="+topic, nil, &one); err != nil {
			t.Error(err)
		}
		m = one.received()
		same(t, "by id", &m, text)
		for _, key := range want[i].m.keys {
			var found restMessages
			err := web.call(http.MethodGet, path+"/messages?key="+url.QueryEscape(key), nil, &found)
			if err != nil ||
				!slices.ContainsFunc(found.Messages, func(m restMessage) bool { return m.Text == want[i].m.body }) {
				t.Errorf("by key %s: %d messages, %v", key, len(found.Messages), err)
			}
		}
	}
}

// A transaction that was prepared by one door is ended by another, and the first decision wins, whichever doors
// they come by. Native producers name their group, which must be the message's; clients of the others have none.
func TestTransactionsEndedByAnotherDoor(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	all := doors(t, srv.addr)
	for _, from := range all {
		for _, by := range all {
			t.Run(from.name()+"/"+by.name(), func(t *testing.T) {
				t.Parallel()
				topic := "ended-" + from.name() + "-" + by.name()
				srv.topic(topic, transaction, 1)
				var want []expected
				for _, commit := range []bool{false, true} {
					m := message1(topic, transaction, fmt.Sprint("committed-", commit))
					s, err := from.prepare(m)
					if err == nil {
						err = endAs(by, from, m, s, commit)
					}
					if err != nil {
						t.Fatal(err)
					}
					if err := from.end(m, s, commit); err != nil {
						t.Errorf("the same decision again: %v", err)
					}
					for _, other := range []door{from, by} {
						if err := endAs(other, from, m, s, !commit); kindOf(err) != badRequest {
							t.Errorf("the other decision, by %s: %v", other.name(), err)
						}
					}
					want = []expected{{m, transaction, s.id}}
				}
				receiveWhole(t, srv, by, topic, want)
			})
		}
	}
	m := message1("wrong-group", transaction, "x")
	srv.topic("wrong-group", transaction, 1)
	s, err := all[1].prepare(m)
	if err != nil {
		t.Fatal(err)
	}
	native, _ := all[0].(*remotingDoor)
	h := &protocol.EndTransactionRequestHeader{
		Topic: m.topic, ProducerGroup: "someone else", CommitLogOffset: -1, TransactionID: s.id, CommitOrRollback: 8,
	}
	if _, err := native.call(protocol.EndTransaction, h, nil); err == nil {
		t.Error("a native producer of another group ended the transaction")
	}
}

// endAs ends by one door what another has prepared.
func endAs(by, from door, m *outgoing, s sent, commit bool) error {
	if by == from {
		return by.end(m, s, commit)
	}
	s.transaction = s.id
	switch d := by.(type) {
	case *restDoor:
		verb := map[bool]string{true: ":commit", false: ":rollback"}[commit]
		return d.call(
			http.MethodPost,
			"/transactions/"+s.id+verb+"?topic="+url.QueryEscape(m.topic),
			object{},
			&object{},
		)
	case *remotingDoor:
		h := &protocol.EndTransactionRequestHeader{
			Topic: m.topic, ProducerGroup: m.topic, CommitLogOffset: -1, TransactionID: s.id, CommitOrRollback: 12,
		}
		if commit {
			h.CommitOrRollback = 8
		}
		_, err := d.call(protocol.EndTransaction, h, nil)
		return err
	}
	return by.end(m, s, commit)
}
