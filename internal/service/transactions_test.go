// SPDX-License-Identifier: Apache-2.0

package service

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roquetmq/roquet/internal/broker"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// TestWireTransactions: a half message is hidden; a decision is taken over; a decision for what is not there,
// and the resumption of what was not parked, are refused and say why.
func TestWireTransactions(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	w.topic("t", 1)
	half := w.send("t", 0, "TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01U1\x02", "half")
	if got, _ := w.pull("g", "t", 0, 0, "*"); len(got) != 0 {
		t.Fatalf("the half message is visible: %+v", got)
	}
	_, at, err := message.ParseOffsetMsgID(half.MsgID)
	if err != nil {
		t.Fatal(err)
	}
	end := &protocol.EndTransactionRequestHeader{
		Topic: "t", ProducerGroup: "someone else", TranStateTableOffset: half.QueueOffset, CommitLogOffset: int64(at),
		CommitOrRollback: message.TransactionCommit, MsgID: "U1", TransactionID: "U1",
	}
	remark := w.refused(protocol.SystemError, protocol.EndTransaction, end, nil)
	if !strings.Contains(remark, "producer group wrong") {
		t.Errorf("wrong group: %q", remark)
	}
	end.ProducerGroup = "p"
	w.ok(protocol.EndTransaction, end, nil)
	w.ok(protocol.EndTransaction, end, nil) // the same decision again is no fault
	got, _ := w.pull("g", "t", 0, 0, "*")
	if len(got) != 1 || string(got[0].Body) != "half" {
		t.Errorf("after the commit: %+v", got)
	}
	w.refused(protocol.SystemError, protocol.ResumeCheckHalfMessage,
		&protocol.ResumeCheckHalfMessageRequestHeader{Topic: "t", MsgID: half.MsgID}, nil)
	w.refused(protocol.InvalidParameter, protocol.ResumeCheckHalfMessage,
		&protocol.ResumeCheckHalfMessageRequestHeader{Topic: "t", MsgID: "no id"}, nil)
}

// TestWireReplies: a reply goes to the connection of who asked, by the older header form too.
func TestWireReplies(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	pushed := make(chan string, 1)
	lane := remoting.NewLane(remoting.LaneConfig{Name: "client"})
	reg, err := remoting.NewRegistry(remoting.RegistryConfig{}, []remoting.Route{
		{Code: protocol.PushReplyMessageToClient, Lane: lane, Processor: remoting.Handle(
			func(c *remoting.Call, h *protocol.ReplyMessageRequestHeader) (remoting.Response, error) {
				id, _ := message.Property(h.Properties, "CORRELATION_ID")
				pushed <- id + " " + string(c.Body)
				return remoting.Response{}, nil
			},
		)},
		{Code: protocol.NotifyConsumerIDsChanged, Lane: lane, Processor: remoting.HandleBody(
			func(*remoting.Call) (remoting.Response, error) { return remoting.Response{}, nil })},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.topic("t", 1)
	w.heartbeat(w.dialWith(reg), "asker", "g", "t")
	h := protocol.SendMessageRequestHeader(*sendHeader("DefaultCluster_REPLY_TOPIC", 0,
		"CORRELATION_ID\x01c1\x02REPLY_TO_CLIENT\x01asker\x02MSG_TYPE\x01reply\x02"))
	answer := w.ok(protocol.SendReplyMessage, &h, []byte("42"))
	if got := <-pushed; got != "c1 42" {
		t.Errorf("pushed %q", got)
	}
	if n, err := strconv.Atoi(answer.Ext.Value("queueOffset")); err != nil || n != 0 {
		t.Errorf("offset %q of the stored reply", answer.Ext.Value("queueOffset"))
	}
	h.Properties = "CORRELATION_ID\x01c1\x02REPLY_TO_CLIENT\x01nobody\x02"
	w.refused(protocol.SystemError, protocol.SendReplyMessage, &h, []byte("42"))
}

// silent is a client that takes requests and never answers.
type silent struct{ broker.Channel }

func (silent) Request(
	_ protocol.Code, _ protocol.Header, _ []byte, timeout time.Duration, done func(*protocol.Command, error),
) {
	time.AfterFunc(timeout, func() { done(nil, remoting.ErrTimeout) })
}

func (silent) OneWay(protocol.Code, protocol.Header, []byte) error { return nil }

// TestRepliesAreNotWaitedForLong: who asked has 10 s to take a reply, as in the original; whoever cannot be asked
// at all is gone at once.
func TestRepliesAreNotWaitedForLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		push := pushReply(netip.MustParseAddrPort("127.0.0.1:10911"))
		for _, tt := range []struct {
			to   broker.Channel
			want error
			wait time.Duration
		}{{silent{}, remoting.ErrTimeout, 10 * time.Second}, {struct{ broker.Channel }{}, remoting.ErrConnClosed, 0}} {
			begun, got := time.Now(), make(chan error, 1)
			push(tt.to, &broker.SendRequest{}, "", func(err error) { got <- err })
			if err := <-got; !errors.Is(err, tt.want) || time.Since(begun) != tt.wait {
				t.Errorf("after %v: %v, want %v after %v", time.Since(begun), err, tt.want, tt.wait)
			}
		}
	})
}
