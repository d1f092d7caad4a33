// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"
)

const (
	acceptPauseFirst = 5 * time.Millisecond // after an accept that failed, say for want of descriptors
	acceptPauseMost  = time.Second
)

// accept takes connections until the socket is closed.
func (s *Server) accept(ctx context.Context, socket net.Listener, via *Listener) {
	pause := acceptPauseFirst
	for {
		nc, err := socket.Accept()
		if err == nil {
			pause = acceptPauseFirst
			s.welcome(nc, via)
			continue
		}
		if errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
			return
		}
		s.eng.log.Warn("could not accept a connection", slog.String("listener", via.Name),
			slog.Any("error", err), slog.Duration("pause", pause))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		pause = min(2*pause, acceptPauseMost)
	}
}

// welcome starts the goroutine of a connection, if there may be one more.
func (s *Server) welcome(nc net.Conn, via *Listener) {
	from := AddrPort(nc.RemoteAddr()).Addr()
	if err := s.doors.enter(from, s.eng.limits.MaxConns, s.eng.limits.MaxConnsPerIP); err != nil {
		s.eng.log.Warn("connection refused", slog.Any("remote_addr", nc.RemoteAddr()),
			slog.String("listener", via.Name), slog.Any("error", err))
		// It is refused; there is nobody to tell that closing failed.
		_ = nc.Close()
		return
	}
	setSocketOptions(nc, s.eng.limits.KeepAliveTimeout)
	c := newConn(s.eng, nc, via)
	s.mu.Lock()
	s.mu.conns[c] = false
	s.mu.Unlock()
	s.eng.running.Add(1)
	go s.serveConn(c) // not through WaitGroup.Go, which costs every connection two closures for its lifetime
}

// serveConn is the goroutine of a connection.
func (s *Server) serveConn(c *Conn) {
	defer s.eng.running.Done()
	k, err := s.sniff(c)
	switch {
	case err != nil:
	case k == kindNative:
		s.serveNative(c)
		return
	case k == kindHTTP1:
		s.hand(c, s.cfg.HTTP1)
		return
	case s.cfg.HTTP2 != nil:
		s.hand(c, s.cfg.HTTP2)
		return
	default:
		err = fmt.Errorf("%w: %s", ErrNotAllowed, noGRPC)
		c.goAway()
	}
	c.shut(err)
	s.forget(c)
	s.doors.leave(c.remote.Addr())
	c.teardown()
	s.logEndOfSniffing(c, c.out.cause())
}

func (s *Server) serveNative(c *Conn) {
	s.mu.Lock()
	s.mu.conns[c] = true
	s.mu.Unlock()
	err := c.serve()
	s.forget(c)
	if s.cfg.OnEnd != nil {
		s.cfg.OnEnd(c)
	}
	s.doors.leave(c.remote.Addr())
	c.logEnd(err)
}

func (s *Server) forget(c *Conn) {
	s.mu.Lock()
	delete(s.mu.conns, c)
	s.mu.Unlock()
}

// hand gives the connection, with what was read of it, to another door.
func (s *Server) hand(c *Conn, to ConnHandler) {
	s.forget(c)
	if c.state.ended.Load() { // closed by the janitor or by the end of the server in the meantime
		s.doors.leave(c.remote.Addr())
		return
	}
	prefix := append([]byte(nil), c.read.in.data...)
	c.read.in.giveBack(&c.eng.chunks)
	to(&handed{Conn: c.nc, prefix: prefix, via: c.via, remote: c.remote, server: s})
}

// janitor closes connections that have been silent too long, and writes answers that a FlushPending was
// forgotten for.
func (s *Server) janitor(ctx context.Context) {
	tick := time.Tick(min(s.eng.limits.IdleTimeout, s.eng.limits.FrameTimeout)/8 + 1)
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick:
			for _, c := range s.conns(false) {
				c.checkSilence(now)
			}
			s.FlushPending()
		}
	}
}

// checkSilence closes the connection if it has begun a frame and goes on with it too slowly or not at all, or has
// said nothing at all for too long. A connection with calls in flight is left alone, and so is one that waits for
// its own answers to be taken.
func (c *Conn) checkSilence(now time.Time) {
	if c.state.wrote.Swap(false) {
		c.state.active.Store(max(c.state.active.Load(), now.UnixNano()))
	}
	silent, due := now.Sub(time.Unix(0, c.state.active.Load())), c.read.due.Load()
	scarce := now.Sub(time.Unix(0, c.eng.scarce.Load())) < c.eng.limits.FrameTimeout
	if hurry := c.read.hurry.Load(); hurry > 0 && scarce {
		due = hurry
	}
	switch {
	case c.state.open.Load() > 0 || c.state.full.Load():
	case due > 0 && (silent > c.eng.limits.FrameTimeout || now.UnixNano() > due):
		c.shut(ErrSilentFrame)
	case silent > c.eng.limits.IdleTimeout:
		c.shut(ErrIdle)
	}
}

// owes reports whether answers have not been taken by the socket.
func (c *Conn) owes() bool {
	c.out.Lock()
	defer c.out.Unlock()
	return len(c.out.buf)+c.out.writing > 0
}
