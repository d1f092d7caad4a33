// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"math"
	"strings"
	"testing"
	"time"
)

func newTestStats() *Stats { return NewStats(SystemNames{Cluster: "C", Broker: "b"}, at(0)) }

func TestStatsSpans(t *testing.T) {
	t.Parallel()
	s := newTestStats()
	for second := 1; second <= 7200; second++ {
		s.Put("orders", KindNormal, 2, 300, time.Millisecond)
		s.Get("g", "orders", 3, 100, 4*time.Millisecond)
		s.broker.timers.add(4, 4)
		s.Tick(at(float64(second)))
	}
	for _, tc := range []struct {
		name, key string
		perSecond float64
		avg       float64
	}{
		{StatTopicPutNums, "orders", 2, 2},
		{StatTopicPutSize, "orders", 300, 300},
		{StatGroupGetNums, "orders@g", 3, 3},
		{StatGroupGetSize, "orders@g", 100, 100},
		{StatGroupLatency, "orders@g", 4, 4},
		{StatBrokerPutNums, "C", 2, 2},
		{StatBrokerGetNums, "C", 3, 3},
	} {
		v, ok := s.View(tc.name, tc.key)
		if !ok {
			t.Errorf("no %s of %s", tc.name, tc.key)
			continue
		}
		for span, got := range map[string]struct {
			snapshot Snapshot
			seconds  float64
		}{"minute": {v.Minute, 60}, "hour": {v.Hour, 3600}, "day": {v.Day, 7200}} {
			if math.Abs(got.snapshot.TPS-tc.perSecond) > 0.01 || got.snapshot.AvgPT != tc.avg ||
				got.snapshot.Sum != int64(tc.perSecond*got.seconds) {
				t.Errorf("%s in a %s: %+v", tc.name, span, got.snapshot)
			}
		}
	}
	if s.TopicPutTPS("orders") != 2 || s.GroupGetTPS("g", "orders") != 3 || s.TopicPutTPS("nothing") != 0 ||
		s.TimersTPS() != 4 {
		t.Error("rates are wrong")
	}
	for _, unknown := range [][2]string{
		{StatTopicPutNums, "nothing"},
		{StatBrokerPutNums, "D"},
		{"NO_SUCH", "orders@g"},
		{StatGroupAckNums, "orders@g"},
		{StatGroupGetNums, "orders"},
	} {
		if _, ok := s.View(unknown[0], unknown[1]); ok {
			t.Errorf("found %v", unknown)
		}
	}
}

func TestStatsOfWhatBeganLate(t *testing.T) {
	t.Parallel()
	s := newTestStats()
	for second := 1; second <= 100; second++ {
		if second > 95 {
			s.Put("late", KindNormal, 10, 10, 0)
		}
		s.Tick(at(float64(second)))
	}
	v, _ := s.View(StatTopicPutNums, "late")
	if v.Minute.Sum != 50 || v.Minute.TPS != 5 { // counted since the sample before
		t.Errorf("%+v", v.Minute)
	}
	s.Ack("g", "orders", 2)
	s.SendBack("g", "orders")
	s.DLQ("g", "orders")
	for _, name := range []string{StatGroupAckNums, StatSendBackNums, StatDLQNums} {
		if _, ok := s.View(name, "orders@g"); !ok {
			t.Errorf("no %s", name)
		}
	}
	s.GroupDeleted("g")
	s.TopicDeleted("late")
	if s.groups.Size() != 0 || s.topics.Size() != 0 {
		t.Error("something is left")
	}
}

func TestStatsRuntimeInfo(t *testing.T) {
	t.Parallel()
	s := newTestStats()
	s.Tick(at(1))
	info := s.RuntimeInfo(at(1))
	if info["putTps"] != "0.0 0.0 0.0" || info["putMessageAverageSize"] != "0.0" || info["putLatency99"] != "0.00" {
		t.Errorf("at the start: %v", info)
	}
	midnight := at(0).Local()
	midnight = time.Date(midnight.Year(), midnight.Month(), midnight.Day()+1, 0, 0, 0, 0, midnight.Location())
	s = NewStats(SystemNames{Cluster: "C", Broker: "b"}, midnight.Add(-20*time.Minute))
	for i := range 1500 {
		s.Put("orders", KindNormal, 2, 100, 3*time.Millisecond)
		s.Put("C", KindNormal, 1, 10, 0) // a system topic
		s.Get("g", "orders", 1, 50, 0)
		s.GetMissed()
		s.Tick(midnight.Add(-20 * time.Minute).Add(time.Duration(i+1) * time.Second))
	}
	s.PutFailed()
	info = s.RuntimeInfo(midnight.Add(300 * time.Second))
	for key, want := range map[string]string{
		"putTps": "3.0 3.0 3.0", "getFoundTps": "1.0 1.0 1.0", "getMissTps": "1.0 1.0 1.0", "getTotalTps": "2.0 2.0 2.0",
		"getTransferredTps": "1.0 1.0 1.0", "putMessageTimesTotal": "4500", "putMessageFailedTimes": "1",
		"putMessageSizeTotal": "165000", "putMessageEntireTimeMax": "3", "getMessageEntireTimeMax": "0",
		"msgPutTotalTodayNow": "3000", "msgPutTotalTodayMorning": "2400", "msgPutTotalYesterdayMorning": "0",
		"msgGetTotalTodayNow": "1500", "msgGetTotalTodayMorning": "1200",
		"runtime": "[ 0 days, 0 hours, 25 minutes, 0 seconds ]", "putLatency99": "9.00",
	} {
		if info[key] != want {
			t.Errorf("%s = %q, want %q", key, info[key], want)
		}
	}
	if !strings.HasPrefix(info["putMessageDistributeTime"], "[<=0ms]:60 [0~10ms]:60 ") {
		t.Errorf("distribution %q", info["putMessageDistributeTime"])
	}
}

func TestStatsAllocations(t *testing.T) {
	s := newTestStats()
	s.Put("orders", KindNormal, 1, 1, 0)
	s.Get("g", "orders", 1, 1, 0)
	if n := testing.AllocsPerRun(100, func() {
		s.Put("orders", KindNormal, 1, 300, time.Millisecond)
		s.Get("g", "orders", 1, 300, time.Millisecond)
		s.GetMissed()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkStatsPut(b *testing.B) {
	s := newTestStats()
	for b.Loop() {
		s.Put("orders", KindNormal, 1, 300, time.Millisecond)
	}
}

func BenchmarkTopicLookup(b *testing.B) {
	s := openTables(b, newMemJournal())
	s.mustPut(b, plainTopic("orders"))
	for b.Loop() {
		if _, ok := s.topics.Lookup("orders"); !ok {
			b.Fatal("not found")
		}
	}
}
