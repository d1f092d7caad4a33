// SPDX-License-Identifier: Apache-2.0

package store

import (
	"log/slog"
	"sync"

	"github.com/roquetmq/roquet/internal/message"
)

// maxDamageReports bounds the damaged positions that are remembered as reported.
const maxDamageReports = 1024

// damageReport remembers which damage was reported, so that each is logged once and not at every read.
type damageReport struct {
	mu struct {
		sync.Mutex
		reported map[message.LogOffset]struct{}
	}
}

// damaged logs damage the first time it is met, and returns it.
func (s *Store) damaged(damage *DamagedError) error {
	mu := &s.damages.mu
	mu.Lock()
	_, known := mu.reported[damage.Pos]
	if !known {
		if mu.reported == nil || len(mu.reported) >= maxDamageReports {
			mu.reported = make(map[message.LogOffset]struct{})
		}
		mu.reported[damage.Pos] = struct{}{}
	}
	mu.Unlock()
	if !known {
		s.cfg.Logger.Error("message is damaged and can not be read", slog.String("topic", damage.Topic),
			slog.Int("queue_id", int(damage.QueueID)), slog.Int64("queue_offset", int64(damage.Offset)),
			slog.Int64("log_offset", int64(damage.Pos)), slog.Any("error", damage.Cause))
	}
	return damage
}
