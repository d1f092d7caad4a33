// SPDX-License-Identifier: Apache-2.0

package index

import (
	"cmp"
	"log/slog"
)

// Config says how much memory the index may use and how often it writes itself down. The zero value works.
type Config struct {
	// CheckpointBytes is how many bytes of log may be applied between two checkpoints, and so what a restart
	// replays at most (once more, if a checkpoint was running). Default 32 MiB.
	CheckpointBytes int64
	// MemTableBytes is the size at which Pebble flushes on its own. Default 4 MiB.
	MemTableBytes int64
	// Logger gets what an operator should know. Default: nothing is logged.
	Logger *slog.Logger
}

const (
	cacheBytes = 16 << 20 // of Pebble's blocks

	// A checkpoint that runs while this many times CheckpointBytes wait makes the applier wait for it …
	maxBehindHealthy = 4
	// … and when checkpoints fail, the applier is told to stop at this many.
	maxBehindFailing = 8
)

func (c *Config) setDefaults() {
	c.CheckpointBytes = cmp.Or(c.CheckpointBytes, 32<<20)
	c.MemTableBytes = cmp.Or(c.MemTableBytes, 4<<20)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
}
