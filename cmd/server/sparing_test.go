// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roquetmq/roquet/internal/config"
)

// However often clients cause a warning, the log has ten lines of it in ten seconds, and is told how many it lacks.
// Other warnings, and what is no warning, are not left out for that.
func TestSparingLog(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"json", "text"} {
		synctest.Test(t, func(t *testing.T) {
			var to bytes.Buffer
			log := newLogger(&to, config.Log{Level: "info", Format: format}, new(slog.LevelVar))
			part := log.With("component", "remoting").WithGroup("g")
			for range 25 {
				log.Info("fine")
			}
			for i := range 27 {
				if i == 25 {
					log.Warn("other")
					time.Sleep(sparingEvery + time.Millisecond)
				}
				part.Error("flood")
			}
			text := to.String()
			for what, want := range map[string]int{"flood": 12, "fine": 25, "other": 1, "suppressed_lines": 1} {
				if n := strings.Count(text, what); n != want {
					t.Errorf("%d lines have %s, want %d", n, what, want)
				}
			}
			if !strings.Contains(text, `"suppressed_lines":15`) && !strings.Contains(text, "suppressed_lines=15") {
				t.Error(text)
			}
		})
	}
}
