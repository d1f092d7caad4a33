// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/roquetmq/roquet/internal/broker/filter"
	"github.com/roquetmq/roquet/internal/broker/pop"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// AllQueues as a PopRequest's QueueID receives from all queues of the topic, in turn.
const AllQueues int32 = -1

// PopInitMode says where a group begins in a queue in which it has no offset. Source: ConsumeInitMode.java.
type PopInitMode uint8

// The init modes; their numbers are the wire's.
const (
	FromMin PopInitMode = 0 // with the first message
	FromMax PopInitMode = 1 // with the last message; with the first if the queue is young
)

// PopOrder says which messages must not be with two consumers at a time.
type PopOrder uint8

// The orders.
const (
	Unordered PopOrder = iota // none
	// OrderQueue: those of one queue, as the original's orderly pop.
	OrderQueue
	// OrderGroup: those of one queue with the same message group (property __SHARDINGKEY). Those without one
	// are free.
	OrderGroup
	// OrderConfigured is OrderGroup in an orderly group and in every group of a FIFO topic (case C111), as they are
	// when messages are handed out, else Unordered.
	OrderConfigured
)

// PopRequest is one receive. Its strings may alias a buffer; once it waits, it refers to none of them any
// more.
type PopRequest struct {
	Group     string
	Topic     string
	QueueID   int32         // or AllQueues
	MaxCount  int           // 1 to MaxPopCount
	Invisible time.Duration // for how long nobody else gets the messages
	Wait      time.Duration // how long to wait for messages; not positive: not at all
	InitMode  PopInitMode
	Order     PopOrder
	AttemptID string // with an order: a request that repeats it gets again what it did not acknowledge
	Filter    PullExpression
	Peer      uint64                     // identifies the connection for Disconnected
	Holding   func(req *PopRequest) bool // as PullRequest.Holding
	// Done is called exactly once, with Result valid when err is nil: by Pop itself, by the store's applier,
	// or by one of the Popper's goroutines. It must not block. After it the request may be used again.
	Done  func(req *PopRequest, err error)
	Owner any // the caller's

	popping
}

// popping is what a Popper keeps in a request.
type popping struct {
	popper  *Popper
	held    held
	write   store.Write
	result  PopResult
	share   *popShare
	sub     *filter.Subscription
	queues  int32 // of the topic, to read
	attempt uint64
	started time.Time
	until   time.Time // zero: it does not wait
	seen    uint64    // popShare.signals before it looked
	seat    popSeat
	notify  bool
	urgent  bool // the higher queues first
	woken   bool // it waited before
}

// Result returns the answer, after Done was called without error and until the request is used again.
func (req *PopRequest) Result() *PopResult { return &req.result }

// PopOutcome is what a receive came to, in the terms of response codes.
type PopOutcome uint8

// The outcomes of a receive.
const (
	PopFound          PopOutcome = iota + 1 // SUCCESS, with messages
	PopPollingTimeout                       // POLLING_TIMEOUT: nothing came
	PopPollingFull                          // POLLING_FULL: too many wait already
)

// PopResult is the answer to a receive.
type PopResult struct {
	Outcome    PopOutcome
	PopTime    int64 // ms
	Invisible  int64 // ms
	BrokerName string
	Order      PopOrder
	Rest       int64 // restNum: messages that nobody has received, as far as is known
	Bytes      int   // of the records
	Messages   []PopMessage
}

// PopMessage is one message of an answer. Those of one queue follow each other.
type PopMessage struct {
	// Record is a message record; it may be kept, and must not be written to. Its reconsumeTimes says how
	// often the message was handed out before.
	Record         message.Record
	QueueID        int32
	Offset         message.QueueOffset
	StartOffset    message.QueueOffset // the least offset of its queue in this answer
	ReconsumeTimes int32
}

// ReviveQueueID returns the number that the answer and its handles carry as reviveQid.
func (r *PopResult) ReviveQueueID() int32 {
	if r.Order == OrderQueue {
		return pop.OrderReviveQueueID
	}
	return 0
}

// Handle returns the receipt handle of the message at index i, with its log offset.
func (r *PopResult) Handle(i int) pop.Handle {
	m := &r.Messages[i]
	return pop.Handle{
		StartOffset: m.StartOffset, PopTime: r.PopTime, Invisible: r.Invisible, ReviveQueueID: r.ReviveQueueID(),
		BrokerName: r.BrokerName, QueueID: m.QueueID, Offset: m.Offset, LogOffset: m.Record.LogOffset(),
	}
}

// AppendStartOffsetInfo appends what remoting clients make handles of: `0 queueId startOffset` for each
// queue, joined by semicolons. Source: ExtraInfoUtil.java.
func (r *PopResult) AppendStartOffsetInfo(dst []byte) []byte {
	for i := range r.Messages {
		if m := &r.Messages[i]; r.first(i) {
			dst = appendQueueInfo(dst, i, m.QueueID)
			dst = strconv.AppendInt(dst, int64(m.StartOffset), 10)
		}
	}
	return dst
}

// AppendMsgOffsetInfo appends `0 queueId offset,offset…` for each queue, joined by semicolons.
func (r *PopResult) AppendMsgOffsetInfo(dst []byte) []byte {
	for i := range r.Messages {
		m := &r.Messages[i]
		if r.first(i) {
			dst = appendQueueInfo(dst, i, m.QueueID)
		} else {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(m.Offset), 10)
	}
	return dst
}

// AppendOrderCountInfo appends the reconsumeTimes as remoting clients of orderly receives read them: for each
// message that was handed out before `0 qo<queueId>%<offset> count`, and for each queue `0 queueId least
// count`.
func (r *PopResult) AppendOrderCountInfo(dst []byte) []byte {
	for i := range r.Messages {
		m := &r.Messages[i]
		if m.ReconsumeTimes > 0 {
			dst = append(appendInfo(dst), "qo"...)
			dst = append(strconv.AppendInt(dst, int64(m.QueueID), 10), '%')
			dst = append(strconv.AppendInt(dst, int64(m.Offset), 10), ' ')
			dst = strconv.AppendInt(dst, int64(m.ReconsumeTimes), 10)
		}
		if i+1 == len(r.Messages) || r.first(i+1) {
			dst = append(strconv.AppendInt(appendInfo(dst), int64(m.QueueID), 10), ' ')
			dst = strconv.AppendInt(dst, int64(r.leastTimes(i)), 10)
		}
	}
	return dst
}

// leastTimes is the least reconsumeTimes of the messages of one queue, the last of which is at index i.
func (r *PopResult) leastTimes(i int) int32 {
	least := r.Messages[i].ReconsumeTimes
	for ; !r.first(i); i-- {
		least = min(least, r.Messages[i-1].ReconsumeTimes)
	}
	return least
}

// first tells whether the message at index i is the first of its queue.
func (r *PopResult) first(i int) bool {
	return i == 0 || r.Messages[i-1].QueueID != r.Messages[i].QueueID
}

func appendQueueInfo(dst []byte, i int, queueID int32) []byte {
	if i > 0 {
		dst = append(dst, ';')
	}
	dst = append(dst, "0 "...)
	return append(strconv.AppendInt(dst, int64(queueID), 10), ' ')
}

func appendInfo(dst []byte) []byte {
	if len(dst) > 0 {
		dst = append(dst, ';')
	}
	return append(dst, "0 "...)
}

// attemptHash stands for an attempt id; 0 for none.
func attemptHash(id string) uint64 {
	if id == "" {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // it never fails
	return max(h.Sum64(), 1)
}

// orderKey is the order key of a message, also while the configuration does not ask for order: it can change before
// the message is finished.
func orderKey(rec message.Record, order PopOrder) uint32 {
	props := rec.Properties()
	switch {
	case order == OrderQueue:
		return wholeQueue
	case order == Unordered, !strings.Contains(props, message.PropertyShardingKey): // quick, and most have none
		return 0
	}
	group, ok := message.Property(props, message.PropertyShardingKey)
	if !ok {
		return 0
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(group)) // it never fails
	return max(h.Sum32(), wholeQueue+1)
}

// wholeQueue is the order key of all messages of a queue that is received in order.
const wholeQueue uint32 = 1

// checkTopic checks what needs no group, in the original's order.
func (p *Popper) checkTopic(req *PopRequest) error {
	if p.topics.Denied()&PermRead != 0 {
		if req.notify {
			return forbiddenPeek("broker", p.cfg.BrokerAddr)
		}
		return refuse(NoPermission, "the broker[%s] pop message is forbidden", p.cfg.BrokerAddr)
	}
	if n := req.MaxCount; !req.notify && (n < 1 || n > MaxPopCount) {
		return notAllowed("maxMsgNums", n, "a receive is for 1 to 32 messages")
	}
	topic, err := p.readable(req.Topic, req.QueueID)
	if err == nil {
		req.queues, req.urgent, req.result.Order = topic.ReadQueueNums, topic.IsFor(typePriority), req.Order
		if req.Order == OrderConfigured && topic.IsFor(TypeFIFO) {
			req.result.Order = OrderGroup
		}
	}
	return err
}

// readable returns a topic that can be popped.
func (p *Popper) readable(name string, queueID int32) (*TopicConfig, error) {
	topic, ok := p.topics.Lookup(name)
	if !ok {
		return nil, NoTopic(name)
	}
	if !topic.Readable() {
		return nil, forbiddenPeek("topic", topic.Name)
	}
	if queueID >= topic.ReadQueueNums || queueID < AllQueues {
		return nil, NoQueue(topic, queueID)
	}
	return topic, nil
}

// consuming returns a group that may consume.
func (p *Popper) consuming(name string) (*GroupConfig, error) {
	group, ok := p.groups.Lookup(name)
	if !ok {
		return nil, NoGroup(name)
	}
	if !group.ConsumeEnable {
		return nil, forbiddenGroup(group.Name)
	}
	return group, nil
}

// prepare checks in the original's order what may be received, and finds the share.
func (p *Popper) prepare(req *PopRequest) error {
	if err := p.checkTopic(req); err != nil {
		return err
	}
	group, err := p.consuming(req.Group)
	if err != nil {
		return err
	}
	if req.result.Order == OrderConfigured {
		req.result.Order = Unordered
		if group.ConsumeMessageOrderly {
			req.result.Order = OrderGroup
		}
	}
	req.urgent = req.urgent && req.result.Order == Unordered && group.urgent()
	if p.groups.Forbidden(req.Group, req.Topic)&PermRead != 0 {
		return forbiddenTopic(group.Name, req.Topic)
	}
	if req.sub == nil {
		sub, err := p.cfg.Filters.Parse(req.Filter.Text, req.Filter.Type)
		if err != nil {
			return refuse(SubscriptionIllegal, "parse the consumer's subscription failed: %w", err)
		}
		req.sub = sub
	}
	if req.share != nil && !req.share.gone.Load() {
		return nil
	}
	share, err := p.obtain(req.Topic, req.Group)
	req.share = share
	return err
}
