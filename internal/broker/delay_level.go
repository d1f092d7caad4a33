// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"time"

	"github.com/roquetmq/roquet/internal/message"
)

// DelayLevels is the table of delays that messages ask for by number: level 1 is its first entry,
// message.MaxDelayLevels its last at most. It is immutable.
type DelayLevels []time.Duration

// orDefault returns RocketMQ's table in place of an empty one.
func (l DelayLevels) orDefault() DelayLevels {
	if len(l) == 0 {
		return message.DefaultDelays()
	}
	return l
}

// Clamp returns the level that counts for one a message asks for: 0 for none (it is not positive), at most
// the last.
func (l DelayLevels) Clamp(level int) int { return max(0, min(level, len(l))) }

// Delay returns how long a message of the level waits. level is 1 to Max.
func (l DelayLevels) Delay(level int) time.Duration { return l[level-1] }
