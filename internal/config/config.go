// SPDX-License-Identifier: Apache-2.0

// Package config is the broker's configuration: one struct with defaults, one table that names every key, and
// the layers it is read from (defaults, file, environment, flags; later ones win). Keys carry the names that
// Apache RocketMQ gives them in broker.conf and namesrv.conf, so that an existing file works and mqadmin
// shows familiar words.
package config

//go:generate go run -C ../../tools ./settingsgen

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/roquetmq/roquet/internal/message"
)

// The roles a process can play. All are on by default; each may run alone.
const (
	RoleNameServer = "nameserver"
	RoleBroker     = "broker"
)

// FlushDiskType values: when a send is acknowledged.
const (
	SyncFlush  = "SYNC_FLUSH"  // after fsync; the default
	AsyncFlush = "ASYNC_FLUSH" // after write; a power cut may lose the last moments
)

// hostName is the default broker name: the host's name as far as a broker name may contain it.
func hostName() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "broker-a"
	}
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, name)
}

// HasRole tells whether the process plays the role.
func (c *Config) HasRole(role string) bool { return slices.Contains(c.Roles, role) }

// Port is the port a listener uses after PortOffset, 0 when it is switched off.
func (l *Listen) Port(base int) int {
	if base == 0 {
		return 0
	}
	return base + l.PortOffset
}

// Validate reports every value that cannot work, all at once.
func (c *Config) Validate() error {
	var faults []error
	bad := func(key string, format string, args ...any) {
		faults = append(faults, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...)))
	}
	for _, s := range c.Settings() {
		if wanted, ok := s.check(); !ok {
			bad(s.Key, "%q is %s", s.Text(), wanted)
		}
	}
	for _, role := range c.Roles {
		if role != RoleNameServer && role != RoleBroker {
			bad("roles", "%q is no role; the roles are %s and %s", role, RoleNameServer, RoleBroker)
		}
	}
	if len(c.Roles) == 0 {
		bad("roles", "empty: a process without a role does nothing")
	}
	c.validateIdentity(bad)
	c.validateListen(bad)
	c.TLS.validate(bad)
	c.validateStore(bad)
	if _, err := message.ParseDelayLevels(c.Message.DelayLevels); err != nil {
		bad("messageDelayLevel", "%v", err)
	}
	if c.Metrics.Exporter == "OTLP_GRPC" && c.Metrics.GRPCTarget == "" {
		bad("metricsGrpcExporterTarget", "empty: OTLP_GRPC needs the collector's host:port")
	}
	return errors.Join(faults...)
}

func (c *Config) validateIdentity(bad func(string, string, ...any)) {
	for key, name := range map[string]string{
		"brokerClusterName": c.Identity.ClusterName, "brokerName": c.Identity.BrokerName,
	} {
		if name == "" || len(name) > 100 || strings.ContainsAny(name, " :;,\x00\x01\x02/") {
			bad(key, "%q: a name has 1 to 100 characters without blanks, colons, commas and slashes", name)
		}
	}
	if c.Identity.BrokerID != 0 {
		bad("brokerId", "%d: only a master (0) can run; replicas are not supported yet", c.Identity.BrokerID)
	}
}

func (c *Config) validateListen(bad func(string, string, ...any)) {
	for _, extra := range c.Listen.Extra {
		addr, advertised, _ := strings.Cut(extra, "=")
		_, _, err := net.SplitHostPort(addr)
		_, _, err2 := net.SplitHostPort(advertised)
		if err := errors.Join(err, err2); err != nil {
			bad("listeners", "%q is not host:port=host:port (listened on = told to clients): %v", extra, err)
		}
	}
	used := map[int]string{}
	for _, port := range []struct {
		key  string
		base int
	}{
		{"namesrvPort", c.Listen.NamesrvPort},
		{"listenPort", c.Listen.BrokerPort},
		{"fastPort", c.Listen.FastPort},
		{"grpcServerPort", c.Listen.GRPCPort},
		{"httpPort", c.Listen.HTTPPort},
		{"metricsPromExporterPort", c.Metrics.PromPort},
	} {
		n := c.Listen.Port(port.base)
		if n < 0 || n > 65535 {
			bad(port.key, "port %d (with portOffset %d) is outside 0 … 65535", n, c.Listen.PortOffset)
		}
		if other, taken := used[n]; taken && n != 0 {
			bad(port.key, "port %d is also %s", n, other)
		}
		used[n] = port.key
	}
}

func (t *TLS) validate(bad func(string, string, ...any)) {
	if t.ClientAuth != "none" && t.ServerTrust == "" {
		bad("tls.server.trustCertPath", "empty: clients' certificates cannot be checked")
	}
	if (t.ServerCert == "") != (t.ServerKey == "") {
		bad("tls.server.keyPath", "a certificate and its key (certPath, keyPath) go together")
	}
	if (t.ClientCert == "") != (t.ClientKey == "") {
		bad("tls.client.keyPath", "a certificate and its key (certPath, keyPath) go together")
	}
	if t.Mode == "enforcing" && t.ServerCert == "" && !t.SelfSigned {
		bad("tls.server.certPath", "empty: without a certificate nobody can connect in mode enforcing")
	}
}

func (c *Config) validateStore(bad func(string, string, ...any)) {
	if c.Store.DiskMaxUsedRatio < 10 || c.Store.DiskWarningRatio > 99 ||
		c.Store.DiskMaxUsedRatio > c.Store.DiskWarningRatio {
		bad("diskMaxUsedSpaceRatio",
			"%d with diskSpaceWarningLevelRatio %d: wanted 10 ≤ max used ≤ warning ≤ 99 percent",
			c.Store.DiskMaxUsedRatio, c.Store.DiskWarningRatio)
	}
	if c.Store.Dir == "" {
		bad("storePathRootDir", "empty")
	}
}
