// SPDX-License-Identifier: Apache-2.0

// Package client calls a server's REST API (docs/rest.md) through the clients that are generated from
// api/proto/roquet/v1: what an rpc is over HTTP is read from api/rest.yaml, so nothing is defined twice.
package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	v1 "github.com/roquetmq/roquet/api/proto/roquet/v1"
)

// Config says which server is called, and as whom. Only Server is required.
type Config struct {
	Server   string        // URL, or host:port of any of its listeners
	User     string        // with Password: HTTP Basic
	Password string        // never shown
	Token    string        // HTTP Bearer, before User; never shown
	CAFile   string        // PEM: who may sign the server's certificate; empty: the system's
	Insecure bool          // believe any certificate
	Timeout  time.Duration // of a call; 0: 10 s
}

// Client calls one server. It may be used by many goroutines at once.
type Client struct {
	v1.TopicServiceClient
	v1.MessageServiceClient
	v1.GroupServiceClient
	v1.ClusterServiceClient

	// TLS is what connections of other protocols to the same server need; nil when the server was given without
	// https. Callers clone it before they change it.
	TLS *tls.Config

	cfg   Config
	base  *url.URL
	http  *http.Client
	rules map[any]rule
}

// New returns a client. Nothing is connected before the first call.
func New(cfg Config) (*Client, error) {
	if !strings.Contains(cfg.Server, "://") {
		cfg.Server = "http://" + cfg.Server
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, 10*time.Second)
	base, err := url.Parse(strings.TrimSuffix(cfg.Server, "/"))
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("%q is no server's address: wanted http://host:port or https://host:port", cfg.Server)
	}
	rules, err := readRules()
	if err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg, base: base, rules: rules}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 16}
	if base.Scheme == "https" {
		if c.TLS, err = tlsConfig(cfg); err != nil {
			return nil, err
		}
		transport.TLSClientConfig = c.TLS
	}
	c.http = &http.Client{Transport: transport}
	c.TopicServiceClient, c.MessageServiceClient = v1.NewTopicServiceClient(c), v1.NewMessageServiceClient(c)
	c.GroupServiceClient, c.ClusterServiceClient = v1.NewGroupServiceClient(c), v1.NewClusterServiceClient(c)
	return c, nil
}

func tlsConfig(cfg Config) (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: cfg.Insecure} //nolint:gosec // asked for
	if cfg.CAFile != "" {
		pem, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read --ca: %w", err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--ca %s holds no certificate in PEM", cfg.CAFile)
		}
	}
	return out, nil
}

// Host is the server's name or address without its port.
func (c *Client) Host() string { return c.base.Hostname() }

// Invoke calls an rpc, for the generated clients. Errors: *Error for what the server refused, else what keeps the
// server from answering.
func (c *Client) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	r, known := c.rules[strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", ".")]
	in, ok := args.(proto.Message)
	out, ok2 := reply.(proto.Message)
	if !known || !ok || !ok2 {
		return fmt.Errorf("%s is not served over HTTP", method)
	}
	verb, path, body, err := r.request(in)
	if err != nil {
		return err
	}
	answer, _, err := c.Do(ctx, verb, path, body)
	if err != nil {
		return err
	}
	err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(answer, out)
	if err != nil {
		return fmt.Errorf("%s%s answered with what cannot be read: %w", c.base, path, err)
	}
	return nil
}

// NewStream refuses: streams are read with other tools.
func (*Client) NewStream(
	_ context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption,
) (grpc.ClientStream, error) {
	return nil, fmt.Errorf("%s is a stream, which this client does not read", method)
}

// maxAnswer bounds what is read of an answer.
const maxAnswer = 256 << 20

// Do sends a request to a path, which is escaped and may have a query, and returns the body and the header of
// the answer. Errors are those of Invoke.
func (c *Client) Do(ctx context.Context, method, path string, body []byte) ([]byte, http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	resp, err := c.Open(ctx, method, path, body)
	if err != nil {
		return nil, nil, err
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return nil, nil, c.unreachable(err)
	}
	return answer, resp.Header, nil
}

// Open is Do for answers of any size, which only ctx bounds in time. The caller closes the body.
func (c *Client) Open(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base.String()+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	switch {
	case c.cfg.Token != "":
		req.Header.Set("Authorization", "Bearer "+c.cfg.Token)
	case c.cfg.User != "":
		req.SetBasicAuth(c.cfg.User, c.cfg.Password)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(err)
	}
	if resp.StatusCode/100 != 2 {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // as much as there is of it
		_ = resp.Body.Close()                                       // the status counts
		return nil, c.refused(resp, text)
	}
	return resp, nil
}
