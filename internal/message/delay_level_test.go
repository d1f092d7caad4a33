// SPDX-License-Identifier: Apache-2.0

package message

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseDelayLevels(t *testing.T) {
	t.Parallel()
	got, err := ParseDelayLevels(" 1d  0s 90m ")
	if want := []time.Duration{24 * time.Hour, 0, 90 * time.Minute}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := ParseDelayLevels(DefaultDelayLevels); err != nil || len(got) != 18 || got[17] != 2*time.Hour {
		t.Errorf("the default: %v, %v", got, err)
	}
	for _, bad := range []string{"", "1", "s", "1x", "1s -2s", "1.5s", "9999999999999d", strings.Repeat("1s ", 256)} {
		if _, err := ParseDelayLevels(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}
