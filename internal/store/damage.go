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
	sync.Mutex
	reported map[message.LogOffset]struct{}
}

// damaged logs damage the first time it is met, and returns it.
func (s *Store) damaged(damage *DamagedError) error {
	d := &s.damages
	d.Lock()
	_, known := d.reported[damage.Pos]
	if !known {
		if d.reported == nil || len(d.reported) >= maxDamageReports {
			d.reported = make(map[message.LogOffset]struct{})
		}
		d.reported[damage.Pos] = struct{}{}
	}
	d.Unlock()
	if !known {
		s.cfg.Logger.Error("message is damaged and can not be read", slog.String("topic", damage.Topic),
			slog.Int("queue_id", int(damage.QueueID)), slog.Int64("queue_offset", int64(damage.Offset)),
			slog.Int64("log_offset", int64(damage.Pos)), slog.Any("error", damage.Cause))
	}
	return damage
}
