// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// So many warnings and errors of one kind are written in so long a time. The next one after that says how many were
// left out.
const (
	sparingLines = 10
	sparingEvery = 10 * time.Second
)

// sparingLog keeps warnings and errors that clients can cause from filling the log. Those of one line of the source are
// of one kind.
type sparingLog struct {
	slog.Handler
	kinds *sparingKinds
}

type sparingKinds struct {
	mu sync.Mutex
	of map[uintptr]*sparingKind // by program counter
}

type sparingKind struct {
	until          time.Time
	written, spare int
}

// Handle implements slog.Handler.
func (l sparingLog) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		spared, ok := l.kinds.admit(r.PC, r.Time)
		if !ok {
			return nil
		}
		if spared > 0 {
			r.AddAttrs(slog.Int("suppressed_lines", spared))
		}
	}
	return l.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (l sparingLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return sparingLog{l.Handler.WithAttrs(attrs), l.kinds}
}

// WithGroup implements slog.Handler.
func (l sparingLog) WithGroup(name string) slog.Handler {
	return sparingLog{l.Handler.WithGroup(name), l.kinds}
}

// admit reports whether a line may be written now, and how many were not since the last one that was.
func (s *sparingKinds) admit(pc uintptr, now time.Time) (spared int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.of[pc]
	if k == nil {
		k = &sparingKind{}
		s.of[pc] = k
	}
	if now.After(k.until) {
		k.until, k.written = now.Add(sparingEvery), 0
	}
	if k.written == sparingLines {
		k.spare++
		return 0, false
	}
	k.written++
	spared, k.spare = k.spare, 0
	return spared, true
}
