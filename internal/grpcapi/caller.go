// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"cmp"
	"context"
	"strings"

	"google.golang.org/grpc/metadata"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// Metadata keys. What else clients send (versions, protocol names) has no effect. Source:
// GrpcConstants.java.
const (
	keyClientID      = "x-mq-client-id"
	keyLanguage      = "x-mq-language"
	keyClientVersion = "x-mq-client-version"
	keyAuthorization = "authorization"
	keyDateTime      = "x-mq-date-time"
)

// maxClientIDBytes bounds what a client may call itself.
const maxClientIDBytes = 1024

// caller is who makes an rpc.
type caller struct {
	clientID string
	session  *session // nil as long as the client has not sent settings
	conn     *connInfo
	language protocol.LanguageCode
	user     string // empty while nobody needs credentials
}

// peer is the caller for calls: its session, or the connection when it has none.
func (c *caller) peer() remoting.Peer {
	if c.session != nil {
		return c.session
	}
	return c.conn
}

// caller finds out who makes an rpc. Errors: UNAUTHORIZED, CLIENT_ID_REQUIRED, and else the first of checks.
func (a *api) caller(ctx context.Context, checks ...error) (caller, error) {
	c := caller{conn: connOf(ctx), clientID: oneValue(ctx, keyClientID)}
	if gate := a.cfg.Gate; gate != nil && gate.Closed() {
		var err error
		c.user, err = gate.Identify(oneValue(ctx, keyAuthorization), oneValue(ctx, keyDateTime), c.conn.remote.Addr())
		if err != nil {
			return c, err
		}
	}
	if strings.TrimSpace(c.clientID) == "" {
		return c, refuse(v2.Code_CLIENT_ID_REQUIRED, "client id cannot be empty")
	}
	if len(c.clientID) > maxClientIDBytes {
		return c, refuse(v2.Code_CLIENT_ID_REQUIRED, "client id is longer than 1024 bytes")
	}
	if c.session = a.sessions.find(c.clientID); c.session != nil {
		c.language = c.session.language
		c.session.touch()
		c.session.belongsTo(c.user)
	} else {
		c.language = languageOf(oneValue(ctx, keyLanguage))
	}
	return c, cmp.Or(checks...)
}

func oneValue(ctx context.Context, key string) string {
	if values := metadata.ValueFromIncomingContext(ctx, key); len(values) > 0 {
		return values[0]
	}
	return ""
}

// languageOf reads x-mq-language, which is free text here: Node says HTTP, others have names of their own.
func languageOf(name string) protocol.LanguageCode {
	switch name = strings.ToUpper(name); name {
	case "GOLANG":
		return protocol.LanguageGo
	case "DOT_NET", "CSHARP":
		return protocol.LanguageDotNet
	case "NODEJS":
		return protocol.LanguageNodeJS
	}
	return protocol.ParseLanguage(name)
}
