// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// A Setting is one key of the configuration. Its flag is the key in lower case with dashes unless Flag says
// otherwise, its environment variable ROQUET_ and the key in upper case with underscores.
type Setting struct {
	Key     string // as in broker.conf
	Flag    string // name of the command-line flag
	Usage   string // one line: meaning, unit
	Dynamic bool   // may be changed at run time by UPDATE_BROKER_CONFIG
	value   any    // pointer to the field
}

// Text is the setting's present value as it would be written in a file.
func (s *Setting) Text() string {
	switch v := s.value.(type) {
	case *string:
		return *v
	case *secret:
		return string(*v)
	case *bool:
		return strconv.FormatBool(*v)
	case *int:
		return strconv.Itoa(*v)
	case *int32:
		return strconv.Itoa(int(*v))
	case *int64:
		return strconv.FormatInt(*v, 10)
	case *[]string:
		return strings.Join(*v, ";")
	case *millis:
		return strconv.FormatInt(time.Duration(*v).Milliseconds(), 10)
	case *hours:
		return strconv.FormatFloat(time.Duration(*v).Hours(), 'f', -1, 64)
	default:
		panic(fmt.Sprintf("setting %s has a value of type %T", s.Key, v))
	}
}

// Shown is Text for others to see: of a secret only whether it is set.
func (s *Setting) Shown() string {
	if v, ok := s.value.(*secret); ok && *v != "" {
		return "(secret)"
	}
	return s.Text()
}

// Set parses text into the setting. The error names the key, the text and what was wanted.
func (s *Setting) Set(text string) error {
	text = strings.TrimSpace(text)
	var err error
	switch v := s.value.(type) {
	case *string:
		*v = text
	case *secret:
		*v = secret(text)
	case *bool:
		*v, err = strconv.ParseBool(strings.ToLower(text))
	case *int:
		*v, err = strconv.Atoi(text)
	case *int32:
		var n int64
		n, err = strconv.ParseInt(text, 10, 32)
		*v = int32(n)
	case *int64:
		*v, err = parseBytes(text)
	case *[]string:
		*v = strings.FieldsFunc(text, func(r rune) bool { return r == ';' || r == ',' || r == ' ' })
	case *millis:
		var d time.Duration
		d, err = parseDuration(text, time.Millisecond)
		*v = millis(d)
	case *hours:
		var d time.Duration
		d, err = parseDuration(text, time.Hour)
		*v = hours(d)
	default:
		panic(fmt.Sprintf("setting %s has a value of type %T", s.Key, v))
	}
	if err != nil {
		return fmt.Errorf("%s: %q cannot be read as %s", s.Key, text, s.wanted())
	}
	return nil
}

func (s *Setting) wanted() string {
	switch s.value.(type) {
	case *bool:
		return "true or false"
	case *millis:
		return "milliseconds or a duration such as 30s"
	case *hours:
		return "hours or a duration such as 90m"
	default:
		return "a whole number"
	}
}

// secret is a text that nobody is shown.
type secret string

// millis and hours are durations whose bare number has that unit in the original's files.
type (
	millis time.Duration
	hours  time.Duration
)

func ms(d *time.Duration) *millis { return (*millis)(d) }

func parseDuration(text string, unit time.Duration) (time.Duration, error) {
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		if n < 0 || n > float64(math.MaxInt64)/float64(unit) {
			return 0, strconv.ErrRange
		}
		return time.Duration(n * float64(unit)), nil
	}
	d, err := time.ParseDuration(text)
	if err == nil && d < 0 {
		err = strconv.ErrRange
	}
	return d, err
}

// parseBytes reads a number with an optional KiB, MiB or GiB.
func parseBytes(text string) (int64, error) {
	shift := 0
	for suffix, n := range map[string]int{"KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40} {
		if rest, ok := strings.CutSuffix(text, suffix); ok {
			text, shift = strings.TrimSpace(rest), n
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err == nil && shift > 0 && (n < 0 || n > math.MaxInt64>>shift) {
		err = strconv.ErrRange
	}
	return n << shift, err
}

// Settings is the table of every key, with its value in c, in the order in which they are shown.
//
//lint:long a table: one entry a key
func (c *Config) Settings() []Setting {
	id, l, s, t, m, k := &c.Identity, &c.Listen, &c.Store, &c.Topic, &c.Message, &c.Client
	x, a, o := &c.TLS, &c.Auth, &c.Metrics
	return []Setting{
		{"roles", "roles", "what this process does: nameserver, broker", false, &c.Roles},
		{"brokerClusterName", "cluster", "name of the cluster", false, &id.ClusterName},
		{"brokerName", "broker-name", "name of this broker", false, &id.BrokerName},
		{"brokerId", "broker-id", "0: the master", false, &id.BrokerID},
		{"brokerIP1", "advertise", "host handed to clients", false, &id.AdvertiseHost},
		{"namesrvAddr", "namesrv", "name servers to register with, host:port;…", false, &id.NamesrvAddrs},
		{"regionId", "region", "returned as MSG_REGION", false, &id.RegionID},

		{"bindAddress", "bind", "address to listen on; 0.0.0.0 serves other machines", false, &l.BindAddress},
		{"namesrvPort", "namesrv-port", "name server port, 0 = off", false, &l.NamesrvPort},
		{"listenPort", "port", "broker port, 0 = off", false, &l.BrokerPort},
		{"fastPort", "fast-port", "fast (VIP) port, 0 = off", false, &l.FastPort},
		{"grpcServerPort", "grpc-port", "gRPC port, 0 = off", false, &l.GRPCPort},
		{"httpPort", "http-port", "HTTP port (REST, health, metrics), 0 = off", false, &l.HTTPPort},
		{"portOffset", "port-offset", "added to every port: several on one machine", false, &l.PortOffset},
		{
			"listeners", "listener",
			"more listeners, host:port=host:port (listened on = told to clients); …", false, &l.Extra,
		},
		{"maxConnections", "max-connections", "connections in total", false, &l.MaxConns},
		{"maxConnectionsPerIp", "max-connections-per-ip", "connections of one address", false, &l.MaxConnsPerIP},
		{
			"serverChannelMaxIdleTimeMillis", "idle-timeout",
			"a silent connection is closed", false, ms(&l.IdleTimeout),
		},
		{"proxyProtocolEnable", "proxy-protocol", "trust PROXY protocol headers", false, &l.ProxyProtocol},

		{"tls.server.mode", "tls-mode", "permissive: TLS and plain text; enforcing; disabled", false, &x.Mode},
		{"tls.test.mode.enable", "tls-self-signed", "make up a certificate when none is given", false, &x.SelfSigned},
		{"tls.server.certPath", "tls-cert", "PEM file: certificate and chain", false, &x.ServerCert},
		{"tls.server.keyPath", "tls-key", "PEM file: its key, not encrypted", false, &x.ServerKey},
		{"tls.server.trustCertPath", "tls-trust", "PEM file: who signs clients' certificates", false, &x.ServerTrust},
		{"tls.server.need.client.auth", "tls-client-auth", "none, optional or require", false, &x.ClientAuth},
		{"tls.enable", "namesrv-tls", "speak TLS to name servers", false, &x.Client},
		{"tls.client.certPath", "namesrv-tls-cert", "PEM file: certificate shown to them", false, &x.ClientCert},
		{"tls.client.keyPath", "namesrv-tls-key", "PEM file: its key", false, &x.ClientKey},
		{"tls.client.trustCertPath", "namesrv-tls-trust", "PEM file: who signs theirs", false, &x.ClientTrust},
		{"tls.client.authServer", "namesrv-tls-verify", "check their certificates", false, &x.AuthServer},

		{"storePathRootDir", "data", "folder of the log and the index", false, &s.Dir},
		{
			"flushDiskType", "flush-disk-type",
			"SYNC_FLUSH: acknowledged means fsynced; or ASYNC_FLUSH", false, &s.FlushDiskType,
		},
		{"fileReservedTime", "retention", "hours that messages are kept", true, (*hours)(&s.FileReservedTime)},
		{"maxStoreSize", "retention-size", "bytes of log at which the oldest goes, 0 = no limit", true, &s.MaxBytes},
		{"segmentSize", "segment-size", "bytes of one log segment", false, &s.SegmentBytes},
		{
			"diskMaxUsedSpaceRatio", "disk-max-used-ratio",
			"percent of the volume at which old messages go early", true, &s.DiskMaxUsedRatio,
		},
		{
			"diskSpaceWarningLevelRatio", "disk-warning-ratio",
			"percent of the volume at which writes stop", true, &s.DiskWarningRatio,
		},
		{
			"flushConsumerOffsetInterval", "flush-offsets",
			"how often consumer offsets are written", false, ms(&s.FlushOffsetsPeriod),
		},
		{"flushConsumerOffsetHistoryInterval", "flush-offset-history", "no effect", false, ms(&s.FlushOffsetHistory)},
		{
			"indexCheckpointInterval", "index-checkpoint",
			"longest time between index checkpoints", false, ms(&s.IndexCheckpoint),
		},

		{
			"autoCreateTopicEnable", "auto-create-topic",
			"a send to an unknown topic creates it", true, &t.AutoCreateTopic,
		},
		{
			"autoCreateSubscriptionGroup", "auto-create-group",
			"an unknown group is created when it appears", true, &t.AutoCreateGroup,
		},
		{
			"defaultTopicQueueNums", "default-queues",
			"queues of a topic that is created by a send", true, &t.DefaultQueueNums,
		},
		{"brokerPermission", "broker-permission", "6 read and write, 4 read, 2 write", true, &t.BrokerPermission},
		{"traceTopicEnable", "trace-topic", "create RMQ_SYS_TRACE_TOPIC", false, &t.TraceTopic},
		{"traceOn", "trace-on", "tell clients that message trace is welcome", true, &t.TraceOn},
		{"clusterTopicEnable", "cluster-topic", "a topic named as the cluster exists", false, &t.ClusterTopic},
		{"brokerTopicEnable", "broker-topic", "a topic named as the broker exists", false, &t.BrokerTopic},
		{
			"rejectTransactionMessage", "reject-transactions",
			"refuse transaction messages", true, &t.RejectTransactions,
		},
		{
			"notifyConsumerIdsChangedEnable", "notify-consumer-changes",
			"tell a group when its members change", true, &t.NotifyConsumerChanges,
		},

		{"maxMessageSize", "max-message-size", "bytes of one message body", true, &m.MaxSizeBytes},
		{"messageDelayLevel", "delay-levels", "delays of the levels 1, 2, …", false, &m.DelayLevels},
		{"enablePropertyFilter", "property-filter", "SQL92 subscriptions", true, &m.PropertyFilter},
		{"recallMessageEnable", "recall", "timer messages can be recalled", true, &m.Recall},
		{"defaultQueryMaxNum", "query-max", "most messages of one query", true, &m.QueryMaxNum},
		{"litePullMessageEnable", "lite-pull", "answer LITE_PULL_MESSAGE", true, &m.LitePull},
		{"longPollingEnable", "long-polling", "hold pulls until a message arrives", true, &m.LongPolling},
		{
			"shortPollingTimeMills", "short-polling",
			"how long a pull is held when long polling is off", true, ms(&m.ShortPolling),
		},
		{"maxTransferCountOnMessageInMemory", "pull-max-count", "most messages of one pull", false, &m.PullCount},
		{"maxTransferBytesOnMessageInMemory", "pull-max-bytes", "most bytes of one pull", false, &m.PullBytes},
		{
			"useServerSideResetOffset",
			"server-side-reset",
			"reset offsets here; false: push resets to clients online",
			true,
			&m.ServerSideReset,
		},
		{
			"transactionTimeOut", "transaction-timeout",
			"age at which a half message is first checked", true, ms(&m.TransTimeout),
		},
		{"transactionCheckInterval", "transaction-check-interval", "time between checks", true, ms(&m.TransInterval)},
		{
			"transactionCheckMax", "transaction-check-max",
			"checks before a half message is parked", true, &m.TransCheckMax,
		},

		{
			"sendTimeoutMillis", "send-timeout",
			"how long a send waits for room before SYSTEM_BUSY", true, ms(&k.SendTimeout),
		},
		{"sendThreadPoolQueueCapacity", "send-queue", "sends in flight", false, &k.SendQueueCount},
		{"sendQueueBytes", "send-queue-bytes", "bytes of sends in flight", false, &k.SendQueueBytes},
		{"pullThreadPoolQueueCapacity", "pull-queue", "pulls held or in work", false, &k.PullQueueCount},
		{
			"channelExpiredTimeout", "channel-expiry",
			"a client without heartbeat is forgotten", false, ms(&k.ChannelExpiry),
		},
		{
			"registerNameServerPeriod", "register-interval",
			"time between registrations with name servers", false, ms(&k.RegisterInterval),
		},
		{
			"drainDelay", "drain-delay",
			"a stop serves on so long after leaving the name servers", false, ms(&k.DrainDelay),
		},

		{
			"authenticationEnabled", "authentication",
			"requests need credentials: auto (once a user exists), true, false", false, &a.Authentication,
		},
		{
			"authorizationEnabled", "authorization",
			"requests need rights: auto (with authentication), true, false", false, &a.Authorization,
		},
		{
			"authFile", "auth-file",
			"YAML with users and rules, or a plain_acl.yml; read again when it changes", false, &a.File,
		},
		{
			"initAuthenticationUser", "init-user",
			`a super user, {"username":…,"password":…}; better in a file`, false, (*secret)(&a.InitUser),
		},
		{
			"innerClientAuthenticationCredentials",
			"inner-credentials",
			`who this broker is to name servers, {"accessKey":…,"secretKey":…}`,
			false,
			(*secret)(&a.InnerCredentials),
		},

		{"logLevel", "log-level", "debug, info, warn, error", true, &c.Log.Level},
		{"logFormat", "log-format", "text or json", false, &c.Log.Format},
		{"slowCallMillis", "slow-call", "longer calls are logged at warn, 0 = none", true, ms(&c.Log.SlowCall)},

		{"metricsExporterType", "metrics", "PROM: a page; OTLP_GRPC, LOG, DISABLE", false, &o.Exporter},
		{"metricsPromExporterPort", "metrics-port", "port of the page, 0 = off", false, &o.PromPort},
		{"metricsPromExporterHost", "metrics-bind", "address of the page; empty = bindAddress", false, &o.PromHost},
		{"metricsGrpcExporterTarget", "metrics-target", "OTLP: host:port or http://host:port", false, &o.GRPCTarget},
		{"metricsGrpcExporterHeader", "metrics-header", "OTLP: name:value,…", false, (*secret)(&o.GRPCHeader)},
		{"metricsLabel", "metrics-label", "labels of every series, name:value,…", false, &o.Label},
		{"metricsOtelCardinalityLimit", "metrics-limit", "series of one metric, 0 = all", false, &o.Cardinality},
		{"metricGrpcExporterIntervalInMills", "metrics-interval", "between OTLP exports", false, ms(&o.GRPCInterval)},
		{"metricGrpcExporterTimeOutInMills", "metrics-timeout", "of one export", false, ms(&o.GRPCTimeout)},
	}
}

// Environment is the variable that sets the key: brokerIP1 → ROQUET_BROKER_IP1.
func (s *Setting) Environment() string {
	var out strings.Builder
	out.WriteString("ROQUET_")
	for i, r := range strings.ReplaceAll(s.Key, ".", "_") {
		upper := r >= 'A' && r <= 'Z'
		if upper && i > 0 && (s.Key[i-1] < 'A' || s.Key[i-1] > 'Z') {
			out.WriteByte('_')
		}
		out.WriteString(strings.ToUpper(string(r)))
	}
	return out.String()
}
