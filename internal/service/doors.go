// SPDX-License-Identifier: Apache-2.0

package service

import (
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"time"

	"google.golang.org/grpc/grpclog"

	"github.com/roquetmq/roquet/internal/broker"
	"github.com/roquetmq/roquet/internal/gateway"
	"github.com/roquetmq/roquet/internal/grpcapi"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// LogGRPC has the errors that grpc-go finds by itself written to log. It is called once, before New.
func LogGRPC(log *slog.Logger) {
	problems := slog.NewLogLogger(log.With("component", "grpc").Handler(), slog.LevelWarn).Writer()
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, problems))
}

// newGRPC makes the door of the 5.x clients over the broker's registry.
func (s *Service) newGRPC(registry *remoting.Registry) *grpcapi.Server {
	return grpcapi.New(grpcapi.Config{
		Names: door{s.node}, Metadata: door{s.node},
		BrokerName: s.self.brokerName, MaxBodyBytes: s.node.sender.MaxMessageBytes,
		MaxDelay: broker.TimerMaxDelay, Ready: s.ready, Gate: s.access,
		OnEnd:  func(peer remoting.Peer) { s.node.disconnected(peer, time.Now()) },
		Limits: grpcapi.DefaultLimits(), Logger: s.log.With(slog.String("component", "grpc")),
	}, registry)
}

// door is the broker's rules of names, and its tables, for doors that have rules of their own besides: what belongs to
// the system is refused.
type door struct{ *node }

// CheckTopic refuses names that no topic may have, and the system's topics.
func (d door) CheckTopic(name string) error {
	if err := broker.ValidateTopic(name); err != nil {
		return err
	}
	if d.topics.IsSystem(name) {
		return errors.New("cannot access system topic")
	}
	return nil
}

// CheckGroup refuses names that no group may have, and the system's groups.
func (d door) CheckGroup(name string) error {
	if err := broker.ValidateGroup(name); err != nil {
		return err
	}
	if broker.IsSystemGroup(name) {
		return errors.New("cannot use system consumer group")
	}
	return nil
}

// Topic returns what a door has to know of a topic.
func (d door) Topic(name string) (grpcapi.Topic, bool) {
	cfg, ok := d.topics.Lookup(name)
	if !ok {
		return grpcapi.Topic{}, false
	}
	return grpcapi.Topic{
		MessageType: cfg.Attributes[broker.AttributeMessageType], WriteQueueNums: cfg.WriteQueueNums,
		Writable: cfg.Perm&^d.topics.Denied()&broker.PermWrite != 0,
	}, true
}

// Group returns what a door has to know of a group.
func (d door) Group(name string) (grpcapi.Group, bool) {
	cfg, ok := d.groups.Lookup(name)
	if !ok {
		return grpcapi.Group{}, false
	}
	g := grpcapi.Group{Orderly: cfg.ConsumeMessageOrderly, RetryMaxTimes: cfg.RetryMaxTimes}
	if cfg.RetryPolicy.Type == protocol.RetryExponential {
		g.Initial, g.Max, g.Multiplier = 5*time.Second, 2*time.Hour, 2 // Source: ExponentialRetryPolicy.java
		if p := cfg.RetryPolicy.Exponential; p != nil {
			g.Initial, g.Max, g.Multiplier = millis(p.Initial), millis(p.Max), p.Multiplier
		}
	} else if p := cfg.RetryPolicy.Customized; p != nil {
		g.Rests = mapped(p.Next, millis)
	}
	return g, true
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// newREST makes the HTTP door over the broker's registry. What a message may be, it asks the gRPC door.
func (s *Service) newREST(registry *remoting.Registry) (*gateway.Server, error) {
	var trace func(next http.Handler) http.Handler
	if s.tracing.Hook() != nil {
		trace = s.tracing.Handler
	}
	return gateway.New(gateway.Config{
		Trace: trace, Rules: s.grpc, BrokerName: s.self.brokerName, MaxBodyBytes: s.node.sender.MaxMessageBytes,
		IDs:  message.NewUniqueIDs(s.self.storeHost.Addr(), os.Getpid(), rand.Uint32()),
		Gate: s.access, Ready: s.ready, Metrics: s.metrics, Backup: backupRequests{s.node}.send,
		Logger: s.log.With(slog.String("component", "http")),
	}, registry)
}
