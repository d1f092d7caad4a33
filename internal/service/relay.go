// SPDX-License-Identifier: Apache-2.0

package service

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/roquetmq/roquet/internal/auth"
	"github.com/roquetmq/roquet/internal/broker"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// relayRequests passes an administrator's question on to a client's connection and its answer back:
// GET_CONSUMER_RUNNING_INFO 307, CONSUME_MESSAGE_DIRECTLY 309, INVOKE_BROKER_TO_GET_CONSUMER_STATUS 223.
// Source: AdminBrokerProcessor.java callConsumer, Broker2Client.java getConsumeStatus. No goroutine waits for
// the client.
type relayRequests struct{ *node }

// relayTimeout is how long a client may take. Source: AdminBrokerProcessor.java.
const relayTimeout = 10 * time.Second

func (s relayRequests) runningInfo(c *call, h *protocol.GetConsumerRunningInfoRequestHeader) {
	s.relay(c, h.ConsumerGroup, h.ClientID, protocol.GetConsumerRunningInfo, h, nil)
}

// consumeDirectly has the client consume one message now, in front of an administrator's eyes. The message is
// looked up by its offset id; a unique key is what mqadmin resolved before.
func (s relayRequests) consumeDirectly(c *call, h *protocol.ConsumeMessageDirectlyResultRequestHeader) {
	_, at, err := message.ParseOffsetMsgID(h.MsgID)
	if err != nil {
		c.Fail(protocol.Errorf(protocol.InvalidParameter, "msgId %s is no offset message id: %s", h.MsgID, err))
		return
	}
	rec, err := s.store.Record(at)
	if err == nil {
		err = s.mayOn.record(c, auth.Sub, rec)
	}
	if err != nil {
		c.Fail(err)
		return
	}
	h.BrokerName = s.self.brokerName
	s.relay(c, h.ConsumerGroup, h.ClientID, protocol.ConsumeMessageDirectly, h, rec)
}

func (s relayRequests) relay(c *call, group, clientID string, code protocol.Code, h protocol.Header, body []byte) {
	member, ok := s.clients.Member(group, clientID)
	caller, reachable := member.Channel.(remoting.Caller)
	if !ok || !reachable {
		c.Fail(protocol.Errorf(protocol.SystemError, "The Consumer <%s> <%s> not online", group, clientID))
		return
	}
	caller.Request(code, h, body, relayTimeout, func(said *protocol.Command, err error) {
		if err != nil {
			c.Fail(relayError(group, clientID, err))
			return
		}
		c.Reply(answer{Code: protocol.ResponseCode(said.Code), Remark: said.Remark, Body: said.Body})
	})
}

func relayError(group, clientID string, err error) error {
	if errors.Is(err, remoting.ErrTimeout) {
		return protocol.Errorf(protocol.ConsumeMsgTimeout,
			"consumer <%s> <%s> did not answer within %s", group, clientID, relayTimeout.String())
	}
	return protocol.Errorf(protocol.SystemError, "invoke consumer <%s> <%s>: %s", group, clientID, err.Error())
}

// status asks the clients of a group how far they are in a topic's queues. One that does not answer is not in the
// table.
func (s relayRequests) status(c *call, h *protocol.GetConsumerStatusRequestHeader) {
	asked := slices.DeleteFunc(s.clients.Members(h.Group), func(m broker.Member) bool {
		return h.ClientAddr != "" && h.ClientAddr != m.ClientID
	})
	if len(asked) == 0 {
		c.Fail(protocol.Errorf(protocol.SystemError, "No Any Consumer online in the consumer group: [%s]", h.Group))
		return
	}
	var mu sync.Mutex
	body := &protocol.GetConsumerStatusBody{ConsumerTable: map[string]map[protocol.MessageQueue]int64{}}
	after := newCountdown(len(asked), func(error) { c.Reply(answer{Body: protocol.EncodeBody(body)}) })
	header := &protocol.GetConsumerStatusRequestHeader{Topic: h.Topic, Group: h.Group}
	for _, m := range asked {
		askStatus(m.Channel, header, after, func(offsets map[protocol.MessageQueue]int64) {
			mu.Lock()
			defer mu.Unlock()
			body.ConsumerTable[m.ClientID] = offsets
		})
	}
	after.done(nil)
}

// askStatus gives take what a client answers, if it answers, before it counts.
func askStatus(
	client broker.Channel, header protocol.Header, after *countdown, take func(map[protocol.MessageQueue]int64),
) {
	caller, ok := client.(remoting.Caller)
	if !ok {
		after.done(nil)
		return
	}
	caller.Request(protocol.GetConsumerStatusFromClient, header, nil, relayTimeout,
		func(said *protocol.Command, err error) {
			defer after.done(nil)
			if err != nil || said.Code != 0 {
				return
			}
			if body, err := protocol.DecodeBody[protocol.GetConsumerStatusBody](said.Body); err == nil {
				take(body.MessageQueueTable)
			}
		})
}
