// SPDX-License-Identifier: Apache-2.0

package service

import (
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"

	"github.com/roquetmq/roquet/internal/gateway"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/remoting"
)

// newREST makes the HTTP door over the broker's registry. What a message may be, it asks the gRPC door.
func (s *Service) newREST(registry *remoting.Registry) (*gateway.Server, error) {
	groups := s.node.groups
	var trace func(next http.Handler) http.Handler
	if s.tracing.Hook() != nil {
		trace = s.tracing.Handler
	}
	return gateway.New(gateway.Config{
		Trace:        trace,
		Rules:        s.grpc,
		IDs:          message.NewUniqueIDs(s.self.storeHost.Addr(), os.Getpid(), rand.Uint32()),
		BrokerName:   s.self.brokerName,
		MaxBodyBytes: s.node.sender.MaxMessageBytes,
		Orderly: func(name string) bool {
			group, ok := groups.Lookup(name)
			return ok && group.ConsumeMessageOrderly
		},
		Gate:    s.access,
		Ready:   s.ready,
		Metrics: s.metrics,
		Backup:  backupRequests{s.node}.send,
		Logger:  s.log.With(slog.String("component", "http")),
	}, registry)
}
