// SPDX-License-Identifier: Apache-2.0

package service

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/roquetmq/roquet/internal/commitlog"
	"github.com/roquetmq/roquet/internal/config"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// C034: tags, keys and user properties are the same whichever header form they came by.
func TestC034PropertiesOfBothHeaderForms(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	props := "KEYS\x01k1 k2\x02TAGS\x01red\x02location\x01Beijing,China\x02q\x01a=b=c\x02UNIQ_KEY\x01U1\x02"
	w.topic("t", 1)
	v2 := sendHeader("t", 0, props)
	v1 := protocol.SendMessageRequestHeader(*v2)
	w.ok(protocol.SendMessage, &v1, []byte("one"))
	w.ok(protocol.SendMessageV2, v2, []byte("two"))
	got, _ := w.pull("g", "t", 0, 0, "red")
	if len(got) != 2 {
		t.Fatalf("%d messages by their tag, want 2", len(got))
	}
	for _, m := range got {
		for name, want := range map[string]string{
			"KEYS": "k1 k2", "TAGS": "red", "location": "Beijing,China", "q": "a=b=c", "UNIQ_KEY": "U1",
		} {
			if value, _ := message.Property(m.Properties, name); value != want {
				t.Errorf("%q: %s is %q, want %q", m.Body, name, value, want)
			}
		}
	}
}

// C040: 50,000 topics can be listed and their configs read, whole and in pages.
func TestC040ManyTopics(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	const count, at = 50_000, 5_000
	for first := 0; first < count; first += at {
		list := &protocol.CreateTopicListRequestBody{}
		for i := first; i < first+at; i++ {
			list.TopicConfigList = append(list.TopicConfigList, protocol.TopicConfig{
				TopicName: fmt.Sprintf(
					"topic-with-a-name-of-usual-length-%d",
					i,
				),
				ReadQueueNums:  1,
				WriteQueueNums: 1,
				Perm:           6,
			})
		}
		w.ok(protocol.UpdateAndCreateTopicList, nil, protocol.EncodeBody(list))
	}
	names := body[protocol.TopicList](t, w.ok(protocol.GetAllTopicListFromNameserver, nil, nil))
	if len(names.TopicList) < count {
		t.Errorf("%d topics listed, want %d", len(names.TopicList), count)
	}
	answer := w.ok(protocol.GetAllTopicConfig, nil, nil)
	all := body[protocol.TopicConfigAndMappingSerializeWrapper](t, answer)
	if len(all.TopicConfigTable) < count || len(answer.Body) < 4<<20 {
		t.Errorf("%d configs in %d bytes", len(all.TopicConfigTable), len(answer.Body))
	}
}

// C055: a group that has committed is never told that it has no offset, however early it asks after a restart.
func TestC055OffsetsAreThereBeforeTheFirstAnswer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	same := func(cfg *config.Config) { cfg.Store.Dir = dir }
	query := &protocol.QueryConsumerOffsetRequestHeader{
		ConsumerGroup:     "g",
		Topic:             "t",
		SetZeroIfNotFound: protocol.Some(false),
	}
	t.Run("commit", func(t *testing.T) {
		w := startWire(t, same)
		w.topic("t", 1)
		w.group("g")
		w.send("t", 0, "", "x")
		w.refused(protocol.QueryNotFound, protocol.QueryConsumerOffset, query, nil)
		w.ok(protocol.UpdateConsumerOffset, &protocol.UpdateConsumerOffsetRequestHeader{
			ConsumerGroup: "g", Topic: "t", CommitOffset: 1,
		}, nil)
	})
	t.Run("restart", func(t *testing.T) {
		w := startWire(t, same)
		if at := w.ok(protocol.QueryConsumerOffset, query, nil).Ext.Value("offset"); at != "1" {
			t.Errorf("offset %q after the restart", at)
		}
	})
}

// C171: each cause of "service not available" is told by its own words, with path, use and limit where a disk
// is concerned.
func TestC171RefusalsNameTheirCause(t *testing.T) {
	t.Parallel()
	m := &errorMapper{}
	for _, c := range []struct {
		err  error
		want []string
	}{
		{&commitlog.DiskFullError{Path: "/data/commitlog", UsedPercent: 93, LimitPercent: 90}, []string{"/data/commitlog", "93", "90"}},
		{&commitlog.BrokenError{Cause: syscall.EIO}, []string{"input/output error"}},
		{commitlog.ErrClosed, []string{"closed"}},
	} {
		got := m.mapError(fmt.Errorf("append: %w", c.err))
		if got.Code != protocol.ServiceNotAvailable {
			t.Errorf("%v: code %s", c.err, got.Code)
		}
		for _, word := range c.want {
			if !strings.Contains(got.Remark, word) {
				t.Errorf("%v: the remark %q does not say %q", c.err, got.Remark, word)
			}
		}
	}
	busy := m.mapError(&commitlog.BusyError{PendingBytes: 1, LimitBytes: 2, OldestWait: time.Second})
	if busy.Code != protocol.SystemBusy || !strings.HasPrefix(busy.Remark, "[PCBUSY_CLEAN_QUEUE]broker busy") {
		t.Errorf("busy: %s %q", busy.Code, busy.Remark)
	}
}

// C181: more queues show in the route at once, and messages in the new ones are read.
func TestC181NewQueuesAreRouted(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	w.topic("t", 4)
	w.topic("t", 8)
	route := body[protocol.TopicRouteData](
		t,
		w.ok(protocol.GetRouteInfoByTopic, &protocol.GetRouteInfoRequestHeader{Topic: "t"}, nil),
	)
	if q := route.QueueDatas[0]; q.ReadQueueNums != 8 || q.WriteQueueNums != 8 {
		t.Errorf("route %+v", q)
	}
	w.send("t", 7, "", "x")
	if got, _ := w.pull("g", "t", 7, 0, "*"); len(got) != 1 {
		t.Errorf("%d messages in the new queue", len(got))
	}
}

// C187: a client is told the address that the listener it came by advertises.
func TestC187EachListenerAdvertisesItsOwnAddress(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	w.topic("t", 1)
	route := func(via *remoting.Listener) string {
		call := &remoting.Call{Via: via}
		r, err := routeRequests{w.svc.names}.route(call, &protocol.GetRouteInfoRequestHeader{Topic: "t"})
		if err != nil {
			t.Fatal(err)
		}
		data, err := protocol.DecodeBody[protocol.TopicRouteData](r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return data.BrokerDatas[0].BrokerAddrs[0]
	}
	if got := route(&remoting.Listener{Advertised: "outside.example.org:30911"}); got != "outside.example.org:30911" {
		t.Errorf("a client from outside is told %q", got)
	}
	if got := route(&remoting.Listener{}); got != w.addr {
		t.Errorf("a client from inside is told %q, want %q", got, w.addr)
	}
}

// C215: at full rate every queue is read evenly: no consumer finds one queue far ahead of another.
func TestC215QueuesProgressEvenly(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	const queues, each = 16, 40
	w.topic("t", queues)
	for range each {
		for q := range int32(queues) {
			w.send("t", q, "", "x")
		}
	}
	done := make(chan error, 4)
	for reader := range 4 {
		c := w.dial()
		go func() {
			for q := int32(reader); q < queues; q += 4 {
				answer, err := c.Invoke(t.Context(), protocol.PullMessage, &protocol.PullMessageRequestHeader{
					ConsumerGroup: "g", Topic: "t", QueueID: q, MaxMsgNums: 32, SysFlag: 4, Subscription: "*",
				}, nil)
				if err == nil && answer.Ext.Value("nextBeginOffset") != "32" {
					err = fmt.Errorf("queue %d: next offset %q", q, answer.Ext.Value("nextBeginOffset"))
				}
				if err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	var faults []error
	for range 4 {
		faults = append(faults, <-done)
	}
	if err := errors.Join(faults...); err != nil {
		t.Error(err)
	}
}

// A store host that is an IPv6 address makes records longer; what is read from their fixed places is right all the
// same.
func TestC150EarliestTimeWithAnIPv6StoreHost(t *testing.T) {
	t.Parallel()
	w := startWire(t, func(cfg *config.Config) {
		cfg.Listen.BindAddress, cfg.Identity.AdvertiseHost = "::1", "::1"
	})
	if host := w.svc.self.storeHost; host.Addr().String() != "::1" {
		t.Fatalf("store host %s", host)
	}
	w.topic("t", 1)
	before := time.Now().UnixMilli()
	sent := w.send("t", 0, "", "one")
	after := time.Now().UnixMilli()
	w.send("t", 0, "", "two")
	answer := w.ok(protocol.GetEarliestMsgStoreTime, &protocol.GetEarliestMsgStoretimeRequestHeader{Topic: "t"}, nil)
	var h protocol.GetEarliestMsgStoretimeResponseHeader
	if err := h.DecodeExt(&answer.Ext); err != nil || h.Timestamp < before || h.Timestamp > after {
		t.Errorf("earliest %d, want %d … %d, %v", h.Timestamp, before, after, err)
	}
	host, _, err := message.ParseOffsetMsgID(sent.MsgID)
	if err != nil || host != w.svc.self.storeHost {
		t.Errorf("message id %s names %s, want %s: %v", sent.MsgID, host, w.svc.self.storeHost, err)
	}
}
