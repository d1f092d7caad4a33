// SPDX-License-Identifier: Apache-2.0

// Package config is the broker's configuration: one struct with defaults, one table that names every key, and
// the layers it is read from (defaults, file, environment, flags; later ones win). Keys carry the names that
// Apache RocketMQ gives them in broker.conf and namesrv.conf, so that an existing file works and mqadmin
// shows familiar words.
package config

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"
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

// Config is the whole configuration. New fills in defaults; a value that was read is checked by Validate. It
// is not changed after start, except through a copy that the owner swaps in.
type Config struct {
	Roles    []string
	Identity Identity
	Listen   Listen
	TLS      TLS
	Store    Store
	Topic    Topic
	Message  Message
	Client   Client
	Auth     Auth
	Log      Log
	Metrics  Metrics
}

// Identity is what this broker is called and where it is found.
type Identity struct {
	ClusterName   string   // default DefaultCluster
	BrokerName    string   // default the host's name
	BrokerID      int64    // 0, the master; other ids are refused until replicas exist
	AdvertiseHost string   // brokerIP1: host name or address handed to clients; empty = derived from BindAddress
	NamesrvAddrs  []string // host:port of name servers to register with, besides the one in this process
	RegionID      string   // default DefaultRegion; returned as MSG_REGION
}

// Listen holds addresses and ports. A port of 0 switches its listener off; PortOffset is added to every other
// one.
type Listen struct {
	BindAddress   string        // default 127.0.0.1; 0.0.0.0 serves other machines
	NamesrvPort   int           // 9876
	BrokerPort    int           // 10911 (listenPort)
	FastPort      int           // 10909
	GRPCPort      int           // 8081
	HTTPPort      int           // 8080
	PortOffset    int           // default 0
	MaxConns      int           // connections in total, default 200,000
	MaxConnsPerIP int           // connections of one address, default 100,000
	IdleTimeout   time.Duration // a connection without traffic is closed, default 120 s
	Extra         []string      // more listeners, each addr=advertised: clients that come by it are told advertised
	ProxyProtocol bool          // accept HAProxy PROXY headers; default false, since a header can claim any address
}

// TLS says which connections are encrypted and whom they trust. Files are PEM; those of the server are read
// again when they change.
type TLS struct {
	Mode        string // tls.server.mode: permissive (default: plain text too), enforcing or disabled
	SelfSigned  bool   // tls.test.mode.enable: without a certificate the server makes one up, default true
	ServerCert  string // tls.server.certPath, with the chain behind it
	ServerKey   string // tls.server.keyPath, not encrypted
	ServerTrust string // tls.server.trustCertPath: who signs clients' certificates
	ClientAuth  string // tls.server.need.client.auth: none (default), optional or require
	Client      bool   // tls.enable: name servers are spoken to with TLS
	ClientCert  string // tls.client.certPath
	ClientKey   string // tls.client.keyPath
	ClientTrust string // tls.client.trustCertPath: who signs the name servers' certificates
	AuthServer  bool   // tls.client.authServer: check them; without a trustCertPath by the system's roots
}

// Store is where and how messages are kept.
type Store struct {
	Dir                string        // storePathRootDir, default ./data
	FlushDiskType      string        // SYNC_FLUSH or ASYNC_FLUSH
	FileReservedTime   time.Duration // messages older than this are dropped with their segment, default 72 h
	MaxBytes           int64         // log size at which the oldest segments go, 0 = no limit
	SegmentBytes       int64         // size of one log segment
	DiskMaxUsedRatio   int           // percent of the volume in use at which old segments go early, default 85
	DiskWarningRatio   int           // percent at which writes stop, default 95
	FlushOffsetsPeriod time.Duration // how often committed consumer offsets are written, default 5 s
	FlushOffsetHistory time.Duration // reserved by Apache; shown only
	IndexCheckpoint    time.Duration // at most this long between index checkpoints, default 5 s
}

// Topic holds the rules for topics and groups.
type Topic struct {
	AutoCreateTopic       bool  // autoCreateTopicEnable, default true
	AutoCreateGroup       bool  // autoCreateSubscriptionGroup, default true
	DefaultQueueNums      int32 // defaultTopicQueueNums, default 8
	BrokerPermission      int32 // 6 = read and write
	TraceTopic            bool  // traceTopicEnable, default false
	TraceOn               bool  // traceOn, default true
	ClusterTopic          bool  // clusterTopicEnable, default true
	BrokerTopic           bool  // brokerTopicEnable, default true
	RejectTransactions    bool  // rejectTransactionMessage, default false
	NotifyConsumerChanges bool  // notifyConsumerIdsChangedEnable, default true
}

// Message holds the rules for messages.
type Message struct {
	MaxSizeBytes   int32         // maxMessageSize, default 4 MiB
	DelayLevels    string        // messageDelayLevel
	PropertyFilter bool          // enablePropertyFilter: SQL92 subscriptions, default true; the original's is false
	Recall         bool          // recallMessageEnable
	QueryMaxNum    int32         // defaultQueryMaxNum, default 32
	LitePull       bool          // litePullMessageEnable, default true
	LongPolling    bool          // longPollingEnable, default true
	ShortPolling   time.Duration // shortPollingTimeMills, used when long polling is off
	TransTimeout   time.Duration // transactionTimeOut, default 6 s
	TransInterval  time.Duration // transactionCheckInterval, default 30 s
	TransCheckMax  int32         // transactionCheckMax, default 15

	ServerSideReset bool  // useServerSideResetOffset, default true: false pushes resets to clients that are online
	PullCount       int   // maxTransferCountOnMessageInMemory: most messages of one pull, default 32
	PullBytes       int64 // maxTransferBytesOnMessageInMemory: most bytes of one pull, default 256 KiB
}

// Client bounds what clients may keep in flight, and how long their state lives.
type Client struct {
	SendTimeout      time.Duration // how long a send waits for room, default 2.5 s (clients wait 3)
	SendQueueCount   int           // sends in flight, default 10,000
	SendQueueBytes   int64         // bytes of sends in flight, default 64 MiB
	PullQueueCount   int           // pulls held or in work, default 100,000
	ChannelExpiry    time.Duration // channelExpiredTimeout, default 120 s
	RegisterInterval time.Duration // registerNameServerPeriod, default 30 s
	DrainDelay       time.Duration // drainDelay, default 0: how long a stop serves on after it left the name servers
}

// Auth says who may come in and what for: docs/security.md. Values of the first two: auto (as soon as there is a
// user), true, false.
type Auth struct {
	Authentication   string // authenticationEnabled, default auto: requests need credentials
	Authorization    string // authorizationEnabled, default auto: and rights
	File             string // authFile: YAML with users and rules, or a plain_acl.yml of RocketMQ 4
	InitUser         string // initAuthenticationUser: a super user, {"username":…,"password":…}
	InnerCredentials string // innerClientAuthenticationCredentials: {"accessKey":…,"secretKey":…}, a super user too
}

// Log says how the process reports.
type Log struct {
	Level    string        // debug, info, warn, error
	Format   string        // text or json
	SlowCall time.Duration // calls that take longer are told at warn, 0 = none, default 1 s
}

// Metrics says how metrics leave the process.
type Metrics struct {
	Exporter     string        // PROM (a page for Prometheus, the default), OTLP_GRPC, LOG or DISABLE
	PromPort     int           // 5557
	PromHost     string        // empty: BindAddress
	GRPCTarget   string        // of OTLP_GRPC: host:port, which is TLS, or http://host:port
	GRPCHeader   string        // name:value, …
	Label        string        // of every series, name:value, …
	Cardinality  int           // series of one metric, default 50,000; more are one series
	GRPCInterval time.Duration // default 60 s
	GRPCTimeout  time.Duration // of one export, default 3 s
}

// New returns the defaults.
func New() *Config {
	return &Config{
		Roles:    []string{RoleNameServer, RoleBroker},
		Identity: Identity{ClusterName: "DefaultCluster", BrokerName: hostName(), RegionID: "DefaultRegion"},
		Listen: Listen{
			BindAddress: "127.0.0.1", NamesrvPort: 9876, BrokerPort: 10911, FastPort: 10909,
			GRPCPort: 8081, HTTPPort: 8080, MaxConns: 200_000, MaxConnsPerIP: 100_000,
			IdleTimeout: 120 * time.Second,
		},
		TLS: TLS{Mode: "permissive", SelfSigned: true, ClientAuth: "none"},
		Store: Store{
			Dir: "data", FlushDiskType: SyncFlush, FileReservedTime: 72 * time.Hour, SegmentBytes: 32 << 20,
			DiskMaxUsedRatio: 85, DiskWarningRatio: 95, FlushOffsetsPeriod: 5 * time.Second,
			FlushOffsetHistory: time.Minute, IndexCheckpoint: 5 * time.Second,
		},
		Topic: Topic{
			AutoCreateTopic: true, AutoCreateGroup: true, DefaultQueueNums: 8, BrokerPermission: 6, TraceOn: true,
			ClusterTopic: true, BrokerTopic: true, NotifyConsumerChanges: true,
		},
		Message: Message{
			MaxSizeBytes:   4 << 20,
			DelayLevels:    DefaultDelayLevels,
			PropertyFilter: true,
			Recall:         true,
			QueryMaxNum:    32,
			LitePull:       true,
			LongPolling:    true,
			ShortPolling:   time.Second,
			TransTimeout:   6 * time.Second,
			TransInterval:  30 * time.Second,
			TransCheckMax:  15,

			ServerSideReset: true, PullCount: 32, PullBytes: 256 << 10,
		},
		Client: Client{
			SendTimeout: 2500 * time.Millisecond, SendQueueCount: 10_000, SendQueueBytes: 64 << 20,
			PullQueueCount: 100_000, ChannelExpiry: 120 * time.Second, RegisterInterval: 30 * time.Second,
		},
		Auth: Auth{Authentication: "auto", Authorization: "auto"},
		Log:  Log{Level: "info", Format: "text", SlowCall: time.Second},
		Metrics: Metrics{
			Exporter: "PROM", PromPort: 5557, Cardinality: 50_000, GRPCInterval: time.Minute,
			GRPCTimeout: 3 * time.Second,
		},
	}
}

// DefaultDelayLevels are RocketMQ's 18 delay levels.
const DefaultDelayLevels = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

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
	if c.Message.MaxSizeBytes < 1024 || c.Message.MaxSizeBytes > 15<<20 {
		bad("maxMessageSize", "%d is outside 1024 … %d bytes (a frame holds 16 MiB)", c.Message.MaxSizeBytes, 15<<20)
	}
	if _, err := ParseDelayLevels(c.Message.DelayLevels); err != nil {
		bad("messageDelayLevel", "%v", err)
	}
	if c.Topic.DefaultQueueNums < 1 || c.Topic.DefaultQueueNums > 1024 {
		bad("defaultTopicQueueNums", "%d is outside 1 … 1024", c.Topic.DefaultQueueNums)
	}
	for key, value := range map[string]string{
		"authenticationEnabled": c.Auth.Authentication, "authorizationEnabled": c.Auth.Authorization,
	} {
		if !slices.Contains([]string{"auto", "true", "false"}, value) {
			bad(key, "%q is none of auto (as soon as there is a user), true, false", value)
		}
	}
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, c.Log.Level) {
		bad("logLevel", "%q is none of debug, info, warn, error", c.Log.Level)
	}
	if !slices.Contains([]string{"PROM", "OTLP_GRPC", "LOG", "DISABLE"}, c.Metrics.Exporter) {
		bad("metricsExporterType", "%q is none of PROM, OTLP_GRPC, LOG, DISABLE", c.Metrics.Exporter)
	}
	if c.Metrics.Exporter == "OTLP_GRPC" && c.Metrics.GRPCTarget == "" {
		bad("metricsGrpcExporterTarget", "empty: OTLP_GRPC needs the collector's host:port")
	}
	if c.Log.Format != "text" && c.Log.Format != "json" {
		bad("logFormat", "%q is neither text nor json", c.Log.Format)
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
	if !slices.Contains([]string{"permissive", "enforcing", "disabled"}, t.Mode) {
		bad("tls.server.mode", "%q is none of permissive, enforcing, disabled", t.Mode)
	}
	if !slices.Contains([]string{"none", "optional", "require"}, t.ClientAuth) {
		bad("tls.server.need.client.auth", "%q is none of none, optional, require", t.ClientAuth)
	} else if t.ClientAuth != "none" && t.ServerTrust == "" {
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
	if c.Store.FlushDiskType != SyncFlush && c.Store.FlushDiskType != AsyncFlush {
		bad("flushDiskType", "%q is neither %s nor %s", c.Store.FlushDiskType, SyncFlush, AsyncFlush)
	}
	if c.Store.SegmentBytes < 1<<20 || c.Store.SegmentBytes > 1<<30 {
		bad("segmentSize", "%d is outside 1 MiB … 1 GiB", c.Store.SegmentBytes)
	}
	if c.Store.DiskMaxUsedRatio < 10 || c.Store.DiskWarningRatio > 99 ||
		c.Store.DiskMaxUsedRatio > c.Store.DiskWarningRatio {
		bad(
			"diskMaxUsedSpaceRatio",
			"%d with diskSpaceWarningLevelRatio %d: wanted 10 ≤ max used ≤ warning ≤ 99 percent",
			c.Store.DiskMaxUsedRatio, c.Store.DiskWarningRatio,
		)
	}
	if c.Store.Dir == "" {
		bad("storePathRootDir", "empty")
	}
}

// ParseDelayLevels reads "1s 5s 1m 2h 1d": the delays of levels 1, 2, 3 … Units are s, m, h and d.
func ParseDelayLevels(text string) ([]time.Duration, error) {
	units := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}
	var levels []time.Duration
	for word := range strings.FieldsSeq(text) {
		unit, known := units[word[len(word)-1]]
		var n int64
		if _, err := fmt.Sscanf(word[:len(word)-1]+" ", "%d ", &n); err != nil || !known || n < 0 || n > 1_000_000 {
			return nil, fmt.Errorf("%q is no delay: wanted a number and one of s, m, h, d", word)
		}
		levels = append(levels, time.Duration(n)*unit)
	}
	if len(levels) == 0 || len(levels) > 64 {
		return nil, fmt.Errorf("%d levels: wanted 1 to 64", len(levels))
	}
	return levels, nil
}
