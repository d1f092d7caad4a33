// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

const (
	httpPatience  = 10 * time.Second // for one request
	httpMaxBytes  = 16 << 10         // of it
	healthPath    = "/healthz"
	readinessPath = "/readyz"
	goAwayRefused = 0x7 // REFUSED_STREAM: the request was not processed (RFC 9113 §7)
)

// http1 is the door for HTTP/1: the configured one, or one that answers the two probes and points to the
// right port.
func (s *Server) http1() ConnHandler {
	if s.cfg.HTTP1 != nil {
		return s.cfg.HTTP1
	}
	return s.answerHTTP
}

// answerHTTP answers one request and closes the connection. Scripts and probes that speak to the wrong port
// learn so.
func (s *Server) answerHTTP(nc net.Conn) {
	defer func() { _ = nc.Close() }() // the answer was written or it was not: nothing to add
	if err := nc.SetDeadline(time.Now().Add(httpPatience)); err != nil {
		return
	}
	req, err := http.ReadRequest(bufio.NewReader(io.LimitReader(nc, httpMaxBytes)))
	status, text := http.StatusBadRequest, "not an HTTP request\n"
	if err == nil {
		status, text = s.answerPath(req.URL.Path)
	}
	b := []byte("HTTP/1.1 " + strconv.Itoa(status) + " " + http.StatusText(status) + "\r\n" +
		"Content-Type: text/plain; charset=utf-8\r\nContent-Length: " + strconv.Itoa(len(text)) +
		"\r\nConnection: close\r\n\r\n")
	if err != nil || req.Method != http.MethodHead {
		b = append(b, text...)
	}
	if _, err := nc.Write(b); err != nil && !isReset(err) && !errors.Is(err, io.ErrClosedPipe) {
		s.eng.log.Debug("could not answer an HTTP request", "error", err)
	}
}

func (s *Server) answerPath(path string) (status int, text string) {
	switch path {
	case healthPath:
		return http.StatusOK, "ok\n"
	case readinessPath:
	default:
		return http.StatusNotFound, "this is a RocketMQ remoting port; " + s.pointer(kindHTTP1) + "\n"
	}
	err := error(nil)
	if s.cfg.Ready != nil {
		err = s.cfg.Ready()
	}
	if s.eng.draining.Load() {
		err = ErrServerClosed
	}
	if err != nil {
		return http.StatusServiceUnavailable, err.Error() + "\n"
	}
	return http.StatusOK, "ok\n"
}

// explain tells a client that speaks HTTP where it is not served, in its own protocol, before the connection
// is closed.
func (s *Server) explain(c *Conn, k kind) {
	if err := c.sock.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		return
	}
	text := s.pointer(k)
	var b []byte
	switch k {
	case kindHTTP1:
		b = []byte("HTTP/1.1 421 Misdirected Request\r\nContent-Type: text/plain; charset=utf-8\r\n" +
			"Content-Length: " + strconv.Itoa(len(text)+1) + "\r\nConnection: close\r\n\r\n" + text + "\n")
	case kindHTTP2:
		b = appendGoAway(nil, text)
	default:
		return
	}
	if _, err := c.nc.Write(b); err != nil {
		s.eng.log.Debug("could not point to the right port", "error", err)
	}
}

// appendGoAway appends the two HTTP/2 frames of a server that takes no request: empty SETTINGS and GOAWAY
// with a reason.
//
//	length u24 | type u8 (4 SETTINGS, 7 GOAWAY) | flags u8 | stream u32
//	GOAWAY goes on with: last stream u32 | error u32 | text
func appendGoAway(b []byte, reason string) []byte {
	b = append(b, 0, 0, 0, 4, 0, 0, 0, 0, 0)
	size := 8 + len(reason)
	b = append(b, byte(size>>16), byte(size>>8), byte(size), 7, 0, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, goAwayRefused)
	return append(b, reason...)
}
