// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/remoting"
)

// telemetryStream is grpc-go's side of a telemetry stream.
type telemetryStream = grpc.BidiStreamingServer[v2.TelemetryCommand, v2.TelemetryCommand]

// Telemetry is the stream that a client keeps open: it sends its settings, gets them back merged, once for each
// time, and takes commands. Without a client id, credentials or rights it gets a status and the end of the stream.
// It ends when the client closes its side, or with the connection. Source: ClientActivity.java telemetry.
func (a *api) Telemetry(rpc telemetryStream) error {
	c, err := a.caller(rpc.Context())
	if err != nil {
		return rpc.Send(&v2.TelemetryCommand{Status: statusOf(err)})
	}
	// The Rust client goes on when it has the headers.
	if err := rpc.SendHeader(nil); err != nil {
		return err
	}
	st := &stream{rpc: rpc, limit: a.cfg.Limits.MaxOwedBytes}
	defer st.end(&c)
	return a.listen(rpc, &c, st)
}

// listen takes what the client sends until it closes its side.
func (a *api) listen(rpc telemetryStream, c *caller, st *stream) error {
	for {
		cmd, err := rpc.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		a.meter.arrived(rpc.Context(), cmd)
		if c.session != nil {
			c.session.touch()
		}
		switch said := cmd.GetCommand().(type) {
		case *v2.TelemetryCommand_Settings:
			if err := a.settled(rpc.Context(), c, st, said.Settings); err != nil {
				if s := statusOf(err); s.GetCode() == v2.Code_UNAUTHORIZED || s.GetCode() == v2.Code_FORBIDDEN {
					return st.send(&v2.TelemetryCommand{Status: s})
				}
				return telemetryError(err)
			}
		case *v2.TelemetryCommand_ThreadStackTrace:
			c.answered(said.ThreadStackTrace.GetNonce(), cmd)
		case *v2.TelemetryCommand_VerifyMessageResult:
			c.answered(said.VerifyMessageResult.GetNonce(), cmd)
		}
	}
}

// telemetryError ends the stream with gRPC's own status: INVALID_ARGUMENT for what the client got wrong.
func telemetryError(err error) error {
	if grpcstatus.Code(err) != codes.Unknown {
		return err
	}
	code := codes.Internal
	if st := statusOf(err); st.GetCode() >= v2.Code_BAD_REQUEST && st.GetCode() < v2.Code_INTERNAL_ERROR {
		code = codes.InvalidArgument
	}
	return grpcstatus.Error(code, "process client telemetryCommand failed. "+err.Error())
}

// settled takes over a client's settings, registers it and answers with what they come to.
func (a *api) settled(ctx context.Context, c *caller, st *stream, settings *v2.Settings) error {
	if err := a.checkSettings(settings); err != nil {
		return err
	}
	session := a.sessions.open(c)
	if session == nil {
		return refuse(v2.Code_TOO_MANY_REQUESTS,
			"%d clients are connected, which is the limit", a.cfg.Limits.MaxSessions)
	}
	c.session = session
	session.profile.Store(newProfile(settings))
	session.attach(st, c)
	if err := a.register(ctx, c); err != nil {
		return err
	}
	return st.send(&v2.TelemetryCommand{
		Status: ok(), Command: &v2.TelemetryCommand_Settings{Settings: a.merged(settings)},
	})
}

// checkSettings refuses settings that cannot be.
func (a *api) checkSettings(settings *v2.Settings) error {
	switch settings.GetClientType() {
	case v2.ClientType_LITE_PUSH_CONSUMER, v2.ClientType_LITE_SIMPLE_CONSUMER:
		return grpcstatus.Error(codes.Unimplemented, noLiteTopics)
	}
	if p := settings.GetPublishing(); p != nil {
		for _, topic := range p.GetTopics() {
			if err := a.checkTopic(topic); err != nil {
				return err
			}
		}
		return nil
	}
	sub := settings.GetSubscription()
	if sub == nil {
		return grpcstatus.Error(codes.InvalidArgument, "there is no publishing or subscription data in settings")
	}
	if err := a.checkGroup(sub.GetGroup()); err != nil {
		return err
	}
	for _, entry := range sub.GetSubscriptions() {
		if err := a.checkTopic(entry.GetTopic()); err != nil {
			return err
		}
		if _, err := expressionOf(entry.GetExpression()); err != nil {
			return err
		}
	}
	return nil
}

// attach makes st the client's stream, in place of an older one.
func (s *session) attach(st *stream, c *caller) {
	s.touch()
	s.remote.Store(&c.conn.remote)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.stream = st
}

// detach takes st away from the session unless a newer stream has taken its place.
func (s *session) detach(st *stream) {
	s.touch()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.stream == st {
		s.mu.stream = nil
	}
}

// stream is the server's side of a telemetry stream: commands are written in order, by whoever finds nobody
// writing. What a client does not take is bounded; a command over the bound is refused, not dropped.
type stream struct {
	rpc     telemetryStream
	limit   int // bytes owed
	writers sync.WaitGroup

	mu struct {
		sync.Mutex
		owed    []*v2.TelemetryCommand
		bytes   int
		writing bool
		ended   bool
	}
}

// errOwed says that a client does not take its commands.
var errOwed = errors.New("client does not read its telemetry stream")

// send writes a command, or leaves it to whoever is writing. It waits for the client.
func (st *stream) send(cmd *v2.TelemetryCommand) error {
	first, err := st.enqueue(cmd)
	if err != nil || !first {
		return err
	}
	return st.write()
}

// post is send for a goroutine that must not wait for the client.
func (st *stream) post(cmd *v2.TelemetryCommand) error {
	first, err := st.enqueue(cmd)
	if err == nil && first {
		st.writers.Go(func() {
			// The stream's handler learns of the end itself.
			_ = st.write()
		})
	}
	return err
}

// enqueue reports whether the caller has to write.
func (st *stream) enqueue(cmd *v2.TelemetryCommand) (first bool, err error) {
	size := proto.Size(cmd)
	st.mu.Lock()
	defer st.mu.Unlock()
	switch {
	case st.mu.ended:
		return false, remoting.ErrConnClosed
	case st.mu.bytes > 0 && st.mu.bytes+size > st.limit:
		return false, errOwed
	}
	st.mu.owed = append(st.mu.owed, cmd)
	st.mu.bytes += size
	first = !st.mu.writing
	st.mu.writing = true
	return first, nil
}

// write writes what is owed until there is no more of it.
func (st *stream) write() (err error) {
	st.mu.Lock()
	for len(st.mu.owed) > 0 && !st.mu.ended {
		cmd := st.mu.owed[0]
		st.mu.owed = st.mu.owed[1:]
		st.mu.bytes -= proto.Size(cmd)
		st.mu.Unlock()
		err = st.rpc.Send(cmd)
		st.mu.Lock()
		st.mu.ended = st.mu.ended || err != nil
	}
	st.mu.writing, st.mu.owed = false, nil
	st.mu.Unlock()
	return err
}

// end is called when the handler is about to return: from then on nothing may be written.
func (st *stream) end(c *caller) {
	if c.session != nil {
		c.session.detach(st)
	}
	st.mu.Lock()
	st.mu.ended = true
	st.mu.Unlock()
	st.writers.Wait()
}
