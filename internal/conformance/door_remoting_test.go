// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// remotingDoor is a 4.x or 5.x client of the native protocol.
type remotingDoor struct {
	client *remoting.Client
	ids    newID
}

var _ door = (*remotingDoor)(nil)

func newRemoting(t testing.TB, addr string) *remotingDoor {
	t.Helper()
	return &remotingDoor{client: dial(t, addr), ids: newID{prefix: rand.Text()[:8] + "4"}}
}

func (d *remotingDoor) name() string { return "remoting" }

func (d *remotingDoor) close() { d.client.Close() }

func (d *remotingDoor) call(code protocol.Code, h protocol.Header, body []byte) (*protocol.Command, error) {
	return d.callFor(patience, code, h, body)
}

func (d *remotingDoor) callFor(
	limit time.Duration, code protocol.Code, h protocol.Header, body []byte,
) (*protocol.Command, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	answer, err := d.client.Invoke(ctx, code, h, body)
	if err != nil || answer.Code == int32(protocol.Success) {
		return answer, err
	}
	r := &refusal{responseKinds[protocol.ResponseCode(answer.Code)], answer.Remark}
	if r.kind == "" {
		r.kind = protocol.ResponseCode(answer.Code).String()
	}
	return answer, r
}

// properties are what a client stores with a message, and the id that it gives it.
func (d *remotingDoor) properties(m *outgoing, half bool) (encoded, id string) {
	id = d.ids.next()
	var b []byte
	put := func(name, value string) { b = message.AppendProperty(b, name, value) }
	for name, value := range m.props {
		put(name, value)
	}
	put(message.PropertyUniqueKey, id)
	if m.tag != "" {
		put(message.PropertyTags, m.tag)
	}
	if len(m.keys) > 0 {
		put(message.PropertyKeys, strings.Join(m.keys, " "))
	}
	if m.group != "" {
		put(message.PropertyShardingKey, m.group)
	}
	switch {
	case m.level > 0:
		put(message.PropertyDelayLevel, strconv.Itoa(m.level))
	case m.delay > 0:
		put(message.PropertyTimerDeliverMillis, strconv.FormatInt(time.Now().Add(m.delay).UnixMilli(), 10))
	}
	if m.priority > 0 {
		put(message.PropertyPriority, strconv.Itoa(int(m.priority)))
	}
	if half {
		put(message.PropertyTransactionPrepared, "true")
		put(message.PropertyProducerGroup, producerGroup)
	}
	return string(b), id
}

const producerGroup = "producers"

func (d *remotingDoor) header(m *outgoing, properties string) *protocol.SendMessageRequestHeaderV2 {
	return &protocol.SendMessageRequestHeaderV2{
		ProducerGroup:         producerGroup,
		Topic:                 m.topic,
		DefaultTopic:          "TBW102",
		DefaultTopicQueueNums: 4,
		QueueID:               m.queue,
		BornTimestamp:         time.Now().UnixMilli(),
		Properties:            properties,
	}
}

func (d *remotingDoor) send(messages ...*outgoing) ([]sent, error) {
	if len(messages) > 1 {
		return d.sendBatch(messages)
	}
	properties, id := d.properties(messages[0], false)
	s, err := d.sendOne(messages[0], d.header(messages[0], properties), id)
	return []sent{s}, err
}

func (d *remotingDoor) sendOne(m *outgoing, h *protocol.SendMessageRequestHeaderV2, id string) (sent, error) {
	answer, err := d.call(protocol.SendMessageV2, h, []byte(m.body))
	if err != nil {
		return sent{}, err
	}
	var a protocol.SendMessageResponseHeader
	if err := a.DecodeExt(&answer.Ext); err != nil {
		return sent{}, err
	}
	return sent{id: id, offset: a.QueueOffset, recall: a.RecallHandle, transaction: a.MsgID}, nil
}

func (d *remotingDoor) sendBatch(messages []*outgoing) ([]sent, error) {
	var body []byte
	all := make([]sent, len(messages))
	for i, m := range messages {
		var properties string
		properties, all[i].id = d.properties(m, false)
		body = message.AppendBatchEntry(body, 0, []byte(m.body), properties)
	}
	h := d.header(messages[0], "")
	h.Batch = protocol.Some(true)
	answer, err := d.call(protocol.SendBatchMessage, h, body)
	if err != nil {
		return nil, err
	}
	var a protocol.SendMessageResponseHeader
	err = a.DecodeExt(&answer.Ext)
	for i := range all {
		all[i].offset = a.QueueOffset + int64(i)
	}
	return all, err
}

func (d *remotingDoor) prepare(m *outgoing) (sent, error) {
	properties, id := d.properties(m, true)
	h := d.header(m, properties)
	h.SysFlag |= message.TransactionPrepared
	return d.sendOne(m, h, id)
}

func (d *remotingDoor) end(m *outgoing, s sent, commit bool) error {
	_, at, err := message.ParseOffsetMsgID(s.transaction)
	if err != nil {
		return err
	}
	h := &protocol.EndTransactionRequestHeader{
		Topic: m.topic, ProducerGroup: producerGroup, TranStateTableOffset: s.offset, CommitLogOffset: int64(at),
		CommitOrRollback: message.TransactionRollback, MsgID: s.id, TransactionID: s.id,
	}
	if commit {
		h.CommitOrRollback = message.TransactionCommit
	}
	_, err = d.call(protocol.EndTransaction, h, nil)
	return err
}

func (d *remotingDoor) recall(topic string, s sent) error {
	_, err := d.call(
		protocol.RecallMessage,
		&protocol.RecallMessageRequestHeader{Topic: topic, RecallHandle: s.recall},
		nil,
	)
	return err
}

func (d *remotingDoor) receive(r *receiving) ([]received, error) {
	h := &protocol.PopMessageRequestHeader{
		ConsumerGroup: r.group, Topic: r.topic, QueueID: -1, MaxMsgNums: int32(r.count),
		InvisibleTime: r.invisible.Milliseconds(), PollTime: r.wait.Milliseconds(), BornTime: time.Now().UnixMilli(),
		InitMode: 1, ExpType: protocol.ExpressionTag, Exp: "*", Order: protocol.Some(r.orderly), AttemptID: r.attempt,
	}
	if r.tag != "" {
		h.Exp = r.tag
	}
	if r.sql != "" {
		h.ExpType, h.Exp = protocol.ExpressionSQL92, r.sql
	}
	answer, err := d.callFor(patience+r.wait, protocol.PopMessage, h, nil)
	var refused *refusal
	if errors.As(err, &refused) && answer.Code == int32(protocol.PollingTimeout) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var a protocol.PopMessageResponseHeader
	if err := a.DecodeExt(&answer.Ext); err != nil {
		return nil, err
	}
	return poppedOf(&a, answer.Body)
}

// poppedOf takes a pop's answer apart, and makes the handles as the Java client does.
func poppedOf(a *protocol.PopMessageResponseHeader, body []byte) ([]received, error) {
	starts := map[string]string{} // by "retry queue"
	for part := range strings.SplitSeq(a.StartOffsetInfo, ";") {
		if f := strings.Fields(part); len(f) == 3 {
			starts[f[0]+" "+f[1]] = f[2]
		}
	}
	records, err := recordsOf(body)
	all := make([]received, len(records))
	for i := range records {
		rec := &records[i]
		all[i] = receivedOf(rec)
		place := fmt.Sprintf("0 %d", rec.QueueID)
		all[i].handle = fmt.Sprintf("%s %d %d %d 0 %s %d %d", starts[place], a.PopTime, a.InvisibleTime, a.ReviveQID,
			brokerName, rec.QueueID, rec.QueueOffset)
	}
	return all, err
}

func recordsOf(body []byte) ([]message.Message, error) {
	var all []message.Message
	for rest := message.Record(body); len(rest) > 0; rest = rest[rest.Size():] {
		if size := rest.Size(); size <= 0 || size > len(rest) {
			return nil, fmt.Errorf("record of %d bytes in %d", size, len(rest))
		}
		m, err := message.Decode(rest[:rest.Size()])
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// ownProperties are those that a native client knows to be no user's.
var ownProperties = map[string]bool{
	message.PropertyWait: true, message.PropertyMsgRegion: true, message.PropertyTraceSwitch: true,
	message.PropertyCluster: true, message.PropertyMinOffset: true, message.PropertyMaxOffset: true,
	message.PropertyFirstPopTime: true, message.PropertyPopCK: true, message.PropertyBornHost: true,
	message.PropertyBornTimestamp: true, message.PropertyProducerGroup: true, message.PropertyRealTopic: true,
	message.PropertyRealQueueID: true, message.PropertyTimerOutMillis: true, message.PropertyTransactionID: true,
	message.PropertyTransactionPreparedOffset: true, message.PropertyRetryTopic: true,
	message.PropertyOriginMessageID: true, message.PropertyReconsumeTime: true, message.PropertyDelayLevel: true,
	message.PropertyDLQOriginTopic: true, message.PropertyDLQOriginMessageID: true,
	message.PropertyTransactionCheckTimes: true, message.PropertyCheckImmunityTimeInSeconds: true,
	message.PropertyTimerEnqueueMillis: true, message.PropertyTimerDequeueMillis: true,
	message.PropertyTimerDelayLevel: true, message.PropertyOriginGroup: true, message.PropertyMaxReconsumeTimes: true,
	message.PropertyConsumeStartTime: true,
}

// receivedOf makes a message of a stored one.
func receivedOf(rec *message.Message) received {
	m := received{
		topic:   rec.Topic,
		typ:     normal,
		body:    string(rec.Body),
		attempt: int(rec.ReconsumeTimes) + 1,
		queue:   rec.QueueID,
		offset:  int64(rec.QueueOffset),
		props:   map[string]string{},
	}
	for name, value := range message.Properties(rec.Properties) {
		switch name {
		case message.PropertyUniqueKey:
			m.id = value
		case message.PropertyTags:
			m.tag = value
		case message.PropertyKeys:
			m.keys = strings.Fields(value)
		case message.PropertyShardingKey:
			m.group, m.typ = value, fifo
		case message.PropertyTimerDeliverMillis:
			m.timed, m.typ = true, delayed
		case message.PropertyTransactionPrepared:
			m.typ = transaction
		case message.PropertyPriority:
			m.typ = priority
		default:
			if !ownProperties[name] {
				m.props[name] = value
			}
		}
	}
	return m
}

// placeOf is which queue and offset a handle names.
func placeOf(handle string) (queue int32, offset int64, err error) {
	f := strings.Fields(handle)
	if len(f) < 8 {
		return 0, 0, nil // the server shall refuse it
	}
	_, err = fmt.Sscan(f[6]+" "+f[7], &queue, &offset)
	return queue, offset, err
}

func (d *remotingDoor) ack(group, topic, handle string) error {
	queue, offset, err := placeOf(handle)
	if err == nil {
		_, err = d.call(protocol.AckMessage, &protocol.AckMessageRequestHeader{
			ConsumerGroup: group, Topic: topic, QueueID: queue, Offset: offset, ExtraInfo: handle,
		}, nil)
	}
	return err
}

func (d *remotingDoor) change(group, topic, handle string, invisible time.Duration) (string, error) {
	queue, offset, err := placeOf(handle)
	if err != nil {
		return "", err
	}
	answer, err := d.call(protocol.ChangeMessageInvisibleTime, &protocol.ChangeInvisibleTimeRequestHeader{
		ConsumerGroup: group, Topic: topic, QueueID: queue, Offset: offset, ExtraInfo: handle,
		InvisibleTime: invisible.Milliseconds(),
	}, nil)
	if err != nil {
		return "", err
	}
	f := strings.Fields(handle)
	f[1], f[2] = answer.Ext.Value("popTime"), answer.Ext.Value("invisibleTime")
	f[3] = answer.Ext.Value("reviveQid")
	return strings.Join(f, " "), nil
}

// bury sends a message back that was consumed too often, and acknowledges it.
func (d *remotingDoor) bury(group, topic string, m *received) error {
	answer, err := d.call(protocol.PullMessage, &protocol.PullMessageRequestHeader{
		ConsumerGroup:  "TOOLS_CONSUMER",
		Topic:          topic,
		QueueID:        m.queue,
		QueueOffset:    m.offset,
		MaxMsgNums:     1,
		SysFlag:        4,
		Subscription:   "*",
		ExpressionType: protocol.ExpressionTag,
	}, nil)
	if err != nil {
		return err
	}
	handle, err := d.change(group, topic, m.handle, time.Minute) // shows that the handle is good
	if err != nil {
		return err
	}
	_, err = d.call(protocol.ConsumerSendMsgBack, &protocol.ConsumerSendMsgBackRequestHeader{
		Offset: int64(message.Record(answer.Body).LogOffset()), Group: group, DelayLevel: -1, OriginTopic: topic,
	}, nil)
	if err != nil {
		return err
	}
	return d.ack(group, topic, handle)
}
