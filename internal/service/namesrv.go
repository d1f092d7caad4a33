// SPDX-License-Identifier: Apache-2.0

package service

import (
	"log/slog"
	"path/filepath"

	"github.com/roquetmq/roquet/internal/config"
	"github.com/roquetmq/roquet/internal/nameserver"
)

// names is a name server: its tables and the request families over them.
type names struct {
	routes   *nameserver.Routes
	kv       *nameserver.KV
	lookups  *routeRequests
	changes  *namesRequests
	settings *settings
}

func newNames(cfg *config.Config, self *identity, set *settings, log *slog.Logger) (*names, error) {
	kv, err := nameserver.OpenKV(filepath.Join(cfg.Store.Dir, "namesrv", "kvConfig.json"))
	if err != nil {
		return nil, err
	}
	n := &names{kv: kv, settings: set}
	n.routes = nameserver.NewRoutes(nameserver.Config{
		SupportActingMaster: true, OrderMessageEnabled: true, Logger: log.With("component", "nameserver"),
	}, kv)
	n.lookups = &routeRequests{routes: n.routes, self: self}
	n.changes = &namesRequests{routes: n.routes, kv: kv}
	return n, nil
}
