// SPDX-License-Identifier: Apache-2.0

package service

import (
	"log/slog"
	"path/filepath"

	"github.com/roquetmq/roquet/internal/config"
	"github.com/roquetmq/roquet/internal/nameserver"
)

// names is a name server. The families of requests are types over it.
type names struct {
	routes   *nameserver.Routes
	kv       *nameserver.KV
	self     *identity
	settings *settings
}

func newNames(cfg *config.Config, self *identity, set *settings, log *slog.Logger) (*names, error) {
	kv, err := nameserver.OpenKV(filepath.Join(cfg.Store.Dir, "namesrv", "kvConfig.json"))
	if err != nil {
		return nil, err
	}
	routes := nameserver.NewRoutes(log.With("component", "nameserver"), kv)
	return &names{routes: routes, kv: kv, self: self, settings: set}, nil
}
