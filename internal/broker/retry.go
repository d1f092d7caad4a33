// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// Bits of a topic's sysFlag. Source: TopicSysFlag.java.
const (
	unitFlag             int32 = 1
	unitSubscriptionFlag int32 = 2
)

// firstRetryLevel is the delay level of the first retry of a message whose consumer names none.
const firstRetryLevel = 3

// deadLetterDelay is the DELAY that the original leaves on what goes from a retry topic to the dead letter
// topic.
const deadLetterDelay = "-1"

// acceptRetry takes a message that a consumer itself puts into its retry topic, because it could not send it
// back or because it consumes in order. A message over its maximum, and any of a group that holds queue
// locks, goes to the dead letter topic. Source: handleRetryAndDLQ.
func (s *Sender) acceptRetry(req *SendRequest) error {
	req.seen.transaction = false            // TRAN_MSG is what is left of a transaction that was committed,
	req.SysFlag &^= message.TransactionMask // and some clients take this from it
	s.groups.Ensure(retryGroup(req.Topic), func(cfg *GroupConfig, err error) {
		if err == nil {
			err = s.putRetry(req, cfg)
		}
		if err != nil {
			req.Done(req, err)
		}
	})
	return nil
}

func (s *Sender) putRetry(req *SendRequest, group *GroupConfig) error {
	limit := group.RetryMaxTimes
	if req.MaxReconsumeTimes >= 0 {
		limit = req.MaxReconsumeTimes
	}
	if req.ReconsumeTimes <= limit && !s.locks.Locked(group.Name, time.Now()) {
		return s.put(req, req.Topic, req.queueID)
	}
	s.topics.EnsureDLQ(group.Name, func(cfg *TopicConfig, err error) {
		if err == nil {
			req.seen.delayLevel, req.seen.timer = 0, timerRequest{}
			req.Properties = message.SetProperty(req.Properties, message.PropertyDelayLevel, deadLetterDelay)
			err = s.put(req, cfg.Name, 0)
		}
		if err != nil {
			req.Done(req, err)
		}
	})
	return nil
}

// retryGroup returns the group that a retry topic belongs to.
func retryGroup(topic string) string { return strings.TrimPrefix(topic, RetryPrefix) }

// SendBackRequest asks to deliver a message to a group again later, or to make it a dead letter. Its strings
// may alias a buffer that lives until Done.
type SendBackRequest struct {
	Group  string
	Offset message.LogOffset // of the message
	// DelayLevel is when to deliver it: a delay level, 0 for one that grows with every attempt, negative for
	// never (it becomes a dead letter).
	DelayLevel int32
	// MaxReconsumeTimes bounds the attempts; negative is GroupMaxReconsumeTimes.
	MaxReconsumeTimes int32
	UnitMode          bool
	// May tells, with an error, that who sends back may not have a message of the topic; nil: they may.
	May func(topic string) error
	// Done is called exactly once, as SendRequest.Done is.
	Done func(req *SendBackRequest, err error)

	write      store.Write
	deadLetter bool
}

// SendBack stores a copy of the message in the group's retry topic, delayed, or in its dead letter topic when
// it was tried as often as it may be. The copy keeps the original's topic in RETRY_TOPIC and its id in
// ORIGIN_MESSAGE_ID. A group whose config has no retry queues drops the message. Errors given to Done:
// *Refusal, *message.SizeError, and those of store.Append. Source: consumerSendMsgBack.
func (s *Sender) SendBack(req *SendBackRequest) {
	s.groups.Ensure(req.Group, func(cfg *GroupConfig, err error) {
		if err != nil {
			req.Done(req, err)
			return
		}
		s.sendBack(req, cfg)
	})
}

func (s *Sender) sendBack(req *SendBackRequest, group *GroupConfig) {
	if s.topics.Denied()&PermWrite != 0 {
		req.Done(req, forbiddenBroker(s.cfg.BrokerAddr))
		return
	}
	if group.RetryQueueNums <= 0 {
		req.Done(req, nil)
		return
	}
	resume := func(topic *TopicConfig, err error) {
		if err == nil {
			err = s.copyBack(req, group, topic)
		}
		if err != nil {
			req.Done(req, err)
		}
	}
	s.topics.EnsureRetry(group.Name, group.RetryQueueNums, req.UnitMode, false, resume)
}

// copyBack reads the message and stores its copy. When it returns nil, Done was or will be called.
func (s *Sender) copyBack(req *SendBackRequest, group *GroupConfig, retry *TopicConfig) error {
	if !retry.Writable() {
		return refuse(NoPermission, "the topic[%s] sending message is forbidden", retry.Name)
	}
	var m message.Message
	rec, err := s.store.Record(req.Offset)
	if err == nil {
		m, err = message.Decode(rec)
	}
	if err != nil {
		return refuse(Failed, "look message by offset failed, %d: %w", req.Offset, err)
	}
	if req.May != nil {
		if err := req.May(m.Topic); err != nil {
			return err
		}
	}
	limit, level := group.RetryMaxTimes, int(req.DelayLevel)
	if req.MaxReconsumeTimes >= 0 {
		limit = req.MaxReconsumeTimes
	}
	if m.ReconsumeTimes >= limit || level < 0 {
		req.deadLetter = true
		s.topics.EnsureDLQ(group.Name, func(dlq *TopicConfig, err error) {
			if err == nil {
				err = s.putBack(req, &m, dlq.Name, 0, 0)
			}
			if err != nil {
				req.Done(req, err)
			}
		})
		return nil
	}
	level = cmp.Or(level, firstRetryLevel+int(m.ReconsumeTimes))
	req.deadLetter = false
	return s.putBack(req, &m, retry.Name, rand.Int32N(group.RetryQueueNums), s.cfg.Levels.Clamp(level))
}

// putBack stores the copy of m in a queue of topic, delayed when level is positive.
func (s *Sender) putBack(
	req *SendBackRequest, m *message.Message, topic string, queueID int32, level int,
) error {
	w := &req.write
	c := w.Single()
	*c = message.Message{
		Topic: topic, QueueID: queueID, Flag: m.Flag, SysFlag: m.SysFlag, BornTimestamp: m.BornTimestamp,
		BornHost: m.BornHost, ReconsumeTimes: m.ReconsumeTimes + 1, Body: m.Body,
		Properties: sentBackProperties(m, level),
	}
	w.State, w.Assigned = nil, nil
	if level > 0 {
		park(w, c, level, s.cfg.Levels.Delay(level))
	}
	origin := originOf(m)
	w.Done = func(w *store.Write, err error) {
		s.count(KindNormal, w, err)
		if err == nil {
			s.stats.SendBack(req.Group, origin)
			if req.deadLetter {
				s.stats.DLQ(req.Group, origin)
			}
		}
		req.Done(req, err)
	}
	return s.store.Append(w)
}

// originOf is the topic that a message was sent to at first.
func originOf(m *message.Message) string {
	origin, _ := message.Property(m.Properties, message.PropertyRetryTopic)
	return cmp.Or(origin, m.Topic)
}

// sentBackProperties are the properties of the copy of m: where it came from is noted by the first attempt
// and kept. If there is no room for that, it is a dead letter without.
func sentBackProperties(m *message.Message, level int) string {
	dst := make([]byte, 0, len(m.Properties)+len(m.Topic)+160)
	origin, retryTopic := "", ""
	for name, value := range message.Properties(m.Properties) {
		switch name {
		case message.PropertyDelayLevel:
			continue
		case message.PropertyOriginMessageID:
			if origin = value; strings.TrimSpace(value) == "" {
				origin = ""
				continue
			}
		case message.PropertyRetryTopic:
			retryTopic = value
		}
		dst = message.AppendProperty(dst, name, value)
	}
	if retryTopic == "" {
		dst = message.AppendProperty(dst, message.PropertyRetryTopic, m.Topic)
	}
	if origin == "" {
		id := message.OffsetMsgID(m.StoreHost, m.LogOffset)
		dst = message.AppendProperty(dst, message.PropertyOriginMessageID, id)
	}
	if level > 0 {
		dst = message.AppendProperty(dst, message.PropertyDelayLevel, strconv.Itoa(level))
	}
	if len(dst) > message.MaxPropertiesBytes {
		return m.Properties
	}
	return string(dst)
}
