// SPDX-License-Identifier: Apache-2.0

package service

import (
	"errors"
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
	for _, entry := range []struct {
		code protocol.ResponseCode
		is   bool
	}{
		{protocol.NoPermission, errors.Is(err, broker.NoPermission)},
		{protocol.TopicNotExist, errors.Is(err, broker.TopicNotExist)},
		{protocol.SubscriptionGroupNotExist, errors.Is(err, broker.GroupNotExist)},
		{protocol.InvalidParameter, errors.Is(err, broker.IllegalParameter)},
		{protocol.MessageIllegal, errors.Is(err, broker.IllegalMessage)},
		{protocol.IllegalOperation, errors.Is(err, broker.IllegalOperation)},
		{protocol.FilterDataNotExist, errors.Is(err, broker.FilterDataMissing)},
		{protocol.SubscriptionNotExist, errors.Is(err, broker.SubscriptionMissing)},
		{protocol.SubscriptionNotLatest, errors.Is(err, broker.SubscriptionOld)},
		{protocol.SubscriptionParseFailed, errors.Is(err, broker.SubscriptionIllegal)},
		{protocol.SystemError, errors.Is(err, broker.Failed)},
		{protocol.MessageIllegal, isA[*message.SizeError](err)},
		{protocol.MessageIllegal, isA[*message.PropertyError](err)},
		{protocol.MessageIllegal, isA[*message.FormatError](err)},
		{protocol.MessageIllegal, errors.Is(err, commitlog.ErrTooLarge)},
		{protocol.SystemError, isA[*filter.UnsupportedError](err)},
		{protocol.SubscriptionParseFailed, isA[*sql92.SyntaxError](err)},
		{protocol.SubscriptionParseFailed, errors.Is(err, filter.ErrEmpty)},
		{protocol.NoMessage, isA[*pop.HandleError](err)},
		{protocol.SystemError, errors.Is(err, offset.ErrRange)},
		{protocol.SystemError, errors.Is(err, nameserver.ErrNotRegistered)},
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

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
