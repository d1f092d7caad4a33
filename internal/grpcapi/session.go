// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// session is what outlives a client's rpcs: its settings, its telemetry stream, the receipts renewed for it. It
// begins with the first settings of a client id and ends when the client says goodbye, or when it has neither a
// stream nor rpcs for SessionIdle. It is the Peer under which the client is registered, and a Caller: what the
// broker asks of it goes down the stream (command.go).
type session struct {
	api      *api
	id       uint64
	clientID string
	language protocol.LanguageCode
	seen     atomic.Int64 // unix ms of the last rpc
	profile  atomic.Pointer[profile]
	remote   atomic.Pointer[netip.AddrPort]
	receipts receipts
	expired  atomic.Bool            // the broker has given it up
	user     atomic.Pointer[string] // who made its last rpc; in whose name its receipts are renewed

	mu struct {
		sync.Mutex
		stream  *stream // nil when there is none
		topics  map[string]bool
		pending map[string]*question // by nonce
		ended   bool
	}
}

var (
	_ remoting.Peer   = (*session)(nil)
	_ remoting.Caller = (*session)(nil)
)

// ID is the session's among all peers of the process.
func (s *session) ID() uint64 { return s.id }

// RemoteAddr is the address of the client's newest telemetry stream.
func (s *session) RemoteAddr() netip.AddrPort { return *s.remote.Load() }

// belongsTo notes whose the session is.
func (s *session) belongsTo(user string) {
	if old := s.user.Load(); old == nil || *old != user {
		s.user.Store(&user)
	}
}

func (s *session) touch() { s.seen.Store(time.Now().UnixMilli()) }

// Close is called when the broker has not heard of the client for too long. Soon nothing is renewed for it any
// more; the session itself goes when its stream is gone too.
func (s *session) Close() { s.expired.Store(true) }

// profile is what a session's settings come to. It is not changed once it is published.
type profile struct {
	settings   *v2.Settings // as the client sent them
	clientType v2.ClientType
	group      string   // of a consumer
	topics     []string // that a producer named
	since      int64    // ms, when they came: the version of its subscriptions
}

func newProfile(settings *v2.Settings) *profile {
	p := &profile{
		settings: settings, clientType: settings.GetClientType(),
		group: settings.GetSubscription().GetGroup().GetName(), since: time.Now().UnixMilli(),
	}
	for _, topic := range settings.GetPublishing().GetTopics() {
		p.topics = append(p.topics, topic.GetName())
	}
	return p
}

// sessions is the table of sessions by client id. Safe for concurrent use.
type sessions struct {
	api *api
	mu  struct {
		sync.RWMutex
		byID map[string]*session
	}
}

// find returns the session of a client id, nil if there is none.
func (s *sessions) find(clientID string) *session {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mu.byID[clientID]
}

// open returns the session of a caller, a new one if there is none. It is nil when there are too many.
func (s *sessions) open(c *caller) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.mu.byID[c.clientID]; found != nil {
		return found
	}
	if len(s.mu.byID) >= s.api.cfg.Limits.MaxSessions {
		return nil
	}
	made := &session{api: s.api, id: s.api.registry.NextPeerID(), clientID: c.clientID, language: c.language}
	made.mu.topics, made.mu.pending = map[string]bool{}, map[string]*question{}
	made.remote.Store(&c.conn.remote)
	made.belongsTo(c.user)
	made.touch()
	s.mu.byID[c.clientID] = made
	return made
}

// end forgets a session: what is renewed for it becomes visible to others soon, questions to it fail, the
// broker is told.
func (s *sessions) end(gone *session) {
	s.mu.Lock()
	current := s.mu.byID[gone.clientID] == gone
	if current {
		delete(s.mu.byID, gone.clientID)
	}
	s.mu.Unlock()
	if !current {
		return
	}
	gone.mu.Lock()
	gone.mu.ended = true
	open := gone.mu.pending
	gone.mu.pending = nil
	gone.mu.Unlock()
	for _, q := range open {
		q.end(nil, remoting.ErrConnClosed)
	}
	s.api.returnAll(gone)
	s.api.cfg.OnEnd(gone)
	s.api.log.Debug("gRPC client gone", slog.String("client_id", gone.clientID),
		slog.Any("remote_addr", gone.RemoteAddr()))
}

func (s *sessions) all() []*session {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Values(s.mu.byID))
}

// endAll forgets all sessions, without a word to the broker about what was renewed: it is stopping.
func (s *sessions) endAll() {
	for _, one := range s.all() {
		one.receipts.drop()
		s.end(one)
	}
}

// run looks after the sessions until ctx is done: receipts are renewed, silent clients forgotten.
func (s *sessions) run(ctx context.Context) {
	s.api.health.look()
	tick := time.NewTicker(s.api.cfg.Limits.RenewPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			s.api.health.look()
			for _, one := range s.all() {
				s.lookAfter(ctx, one, now)
			}
		}
	}
}

func (s *sessions) lookAfter(ctx context.Context, one *session, now time.Time) {
	switch expired := one.expired.Swap(false); {
	case one.silent(now, s.api.cfg.Limits.SessionIdle), expired && one.silent(now, 0):
		s.end(one)
	case expired:
		s.api.returnAll(one)
	default:
		s.api.renewDue(ctx, one, now)
	}
}

// silent tells whether the client counts as gone.
func (s *session) silent(now time.Time, idle time.Duration) bool {
	if now.Sub(time.UnixMilli(s.seen.Load())) < idle {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.stream == nil
}
