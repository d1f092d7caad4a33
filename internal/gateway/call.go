// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// client is an HTTP connection: the Peer of the calls that its requests make.
type client struct {
	id     uint64
	remote netip.AddrPort
	via    *remoting.Listener // nil in tests that bring their own connections
}

// ID is the connection's among all peers of the process.
func (c *client) ID() uint64 { return c.id }

// RemoteAddr is the client's address, the one a PROXY header named if there was one.
func (c *client) RemoteAddr() netip.AddrPort { return c.remote }

// Keys of what a request's context carries.
type (
	clientKey struct{} // *client
	userKey   struct{} // string: who makes the request
)

// accepted takes note of where a connection came from.
func (d *door) accepted(ctx context.Context, conn net.Conn) context.Context {
	c := &client{id: d.registry.NextPeerID(), remote: remoting.AddrPort(conn.RemoteAddr())}
	if handed, ok := conn.(interface{ Listener() *remoting.Listener }); ok {
		c.via = handed.Listener()
	}
	return context.WithValue(ctx, clientKey{}, c)
}

func clientOf(ctx context.Context) *client {
	if c, ok := ctx.Value(clientKey{}).(*client); ok {
		return c
	}
	return &client{}
}

// identified is the request with who makes it in its context. What is not below /v1/ is for everybody.
func (d *door) identified(r *http.Request) (*http.Request, error) {
	gate := d.cfg.Gate
	if gate == nil || !gate.Closed() || !strings.HasPrefix(r.URL.Path, "/v1/") {
		return r, nil
	}
	user, err := gate.Identify(r.Header.Get("Authorization"), r.Header.Get("X-Mq-Date-Time"),
		clientOf(r.Context()).remote.Addr())
	return r.WithContext(context.WithValue(r.Context(), userKey{}, user)), err
}

// pending is a call under way.
type pending struct {
	call     *remoting.Call
	answered chan struct{} // of capacity 1
	answer   remoting.Response
	err      error
}

// begin dispatches a request. It must be waited for.
func (d *door) begin(ctx context.Context, code protocol.Code, h protocol.Header, body []byte) *pending {
	p := &pending{answered: make(chan struct{}, 1)}
	c := clientOf(ctx)
	p.call = remoting.NewCall(code, h, body, c, func(r remoting.Response, err error) {
		p.answer, p.err = r, err
		p.answered <- struct{}{}
	})
	p.call.Protocol, p.call.Version, p.call.Via = remoting.ProtocolREST, protocol.VersionCurrent, c.via
	p.call.Language = protocol.LanguageHTTP
	p.call.User, _ = ctx.Value(userKey{}).(string)
	d.registry.Dispatch(ctx, p.call)
	return p
}

// wait waits for the answer, or until ctx is done, or until stop, which is errStopping. The error is, for an answer of
// another code than SUCCESS, a *protocol.Error beside the answer.
func (p *pending) wait(ctx context.Context, stop <-chan struct{}) (remoting.Response, error) {
	select {
	case <-p.answered:
	case <-ctx.Done():
		p.call.Cancel(ctx.Err())
		<-p.answered
	case <-stop:
		p.call.Cancel(errStopping)
		<-p.answered
	}
	if p.err == nil && p.answer.Code != protocol.Success {
		return p.answer, &protocol.Error{Code: p.answer.Code, Remark: p.answer.Remark}
	}
	return p.answer, p.err
}

// call makes a call and waits for its answer.
func (d *door) call(
	ctx context.Context, code protocol.Code, h protocol.Header, body []byte,
) (remoting.Response, error) {
	return d.begin(ctx, code, h, body).wait(ctx, nil)
}

// change is call for a request whose processor says SYSTEM_ERROR of what is wrong with the request.
func (d *door) change(
	ctx context.Context, code protocol.Code, h protocol.Header, body []byte,
) (remoting.Response, error) {
	answer, err := d.call(ctx, code, h, body)
	if answer.Code == protocol.SystemError {
		err = badRequest("%s", answer.Remark)
	}
	return answer, err
}

// body decodes the body of an answer.
func body[T any, P protocol.BodyOf[T]](answer remoting.Response, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return protocol.DecodeBody[T, P](answer.Body)
}
