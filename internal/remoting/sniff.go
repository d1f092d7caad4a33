// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"
)

// kind is what the first bytes of a connection announce.
type kind uint8

const (
	kindMore    kind = iota // not told yet
	kindUnknown             // nothing served here
	kindNative
	kindTLS
	kindHTTP1
	kindHTTP2
	kindProxyV1
	kindProxyV2
)

const (
	tlsHandshake  = 0x16
	nativeTopByte = 0x01 // a frame's length is at most 1<<24, so its first byte is 0 or 1
)

// openings are the texts a connection may begin with, other than native frames and TLS.
var openings = [...]struct {
	text string
	kind kind
}{
	{"GET ", kindHTTP1},
	{"POST ", kindHTTP1},
	{"PUT ", kindHTTP1},
	{"HEAD ", kindHTTP1},
	{"DELETE ", kindHTTP1},
	{"OPTIONS ", kindHTTP1},
	{"PATCH ", kindHTTP1},
	{"CONNECT ", kindHTTP1},
	{"TRACE ", kindHTTP1},
	{"PRI * HTTP/2.0\r\n", kindHTTP2},
	{proxyV1Prefix, kindProxyV1},
	{proxyV2Signature, kindProxyV2},
}

// classify tells what the bytes announce. It wants as few as possible: one for native frames and TLS.
func classify(b []byte) kind {
	if len(b) == 0 {
		return kindMore
	}
	if b[0] <= nativeTopByte {
		return kindNative
	}
	if b[0] == tlsHandshake {
		return kindTLS
	}
	verdict := kindUnknown
	for _, o := range openings {
		if len(b) >= len(o.text) {
			if string(b[:len(o.text)]) == o.text {
				return o.kind
			}
		} else if strings.HasPrefix(o.text, string(b)) {
			verdict = kindMore
		}
	}
	return verdict
}

// sniff reads until it is told what the connection speaks. PROXY headers are consumed and TLS is put on along
// the way, so the answer is kindNative, kindHTTP1 or kindHTTP2, with the bytes still in the connection's
// input.
func (s *Server) sniff(c *Conn) (kind, error) {
	var proxied, secured, held bool
	if s.eng.tarpit.delay(c.remote.Addr(), time.Now(), 1) > 0 { // it will wait: no more is read than who it is
		few := make([]byte, 16) // any opening's bytes
		n, err := c.nc.Read(few)
		if err != nil {
			return kindMore, err
		}
		c.read.in.data = few[:n:n]
	}
	for {
		k, err := c.firstBytes()
		if err != nil {
			return k, err
		}
		if !held && k != kindProxyV1 && k != kindProxyV2 { // after the header that says who it is
			held = true
			s.hold(c)
		}
		switch {
		case (k == kindProxyV1 || k == kindProxyV2) && !proxied && !secured:
			proxied = true
			if err := s.takeProxyHeader(c, k); err != nil {
				return k, err
			}
			continue
		case k == kindTLS && !secured:
			secured = true
			if err := s.handshake(c); err != nil {
				return k, err
			}
			continue
		case k != kindNative && k != kindHTTP1 && k != kindHTTP2:
			return k, fmt.Errorf("%w: % x", ErrUnknownProtocol, c.read.in.data[:min(len(c.read.in.data), 8)])
		case !secured && c.via.TLS == TLSEnforcing:
			return k, fmt.Errorf("%w: plain text, but listener %s enforces TLS", ErrNotAllowed, c.via.Name)
		}
		return k, nil
	}
}

// firstBytes reads until the kind is known. A connection that says nothing is the janitor's; one that has
// begun must not take long.
func (c *Conn) firstBytes() (kind, error) {
	begun := false
	for {
		if k := classify(c.read.in.data); k != kindMore {
			if begun {
				return k, c.sock.SetReadDeadline(time.Time{})
			}
			return k, nil
		}
		if len(c.read.in.data) > 0 && !begun {
			begun = true
			if err := c.sock.SetReadDeadline(time.Now().Add(c.eng.limits.FrameTimeout)); err != nil {
				return kindMore, err
			}
		}
		if err := c.readFirst(); err != nil {
			return kindMore, err
		}
	}
}

// readFirst reads once, without a frame in sight.
func (c *Conn) readFirst() error {
	c.read.need = len(c.read.in.data) + 1
	err := c.makeRoom()
	if err == nil {
		err = c.readMore()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return ErrSilentFrame
	}
	c.state.active.Store(time.Now().UnixNano())
	return err
}

// takeProxyHeader consumes the header, in however many pieces it arrives, and lets the connection be from
// whom it names.
func (s *Server) takeProxyHeader(c *Conn, k kind) error {
	if c.via.NoProxy {
		return fmt.Errorf("%w: PROXY header from %s", ErrNotAllowed, c.remote)
	}
	parse := parseProxyV1
	if k == kindProxyV2 {
		parse = parseProxyV2
	}
	if err := c.sock.SetReadDeadline(time.Now().Add(c.eng.limits.FrameTimeout)); err != nil {
		return err
	}
	for {
		h, ok, err := parse(c.read.in.data)
		if err != nil {
			return err
		}
		if !ok {
			if err := c.readFirst(); err != nil {
				return err
			}
			continue
		}
		c.read.in.data = c.read.in.data[h.size:]
		if h.source.IsValid() {
			if err := s.doors.move(c.remote.Addr(), h.source.Addr(), s.eng.limits.MaxConnsPerIP); err != nil {
				return err
			}
			c.remote = h.source
		}
		return c.sock.SetReadDeadline(time.Time{})
	}
}

// handshake puts TLS on the connection. From here on it is read and written the blocking way.
func (s *Server) handshake(c *Conn) error {
	switch {
	case c.via.TLS == TLSDisabled:
		return fmt.Errorf("%w: TLS, which listener %s has disabled", ErrNotAllowed, c.via.Name)
	case s.cfg.TLS == nil:
		return fmt.Errorf("%w: TLS, but listener %s has no certificate", ErrNotAllowed, c.via.Name)
	}
	ctx, cancel := context.WithTimeout(c.eng.ctx, c.eng.limits.FrameTimeout)
	defer cancel()
	plain := &handed{Conn: c.sock, prefix: c.read.in.data, via: c.via, remote: c.remote}
	c.read.in.giveBack(&c.eng.chunks)
	secure := tls.Server(plain, s.cfg.TLS)
	if err := secure.HandshakeContext(ctx); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
			return err
		}
		return fmt.Errorf("TLS handshake: %w", err)
	}
	c.read.in = inbuf{}
	c.raw = rawIO{}
	c.nc = secure
	return nil
}

// logEndOfSniffing tells about a connection that was closed before anything was served on it.
func (s *Server) logEndOfSniffing(c *Conn, err error) {
	if ordinaryEnd(err) {
		return
	}
	s.eng.tarpit.blame(c.remote.Addr(), time.Now())
	s.eng.log.Warn("connection refused", slog.Any("remote_addr", c.remote),
		slog.String("listener", c.via.Name), slog.Any("error", err))
}
