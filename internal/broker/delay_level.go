// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// DefaultDelayLevels is RocketMQ's table of delay levels. Source: MessageStoreConfig messageDelayLevel.
const DefaultDelayLevels = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

// MaxDelayLevels bounds the table of delay levels: a level is a byte of the timer's key and a queue of the
// schedule topic.
const MaxDelayLevels = 255

// DelayLevels is the table of delays that messages ask for by number: level 1 is its first entry. It is
// immutable.
type DelayLevels struct{ delays []time.Duration }

// ParseDelayLevels reads a table as broker.conf has it: numbers with a unit of s, m, h or d, separated by
// spaces. Empty means DefaultDelayLevels. Errors: IllegalParameter.
func ParseDelayLevels(text string) (DelayLevels, error) {
	if strings.TrimSpace(text) == "" {
		text = DefaultDelayLevels
	}
	units := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}
	var levels DelayLevels
	for _, entry := range strings.Fields(text) {
		unit, ok := units[entry[len(entry)-1]]
		n, err := strconv.ParseInt(entry[:len(entry)-1], 10, 64)
		if !ok || err != nil || n < 0 || n > int64(100*365*24*time.Hour/unit) {
			return DelayLevels{}, notAllowed("messageDelayLevel", text,
				fmt.Sprintf("%q is not a number followed by s, m, h or d", entry))
		}
		levels.delays = append(levels.delays, time.Duration(n)*unit)
	}
	if len(levels.delays) > MaxDelayLevels {
		return DelayLevels{}, notAllowed("messageDelayLevel", text,
			fmt.Sprintf("it has %d levels, the limit is %d", len(levels.delays), MaxDelayLevels))
	}
	return levels, nil
}

// Max returns the highest level.
func (l DelayLevels) Max() int { return len(l.delays) }

// Clamp returns the level that counts for one a message asks for: 0 for none (it is not positive), at most
// Max.
func (l DelayLevels) Clamp(level int) int { return max(0, min(level, len(l.delays))) }

// Delay returns how long a message of the level waits. level is 1 to Max.
func (l DelayLevels) Delay(level int) time.Duration { return l.delays[level-1] }
