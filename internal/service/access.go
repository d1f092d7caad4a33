// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"time"

	"github.com/roquetmq/roquet/internal/auth"
	"github.com/roquetmq/roquet/internal/broker"
	"github.com/roquetmq/roquet/internal/config"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
	"github.com/roquetmq/roquet/internal/store"
)

// access decides for all doors who may do what: it wraps every processor of the registry. Doors that have
// credentials of their own kind ask it who somebody is.
type access struct {
	table   *auth.Table
	rights  map[protocol.Code]right
	cluster string
	replies string // the topic of replies, which everybody may answer to
}

var _ remoting.Gate = (*access)(nil)

// newAccess reads users and rules; journal is nil for a process without a store.
func newAccess(cfg *config.Config, journal store.Journal, log *slog.Logger) (*access, error) {
	users, err := settledUsers(&cfg.Auth)
	if err != nil {
		return nil, err
	}
	table, err := auth.NewTable(auth.Config{
		Authentication: cfg.Auth.Authentication, Authorization: cfg.Auth.Authorization, File: cfg.Auth.File,
		Users: users, Logger: log.With("component", "auth"),
	}, journal)
	return &access{
		table: table, rights: rightsOf(), cluster: cfg.Identity.ClusterName,
		replies: broker.SystemNames{Cluster: cfg.Identity.ClusterName}.ReplyTopic(),
	}, err
}

// settledUsers are the super users that settings name.
func settledUsers(cfg *config.Auth) (users []auth.User, err error) {
	if cfg.InitUser != "" {
		var u auth.User
		if json.Unmarshal([]byte(cfg.InitUser), &u) != nil {
			return nil, errors.New(`initAuthenticationUser: wanted {"username":"…","password":"…"}`)
		}
		users = append(users, u)
	}
	inner, err := innerCredentials(cfg)
	if inner.AccessKey != "" {
		users = append(users, auth.User{Username: inner.AccessKey, Password: inner.SecretKey})
	}
	return users, err
}

// Signer signs native requests as a user. The zero value signs nothing. Source: SessionCredentials.java.
type Signer struct{ AccessKey, SecretKey string }

func innerCredentials(cfg *config.Auth) (c Signer, err error) {
	if cfg.InnerCredentials != "" && json.Unmarshal([]byte(cfg.InnerCredentials), &c) != nil {
		err = errors.New(`innerClientAuthenticationCredentials: wanted {"accessKey":"…","secretKey":"…"}`)
	}
	return c, err
}

// Sign returns a header with the signature of the request that carries it; h itself when there is nothing to sign with.
// Source: AclClientRPCHook.java.
func (c Signer) Sign(h protocol.Header, body []byte) protocol.Header {
	if c.AccessKey == "" {
		return h
	}
	signed := &signedHeader{Header: h, user: c.AccessKey}
	frame := protocol.AppendFrame(nil, &protocol.Command{}, signed, nil)
	if cmd, err := protocol.DecodeFrame(frame[4:]); err == nil {
		signed.signature = auth.Sign(c.SecretKey,
			signedFields(&remoting.Call{Ext: &cmd.Ext, Version: protocol.VersionCurrent}), body)
	}
	return signed
}

// signedHeader is a header with a signature. Its fields sort before those of all requests, which begin in lower case.
type signedHeader struct {
	protocol.Header // nil for none

	user, signature string
}

// AppendExt implements protocol.Header.
func (h *signedHeader) AppendExt(w *protocol.ExtWriter) {
	w.String(extAccessKey, h.user)
	if h.signature != "" {
		w.String(extSignature, h.signature)
	}
	if h.Header != nil {
		h.Header.AppendExt(w)
	}
}

// Closed tells whether requests need credentials.
func (a *access) Closed() bool { return a.table.Book().On() }

// Identify returns the user that an Authorization header proves.
func (a *access) Identify(authorization, date string, from netip.Addr) (string, error) {
	book := a.table.Book()
	if !book.On() || (authorization == "" && book.Trusts(from)) {
		return "", nil
	}
	user, err := book.Authorized(authorization, date, time.Now())
	if err != nil {
		return "", &protocol.Error{Code: protocol.Unauthenticated, Remark: err.Error()}
	}
	return user, nil
}

// guard is the wrapper of every processor. While nobody needs credentials it costs a look.
func (a *access) guard(next remoting.Processor) remoting.Processor {
	return func(ctx context.Context, c *remoting.Call) {
		if book := a.table.Book(); book.On() {
			if err := a.check(book, c); err != nil {
				c.Fail(wireError(c, err))
				return
			}
		}
		next(ctx, c)
	}
}

// wireError is how a refusal reaches a client. Native clients know one code for both kinds.
func wireError(c *remoting.Call, err error) error {
	credential := isA[*auth.CredentialError](err)
	switch {
	case credential && c.Protocol != remoting.ProtocolRemoting:
		return &protocol.Error{Code: protocol.Unauthenticated, Remark: err.Error()}
	case credential, isA[*auth.RightError](err):
		return &protocol.Error{Code: protocol.NoPermission, Remark: err.Error()}
	default:
		return err
	}
}

// check finds out who makes the call, if its door has not, and whether they may.
func (a *access) check(book *auth.Book, c *remoting.Call) error {
	from := c.Peer.RemoteAddr().Addr().Unmap()
	if c.Protocol == remoting.ProtocolRemoting && c.Ext != nil {
		if user := c.Ext.Value(extAccessKey); user != "" {
			if err := book.Signed(user, c.Ext.Value(extSignature), signedFields(c), c.Body); err != nil {
				return err
			}
			c.User = cloned(user)
		}
	}
	if c.User == "" && book.Trusts(from) {
		return nil
	}
	governs, err := book.Governs(c.User)
	if err != nil || governs {
		return err
	}
	return a.mayCall(book, c, from)
}

// mayOn is access.mayOn, for those who find out the topic of a request from what lies at a position in the log.
type mayOn func(c *remoting.Call, any auth.Actions) func(topic string) error

// record asks for the topic of a record.
func (m mayOn) record(c *remoting.Call, any auth.Actions, rec message.Record) error {
	if may := m(c, any); may != nil {
		return may(string(rec.Topic()))
	}
	return nil
}

// mayOn is what asks whether the caller may do any of the actions with a topic that the call does not name, or names
// wrongly; nil for who needs no rights.
func (a *access) mayOn(c *remoting.Call, any auth.Actions) func(topic string) error {
	if c.User == "" {
		return nil
	}
	return func(topic string) error {
		from := c.Peer.RemoteAddr().Addr().Unmap()
		return wireError(c, a.table.Book().May(c.User, auth.OfTopic(topic), any, from))
	}
}

// Fields of a signed native request. Source: SessionCredentials.java.
const (
	extAccessKey   = "AccessKey"
	extSignature   = "Signature"
	extUniqueQuery = "_UNIQUE_KEY_QUERY"
)

// signedFields are the values of a request's fields in the order of their names: what is signed, before the body.
// Source: DefaultAuthenticationContextBuilder.java.
func signedFields(c *remoting.Call) []byte {
	signed := make([]byte, 0, 512)
	for key, value := range c.Ext.Sorted() {
		if key != extSignature && (key != extUniqueQuery || c.Version > protocol.VersionV4_9_3) {
			signed = append(signed, value...)
		}
	}
	return signed
}

// mayCall asks for each of the rights that the call needs.
func (a *access) mayCall(book *auth.Book, c *remoting.Call, from netip.Addr) error {
	need, known := a.rights[c.Code]
	if !known {
		need = right{cluster: auth.Update}
	}
	if need.cluster != 0 {
		return book.May(c.User, auth.Resource{Kind: auth.Cluster, Name: a.cluster}, need.cluster, from)
	}
	if need.topic|need.group == 0 {
		return nil
	}
	var n needs
	if err := n.read(c); err != nil {
		return err
	}
	if len(n.topics)+len(n.groups) == 0 && !need.optional {
		return &auth.RightError{Reason: c.Code.String() + " names no topic or group, so nobody may"}
	}
	for _, group := range n.groups {
		if err := book.May(c.User, auth.OfGroup(group), need.group, from); err != nil {
			return err
		}
	}
	for _, topic := range n.topics {
		on, actions := auth.OfTopic(topic), need.topic
		isReply := topic == a.replies &&
			(c.Code == protocol.SendReplyMessage || c.Code == protocol.SendReplyMessageV2)
		if isReply || on.Kind == auth.Group && n.isRetryOfGroup(c.Code, on.Name) {
			continue
		}
		if on.Kind == auth.Group && actions&auth.Pub != 0 { // sending to a retry topic is part of consuming
			actions = actions&^auth.Pub | auth.Sub
		}
		if err := book.May(c.User, on, actions, from); err != nil {
			return err
		}
	}
	return nil
}
