// SPDX-License-Identifier: Apache-2.0

package index

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
)

// Config says how much memory the index may use and how often it writes itself down. The zero value works.
type Config struct {
	// CheckpointBytes is how many bytes of log may be applied between two checkpoints, and so what a restart
	// replays at most (once more, if a checkpoint was running). Default 32 MiB, at least 1, at most 1 GiB.
	CheckpointBytes int64
	// CacheBytes bounds Pebble's cache of blocks. Default 16 MiB.
	CacheBytes int64
	// MemTableBytes is the size at which Pebble flushes on its own. Default 4 MiB.
	MemTableBytes int64
	// Logger gets what an operator should know. Default: nothing is logged.
	Logger *slog.Logger
}

const (
	defaultCheckpointBytes = 32 << 20
	maxCheckpointBytes     = 1 << 30
	defaultCacheBytes      = 16 << 20
	defaultMemTableBytes   = 4 << 20
	minMemTableBytes       = 64 << 10

	// A checkpoint that runs while this many times CheckpointBytes wait makes the applier wait for it …
	maxBehindHealthy = 4
	// … and when checkpoints fail, the applier is told to stop at this many.
	maxBehindFailing = 8
)

func (c *Config) setDefaults() {
	c.CheckpointBytes = cmp.Or(c.CheckpointBytes, defaultCheckpointBytes)
	c.CacheBytes = cmp.Or(c.CacheBytes, defaultCacheBytes)
	c.MemTableBytes = cmp.Or(c.MemTableBytes, defaultMemTableBytes)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
}

func (c *Config) validate() error {
	var errs []error
	if c.CheckpointBytes < 1 || c.CheckpointBytes > maxCheckpointBytes {
		errs = append(errs, fmt.Errorf("index CheckpointBytes %d is not in 1 to %d",
			c.CheckpointBytes, maxCheckpointBytes))
	}
	if c.CacheBytes < 0 {
		errs = append(errs, fmt.Errorf("index CacheBytes %d is negative", c.CacheBytes))
	}
	if c.MemTableBytes < minMemTableBytes {
		errs = append(errs, fmt.Errorf("index MemTableBytes %d is below %d", c.MemTableBytes, minMemTableBytes))
	}
	return errors.Join(errs...)
}
