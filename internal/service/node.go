// SPDX-License-Identifier: Apache-2.0

package service

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roquetmq/roquet/internal/config"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
	"github.com/roquetmq/roquet/internal/store"
)

// nodeRequests shows and changes the process itself: GET_BROKER_RUNTIME_INFO 28, GET_BROKER_CONFIG 26,
// UPDATE_BROKER_CONFIG 25, GET_BROKER_HA_STATUS 907, DELETE_EXPIRED_COMMITLOG 329. Source:
// AdminBrokerProcessor.java, StoreStatsService.java.
// Known differences: statistics of parts that do not exist here (page cache, transient buffers, thread pools)
// are 0 or those of the lane that does their work; a configuration change is all or nothing and lasts until
// the process ends.
type nodeRequests struct{ *node }

//lint:long the keys that tools read, one after the other
func (s nodeRequests) runtimeInfo(*call) (answer, error) {
	now := time.Now()
	info := s.stats.RuntimeInfo(now)
	set := func(key string, value any) { info[key] = fmt.Sprint(value) }
	disk := diskUse(s.settings.load().Store.Dir)
	set("brokerVersionDesc", "V5_5_0")
	set("brokerVersion", wireVersion)
	set("roquetVersion", s.version)
	set("brokerActive", true)
	set("bootTimestamp", s.started.UnixMilli())
	set("startAcceptSendRequestTimeStamp", s.started.UnixMilli())
	set("commitLogMinOffset", int64(s.store.First()))
	set("commitLogMaxOffset", int64(s.store.End()))
	set("commitLogDiskRatio", disk.ratio())
	set("consumeQueueDiskRatio", disk.ratio())
	set("commitLogDirCapacity", fmt.Sprintf("Total : %s, Free : %s.", humanBytes(disk.total), humanBytes(disk.free)))
	set("earliestMessageTimeStamp", earliestSegment(s.store))
	for _, none := range []string{
		"pageCacheLockTimeMills", "dispatchBehindBytes", "dispatchMaxBuffer", "remainTransientStoreBufferNumbs",
		"remainHowManyDataToCommit", "EndTransactionQueueSize",
	} {
		set(none, 0)
	}
	set("remainHowManyDataToFlush", fmt.Sprintf("%d B", s.store.Stats().PendingBytes))
	err := timerRequests(s).addRuntimeInfo(set)
	for name, lane := range map[string]*remoting.Lane{
		"send": s.lanes.send, "pull": s.lanes.pull, "litePull": s.lanes.pull, "query": s.lanes.query,
		"ack": s.lanes.ack,
	} {
		set(name+"ThreadPoolQueueSize", lane.Waiting())
		set(name+"ThreadPoolQueueCapacity", lane.Capacity())
		set(name+"ThreadPoolQueueHeadWaitTimeMills", 0)
	}
	set("EndTransactionThreadPoolQueueCapacity", s.lanes.send.Capacity())
	return answer{Body: protocol.EncodeBody(&protocol.KVTable{Table: info})}, err
}

// earliestSegment is when the oldest message that is kept was stored, in ms; now when there is none.
func earliestSegment(s *store.Store) int64 {
	segments := s.Segments()
	if len(segments) == 0 {
		return time.Now().UnixMilli()
	}
	return segments[0].FirstMillis
}

func humanBytes(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	value, unit := float64(n), 0
	for value >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	return strconv.FormatFloat(value, 'f', 1, 64) + " " + units[unit]
}

// deleteExpired drops what retention allows now: DELETE_EXPIRED_COMMITLOG 329.
func (s nodeRequests) deleteExpired(c *call) (answer, error) {
	_, err := s.store.Retain(c.Context())
	return answer{}, err
}

// haStatus says that there are no replicas.
func (s nodeRequests) haStatus(*call) (answer, error) {
	return withBody(&protocol.HARuntimeInfo{Master: true, MasterCommitLogMaxOffset: int64(s.store.End())})
}

// settings is the configuration as administrators see and change it. A change is taken by everybody in
// watchers.
type settings struct {
	current  atomic.Pointer[config.Config] // in force
	log      *slog.Logger
	watchers []func(*config.Config)
	mu       sync.Mutex // one change at a time
	changes  int64
	changed  time.Time
}

func newSettings(cfg *config.Config, log *slog.Logger) *settings {
	s := &settings{log: log.With("component", "settings"), changed: time.Now()}
	s.current.Store(cfg)
	return s
}

func (s *settings) load() *config.Config { return s.current.Load() }

func (s *settings) show(*call) (answer, error) {
	s.mu.Lock()
	version := protocol.DataVersion{Counter: s.changes, Timestamp: s.changed.UnixMilli()}
	s.mu.Unlock()
	cfg := s.load()
	var text bytes.Buffer
	for _, setting := range cfg.Settings() {
		value := setting.Shown()
		if setting.Key == "listenPort" {
			value = strconv.Itoa(cfg.Listen.Port(cfg.Listen.BrokerPort))
		}
		fmt.Fprintf(&text, "%s=%s\n", setting.Key, value)
	}
	return answer{
		Header: &protocol.GetBrokerConfigResponseHeader{Version: string(protocol.EncodeBody(&version))},
		Body:   text.Bytes(),
	}, nil
}

// showNames answers GET_NAMESRV_CONFIG 319: the same settings with the name server's port.
func (s *settings) showNames(*call) (answer, error) {
	cfg := s.load()
	text := fmt.Sprintf("listenPort=%d\nbindAddress=%s\nkvConfigPath=%s/namesrv/kvConfig.json\n"+
		"orderMessageEnable=true\nenableAllTopicList=true\nscanNotActiveBrokerInterval=5000\nclusterTest=false\n",
		cfg.Listen.Port(cfg.Listen.NamesrvPort), cfg.Listen.BindAddress, cfg.Store.Dir)
	return answer{Body: []byte(text)}, nil
}

func (s *settings) update(c *call) (answer, error) {
	values, err := config.ParseProperties(string(c.Body))
	if err != nil {
		return answer{}, &protocol.Error{Code: protocol.InvalidParameter, Remark: err.Error()}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next, err := s.load().Update(values)
	if err != nil {
		code := protocol.InvalidParameter
		if errors.Is(err, config.ErrFixed) {
			code = protocol.NoPermission
		}
		return answer{}, protocol.Errorf(code, "nothing was changed: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	s.current.Store(next)
	for _, watch := range s.watchers {
		watch(next)
	}
	s.changes++
	s.changed = time.Now()
	s.log.Info("configuration changed", "keys", len(values), "remote_addr", c.Peer.RemoteAddr())
	return answer{}, nil
}
