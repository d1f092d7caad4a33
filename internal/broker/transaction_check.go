// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"strconv"
	"time"

	"github.com/roquetmq/roquet/internal/broker/transaction"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// TransactionCheck asks a producer what has become of a transaction. It is immutable.
type TransactionCheck struct {
	Group string // of producers
	// Topic is where the message will go. In CHECK_TRANSACTION_STATE the original puts TransHalfTopic there.
	Topic string
	// QueueOffset and LogOffset say where the half message is; the answer repeats them.
	QueueOffset message.QueueOffset
	LogOffset   message.LogOffset
	UniqueKey   string // the message's id for its producer, and the transaction's
	OffsetMsgID string
	// Checks is the number of this check, from 1 on.
	Checks int
	// Record is the message, in its stored layout, with its own topic and queue, and TRANSACTION_CHECK_TIMES.
	Record []byte
}

// errNotAHalf says that a half message does not tell where it was going.
var errNotAHalf = errors.New("the half message has no REAL_TOPIC and REAL_QID")

// tick does what is due.
func (t *Transactions) tick() {
	unasked := map[string]int{}
	for {
		actions := t.step(transaction.Event{Kind: transaction.Tick})
		if len(actions) == 0 {
			break
		}
		for _, a := range actions {
			var err error
			if a.Kind == transaction.Park {
				err = t.park(a.Half)
			} else {
				err = t.ask(a.Half, unasked)
			}
			if err != nil {
				t.logger.Error("half message cannot be read, it is not checked any more", "topic", a.Half.Topic,
					"queue_offset", a.Half.Offset, "checks", a.Half.Checks, "error", err)
				t.finished(a.Half.Offset, transaction.Unreadable)
			}
		}
	}
	for group, n := range unasked {
		t.logger.Warn("no producer to ask about half messages", "group", group, "count", n)
	}
}

// read returns a half message and where it is going.
func (t *Transactions) read(offset message.QueueOffset) (m message.Message, topic string, queueID int32, err error) {
	rec, err := t.log.At(TransHalfTopic, 0, offset)
	if err != nil {
		return m, "", 0, err
	}
	if m, err = message.Decode(rec); err != nil {
		return m, "", 0, err
	}
	topic, queueID, ok := destination(m.Properties)
	if !ok {
		return m, "", 0, errNotAHalf
	}
	return m, topic, queueID, nil
}

// ask stores that the producer is asked, and then asks. An error means that the half message cannot be read.
func (t *Transactions) ask(half transaction.Half, unasked map[string]int) error {
	m, topic, queueID, err := t.read(half.Offset)
	if err != nil {
		return err
	}
	group, _ := message.Property(m.Properties, message.PropertyProducerGroup)
	producers := t.clients.Producers(group)
	if len(producers) == 0 {
		unasked[group]++
		t.finished(half.Offset, transaction.NoProducer)
		return nil
	}
	check := newCheck(&m, topic, queueID, group, half.Checks)
	w := &store.Write{State: []message.State{openState(&half)}}
	w.Done = func(_ *store.Write, err error) {
		if err == nil {
			t.send(producers, check)
		}
		t.checked(half, err)
	}
	if err := t.log.Append(w); err != nil {
		t.checked(half, err)
	}
	return nil
}

func (t *Transactions) checked(half transaction.Half, err error) {
	if err != nil {
		t.logger.Warn("check of a half message could not be stored, trying again", "topic", half.Topic,
			"queue_offset", half.Offset, "error", err)
	}
	t.finished(half.Offset, outcomeOf(err))
}

// newCheck makes the check of m, whose strings it may use on.
func newCheck(m *message.Message, topic string, queueID int32, group string, checks int) *TransactionCheck {
	check := &TransactionCheck{
		Group: group, Topic: topic, QueueOffset: m.QueueOffset, LogOffset: m.LogOffset, Checks: checks,
		OffsetMsgID: message.OffsetMsgID(m.StoreHost, m.LogOffset),
	}
	check.UniqueKey, _ = message.Property(m.Properties, message.PropertyUniqueKey)
	shown := *m
	shown.Topic, shown.QueueID = topic, queueID
	shown.Properties = withCheckTimes(m.Properties, checks)
	check.Record = shown.AppendTo(nil)
	return check
}

// withCheckTimes is props with the number of checks, if there is room for that.
func withCheckTimes(props string, checks int) string {
	with := message.SetProperty(props, message.PropertyTransactionCheckTimes, strconv.Itoa(checks))
	if len(with) > message.MaxPropertiesBytes {
		return props
	}
	return with
}

// send sends the check to one of the producers: each in its turn, the next one when its connection is no
// good.
func (t *Transactions) send(producers []Member, check *TransactionCheck) {
	turn := t.turn.Add(1)
	for i := range producers {
		to := producers[(turn+uint64(i))%uint64(len(producers))]
		err := t.cfg.Send(to.Channel, check)
		if err == nil {
			return
		}
		t.logger.Warn("check of a half message could not be sent", "group", check.Group, "client_id", to.ClientID,
			"remote_addr", to.Channel.RemoteAddr(), "error", err)
	}
}

// park moves a half message into the topic of those that nobody decided about. An error means that it cannot
// be read. Source: DefaultTransactionalMessageCheckListener.java resolveDiscardMsg.
func (t *Transactions) park(half transaction.Half) error {
	m, _, _, err := t.read(half.Offset)
	if err != nil {
		return err
	}
	group, _ := message.Property(m.Properties, message.PropertyProducerGroup)
	m.Topic, m.QueueID = TransCheckMaxTimeTopic, 0
	m.Properties = withCheckTimes(m.Properties, half.Checks)
	w := &store.Write{Messages: []message.Message{m}, State: []message.State{closedState(half.Offset)}}
	w.Done = func(w *store.Write, err error) { t.parked(half, group, &w.Messages[0], err) }
	t.topics.EnsureTopic(TopicConfig{
		Name: TransCheckMaxTimeTopic, ReadQueueNums: 1, WriteQueueNums: 1, Perm: PermRead | PermWrite,
	}, func(_ *TopicConfig, err error) {
		if err == nil {
			err = t.log.Append(w)
		}
		if err != nil {
			t.parked(half, group, &w.Messages[0], err)
		}
	})
	return nil
}

func (t *Transactions) parked(half transaction.Half, group string, m *message.Message, err error) {
	if err != nil {
		t.logger.Warn("half message could not be parked, trying again", "topic", half.Topic,
			"queue_offset", half.Offset, "error", err)
	} else {
		t.logger.Error("nobody decided about a half message, it is parked: roquet transaction resume takes it up",
			"topic", half.Topic, "group", group, "checks", half.Checks,
			"age", time.Since(time.UnixMilli(half.Since)).Truncate(time.Millisecond),
			"message_id", message.OffsetMsgID(m.StoreHost, m.LogOffset), "parking_topic", TransCheckMaxTimeTopic)
	}
	t.finished(half.Offset, outcomeOf(err))
}
