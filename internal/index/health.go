// SPDX-License-Identifier: Apache-2.0

package index

import (
	"cmp"
	"log/slog"
	"math/bits"
	"sync"
	"time"
)

const (
	firstPause = 10 * time.Millisecond
	maxPause   = time.Second
)

// health knows whether background work succeeds. Failing work is tried again after a pause, so that a full
// disk heals by itself; what cannot heal (a damaged file, Pebble refusing to go on) breaks the index until it
// is opened again.
type health struct {
	log *slog.Logger
	// onBreak is called once, with what broke the index. It may be called with Pebble's locks held.
	onBreak func(error)

	mu struct {
		sync.Mutex
		failing  error
		streak   int // failures since the last success
		broken   error
		running  bool // set by run
		isClosed bool
	}
	failed  chan struct{} // gets a token when an attempt failed
	broken  chan struct{} // closed by breakDown
	closing chan struct{} // closed by close
}

func newHealth(log *slog.Logger, onBreak func(error)) *health {
	return &health{
		log: log, onBreak: onBreak,
		failed: make(chan struct{}, 1), broken: make(chan struct{}), closing: make(chan struct{}),
	}
}

// err returns what Err documents.
func (h *health) err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return cmp.Or(h.mu.broken, h.mu.failing)
}

// brokenErr returns what broke the index, or nil.
func (h *health) brokenErr() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.broken
}

// fail notes that an attempt failed which will be made again.
func (h *health) fail(err error) {
	h.mu.Lock()
	h.mu.failing = err
	h.mu.streak++
	loud := bits.OnesCount(uint(h.mu.streak)) == 1 // 1, 2, 4, 8 … : a full disk must not fill the log
	streak := h.mu.streak
	h.mu.Unlock()
	if loud {
		h.log.Warn("index cannot write, will try again", "error", err, "attempts", streak)
	}
	select {
	case h.failed <- struct{}{}:
	default: // a token is waiting already
	}
}

// succeed ends a streak of failures.
func (h *health) succeed() {
	h.mu.Lock()
	streak := h.mu.streak
	h.mu.failing, h.mu.streak = nil, 0
	h.mu.Unlock()
	if streak > 0 {
		h.log.Info("index can write again", "attempts", streak)
	}
}

// breakDown notes an error that no further attempt can heal. The first one counts.
func (h *health) breakDown(err error) {
	h.mu.Lock()
	first := h.mu.broken == nil
	if first {
		h.mu.broken = err
		close(h.broken)
	}
	h.mu.Unlock()
	if first {
		h.log.Error("index is broken", "error", err)
		h.onBreak(err)
	}
}

// run says that the index is open: from now on pauses wait.
func (h *health) run() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.running = true
}

// close ends all pauses; work that fails from now on is given up.
func (h *health) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.mu.isClosed {
		h.mu.isClosed = true
		close(h.closing)
	}
}

// pause returns at once while all goes well; after failures it waits, longer with each; when the index is
// broken it waits for the end: what comes now cannot succeed. It reports whether the index was open before.
func (h *health) pause() bool {
	h.mu.Lock()
	streak, broken, running := h.mu.streak, h.mu.broken != nil, h.mu.running
	open := running && !h.mu.isClosed
	h.mu.Unlock()
	switch {
	case broken && running:
		<-h.closing
	case streak > 0:
		select {
		case <-time.After(min(firstPause<<min(streak, 10), maxPause)):
		case <-h.closing:
		}
	}
	return open
}
