// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"errors"
	"time"

	"github.com/roquetmq/roquet/internal/broker/filter"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/store"
)

// Bits of PullRequest.SysFlag. Source: PullSysFlag.java.
const (
	PullCommitOffset int32 = 0x1 // CommitOffset is valid
	PullSuspend      int32 = 0x2 // the pull may wait for messages
	PullSubscription int32 = 0x4 // the request carries its subscription
)

// ErrCanceled ends a pull whose connection ended.
var ErrCanceled = errors.New("the connection of the request ended")

// PullExpression is the subscription that a pull carries, and the version of the one it knows.
type PullExpression struct {
	Text    string
	Type    string // empty means TAG
	Version int64  // subVersion
}

// PullRequest is one pull of one queue. Its strings may alias a buffer; once a pull is held, it refers to
// none of them any more. The request carries all that a pull needs, so that neither reading nor waiting
// allocates.
//
//lint:wide it carries what PullMessageRequestHeader carries
type PullRequest struct {
	Group        string
	Topic        string
	QueueID      int32
	Offset       message.QueueOffset
	MaxCount     int // maxMsgNums; what is returned is at least 1 message and at most the Puller's limit
	MaxBytes     int // maxMsgBytes; 0 means the Puller's limit
	SysFlag      int32
	CommitOffset message.QueueOffset // with PullCommitOffset
	Suspend      time.Duration       // with PullSuspend: how long to wait for messages
	Subscription PullExpression
	LitePull     bool
	// Peer identifies the connection for Puller.Disconnected.
	Peer uint64
	// Holding, when set, is called once before the request first waits, on the goroutine that decided so.
	// When it returns false the connection is gone and the request ends with ErrCanceled.
	Holding func(req *PullRequest) bool
	// Done is called exactly once, with Result valid when err is nil: by Pull itself, or later by one of the
	// Puller's goroutines. It must not block. After it the request may be used again.
	Done  func(req *PullRequest, err error)
	Owner any // the caller's

	pulling
}

// pulling is what a Puller keeps in a request.
type pulling struct {
	held    held
	fetch   store.FetchRequest
	result  PullResult
	group   *GroupConfig
	topic   *TopicConfig
	sub     *filter.Subscription // what the request itself carried
	started time.Time
	until   time.Time
	waited  bool // Holding was called
}

// PullOutcome is what a pull came to, in the terms of response codes.
type PullOutcome uint8

// The outcomes of a pull.
const (
	PullFound            PullOutcome = iota + 1 // SUCCESS, with records
	PullNotFound                                // PULL_NOT_FOUND: pull again
	PullRetryImmediately                        // PULL_RETRY_IMMEDIATELY: go on at Next
	PullOffsetMoved                             // PULL_OFFSET_MOVED: the offset was wrong, go on at Next
)

// statusOffsetReset is the status of a pull that met a reset of its group's offset.
const statusOffsetReset = "OFFSET_RESET"

// PullResult is the answer to a pull.
type PullResult struct {
	Outcome PullOutcome
	Status  string              // the store's outcome by its name in the original: the remark
	Next    message.QueueOffset // nextBeginOffset
	Min     message.QueueOffset
	Max     message.QueueOffset
	// Records are message records, views of the store's memory: they may be kept, and must not be written to.
	Records      [][]byte
	Bytes        int // the sum of their sizes
	TopicSysFlag int32
	GroupSysFlag int32
	// Damage is set when records were skipped because they cannot be read: *store.DamagedError. The outcome
	// is PullOffsetMoved, so that the consumer goes on behind them, and the remark should say why.
	Damage error
}

// Result returns the answer, after Done was called without error and until the request is used again.
func (req *PullRequest) Result() *PullResult { return &req.result }

// asked returns the offset at which the pull is now: a held pull moves on over messages it does not want.
func (req *PullRequest) asked() message.QueueOffset { return req.fetch.From }

// compose turns what the store found into the answer. Source: PullMessageProcessor.java
// composeResponseHeader.
func (req *PullRequest) compose(res *store.FetchResult) {
	r := &req.result
	*r = PullResult{
		Status: res.Status.String(), Next: res.Next, Min: res.Min, Max: res.Max, Records: res.Records,
		Bytes: res.Bytes, TopicSysFlag: req.topic.SysFlag, GroupSysFlag: req.group.SysFlag,
	}
	switch res.Status {
	case store.Found:
		r.Outcome = PullFound
	case store.NoMatchedMessage, store.MessageWasRemoving:
		r.Outcome = PullRetryImmediately
	case store.NoMatchedLogicQueue, store.NoMessageInQueue:
		if r.Outcome = PullNotFound; req.asked() != 0 {
			r.Outcome = PullOffsetMoved
		}
	case store.OffsetOverflowOne:
		r.Outcome = PullNotFound
	case store.Damaged:
		r.Outcome, r.Damage = PullOffsetMoved, res.Err
	default:
		r.Outcome = PullOffsetMoved
	}
}
