// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"
	"fmt"

	"github.com/roquetmq/roquet/internal/message"
)

// acceptBatch stores the messages of a batch in one queue, all of them or none. Their properties are stored
// as they came. Known differences: a batch is refused when any of its messages is delayed or transactional or
// has no body, and in a topic for priorities it goes to the queue of its most urgent message; the original looks
// at the properties of the batch alone. Source: sendBatchMessage, DefaultMessageStore asyncPutMessages.
func (s *Sender) acceptBatch(req *SendRequest, cfg *TopicConfig) error {
	if n := len(req.Topic); n > MaxTopicBytes {
		return &message.SizeError{What: "topic", Limit: MaxTopicBytes, Actual: n}
	}
	if IsRetryTopic(req.Topic) {
		return illegal("batch request", "does not support retry group "+req.Topic)
	}
	if err := req.seen.scan(req.Properties); err != nil {
		return err
	}
	if err := req.seen.checkMember(req.SysFlag); err != nil {
		return err
	}
	count := 0 // which costs less than messages that are copied as they become more
	err := message.DecodeBatch(req.Body, func(int32, []byte, string) error {
		count++
		return nil
	})
	if err != nil {
		return err
	}
	priority, group, w := int32(-1), "", &req.write
	w.State, w.Assigned = nil, nil
	w.Messages = make([]message.Message, 0, count)
	err = message.DecodeBatch(req.Body, func(flag int32, body []byte, props string) error {
		var seen noted
		err := seen.scan(props)
		if err == nil {
			err = seen.checkMember(0)
		}
		if err == nil && len(body) == 0 {
			err = illegal("body", "is empty")
		}
		if err != nil {
			return fmt.Errorf("message %d of the batch: %w", len(w.Messages)+1, err)
		}
		priority, group = max(priority, seen.priority), cmp.Or(group, seen.group)
		w.Messages = append(w.Messages, message.Message{
			Topic: req.Topic, Flag: flag, SysFlag: req.SysFlag,
			BornTimestamp: req.BornTimestamp, BornHost: req.BornHost, ReconsumeTimes: req.ReconsumeTimes,
			Body: body, Properties: props,
		})
		return nil
	})
	if err != nil {
		return err
	}
	req.pickQueue(cfg, group)
	if priority >= 0 && cfg.IsFor(typePriority) && cfg.WriteQueueNums > 0 {
		req.queueID = min(priority, cfg.WriteQueueNums-1)
	}
	for i := range w.Messages {
		w.Messages[i].QueueID = req.queueID
	}
	w.Owner, w.Done = req, s.stored
	return s.store.Append(w)
}

// checkMember refuses what no batch may contain.
func (n *noted) checkMember(sysFlag int32) error {
	switch {
	case n.delayLevel > 0 || n.timer.by != "":
		return illegal("message", "is delayed, which a batch does not support")
	case n.transaction || sysFlag&message.TransactionMask != message.TransactionNone:
		return illegal("message", "is transactional, which a batch does not support")
	case n.innerBatch || sysFlag&(message.SysFlagInnerBatch|message.SysFlagNeedUnwrap) != 0:
		return illegal("message", innerBatch)
	}
	return nil
}
