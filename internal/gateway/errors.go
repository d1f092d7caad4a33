// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	v1 "github.com/roquetmq/roquet/api/proto/roquet/v1"
	"github.com/roquetmq/roquet/internal/protocol"
)

// What every error says of itself.
const (
	errorInfoType = "type.googleapis.com/google.rpc.ErrorInfo"
	errorDomain   = "roquet"
)

// statusClientGone is what nginx calls a request whose client did not wait.
const statusClientGone = 499

// retryAfter is in how many seconds a client may come again that is refused for what does not lie with it: a limit of
// rate is one of a second.
const retryAfter = "1"

// errStopping is what ends calls that are held when the server stops.
var errStopping = errors.New("server is stopping")

// refusal is an error that is this door's own.
type refusal struct {
	status int    // HTTP
	reason string // a name of v2.Code where it has one
	text   string
}

// Error returns the text that the client gets.
func (r *refusal) Error() string { return r.text }

func refuse(code v2.Code, format string, args ...any) error {
	return &refusal{status: httpStatus(code), reason: code.String(), text: fmt.Sprintf(format, args...)}
}

func badRequest(format string, args ...any) error {
	return refuse(v2.Code_BAD_REQUEST, format, args...)
}

func tooLarge(limit int64) error {
	return refuse(v2.Code_PAYLOAD_TOO_LARGE, "the request's body is larger than %d bytes", limit)
}

// readError is why a body could not be read.
func readError(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return nil
	}
	if over, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge(over.Limit)
	}
	return badRequest("the request's body ended early: %v", err)
}

// httpStatus is the HTTP status that a code of RocketMQ 5 has in its first digits, but for those where that is
// no status, or one that says something else.
func httpStatus(code v2.Code) int {
	switch code {
	case v2.Code_MESSAGE_BODY_EMPTY:
		return http.StatusBadRequest
	case v2.Code_UNSUPPORTED, v2.Code_VERSION_UNSUPPORTED, v2.Code_VERIFY_FIFO_MESSAGE_UNSUPPORTED:
		return http.StatusNotImplemented
	}
	if code < v2.Code_BAD_REQUEST || code >= v2.Code_FAILED_TO_CONSUME_MESSAGE {
		return http.StatusInternalServerError
	}
	return int(code) / 100
}

// rpcCodes is the code of google.rpc for each HTTP status.
var rpcCodes = map[int]codes.Code{
	http.StatusUnauthorized:         codes.Unauthenticated,
	http.StatusForbidden:            codes.PermissionDenied,
	http.StatusNotFound:             codes.NotFound,
	http.StatusMethodNotAllowed:     codes.Unimplemented,
	http.StatusConflict:             codes.Aborted,
	http.StatusPreconditionRequired: codes.FailedPrecondition,
	http.StatusTooManyRequests:      codes.ResourceExhausted,
	statusClientGone:                codes.Canceled,
	http.StatusNotImplemented:       codes.Unimplemented,
	http.StatusServiceUnavailable:   codes.Unavailable,
	http.StatusGatewayTimeout:       codes.DeadlineExceeded,
}

// errorOf tells a client of an error.
func (d *door) errorOf(err error) (status int, e *v1.Error) {
	r := d.refusalOf(err)
	code, ok := rpcCodes[r.status]
	switch {
	case ok:
	case r.status < http.StatusInternalServerError:
		code = codes.InvalidArgument
	default:
		code = codes.Internal
	}
	info := &v1.ErrorInfo{Type: errorInfoType, Reason: r.reason, Domain: errorDomain}
	if answered, ok := errors.AsType[*protocol.Error](err); ok {
		info.Metadata = map[string]string{"responseCode": answered.Code.String()}
	}
	return r.status, &v1.Error{Code: int32(code), Message: clean(r.text), Details: []*v1.ErrorInfo{info}}
}

func (d *door) refusalOf(err error) *refusal {
	var own *refusal
	var answered *protocol.Error
	var routing *runtime.HTTPStatusError
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &answered) && answered.Code == protocol.ServiceNotAvailable:
		return &refusal{http.StatusServiceUnavailable, "SERVICE_NOT_AVAILABLE", answered.Remark}
	case errors.As(err, &routing):
		return &refusal{routing.HTTPStatus, v2.Code_BAD_REQUEST.String(), err.Error()}
	case errors.Is(err, errStopping):
		return &refusal{http.StatusServiceUnavailable, "SERVICE_NOT_AVAILABLE", err.Error()}
	case errors.Is(err, context.Canceled):
		return &refusal{statusClientGone, "CLIENT_GONE", err.Error()}
	}
	if s, ok := grpcstatus.FromError(err); ok && s.Code() == codes.InvalidArgument { // the generated code's
		return &refusal{http.StatusBadRequest, v2.Code_BAD_REQUEST.String(), s.Message()}
	}
	s := d.cfg.Rules.StatusOf(err)
	return &refusal{httpStatus(s.GetCode()), s.GetCode().String(), s.GetMessage()}
}

// fail answers with an error.
func (d *door) fail(w http.ResponseWriter, err error) {
	status, e := d.errorOf(err)
	switch status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Basic realm="roquet", charset="UTF-8"`)
		w.Header().Add("WWW-Authenticate", `Bearer realm="roquet"`)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", retryAfter)
	}
	d.write(w, typeJSON, status, append(d.encode(e), '\n'))
}

func (d *door) plainError(
	_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, _ *http.Request, err error,
) {
	d.fail(w, err)
}

func (d *door) routingError(
	_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, status int,
) {
	switch status {
	case http.StatusNotFound:
		d.fail(w, refuse(v2.Code_NOT_FOUND, "no route %s; GET /openapi.json lists them", r.URL.Path))
	case http.StatusMethodNotAllowed:
		text := r.Method + " is not possible on " + r.URL.Path
		if route := d.describedAt(r); route != nil {
			w.Header().Set("Allow", strings.Join(slices.Sorted(maps.Keys(route.methods)), ", "))
		}
		d.fail(w, &refusal{status, "METHOD_NOT_ALLOWED", text})
	default:
		d.fail(w, &refusal{status, v2.Code_BAD_REQUEST.String(), http.StatusText(status)})
	}
}

// recovered answers a request that made this package panic.
func (d *door) recovered(w http.ResponseWriter, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	d.log.Error("HTTP door panicked", slog.String("method", r.Method), slog.Any("error", v),
		slog.String("stack", string(debug.Stack())))
	d.fail(w, refuse(v2.Code_INTERNAL_ERROR, "internal error"))
}
