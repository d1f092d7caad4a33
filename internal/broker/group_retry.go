// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"

	"github.com/roquetmq/roquet/internal/message"
)

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

// NextDelay returns how long a message waits that was consumed reconsumeTimes times without success before
// this one, in ms. Source: CustomizedRetryPolicy.java, ExponentialRetryPolicy.java nextDelayDuration.
func (p *GroupRetryPolicy) NextDelay(reconsumeTimes int) int64 {
	reconsumeTimes = max(0, reconsumeTimes)
	if p.Type == "EXPONENTIAL" {
		e := cmp.Or(p.Exponential, &ExponentialRetryPolicy{Initial: 5000, Max: 7_200_000, Multiplier: 2})
		delay := e.Initial
		for range min(reconsumeTimes, 32) {
			if e.Multiplier > 1 && delay > e.Max/e.Multiplier {
				return e.Max
			}
			delay *= max(1, e.Multiplier)
		}
		return min(delay, e.Max)
	}
	if p.Customized != nil && len(p.Customized.Next) > 0 {
		next := p.Customized.Next
		return next[min(reconsumeTimes+2, len(next)-1)]
	}
	levels := DelayLevels(message.DefaultDelays())
	return levels.Delay(levels.Clamp(reconsumeTimes + 3)).Milliseconds()
}
