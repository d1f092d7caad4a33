// SPDX-License-Identifier: Apache-2.0

package broker

import "time"

// MaxDelayLevels bounds the table of delay levels: a level is a byte of the timer's key and a queue of the
// schedule topic.
const MaxDelayLevels = 255

// DelayLevels is the table of delays that messages ask for by number: level 1 is its first entry, MaxDelayLevels
// its last at most. It is immutable.
type DelayLevels []time.Duration

// DefaultDelayLevels is RocketMQ's table. Source: MessageStoreConfig messageDelayLevel.
func DefaultDelayLevels() DelayLevels {
	const s, m, h = time.Second, time.Minute, time.Hour
	return DelayLevels{
		1 * s, 5 * s, 10 * s, 30 * s, 1 * m, 2 * m, 3 * m, 4 * m, 5 * m,
		6 * m, 7 * m, 8 * m, 9 * m, 10 * m, 20 * m, 30 * m, 1 * h, 2 * h,
	}
}

// orDefault returns RocketMQ's table in place of an empty one.
func (l DelayLevels) orDefault() DelayLevels {
	if len(l) == 0 {
		return DefaultDelayLevels()
	}
	return l
}

// Clamp returns the level that counts for one a message asks for: 0 for none (it is not positive), at most
// the last.
func (l DelayLevels) Clamp(level int) int { return max(0, min(level, len(l))) }

// Delay returns how long a message of the level waits. level is 1 to Max.
func (l DelayLevels) Delay(level int) time.Duration { return l[level-1] }
