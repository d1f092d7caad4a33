// SPDX-License-Identifier: Apache-2.0

package service

import (
	"errors"
	"slices"
	"strings"

	"github.com/roquetmq/roquet/internal/broker"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
	"github.com/roquetmq/roquet/internal/store"
)

// offsetRequests answers where queues begin and end and how far groups have come: QUERY_CONSUMER_OFFSET 14,
// UPDATE_CONSUMER_OFFSET 15, SEARCH_OFFSET_BY_TIMESTAMP 29, GET_MAX_OFFSET 30, GET_MIN_OFFSET 31,
// GET_EARLIEST_MSG_STORETIME 32, GET_ALL_CONSUMER_OFFSET 43. Source: ConsumerManageProcessor.java,
// AdminBrokerProcessor.java.
type offsetRequests struct{ *node }

func (s offsetRequests) query(_ *call, h *protocol.QueryConsumerOffsetRequestHeader) (answer, error) {
	zero := h.SetZeroIfNotFound.Or(true)
	at, ok := s.queries.ConsumerOffset(h.ConsumerGroup, h.Topic, h.QueueID, zero)
	if !ok && (!zero || s.queries.MaxOffset(h.Topic, h.QueueID) > 0) { // else it begins before the first message
		return answer{}, protocol.Errorf(protocol.QueryNotFound, "Not found, maybe this group consumer boot first")
	}
	return answer{Header: &protocol.QueryConsumerOffsetResponseHeader{Offset: int64(at)}}, nil
}

func (s offsetRequests) update(_ *call, h *protocol.UpdateConsumerOffsetRequestHeader) (answer, error) {
	if _, ok := s.topics.Lookup(h.Topic); !ok {
		return answer{}, broker.NoTopic(h.Topic)
	}
	if _, ok := s.groups.Lookup(h.ConsumerGroup); !ok && !broker.IsSystemGroup(h.ConsumerGroup) {
		return answer{}, broker.NoGroup(h.ConsumerGroup)
	}
	s.offsets.Commit(h.ConsumerGroup, h.Topic, h.QueueID, message.QueueOffset(h.CommitOffset))
	return answer{}, nil
}

func (s offsetRequests) search(_ *call, h *protocol.SearchOffsetRequestHeader) (answer, error) {
	at, err := s.byTime(h.Topic, h.QueueID, h.Timestamp, strings.EqualFold(h.BoundaryType, "upper"))
	return answer{Header: &protocol.SearchOffsetResponseHeader{Offset: int64(at)}}, err
}

// byTime is the offset for a time; 0 for a queue that never had a message.
func (s offsetRequests) byTime(topic string, queueID int32, millis int64, upper bool) (message.QueueOffset, error) {
	at, err := s.store.OffsetByTime(topic, queueID, millis, upper)
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	return at, err
}

func (s offsetRequests) maximum(_ *call, h *protocol.GetMaxOffsetRequestHeader) (answer, error) {
	at := s.queries.MaxOffset(h.Topic, h.QueueID)
	return answer{Header: &protocol.GetMaxOffsetResponseHeader{Offset: int64(at)}}, nil
}

func (s offsetRequests) minimum(_ *call, h *protocol.GetMinOffsetRequestHeader) (answer, error) {
	at := s.queries.MinOffset(h.Topic, h.QueueID)
	return answer{Header: &protocol.GetMinOffsetResponseHeader{Offset: int64(at)}}, nil
}

func (s offsetRequests) earliest(_ *call, h *protocol.GetEarliestMsgStoretimeRequestHeader) (answer, error) {
	at, err := s.queries.EarliestStoreTime(h.Topic, h.QueueID)
	return answer{Header: &protocol.GetEarliestMsgStoretimeResponseHeader{Timestamp: at}}, err
}

func (s offsetRequests) all(*call) (answer, error) {
	counter, timestamp := s.offsets.Version()
	body := &protocol.ConsumerOffsetSerializeWrapper{
		DataVersion: protocol.DataVersion{Counter: counter, Timestamp: timestamp},
		OffsetTable: map[string]map[int32]int64{},
	}
	s.offsets.All(func(group, topic string, offsets map[int32]message.QueueOffset) bool {
		queues := map[int32]int64{}
		for id, at := range offsets {
			queues[id] = int64(at)
		}
		body.OffsetTable[topic+"@"+group] = queues
		return true
	})
	return withBody(body)
}

// storeTime is when the message at the offset was stored, in ms; -1 when it is gone or damaged.
func storeTime(s *store.Store, topic string, queueID int32, at message.QueueOffset) int64 {
	rec, err := s.At(topic, queueID, at)
	if err != nil {
		return -1
	}
	return rec.StoreTimestamp()
}

// resetRequests moves groups: INVOKE_BROKER_TO_RESET_OFFSET 222, CLONE_GROUP_OFFSET 314,
// QUERY_CORRECTION_OFFSET 308. A reset is the broker's, told by the next pull, or with useServerSideResetOffset=false
// that of the clients that are online, if all of them keep offsets.
// Source: AdminBrokerProcessor.java resetOffset, Broker2Client.java. Known difference: a reset of a group
// without clients is applied as one with clients is (case C053); without force it is refused when it would
// skip messages.
type resetRequests struct{ offsetRequests }

func (s resetRequests) reset(c *call, h *protocol.ResetOffsetRequestHeader) {
	cfg, ok := s.topics.Lookup(h.Topic)
	if !ok {
		c.Fail(broker.NoTopic(h.Topic))
		return
	}
	if _, ok := s.groups.Lookup(h.Group); !ok {
		c.Fail(broker.NoGroup(h.Group))
		return
	}
	targets, err := s.targets(cfg, h)
	if err != nil {
		c.Fail(err)
		return
	}
	body := &protocol.ResetOffsetBody{OffsetTable: make(map[protocol.MessageQueue]int64, len(targets))}
	for id, at := range targets {
		body.OffsetTable[s.self.queue(cfg.Name, id)] = int64(at)
	}
	members := s.clients.Members(h.Group)
	keepsNone := func(m broker.Member) bool { // of gRPC
		_, native := m.Channel.(*remoting.Conn)
		return !native
	}
	if !s.settings.load().Message.ServerSideReset && !slices.ContainsFunc(members, keepsNone) {
		s.push(c, cfg.Name, h, body, members)
		return
	}
	s.move(cloned(h.Group), cfg.Name, targets, func(err error) {
		c.AnswerLater(answer{Body: protocol.EncodeBody(body)}, err)
	})
}

// move resets a group, and tells its clients that wait for messages.
func (s resetRequests) move(group, topic string, to map[int32]message.QueueOffset, done func(error)) {
	s.offsets.Reset(group, topic, to, done)
	s.puller.Moved(group, topic)
	s.popper.Moved(group, topic)
}

// push tells the clients of the group to go on at the offsets (RESET_CONSUMER_CLIENT_OFFSET 220); they commit them.
// Source: Broker2Client.java resetOffset.
func (s resetRequests) push(
	c *call, topic string, h *protocol.ResetOffsetRequestHeader, body *protocol.ResetOffsetBody,
	members []broker.Member,
) {
	if len(members) == 0 {
		c.Fail(protocol.Errorf(protocol.ConsumerNotOnline,
			"Consumer not online, so can not reset offset, Group: %s Topic: %s Timestamp: %d",
			h.Group, topic, h.Timestamp))
		return
	}
	forC := &protocol.ResetOffsetBodyForC{}
	for q, at := range body.OffsetTable {
		forC.OffsetTable = append(forC.OffsetTable, protocol.MessageQueueForC{
			BrokerName: q.BrokerName, Offset: at, QueueID: q.QueueID, Topic: q.Topic,
		})
	}
	text, textForC := protocol.EncodeBody(body), protocol.EncodeBody(forC)
	header := &protocol.ResetOffsetRequestHeader{
		Topic: topic, Group: cloned(h.Group), QueueID: -1, Timestamp: h.Timestamp, IsForce: h.IsForce,
	}
	for _, m := range members {
		said := text
		if m.Language == protocol.LanguageCPP.String() {
			said = textForC
		}
		if caller, ok := m.Channel.(remoting.Caller); ok {
			_ = caller.OneWay(protocol.ResetConsumerClientOffset, header, said) // who just left has nothing to reset
		}
	}
	c.Reply(answer{Body: text})
}

// targets are the offsets the reset leads to, by queue.
func (s resetRequests) targets(
	cfg *broker.TopicConfig, h *protocol.ResetOffsetRequestHeader,
) (map[int32]message.QueueOffset, error) {
	if h.QueueID >= cfg.ReadQueueNums {
		return nil, broker.NoQueue(cfg, h.QueueID)
	}
	if h.QueueID >= 0 && h.Offset.Present && h.Offset.Value != -1 {
		low, high, _ := s.store.Bounds(cfg.Name, h.QueueID)
		at := message.QueueOffset(h.Offset.Value)
		if at < low || at > high+1 {
			return nil, protocol.Errorf(protocol.SystemError,
				"Target offset %d not in consume queue range [%d-%d]", at, low, high)
		}
		return map[int32]message.QueueOffset{h.QueueID: at}, nil
	}
	first, last := int32(0), cfg.ReadQueueNums
	if h.QueueID >= 0 {
		first, last = h.QueueID, h.QueueID+1
	}
	targets := make(map[int32]message.QueueOffset, last-first)
	for id := first; id < last; id++ {
		at, err := s.resetTarget(cfg.Name, id, h.Timestamp)
		if err != nil {
			return nil, err
		}
		if from, known := s.offsets.Query(h.Group, cfg.Name, id); known && at > from && !h.IsForce {
			return nil, protocol.Errorf(protocol.SystemError,
				"queue %d would go forward from %d to %d and messages would be skipped: force the reset (mqadmin -f "+
					"true) to do so", id, from, at)
		}
		targets[id] = at
	}
	return targets, nil
}

// resetTarget is the queue's end for a negative time, else the first message that is not older.
func (s resetRequests) resetTarget(topic string, id int32, millis int64) (message.QueueOffset, error) {
	if millis < 0 {
		return s.queries.MaxOffset(topic, id), nil
	}
	return s.byTime(topic, id, millis, false)
}

// clone gives a group the offsets of another. One that has offsets of its own is reset to them.
func (s resetRequests) clone(c *call, h *protocol.CloneGroupOffsetRequestHeader) {
	topics := []string{cloned(h.Topic)}
	if h.Topic == "" {
		topics = s.offsets.TopicsOf(h.SrcGroup)
	}
	end := newCountdown(len(topics), replyTo(c))
	for _, topic := range topics {
		from := s.offsets.Offsets(h.SrcGroup, topic)
		_, ok := s.topics.Lookup(topic)
		if ok && from != nil && h.SrcGroup != h.DestGroup && s.offsets.Offsets(h.DestGroup, topic) != nil {
			s.move(cloned(h.DestGroup), topic, from, end.done)
			continue
		}
		if ok {
			s.offsets.Clone(h.SrcGroup, h.DestGroup, topic)
		}
		end.done(nil)
	}
	end.done(nil)
}

func (s resetRequests) correction(_ *call, h *protocol.QueryCorrectionOffsetHeader) (answer, error) {
	var excluded []string
	if h.FilterGroups != "" {
		excluded = strings.Split(h.FilterGroups, ",")
	}
	minimum := func(id int32) message.QueueOffset { return s.queries.MinOffset(h.Topic, id) }
	body := &protocol.QueryCorrectionOffsetBody{CorrectionOffsets: map[int32]int64{}}
	compare := s.offsets.Offsets(h.CompareGroup, h.Topic)
	for id, at := range s.offsets.MinOffsets(h.Topic, excluded, minimum) {
		if compare == nil || compare[id] > at {
			body.CorrectionOffsets[id] = int64(at)
		} else {
			body.CorrectionOffsets[id] = 1<<63 - 1
		}
	}
	return withBody(body)
}
