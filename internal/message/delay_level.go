// SPDX-License-Identifier: Apache-2.0

package message

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// MaxDelayLevels bounds the table of delay levels: a level is a byte of the timer's key and a queue of the
// schedule topic.
const MaxDelayLevels = 255

// DefaultDelayLevels are RocketMQ's 18 delay levels. Source: MessageStoreConfig.java messageDelayLevel,
// CustomizedRetryPolicy.java.
const DefaultDelayLevels = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

var defaultDelays, _ = ParseDelayLevels(DefaultDelayLevels) // read once: retries ask for it message by message

// DefaultDelays are the delays of DefaultDelayLevels: how long a message rests between tries, too, when its group says
// nothing. The list is shared and must not be changed.
func DefaultDelays() []time.Duration { return defaultDelays }

// ParseDelayLevels reads "1s 5s 1m 2h 1d": the delays of levels 1, 2, 3 … Units are s, m, h and d.
func ParseDelayLevels(text string) ([]time.Duration, error) {
	units := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}
	var levels []time.Duration
	for word := range strings.FieldsSeq(text) {
		unit, known := units[word[len(word)-1]]
		n, err := strconv.ParseUint(word[:len(word)-1], 10, 64)
		if err != nil || !known || n > uint64(100*365*24*time.Hour/unit) {
			return nil, fmt.Errorf("%q is no delay: wanted a number and one of s, m, h, d", word)
		}
		levels = append(levels, time.Duration(n)*unit)
	}
	if len(levels) == 0 || len(levels) > MaxDelayLevels {
		return nil, fmt.Errorf("%d levels: wanted 1 to %d", len(levels), MaxDelayLevels)
	}
	return levels, nil
}
