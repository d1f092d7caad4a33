// SPDX-License-Identifier: Apache-2.0

package broker

import "time"

// sampler says when the samples of one span were taken. All items are sampled at the same moments, so that
// they need no times of their own.
type sampler struct {
	every time.Duration
	kept  int
	next  time.Time
	times []time.Time // of the last kept samples, oldest first
}

// due notes a sample if it is time for one. After a long sleep there is one, not many.
func (s *sampler) due(now time.Time) bool {
	if now.Before(s.next) {
		return false
	}
	s.next = now.Add(s.every)
	s.times = append(s.times, now)
	if len(s.times) > s.kept {
		s.times = s.times[1:]
	}
	return true
}

// ring holds an item's samples of one span, oldest first; the last one belongs to the sampler's last time.
type ring struct {
	values, times []int64
}

// take adds a sample. The first one has a zero before it, a turn earlier: all that was counted, was counted
// since then.
func (r *ring) take(s *sampler, value, times int64) {
	if r.values == nil {
		r.values = make([]int64, 0, s.kept)
		r.times = make([]int64, 0, s.kept)
		r.values, r.times = append(r.values, 0), append(r.times, 0)
	}
	if len(r.values) == s.kept {
		copy(r.values, r.values[1:])
		copy(r.times, r.times[1:])
		r.values, r.times = r.values[:s.kept-1], r.times[:s.kept-1]
	}
	r.values, r.times = append(r.values, value), append(r.times, times)
}

// view returns what was counted between the oldest and the newest sample.
func (r *ring) view(s *sampler) Snapshot {
	n := len(r.values)
	if n == 0 {
		return Snapshot{}
	}
	v := Snapshot{Sum: r.values[n-1] - r.values[0], Times: r.times[n-1] - r.times[0]}
	last := s.times[len(s.times)-1]
	first := last.Add(-time.Duration(n-1) * s.every)
	if n <= len(s.times) {
		first = s.times[len(s.times)-n]
	}
	if span := last.Sub(first).Seconds(); span > 0 {
		v.TPS = float64(v.Sum) / span
	}
	if v.Times > 0 {
		v.AvgPT = float64(v.Sum) / float64(v.Times)
	}
	return v
}

// Tick takes the samples that are due. To be called every second.
func (s *Stats) Tick(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.runtime.sample(now, &s.broker)
	var due [3]bool
	for i := range due {
		due[i] = s.mu.spans[i].due(now)
	}
	if due == [3]bool{} {
		return
	}
	sample := func(it *item) {
		value, times := it.value.Load(), it.times.Load()
		for i := range due {
			if due[i] && times > 0 {
				it.samples[i].take(&s.mu.spans[i], value, times)
			}
		}
	}
	sample(&s.broker.put)
	sample(&s.broker.get)
	sample(&s.broker.timers)
	for _, t := range s.topics.All() {
		sample(&t.nums)
		sample(&t.size)
	}
	for _, g := range s.groups.All() {
		for i := range g {
			sample(&g[i])
		}
	}
}
