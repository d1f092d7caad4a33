// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"

	v1 "github.com/roquetmq/roquet/api/proto/roquet/v1"
)

// An Error is a server's refusal.
type Error struct {
	Status int    // of HTTP
	Reason string // as RocketMQ 5 names it: TOPIC_NOT_FOUND
	Text   string // for people
}

// Error tells the cause, and the cure where it lies with the caller.
func (e *Error) Error() string {
	text := e.Text
	if e.Reason != "" {
		text += " (" + e.Reason + ")"
	}
	switch e.Status {
	case http.StatusUnauthorized:
		text += ": say who you are with --user and --password-file, or --token " +
			"(ROQUET_USER, ROQUET_PASSWORD, ROQUET_TOKEN)"
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		text += ": try again later"
	}
	return text
}

// refused is what an answer that is no success says.
func (c *Client) refused(resp *http.Response, body []byte) error {
	var said v1.Error
	err := protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(body, &said)
	if err != nil || said.GetMessage() == "" {
		first, _, _ := bytes.Cut(bytes.TrimSpace(body), []byte("\n"))
		if resp.StatusCode == http.StatusServiceUnavailable {
			return &Error{Status: resp.StatusCode, Text: string(first)}
		}
		return fmt.Errorf("%s answered %s, not as roquet does (%.80q): does --server name another program?",
			c.base, resp.Status, first)
	}
	return NewError(resp.StatusCode, &said)
}

// NewError is a refusal of a whole request or, with the status 0, of one item of it.
func NewError(status int, said *v1.Error) *Error {
	e := &Error{Status: status, Text: said.GetMessage()}
	if len(said.GetDetails()) > 0 {
		e.Reason = said.GetDetails()[0].GetReason()
	}
	return e
}

// unreachable says why no answer came, and what to do.
func (c *Client) unreachable(err error) error {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var notTLS tls.RecordHeaderError
	if request, ok := errors.AsType[*url.Error](err); ok {
		err = request.Err // without the address, which is said already
	}
	cure := "is roquet running there? (roquet serve; another address: --server or ROQUET_SERVER)"
	var dial *net.OpError
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s did not answer within %s: is the address right, is it overloaded? (--timeout)",
			c.base, c.cfg.Timeout)
	case errors.As(err, &unknown):
		cure = "name the file of its authority with --ca"
	case errors.As(err, &name):
		cure = "use a name of the certificate in --server"
	case errors.As(err, &notTLS), strings.Contains(err.Error(), "HTTP response to HTTPS"):
		cure = "it speaks without TLS there: --server http://" + c.base.Host
	case errors.As(err, &dial) && dial.Op == "dial":
		err = dial.Err
	}
	return fmt.Errorf("no answer from %s: %w: %s", c.base, err, cure)
}
