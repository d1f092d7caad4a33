// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

var _ remoting.Hook = (*LatencyHook)(nil)

// LatencyHook measures how long calls take, for rocketmq_rpc_latency, rpc.server.call.duration and the two
// metrics about creating topics and groups. A call costs a reading of the clock, a search in a short list and
// two atomic additions; nothing is allocated but the first time. Safe for concurrent use.
type LatencyHook struct {
	slots [latencySlots]atomic.Pointer[latency] // lists by code; they grow at their heads
}

const latencySlots = 512

// latencyKey is what calls have in common that are counted together. Codes that nobody knows are one.
type latencyKey struct {
	code     protocol.Code
	response protocol.ResponseCode
	door     remoting.Protocol
	result   callResult
	held     bool
	method   string // gRPC
}

// callResult is how a call ended. Source: RemotingMetricsConstant.java.
type callResult uint8

const (
	callSucceeded callResult = iota
	callOneWay
	callCancelled
	callUnwritten // the connection was gone
)

func (r callResult) String() string {
	return [...]string{"success", "oneway", "cancelled", "write_channel_failed"}[r]
}

// latency counts durations in the classes of every metric that is made of it.
type latency struct {
	key     latencyKey
	next    *latency
	nanos   atomic.Int64
	classes [20]atomic.Int64 // one more than latencyBounds
}

// latencyBounds returns the classes, in ms: those of rocketmq_rpc_latency, of rpc.server.call.duration and of
// the creation of topics and groups together, so that each call is counted once.
func latencyBounds() [19]int64 {
	return [...]int64{
		1, 3, 5, 7, 10, 25, 50, 75, 100, 250, 500, 750, 1000, 2000, 2500, 3000, 5000, 7500, 10000,
	}
}

func (l *latency) add(took time.Duration) {
	class := 0
	for bounds := latencyBounds(); class < len(bounds) && took > time.Duration(bounds[class])*time.Millisecond; {
		class++
	}
	l.classes[class].Add(1)
	l.nanos.Add(int64(took))
}

// values returns the counts in the classes of a metric, and the sum in ns.
func (l *latency) values(m *Metric) []int64 {
	values, class, fine := make([]int64, len(m.Bounds)+2), 0, latencyBounds()
	perMilli := 1e6 * m.Scale
	for i := range l.classes {
		for class < len(m.Bounds) && (i == len(fine) || float64(fine[i])*perMilli > m.Bounds[class]*(1+1e-9)) {
			class++
		}
		values[class] += l.classes[i].Load()
	}
	values[len(m.Bounds)+1] = l.nanos.Load()
	return values
}

// Before does nothing.
func (h *LatencyHook) Before(ctx context.Context, _ *remoting.Call) context.Context { return ctx }

// After counts the call.
func (h *LatencyHook) After(_ context.Context, c *remoting.Call, r *remoting.Response, err error) {
	took := time.Since(c.Received)
	key := latencyKey{code: c.Code, door: c.Protocol, held: c.Held(), method: c.Method}
	switch {
	case r != nil && c.OneWay:
		key.response, key.result = r.Code, callOneWay
	case r != nil:
		key.response = r.Code
	case errors.Is(err, remoting.ErrConnClosed):
		key.result = callUnwritten
	default:
		key.result = callCancelled
	}
	h.find(key).add(took)
}

func (h *LatencyHook) find(key latencyKey) *latency {
	slot := &h.slots[uint32(key.code)%latencySlots]
	for {
		head := slot.Load()
		for l := head; l != nil; l = l.next {
			if l.key == key {
				return l
			}
		}
		if key.code != unknownCode && !key.code.Known() {
			key.code = unknownCode
			return h.find(key)
		}
		key.method = strings.Clone(key.method)
		if made := (&latency{key: key, next: head}); slot.CompareAndSwap(head, made) {
			return made
		}
	}
}

// unknownCode stands for all codes that have no name.
const unknownCode protocol.Code = -1

// each calls fn with every latency.
func (h *LatencyHook) each(fn func(*latency)) {
	for i := range h.slots {
		for l := h.slots[i].Load(); l != nil; l = l.next {
			fn(l)
		}
	}
}

// Tables returns the tables that the hook fills.
func (h *LatencyHook) Tables() []Table {
	return Readers{
		"latency": h.readLatency, "calls": h.readCalls,
		"newtopics": h.readCreates(protocol.UpdateAndCreateTopic, protocol.UpdateAndCreateTopicList),
		"newgroups": h.readCreates(protocol.UpdateAndCreateSubscriptionGroup,
			protocol.UpdateAndCreateSubscriptionGroupList),
	}.Tables()
}

func (h *LatencyHook) readLatency(rows *Rows) {
	h.each(func(l *latency) {
		request, response := "_other", ""
		if l.key.code != unknownCode {
			request = strings.ToLower(l.key.code.String())
		}
		if l.key.result <= callOneWay {
			response = strings.ToLower(l.key.response.String())
		}
		door, held := strings.ToLower(l.key.door.String()), strconv.FormatBool(l.key.held)
		rows.Add([]string{door, request, response, held, l.key.result.String()}, l.values(&rows.table.Metrics[0])...)
	})
}

// readCalls tells what the semantic conventions want of RPC servers. REST is none.
func (h *LatencyHook) readCalls(rows *Rows) {
	merged := map[string][]int64{}
	h.each(func(l *latency) {
		if l.key.door == remoting.ProtocolREST {
			return
		}
		c := remoting.Call{Code: l.key.code, Method: l.key.method}
		labels := [4]string{systemRemoting, methodOf(&c), l.key.response.String(), ""}
		if l.key.door == remoting.ProtocolGRPC {
			labels[0] = systemGRPC
		}
		switch {
		case l.key.result > callOneWay:
			labels[2], labels[3] = "", l.key.result.String()
		case failed(l.key.response):
			labels[3] = labels[2]
		}
		l.mergeInto(merged, &rows.table.Metrics[0], labels[:]...)
	})
	addMerged(rows, merged)
}

// mergeInto adds the latency to those with the same labels.
func (l *latency) mergeInto(merged map[string][]int64, m *Metric, labels ...string) {
	key, values := strings.Join(labels, "\x00"), l.values(m)
	for i, v := range merged[key] {
		values[i] += v
	}
	merged[key] = values
}

func addMerged(rows *Rows, merged map[string][]int64) {
	for key, values := range merged {
		rows.Add(strings.Split(key, "\x00"), values...)
	}
}

// readCreates tells of the codes that create something. Nobody can create what belongs to the system.
func (h *LatencyHook) readCreates(codes ...protocol.Code) func(rows *Rows) {
	return func(rows *Rows) {
		merged := map[string][]int64{}
		h.each(func(l *latency) {
			if !slices.Contains(codes, l.key.code) || l.key.result > callOneWay {
				return
			}
			status := "success"
			if l.key.response != protocol.Success {
				status = "failure"
			}
			l.mergeInto(merged, &rows.table.Metrics[0], []string{status, "false"}[:len(rows.table.Labels)]...)
		})
		addMerged(rows, merged)
	}
}
