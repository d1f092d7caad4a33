// SPDX-License-Identifier: Apache-2.0

package service

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/roquetmq/roquet/internal/broker"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
)

// timerRequests shows what waits for its time: GET_ALL_DELAY_OFFSET 45, GET_TIMER_CHECK_POINT 60,
// GET_TIMER_METRICS 61, and a part of GET_BROKER_RUNTIME_INFO 28. Source: ScheduleMessageService.java,
// TimerCheckpoint.java, TimerMetrics.java. Known difference: a delay level has come to the offset of its message
// that is due first, and a timer counts from when it is stored, so that none is ever behind.
type timerRequests struct{ *node }

// levels calls fn with how far each delay level has come and the end of its queue; not for unused levels.
func (s timerRequests) levels(fn func(level int, at, end int64)) error {
	pending, err := s.delays.Pending()
	if err != nil {
		return err
	}
	for level := 1; level <= message.MaxDelayLevels; level++ {
		_, end, ok := s.store.Bounds(broker.ScheduleTopic, int32(level-1))
		if !ok {
			continue
		}
		at, waits := pending[level]
		if !waits {
			at = end
		}
		fn(level, int64(at), int64(end))
	}
	return nil
}

func (s timerRequests) delayOffsets(*call) (answer, error) {
	body := &protocol.DelayOffsetSerializeWrapper{OffsetTable: map[int32]int64{}}
	err := s.levels(func(level int, at, _ int64) { body.OffsetTable[int32(level)] = at })
	return answer{Body: protocol.EncodeBody(body)}, err
}

// checkPoint is the original's file: time read up to, log position, queue offset of the timer topic (twice: the
// master's), and a data version of three numbers.
func (s timerRequests) checkPoint(*call) (answer, error) {
	_, end, _ := s.store.Bounds(broker.TimerTopic, 0)
	now := time.Now().UnixMilli()
	var body []byte
	for _, n := range []int64{now, int64(s.store.End()), int64(end), int64(end), 0, now, 0} {
		body = binary.BigEndian.AppendUint64(body, uint64(n))
	}
	return answer{Body: body}, nil
}

// metrics is how many messages wait, by the topic they are going to.
func (s timerRequests) metrics(*call) (answer, error) {
	type metric struct {
		Count     int64 `json:"count"`
		TimeStamp int64 `json:"timeStamp"`
	}
	now := time.Now().UnixMilli()
	counts := map[string]metric{}
	for topic, n := range s.delays.Waiting() {
		counts[topic] = metric{n, now}
	}
	version := broker.DataVersion{Timestamp: now}
	body, err := json.Marshal(map[string]any{"timingCount": counts, "dataVersion": version})
	return answer{Body: body}, err
}

// addRuntimeInfo adds what brokerStatus and clusterList show of timers.
func (s timerRequests) addRuntimeInfo(set func(key string, value any)) error {
	behind := int64(0)
	if due, waits, err := s.delays.NextDue(); err == nil && waits {
		behind = max(0, (time.Now().UnixMilli()-due)/1000)
	}
	set("timerReadBehind", behind)
	set("timerOffsetBehind", 0)
	set("timerCongestNum", s.delays.Stats().Waiting)
	set("timerEnqueueTps", fmt.Sprintf("%.1f", s.stats.TopicPutTPS(broker.TimerTopic)))
	set("timerDequeueTps", fmt.Sprintf("%.1f", s.stats.TimersTPS()))
	return s.levels(func(level int, at, end int64) {
		set(fmt.Sprint("scheduleMessageOffset_", level), fmt.Sprintf("%d,%d", at, end))
	})
}
