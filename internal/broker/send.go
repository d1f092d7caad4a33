// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// DefaultMaxMessageBytes is the largest message body accepted when nothing is configured.
// Source: MessageStoreConfig maxMessageSize.
const DefaultMaxMessageBytes = 4 << 20

// GroupMaxReconsumeTimes stands for a send that names no maximum of its own: the group's decides.
const GroupMaxReconsumeTimes int32 = -1

// multiTagFilter is the topic filter type whose messages carry the multi-tag flag.
const multiTagFilter = "MULTI_TAG"

// Messages is where a Sender stores messages, and finds those that are sent back. *store.Store is one.
type Messages interface {
	Append(w *store.Write) error
	Record(pos message.LogOffset) (message.Record, error)
}

// SenderConfig configures a Sender. Zero values are RocketMQ's defaults where not said otherwise.
type SenderConfig struct {
	// BrokerAddr names the broker in remarks: its IP.
	BrokerAddr string
	// Cluster, Region and TraceOff become properties of every single message. Region "" means DefaultRegion.
	Cluster  string
	Region   string
	TraceOff bool
	// MaxMessageBytes bounds a body, or the body of a batch; 0 means DefaultMaxMessageBytes.
	MaxMessageBytes int
	// Levels is the table of delay levels; empty means message.DefaultDelayLevels.
	Levels DelayLevels
	// BrokerName is written into recall handles.
	BrokerName string
	// UniqueIDs makes the UNIQ_KEY of messages that come without one. Required.
	UniqueIDs *message.UniqueIDs
}

// Sender turns what producers and consumers send into stored messages. All methods are safe for concurrent
// use and none waits. Source: SendMessageProcessor.java, AbstractSendMessageProcessor.java, HookUtils.java.
type Sender struct {
	cfg    SenderConfig
	topics *Topics
	groups *Groups
	locks  *QueueLocks
	stats  *Stats
	store  Messages
	tail   string       // encoded properties of every single message
	limit  atomic.Int64 // MaxMessageBytes in force
	noHalf atomic.Bool  // half messages are refused
	recall *Recalls
	stored func(w *store.Write, err error) // finish, bound once so that a send does not allocate it
}

// NewSender returns a Sender that stores into messages.
func NewSender(cfg SenderConfig, topics *Topics, groups *Groups, locks *QueueLocks, stats *Stats,
	messages Messages,
) *Sender {
	setDefault(&cfg.MaxMessageBytes, DefaultMaxMessageBytes)
	cfg.Levels = cfg.Levels.orDefault()
	tail := message.AppendProperty(nil, message.PropertyMsgRegion, cmp.Or(cfg.Region, "DefaultRegion"))
	tail = message.AppendProperty(tail, message.PropertyTraceSwitch, strconv.FormatBool(!cfg.TraceOff))
	if cfg.Cluster != "" {
		tail = message.AppendProperty(tail, message.PropertyCluster, cfg.Cluster)
	}
	s := &Sender{
		cfg: cfg, topics: topics, groups: groups, locks: locks, stats: stats, store: messages,
		tail: string(tail),
	}
	s.stored = s.finish
	s.limit.Store(int64(cfg.MaxMessageBytes))
	return s
}

// MaxMessageBytes returns the largest body accepted.
func (s *Sender) MaxMessageBytes() int { return int(s.limit.Load()) }

// SetMaxMessageBytes changes it for sends that begin from now on.
func (s *Sender) SetMaxMessageBytes(limit int) { s.limit.Store(int64(limit)) }

// SetTransactionsDisabled changes whether half messages are refused: rejectTransactionMessage.
func (s *Sender) SetTransactionsDisabled(disabled bool) { s.noHalf.Store(disabled) }

// UseRecalls makes messages with TIMER_DEL_UNIQKEY call back others, through recalls. Before the first Send.
func (s *Sender) UseRecalls(recalls *Recalls) { s.recall = recalls }

// Creation says how to create a topic that a send finds missing.
type Creation struct {
	DefaultTopic string // whose permissions and queue number are the example
	QueueNums    int32  // what the client asks for
	UnitMode     bool
}

// SendRequest is one send: a message, or a batch of them. Its strings and slices may alias a buffer that
// lives until Done. The request carries all that a send needs to be stored, so that a send costs the
// allocation of its request.
type SendRequest struct {
	Topic         string
	QueueID       int32 // negative: the broker picks one
	Flag          int32
	SysFlag       int32
	BornTimestamp int64 // ms
	BornHost      netip.AddrPort
	Properties    string // encoded
	Body          []byte // the message's, or a batch body (message.DecodeBatch)
	Batch         bool
	// ReconsumeTimes and MaxReconsumeTimes are those of a message a consumer puts into its retry topic. A
	// negative maximum is GroupMaxReconsumeTimes; the zero value is a maximum of 0.
	ReconsumeTimes    int32
	MaxReconsumeTimes int32
	Create            Creation
	// Done is called exactly once, when the messages are durable (err nil, see Result) or refused: by Send
	// itself, or later by the store's applier. It must not block. After it the request may be used again.
	Done  func(req *SendRequest, err error)
	Owner any // the caller's

	sending
}

// sending is what a Sender keeps in a request.
type sending struct {
	write     store.Write
	seen      noted
	queueID   int32 // of the topic asked for
	uniqueKey string
	due       int64 // ms: when the message will be delivered that asked for a time of its own; 0: it does not wait
	recall    string
}

// Send stores what req describes and calls req.Done. Errors given to Done: *Refusal, *message.SizeError,
// *message.PropertyError, *message.FormatError (a malformed batch body), and those of store.Append.
// What was refused is not stored.
func (s *Sender) Send(req *SendRequest) {
	if err := s.send(req); err != nil {
		req.Done(req, err)
	}
}

// send checks whether the topic is one to send to. While it is being created or changed, the send waits for that, so
// that those of one producer are stored in the order they came. Source: msgCheck.
func (s *Sender) send(req *SendRequest) error {
	cfg, ok := s.topics.table.settled(req.Topic)
	if IsSendForbidden(req.Topic) {
		return forbiddenSend(req.Topic)
	}
	if ok {
		return s.accept(req, cfg)
	}
	s.createTopic(req)
	return nil
}

// createTopic creates the topic as the request asks, else, for a retry topic, with one queue, and goes on.
func (s *Sender) createTopic(req *SendRequest) {
	var sysFlag int32
	switch {
	case !req.Create.UnitMode:
	case IsRetryTopic(req.Topic):
		sysFlag = unitSubscriptionFlag
	default:
		sysFlag = unitFlag
	}
	resume := func(cfg *TopicConfig, err error) {
		if errors.Is(err, TopicNotExist) {
			err = fmt.Errorf("%w %w", NoTopic(req.Topic), err)
		}
		if err == nil {
			err = s.accept(req, cfg)
		}
		if err != nil {
			req.Done(req, err)
		}
	}
	s.topics.EnsureForSend(req.Topic, req.Create.DefaultTopic, req.Create.QueueNums, sysFlag,
		func(cfg *TopicConfig, err error) {
			if errors.Is(err, TopicNotExist) && IsRetryTopic(req.Topic) {
				s.topics.EnsureTopic(TopicConfig{
					Name: req.Topic, ReadQueueNums: 1, WriteQueueNums: 1,
					Perm: PermRead | PermWrite, SysFlag: sysFlag,
				}, resume)
				return
			}
			resume(cfg, err)
		})
}

// accept goes on once the topic is known. When it returns nil, Done was or will be called.
func (s *Sender) accept(req *SendRequest, cfg *TopicConfig) error {
	if cfg.Order && s.topics.Denied()&PermWrite != 0 {
		return forbiddenBroker(s.cfg.BrokerAddr)
	}
	tooHigh := req.QueueID >= max(cfg.WriteQueueNums, cfg.ReadQueueNums)
	if tooHigh || req.QueueID < 0 && cfg.WriteQueueNums <= 0 {
		return noQueueToSend(cfg, req.QueueID)
	}
	req.uniqueKey, req.due, req.recall = "", 0, ""
	if cfg.FilterType == multiTagFilter {
		req.SysFlag |= message.SysFlagMultiTags
	}
	switch {
	case len(req.Body) == 0:
		return illegal("body", "is empty")
	case len(req.Body) > s.MaxMessageBytes():
		return &message.SizeError{What: "message body", Limit: s.MaxMessageBytes(), Actual: len(req.Body)}
	case req.Batch:
		return s.acceptBatch(req, cfg)
	}
	if err := req.seen.scan(req.Properties); err != nil {
		return err
	}
	req.pickQueue(cfg, req.seen.group)
	if req.seen.priority >= 0 {
		req.prioritize(cfg)
	}
	if IsRetryTopic(req.Topic) {
		return s.acceptRetry(req)
	}
	return s.put(req, req.Topic, req.queueID)
}

// pickQueue picks the queue that is asked for, else that of the message group, else any.
func (req *SendRequest) pickQueue(cfg *TopicConfig, group string) {
	switch req.queueID = req.QueueID; {
	case req.queueID >= 0:
	case group != "":
		req.queueID = consistentHash(message.TagsCode(group), cfg.WriteQueueNums)
	default:
		req.queueID = rand.Int32N(cfg.WriteQueueNums)
	}
}

// consistentHash spreads keys over buckets so that few move when there are more buckets. It is what the
// original uses, so that a message group goes to the same queue through either. Source:
// com.google.common.hash.Hashing.consistentHash, in Java's arithmetic.
func consistentHash(key int64, buckets int32) int32 {
	state := uint64(key)
	candidate := int32(0)
	for {
		state = 2862933555777941757*state + 1
		next := float64(candidate+1) / (float64(int32(state>>33)+1) / (1 << 31))
		if next < 0 || next >= float64(buckets) {
			return candidate
		}
		candidate = int32(next)
	}
}

// prioritize picks the queue that a priority means, the higher the more urgent. A message that waits for a decision or
// a time, or has a message group, knows no priority. Source: SendMessageProcessor.java of RocketMQ 5.5.
func (req *SendRequest) prioritize(cfg *TopicConfig) {
	if req.seen.kind() != KindNormal {
		req.Properties = message.WithoutProperty(req.Properties, message.PropertyPriority)
	} else if cfg.WriteQueueNums > 0 {
		req.queueID = min(req.seen.priority, cfg.WriteQueueNums-1)
	}
}

// put lays the one message of req down in a queue of topic, or where it waits to get there.
func (s *Sender) put(req *SendRequest, topic string, queueID int32) error {
	half, err := req.seen.check(req)
	if err != nil {
		return err
	}
	w := &req.write
	m := w.Single()
	*m = message.Message{
		Topic: topic, QueueID: queueID, Flag: req.Flag, SysFlag: req.SysFlag, BornTimestamp: req.BornTimestamp,
		BornHost: req.BornHost, ReconsumeTimes: req.ReconsumeTimes, Body: req.Body, Properties: req.Properties,
		TailProperties: s.tail,
	}
	if req.seen.popCK {
		m.Properties = message.WithoutProperty(m.Properties, message.PropertyPopCK)
	}
	w.State, w.Assigned = nil, nil
	if req.uniqueKey = req.seen.uniqueKey; req.uniqueKey == "" {
		req.uniqueKey = string(s.cfg.UniqueIDs.Append(nil, time.Now()))
		m.TailProperties += string(message.AppendProperty(nil, message.PropertyUniqueKey, req.uniqueKey))
	}
	if err := s.park(req, m, half); err != nil {
		return err
	}
	if m.Validate() != nil && len(req.Properties) <= message.MaxPropertiesBytes {
		// A producer's properties may fill what there is room for: then those of the broker give way.
		m.TailProperties, req.uniqueKey = "", req.seen.uniqueKey
	}
	w.Owner, w.Done = req, s.stored
	if req.due > 0 && req.seen.cancels != "" {
		return s.putCancel(req)
	}
	return s.store.Append(w)
}

// park makes the message of req wait when it has to: for a decision, for a time.
func (s *Sender) park(req *SendRequest, m *message.Message, half bool) (err error) {
	now := time.Now()
	if !half {
		req.due, err = req.seen.place(&req.write, m, s.cfg.Levels, now, TimerMaxDelay)
		return err
	}
	if s.noHalf.Load() {
		return refuse(NoPermission, "the broker[%s] sending transaction message is forbidden", s.cfg.BrokerAddr)
	}
	if err := req.seen.checkTime(now); err != nil {
		return err
	}
	prepare(&req.write, m, req.uniqueKey, req.seen.immunity)
	return nil
}

// putCancel stores a message that calls back another one, and then does that: the other one may have been sent just
// before. It stays where messages wait for their time, and nobody gets it.
func (s *Sender) putCancel(req *SendRequest) error {
	req.due, req.write.State, req.write.Assigned = 0, nil, nil
	req.write.Done = func(w *store.Write, err error) {
		if err != nil {
			s.finish(w, err)
			return
		}
		s.recall.cancelMessage(req.Topic, req.seen.cancels, func(err error) { s.finish(w, err) })
	}
	return s.store.Append(&req.write)
}

// finish ends a send. Applier only.
func (s *Sender) finish(w *store.Write, err error) {
	req, _ := w.Owner.(*SendRequest) // put there by put and putBatch
	kind := KindNormal
	if !req.Batch {
		kind = req.seen.kind()
	}
	s.count(kind, w, err)
	if err == nil && req.due > 0 && req.uniqueKey != "" && !IsRetryTopic(req.Topic) {
		req.recall = RecallHandle{req.Topic, s.cfg.BrokerName, req.due, req.uniqueKey}.String()
	}
	req.Done(req, err)
}

// count puts a Write that ended into the statistics.
func (s *Sender) count(kind MessageKind, w *store.Write, err error) {
	if err != nil {
		s.stats.PutFailed()
		return
	}
	size := 0
	for i := range w.Messages {
		size += w.Messages[i].EncodedLen()
	}
	m := &w.Messages[0]
	for i := range w.State {
		if k, ok := decodeTimerKey(w.State[i].Key); ok && w.State[i].Space == message.SpaceTimer {
			s.stats.TimerSet(string(w.State[i].Value), time.Duration(k.due-m.StoreTimestamp)*time.Millisecond)
		}
	}
	s.stats.Put(m.Topic, kind, len(w.Messages), size, time.Since(time.UnixMilli(m.StoreTimestamp)))
}

// SendResult says where the messages of a send are.
type SendResult struct {
	// QueueID is the queue of the topic asked for. A delayed message, or one that went to the dead letter
	// topic, is stored elsewhere for now; QueueOffset is where that is.
	QueueID     int32
	QueueOffset message.QueueOffset // of the first message
	// UniqueKey is the UNIQ_KEY of a single message: RocketMQ's transactionId.
	UniqueKey string
	// RecallHandle names a message that waits for a delivery time of its own; else empty. See Recalls.
	RecallHandle string
	// Messages are the stored messages. They alias the request and its buffers.
	Messages []message.Message
}

// Result returns where the messages are, after Done was called without error and until the request is used
// again.
func (req *SendRequest) Result() SendResult {
	w := &req.write
	return SendResult{
		QueueID: req.queueID, QueueOffset: w.Messages[0].QueueOffset, UniqueKey: req.uniqueKey,
		RecallHandle: req.recall, Messages: w.Messages,
	}
}

// AppendMsgID appends the message id that answers a send: the offset ids of its messages, joined by commas.
func (r *SendResult) AppendMsgID(dst []byte) []byte {
	for i := range r.Messages {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = message.AppendOffsetMsgID(dst, r.Messages[i].StoreHost, r.Messages[i].LogOffset)
	}
	return dst
}
