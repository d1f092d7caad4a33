// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"
	"errors"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// refusal is an error whose Code is known: what this door itself refuses.
type refusal struct {
	code v2.Code
	text string
}

// Error returns the text that the client gets.
func (r *refusal) Error() string { return r.text }

func refuse(code v2.Code, text string) error { return &refusal{code: code, text: text} }

// ok is the Status of what went well.
func ok() *v2.Status { return &v2.Status{Code: v2.Code_OK, Message: "OK"} }

// status is a Status with the code; its text is the code's name if there is none.
func status(code v2.Code, text string) *v2.Status {
	if text == "" {
		text = code.String()
	}
	return &v2.Status{Code: code, Message: text}
}

// statusOf is the Status that tells a client of an error.
func statusOf(err error) *v2.Status {
	var refused *refusal
	var answered *protocol.Error
	switch {
	case errors.As(err, &refused):
		return status(refused.code, refused.text)
	case errors.As(err, &answered):
		return status(codeOf(answered.Code), answered.Remark)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, remoting.ErrTimeout):
		return status(v2.Code_PROXY_TIMEOUT, "no answer in time: "+err.Error())
	default:
		return status(v2.Code_INTERNAL_SERVER_ERROR, err.Error())
	}
}

// responseCodes is what each response code that is in use is to a gRPC client. INTERNAL_SERVER_ERROR, which is
// also for what is not listed, makes clients repeat.
// Source: ResponseBuilder.java. Known difference: the original has five of these lines and answers
// INTERNAL_SERVER_ERROR otherwise; clients know every code here and understand more from it.
var responseCodes = map[protocol.ResponseCode]v2.Code{
	protocol.Success:                       v2.Code_OK,
	protocol.SystemError:                   v2.Code_INTERNAL_SERVER_ERROR,
	protocol.SystemBusy:                    v2.Code_TOO_MANY_REQUESTS,
	protocol.RequestCodeNotSupported:       v2.Code_NOT_IMPLEMENTED,
	protocol.FlushDiskTimeout:              v2.Code_MASTER_PERSISTENCE_TIMEOUT,
	protocol.SlaveNotAvailable:             v2.Code_HA_NOT_AVAILABLE,
	protocol.FlushSlaveTimeout:             v2.Code_SLAVE_PERSISTENCE_TIMEOUT,
	protocol.MessageIllegal:                v2.Code_MESSAGE_CORRUPTED,
	protocol.ServiceNotAvailable:           v2.Code_INTERNAL_SERVER_ERROR,
	protocol.VersionNotSupported:           v2.Code_VERSION_UNSUPPORTED,
	protocol.NoPermission:                  v2.Code_FORBIDDEN,
	protocol.Unauthenticated:               v2.Code_UNAUTHORIZED,
	protocol.TopicNotExist:                 v2.Code_TOPIC_NOT_FOUND,
	protocol.TopicExistAlready:             v2.Code_BAD_REQUEST,
	protocol.PullNotFound:                  v2.Code_MESSAGE_NOT_FOUND,
	protocol.PullRetryImmediately:          v2.Code_MESSAGE_NOT_FOUND,
	protocol.PullOffsetMoved:               v2.Code_ILLEGAL_OFFSET,
	protocol.QueryNotFound:                 v2.Code_NOT_FOUND,
	protocol.SubscriptionParseFailed:       v2.Code_ILLEGAL_FILTER_EXPRESSION,
	protocol.SubscriptionNotExist:          v2.Code_NOT_FOUND,
	protocol.SubscriptionNotLatest:         v2.Code_INTERNAL_SERVER_ERROR,
	protocol.SubscriptionGroupNotExist:     v2.Code_CONSUMER_GROUP_NOT_FOUND,
	protocol.FilterDataNotExist:            v2.Code_NOT_FOUND,
	protocol.FilterDataNotLatest:           v2.Code_INTERNAL_SERVER_ERROR,
	protocol.InvalidParameter:              v2.Code_BAD_REQUEST,
	protocol.ConsumerNotOnline:             v2.Code_NOT_FOUND,
	protocol.ConsumeMsgTimeout:             v2.Code_PROXY_TIMEOUT,
	protocol.NoMessage:                     v2.Code_MESSAGE_NOT_FOUND,
	protocol.PollingFull:                   v2.Code_TOO_MANY_REQUESTS,
	protocol.PollingTimeout:                v2.Code_MESSAGE_NOT_FOUND,
	protocol.BrokerNotExist:                v2.Code_BAD_REQUEST,
	protocol.FlowControl:                   v2.Code_TOO_MANY_REQUESTS,
	protocol.IllegalOperation:              v2.Code_BAD_REQUEST,
	protocol.LMQQuotaExceeded:              v2.Code_LITE_TOPIC_QUOTA_EXCEEDED,
	protocol.LiteSubscriptionQuotaExceeded: v2.Code_LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
	protocol.GoAway:                        v2.Code_INTERNAL_SERVER_ERROR,
	protocol.UserNotExist:                  v2.Code_UNAUTHORIZED,
	protocol.PolicyNotExist:                v2.Code_UNAUTHORIZED,
	protocol.RPCTimeOut:                    v2.Code_PROXY_TIMEOUT,
}

func codeOf(code protocol.ResponseCode) v2.Code {
	if c, ok := responseCodes[code]; ok {
		return c
	}
	return v2.Code_INTERNAL_SERVER_ERROR
}
