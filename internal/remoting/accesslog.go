// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roquetmq/roquet/internal/protocol"
)

// AccessLog is a Hook that writes a line for every call at Debug, and for some of the slow ones at Warn: one a
// second, with the number left out. Calls that were held on purpose are not slow. It costs a clock reading per call
// when Debug is off.
type AccessLog struct {
	log   *slog.Logger
	limit atomic.Int64 // a time.Duration

	told struct { // slow calls
		sync.Mutex
		until  time.Time
		missed int
	}
}

var _ Hook = (*AccessLog)(nil)

// NewAccessLog returns the hook; calls from slow on are told at Warn, none when it is 0 or less.
func NewAccessLog(log *slog.Logger, slow time.Duration) *AccessLog {
	a := &AccessLog{log: log}
	a.SetSlow(slow)
	return a
}

// SetSlow changes from when on calls are slow; 0 or less: none are.
func (a *AccessLog) SetSlow(limit time.Duration) { a.limit.Store(int64(limit)) }

// Before does nothing.
func (a *AccessLog) Before(ctx context.Context, _ *Call) context.Context { return ctx }

// After writes the call's line.
func (a *AccessLog) After(ctx context.Context, c *Call, r *Response, err error) {
	took := time.Since(c.Received)
	if slow := time.Duration(a.limit.Load()); slow > 0 && took >= slow && !c.Held() {
		if missed, ok := a.admit(time.Now()); ok {
			a.write(ctx, slog.LevelWarn, "slow call", c, r, err, took, slog.Int("skipped_lines", missed))
		}
		return
	}
	if a.log.Enabled(ctx, slog.LevelDebug) {
		a.write(ctx, slog.LevelDebug, "call", c, r, err, took)
	}
}

// admit reports whether a slow call may be told now, and how many were not since the last one that was.
func (a *AccessLog) admit(now time.Time) (missed int, ok bool) {
	a.told.Lock()
	defer a.told.Unlock()
	if now.Before(a.told.until) {
		a.told.missed++
		return 0, false
	}
	missed, a.told.missed, a.told.until = a.told.missed, 0, now.Add(time.Second)
	return missed, true
}

func (a *AccessLog) write(
	ctx context.Context, level slog.Level, msg string, c *Call, r *Response, err error, took time.Duration,
	more ...slog.Attr,
) {
	code := protocol.Success
	attrs := make([]slog.Attr, 0, 10)
	attrs = append(attrs, slog.String("request_code", c.Code.String()),
		slog.String("protocol", c.Protocol.String()), slog.Any("remote_addr", c.Peer.RemoteAddr()),
		slog.Duration("duration", took))
	if r != nil {
		code = r.Code
		attrs = append(attrs, slog.String("response_code", code.String()))
	}
	if code != protocol.Success && r.Remark != "" {
		attrs = append(attrs, slog.String("remark", r.Remark))
	}
	if err != nil {
		attrs = append(attrs, slog.Any("error", err))
	}
	if c.OneWay {
		attrs = append(attrs, slog.Bool("one_way", true))
	}
	a.log.LogAttrs(ctx, level, msg, append(attrs, more...)...)
}
