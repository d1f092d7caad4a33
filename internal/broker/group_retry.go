// SPDX-License-Identifier: Apache-2.0

package broker

// GroupRetryPolicy says how long a message waits between two attempts. Source: GroupRetryPolicy.java.
type GroupRetryPolicy struct {
	Type        string                  `json:"type"` // CUSTOMIZED or EXPONENTIAL
	Exponential *ExponentialRetryPolicy `json:"exponentialRetryPolicy,omitempty"`
	Customized  *CustomizedRetryPolicy  `json:"customizedRetryPolicy,omitempty"`
}

// ExponentialRetryPolicy waits Initial, then Multiplier times longer each time, up to Max.
type ExponentialRetryPolicy struct {
	Initial    int64 `json:"initial"` // ms
	Max        int64 `json:"max"`     // ms
	Multiplier int64 `json:"multiplier"`
}

// CustomizedRetryPolicy waits what the table says for each attempt.
type CustomizedRetryPolicy struct {
	Next []int64 `json:"next"` // ms
}

// DefaultRetryDelays are the delays of the default customized policy: those of the eighteen delay levels, in
// ms. Source: CustomizedRetryPolicy.java.
func DefaultRetryDelays() []int64 {
	const s, m, h = int64(1000), int64(60_000), int64(3_600_000)
	return []int64{
		1 * s, 5 * s, 10 * s, 30 * s, 1 * m, 2 * m, 3 * m, 4 * m, 5 * m,
		6 * m, 7 * m, 8 * m, 9 * m, 10 * m, 20 * m, 30 * m, 1 * h, 2 * h,
	}
}

// NextDelay returns how long a message waits that was consumed reconsumeTimes times without success before
// this one, in ms. Source: CustomizedRetryPolicy.java, ExponentialRetryPolicy.java nextDelayDuration.
func (p *GroupRetryPolicy) NextDelay(reconsumeTimes int) int64 {
	reconsumeTimes = max(0, reconsumeTimes)
	if p.Type == "EXPONENTIAL" {
		e := p.Exponential
		if e == nil {
			e = &ExponentialRetryPolicy{Initial: 5000, Max: 7_200_000, Multiplier: 2}
		}
		delay := e.Initial
		for range min(reconsumeTimes, 32) {
			if e.Multiplier > 1 && delay > e.Max/e.Multiplier {
				return e.Max
			}
			delay *= max(1, e.Multiplier)
		}
		return min(delay, e.Max)
	}
	next := DefaultRetryDelays()
	if p.Customized != nil && len(p.Customized.Next) > 0 {
		next = p.Customized.Next
	}
	return next[min(reconsumeTimes+2, len(next)-1)]
}
