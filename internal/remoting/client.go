// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/roquetmq/roquet/internal/protocol"
)

// ClientConfig describes a Client. Only Addr is required.
type ClientConfig struct {
	Addr      string      // host:port of a broker or name server
	TLS       *tls.Config // nil: plain text
	Serialize protocol.SerializeType
	Language  protocol.LanguageCode
	Version   int32     // 0: protocol.VersionCurrent
	Registry  *Registry // for requests the server sends; nil: they are answered as not supported
	Logger    *slog.Logger
}

// A Client is one connection to a server, made when it is first needed and again after it was lost. Requests
// may be sent by many goroutines at once. A request that was on its way when the connection was lost fails
// with ErrConnClosed.
type Client struct {
	cfg     ClientConfig
	eng     *engine
	dialing chan struct{} // of capacity 1: held by whoever dials
	endTime context.CancelFunc

	mu struct {
		sync.Mutex
		conn   *Conn
		closed bool
	}
}

// NewClient returns a client that has not connected yet.
func NewClient(cfg ClientConfig) (*Client, error) {
	cfg.Version = cmp.Or(cfg.Version, protocol.VersionCurrent)
	reg := cfg.Registry
	if reg == nil {
		var err error
		if reg, err = NewRegistry(RegistryConfig{Logger: cfg.Logger}, nil); err != nil {
			return nil, err
		}
	}
	var limits Limits
	limits.setDefaults()
	c := &Client{cfg: cfg, eng: newEngine(reg, limits, cfg.Logger), dialing: make(chan struct{}, 1)}
	c.eng.requestHead = protocol.Command{Language: cfg.Language, Version: cfg.Version, Serialize: cfg.Serialize}
	c.eng.ctx, c.endTime = context.WithCancel(context.Background())
	return c, nil
}

// Invoke sends a request and waits for the answer or for ctx, whose deadline is the only limit besides the
// dial's. The answer may be of any code; the error is about the transport alone: ErrConnClosed, ctx's, or one
// of dialling.
func (c *Client) Invoke(
	ctx context.Context, code protocol.Code, h protocol.Header, body []byte,
) (*protocol.Command, error) {
	conn, err := c.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return conn.Invoke(ctx, code, h, body)
}

// Conn returns the connection, dialling when there is none.
func (c *Client) Conn(ctx context.Context) (*Conn, error) {
	if conn, err := c.current(); conn != nil || err != nil {
		return conn, err
	}
	select {
	case c.dialing <- struct{}{}:
		defer func() { <-c.dialing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if conn, err := c.current(); conn != nil || err != nil {
		return conn, err
	}
	nc, err := c.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", c.cfg.Addr, err)
	}
	return c.adopt(nc)
}

// current returns the connection if it lives, and an error if the client is closed.
func (c *Client) current() (*Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return nil, ErrConnClosed
	}
	if c.mu.conn != nil && c.mu.conn.Closed() {
		c.mu.conn = nil
	}
	return c.mu.conn, nil
}

// Connected tells whether a connection is up.
func (c *Client) Connected() bool {
	conn, err := c.current()
	return conn != nil && err == nil
}

func (c *Client) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if c.cfg.TLS != nil {
		return (&tls.Dialer{Config: c.cfg.TLS}).DialContext(ctx, "tcp", c.cfg.Addr)
	}
	return new(net.Dialer).DialContext(ctx, "tcp", c.cfg.Addr)
}

// adopt serves a fresh connection on a goroutine that Close waits for.
func (c *Client) adopt(nc net.Conn) (*Conn, error) {
	setSocketOptions(nc, c.eng.limits.KeepAliveTimeout)
	conn := newConn(c.eng, nc, nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		// It was never used.
		_ = nc.Close()
		return nil, ErrConnClosed
	}
	c.mu.conn = conn
	c.eng.running.Go(func() { conn.logEnd(conn.serve()) })
	return conn, nil
}

// Close ends the connection; requests on their way fail with ErrConnClosed. It returns once the connection's
// goroutine has ended. A closed client stays closed.
func (c *Client) Close() {
	c.mu.Lock()
	c.mu.closed = true
	conn := c.mu.conn
	c.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
	c.endTime()
	c.eng.running.Wait()
}
