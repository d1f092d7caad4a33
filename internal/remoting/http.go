// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/net/http2"
)

const (
	httpPatience  = 10 * time.Second // for one request
	httpMaxBytes  = 16 << 10         // of it
	healthPath    = "/healthz"
	readinessPath = "/readyz"
)

// answerHTTP is the door for HTTP/1 where none is configured: it answers one request, the two probes or a pointer to
// the right port, and closes the connection. Scripts and probes that speak to the wrong port learn so.
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
		return http.StatusNotFound, "this is a RocketMQ remoting port, and this server has no HTTP door\n"
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

// noGRPC is why a client of gRPC is not served where there is no such door.
const noGRPC = "this server has no gRPC door"

// goAway tells a client of gRPC in its own protocol that it is not served, before the connection is closed. It may be
// gone already, and is told nothing then.
func (c *Conn) goAway() {
	out := http2.NewFramer(c.nc, nil)
	_ = c.sock.SetWriteDeadline(time.Now().Add(time.Second))
	_ = out.WriteSettings()
	_ = out.WriteGoAway(0, http2.ErrCodeRefusedStream, []byte(noGRPC))
}
