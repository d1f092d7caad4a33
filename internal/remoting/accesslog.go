// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/roquetmq/roquet/internal/protocol"
)

// Defaults of AccessLogConfig.
const (
	DefaultSlowCall  = time.Second
	DefaultSlowEvery = time.Second
)

// AccessLogConfig describes an access log.
type AccessLogConfig struct {
	Logger *slog.Logger
	Slow   time.Duration // calls from here on are told at Warn; 0: DefaultSlowCall; negative: none
	Every  time.Duration // at most one such line in this time, with the number left out; 0: DefaultSlowEvery
}

// AccessLog is a Hook that writes a line for every call at Debug, and for some of the slow ones at Warn.
// Calls that were held on purpose are not slow. It costs a clock reading per call when Debug is off.
type AccessLog struct {
	cfg     AccessLogConfig
	limit   atomic.Int64 // AccessLogConfig.Slow; it may be changed
	next    atomic.Int64 // unix nanoseconds from when a slow call may be told again
	skipped atomic.Int64
}

var _ Hook = (*AccessLog)(nil)

// NewAccessLog returns the hook.
func NewAccessLog(cfg AccessLogConfig) *AccessLog {
	if cfg.Slow == 0 {
		cfg.Slow = DefaultSlowCall
	}
	if cfg.Every == 0 {
		cfg.Every = DefaultSlowEvery
	}
	a := &AccessLog{cfg: cfg}
	a.limit.Store(int64(cfg.Slow))
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
		a.slow(ctx, c, r, err, took)
		return
	}
	if a.cfg.Logger.Enabled(ctx, slog.LevelDebug) {
		a.write(ctx, slog.LevelDebug, "call", c, r, err, took)
	}
}

func (a *AccessLog) slow(ctx context.Context, c *Call, r *Response, err error, took time.Duration) {
	now := c.Received.Add(took).UnixNano()
	next := a.next.Load()
	if now < next || !a.next.CompareAndSwap(next, now+int64(a.cfg.Every)) {
		a.skipped.Add(1)
		return
	}
	a.write(ctx, slog.LevelWarn, "slow call", c, r, err, took, slog.Int64("skipped_lines", a.skipped.Swap(0)))
}

func (a *AccessLog) write(
	ctx context.Context,
	level slog.Level,
	msg string,
	c *Call,
	r *Response,
	err error,
	took time.Duration,
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
	a.cfg.Logger.LogAttrs(ctx, level, msg, append(attrs, more...)...)
}
