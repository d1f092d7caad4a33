// SPDX-License-Identifier: Apache-2.0

package service

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/roquetmq/roquet/internal/auth"
	"github.com/roquetmq/roquet/internal/broker"
	"github.com/roquetmq/roquet/internal/broker/filter"
	"github.com/roquetmq/roquet/internal/broker/filter/sql92"
	"github.com/roquetmq/roquet/internal/broker/offset"
	"github.com/roquetmq/roquet/internal/broker/pop"
	"github.com/roquetmq/roquet/internal/commitlog"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/nameserver"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/store"
)

// errorMapper turns what goes wrong below into what clients are told: the only place that knows both. What is
// not listed is a SYSTEM_ERROR and is logged. Source of the codes: the processors named with each request.
type errorMapper struct{ log *slog.Logger }

func (m *errorMapper) mapError(err error) *protocol.Error {
	if code, ok := codeOf(err); ok {
		return &protocol.Error{Code: code, Remark: remarkOf(err, code)}
	}
	m.log.Error("request failed for a reason that has no code", "error", err)
	return &protocol.Error{Code: protocol.SystemError, Remark: err.Error()}
}

// codeOf finds the response code of an error; the first match wins.
//
//lint:long one flat table from error to code
func codeOf(err error) (protocol.ResponseCode, bool) {
	if code, ok := recallCode(err); ok {
		return code, true
	}
	if code, ok := transactionCode(err); ok {
		return code, true
	}
	for _, entry := range []struct {
		code protocol.ResponseCode
		is   bool
	}{
		{protocol.NoPermission, isA[*broker.PermissionError](err)},
		{protocol.TopicNotExist, errors.Is(err, broker.ErrTopicNotExist)},
		{protocol.SubscriptionGroupNotExist, errors.Is(err, broker.ErrGroupNotExist)},
		{protocol.InvalidParameter, isA[*broker.NameError](err)},
		{protocol.InvalidParameter, isA[*broker.InvalidError](err)},
		{protocol.SystemError, isA[*broker.AttributeError](err)},
		{protocol.InvalidParameter, isA[*broker.QueueIDError](err)},
		{protocol.SystemError, isA[*broker.LookupError](err)},
		{protocol.MessageIllegal, isA[*broker.IllegalError](err)},
		{protocol.MessageIllegal, isA[*broker.TimerError](err)},
		{protocol.SystemError, isA[*broker.ReplyError](err)},
		{protocol.MessageIllegal, isA[*message.SizeError](err)},
		{protocol.MessageIllegal, isA[*message.PropertyError](err)},
		{protocol.MessageIllegal, isA[*message.FormatError](err)},
		{protocol.MessageIllegal, errors.Is(err, commitlog.ErrTooLarge)},
		{protocol.SystemError, isA[*filter.UnsupportedError](err)},
		{protocol.FilterDataNotExist, isA[*broker.FilterDataError](err)},
		{protocol.SubscriptionParseFailed, isA[*sql92.SyntaxError](err)},
		{protocol.SubscriptionParseFailed, errors.Is(err, filter.ErrEmpty)},
		{protocol.NoMessage, isA[*pop.HandleError](err)},
		{protocol.SystemError, isA[*offset.RangeError](err)},
		{protocol.SystemError, isA[*notForcedError](err)},
		{protocol.SystemError, errors.Is(err, nameserver.ErrNotRegistered)},
		{protocol.SubscriptionNotExist, isA[*broker.SubscriptionMissingError](err)},
		{protocol.SubscriptionNotLatest, errors.Is(err, broker.ErrSubscriptionNotLatest)},
		{protocol.SubscriptionParseFailed, isA[*broker.SubscriptionParseError](err)},
		{protocol.NoPermission, isA[*auth.ChangeError](err)}, // the original's code for all of them
		{protocol.SystemBusy, isA[*commitlog.BusyError](err)},
		{protocol.ServiceNotAvailable, isA[*commitlog.DiskFullError](err)},
		{protocol.ServiceNotAvailable, isA[*commitlog.BrokenError](err)},
		{protocol.ServiceNotAvailable, errors.Is(err, commitlog.ErrClosed)},
		{protocol.ServiceNotAvailable, isA[*store.IndexError](err)},
		{protocol.SystemError, errors.Is(err, store.ErrNotFound)},
		{protocol.SystemError, isA[*store.DamagedError](err)},
	} {
		if entry.is {
			return entry.code, true
		}
	}
	return 0, false
}

// remarkOf is the error's text, with RocketMQ's words for flow control before it.
func remarkOf(err error, code protocol.ResponseCode) string {
	switch code {
	case protocol.SystemBusy:
		return "[PCBUSY_CLEAN_QUEUE]broker busy, start flow control for a while, " + err.Error()
	case protocol.ServiceNotAvailable:
		return "service not available now. " + err.Error()
	default:
		return err.Error()
	}
}

// recallCode is NO_PERMISSION when recalls are switched off, else ILLEGAL_OPERATION.
func recallCode(err error) (protocol.ResponseCode, bool) {
	var recall *broker.RecallError
	if !errors.As(err, &recall) {
		return 0, false
	}
	if recall.Reason == broker.RecallDisabled {
		return protocol.NoPermission, true
	}
	return protocol.IllegalOperation, true
}

// transactionCode is ILLEGAL_OPERATION for a decision that comes too late or after another, else SYSTEM_ERROR.
func transactionCode(err error) (protocol.ResponseCode, bool) {
	var transaction *broker.TransactionError
	if !errors.As(err, &transaction) {
		return 0, false
	}
	switch transaction.Reason {
	case broker.TransactionTooLate, broker.TransactionDecided, broker.TransactionParked, broker.TransactionResumed:
		return protocol.IllegalOperation, true
	default:
		return protocol.SystemError, true
	}
}

func isA[E error](err error) bool {
	var target E
	return errors.As(err, &target)
}

func topicNotExist(topic string) error { return &broker.TopicNotExistError{Topic: cloned(topic)} }

func groupNotExist(group string) error { return &broker.GroupNotExistError{Group: cloned(group)} }

// notOnline is the answer when a client that an administrator asks for has no connection here.
func notOnline(group, clientID string) error {
	return &protocol.Error{
		Code: protocol.SystemError, Remark: fmt.Sprintf("The Consumer <%s> <%s> not online", group, clientID),
	}
}
