// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// putBuckets is the number of classes that the time of a send falls into.
const putBuckets = 13

// putBucketBounds returns the highest time of each class but the last, in ms. Source: StoreStatsService.java.
func putBucketBounds() [putBuckets - 1]int64 {
	return [...]int64{0, 9, 49, 99, 199, 499, 999, 1999, 2999, 3999, 4999, 9999}
}

func putBucket(millis int64) int {
	for i, bound := range putBucketBounds() {
		if millis <= bound {
			return i
		}
	}
	return putBuckets - 1
}

// tpsKept is how many samples, one a second, are kept of the broker's rates: ten minutes and the one before.
const tpsKept = 601

// rates are the broker's counters at one moment.
type rates struct {
	at                                    time.Time
	put, getFound, getMissed, transferred int64
}

// runtimeStats is the broker's rates, and its totals of last night and the night before.
type runtimeStats struct {
	boot    time.Time
	samples []rates // a ring once it is full
	next    int     // where the next sample goes

	day                   int // of the year, local time
	putToday, putBefore   int64
	getToday, getBefore   int64
	distribution, lastMin [putBuckets]int64
	minuteEnds            time.Time
}

func (r *runtimeStats) start(now time.Time) {
	r.boot, r.day = now, now.Local().YearDay()
	r.samples = append(r.samples, rates{at: now})
	r.next = 1
	r.minuteEnds = now.Add(time.Minute)
}

func (r *runtimeStats) sample(now time.Time, b *brokerStats) {
	s := rates{
		at: now, put: b.putTimes.Load(), getFound: b.getFound.Load(), getMissed: b.getMissed.Load(),
		transferred: b.transferred.Load(),
	}
	if len(r.samples) < tpsKept {
		r.samples = append(r.samples, s)
	} else {
		r.samples[r.next%tpsKept] = s
	}
	r.next++
	if day := now.Local().YearDay(); day != r.day {
		r.day = day
		r.putBefore, r.putToday = r.putToday, b.userPut.Load()
		r.getBefore, r.getToday = r.getToday, b.userGetNums.Load()
	}
	if !now.Before(r.minuteEnds) {
		r.minuteEnds = now.Add(time.Minute)
		for i := range b.putDistribution {
			total := b.putDistribution[i].Load()
			r.lastMin[i], r.distribution[i] = total-r.distribution[i], total
		}
	}
}

// back returns the newest sample and the one so many samples before it.
func (r *runtimeStats) back(samples int) (newest, before rates, ok bool) {
	if len(r.samples) <= samples {
		return rates{}, rates{}, false
	}
	at := func(i int) rates { return r.samples[i%tpsKept] }
	return at(r.next - 1), at(r.next - 1 - samples), true
}

// triple writes a rate over 10 s, 1 min and 10 min, as tools split it. A span that is not over yet is told as
// 0.0, so that there are always three numbers.
func (r *runtimeStats) triple(value func(rates) int64) string {
	parts := make([]string, 0, 3)
	for _, seconds := range []int{10, 60, 600} {
		tps := 0.0
		if newest, before, ok := r.back(seconds); ok {
			if span := newest.at.Sub(before.at).Seconds(); span > 0 {
				tps = float64(value(newest)-value(before)) / span
			}
		}
		parts = append(parts, formatTPS(tps))
	}
	return strings.Join(parts, " ")
}

func formatTPS(tps float64) string {
	text := strconv.FormatFloat(tps, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

// RuntimeInfo returns the counters' part of what a broker tells of its run time, by RocketMQ's keys.
// Source: StoreStatsService.java getRuntimeInfo, AdminBrokerProcessor.java prepareRuntimeInfo.
func (s *Stats) RuntimeInfo(now time.Time) map[string]string {
	b := &s.broker
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &s.mu.runtime
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	times, size := b.putTimes.Load(), b.putSize.Load()
	return map[string]string{
		"bootTimestamp":               number(r.boot.UnixMilli()),
		"runtime":                     formatRuntime(now.Sub(r.boot)),
		"msgPutTotalYesterdayMorning": number(r.putBefore),
		"msgPutTotalTodayMorning":     number(r.putToday),
		"msgPutTotalTodayNow":         number(b.userPut.Load()),
		"msgGetTotalYesterdayMorning": number(r.getBefore),
		"msgGetTotalTodayMorning":     number(r.getToday),
		"msgGetTotalTodayNow":         number(b.userGetNums.Load()),
		"putTps":                      r.triple(func(s rates) int64 { return s.put }),
		"getFoundTps":                 r.triple(func(s rates) int64 { return s.getFound }),
		"getMissTps":                  r.triple(func(s rates) int64 { return s.getMissed }),
		"getTotalTps":                 r.triple(func(s rates) int64 { return s.getFound + s.getMissed }),
		"getTransferredTps":           r.triple(func(s rates) int64 { return s.transferred }),
		"putMessageTimesTotal":        number(times),
		"putMessageFailedTimes":       number(b.putFailed.Load()),
		"putMessageSizeTotal":         number(size),
		"putMessageAverageSize":       formatTPS(float64(size) / float64(max(times, 1))),
		"putMessageEntireTimeMax":     number(b.putMaxMillis.Load()),
		"getMessageEntireTimeMax":     number(b.getMaxMillis.Load()),
		"putMessageDistributeTime":    formatDistribution(&r.lastMin),
		"putLatency99":                formatLatency(&r.lastMin, 0.99),
		"putLatency999":               formatLatency(&r.lastMin, 0.999),
	}
}

func formatRuntime(d time.Duration) string {
	seconds := int64(d.Seconds())
	return fmt.Sprintf("[ %d days, %d hours, %d minutes, %d seconds ]",
		seconds/86400, seconds/3600%24, seconds/60%60, seconds%60)
}

func formatDistribution(counts *[putBuckets]int64) string {
	names := [putBuckets]string{
		"[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]",
		"[200~500ms]", "[500ms~1s]", "[1~2s]", "[2~3s]", "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]",
	}
	var text strings.Builder
	for i, n := range counts {
		fmt.Fprintf(&text, "%s:%d ", names[i], n)
	}
	return text.String()
}

// formatLatency returns the bound of the class below which the share of sends stayed in the last minute, in
// ms.
func formatLatency(counts *[putBuckets]int64, share float64) string {
	var total, passed int64
	for _, n := range counts {
		total += n
	}
	for i, n := range counts {
		if passed += n; total > 0 && float64(passed) >= share*float64(total) {
			bound := putBucketBounds()[min(i, putBuckets-2)]
			return fmt.Sprintf("%.2f", float64(bound))
		}
	}
	return "0.00"
}
