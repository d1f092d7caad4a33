// SPDX-License-Identifier: Apache-2.0

package service

import (
	"log/slog"
	"testing"

	"github.com/roquetmq/roquet/internal/config"
	"github.com/roquetmq/roquet/internal/protocol"
)

// newTestService is a whole service on free ports and a folder of the test's own; it is not running.
func newTestService(t *testing.T, change func(*config.Config)) *Service {
	t.Helper()
	cfg := config.New()
	cfg.Store.Dir = t.TempDir()
	cfg.Identity.BrokerName = "broker-a"
	if change != nil {
		change(cfg)
	}
	s, err := New(cfg, "test", slog.New(slog.DiscardHandler), new(slog.LevelVar))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// allRoutes is every code of the tables, once.
func allRoutes(t *testing.T, s *Service) map[protocol.Code]bool {
	t.Helper()
	l := newLanes(&s.cfg.Client, "")
	served := map[protocol.Code]bool{}
	for _, route := range append(s.node.brokerRoutes(l, l), s.names.namesRoutes(l, l)...) {
		if served[route.Code] {
			t.Errorf("%s stands in two tables", route.Code)
		}
		served[route.Code] = true
	}
	return served
}
