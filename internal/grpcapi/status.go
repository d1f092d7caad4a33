// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"

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

func refuse(code v2.Code, format string, args ...any) error {
	return &refusal{code: code, text: fmt.Sprintf(format, args...)}
}

// ok is the Status of what went well.
func ok() *v2.Status { return &v2.Status{Code: v2.Code_OK, Message: "OK"} }

// status is a Status with the code; its text is the code's name if there is none.
func status(code v2.Code, text string) *v2.Status {
	return &v2.Status{Code: code, Message: cmp.Or(text, code.String())}
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

func codeOf(code protocol.ResponseCode) v2.Code {
	if c, ok := responseCodes[code]; ok {
		return c
	}
	return v2.Code_INTERNAL_SERVER_ERROR
}
