// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/roquetmq/roquet/internal/protocol"
)

func TestClientRedialsAfterALoss(t *testing.T) {
	t.Parallel()
	h := start(t, echoRoutes())
	c := h.client(t)
	invoke(t, c, codeEcho, nil, nil)
	first, err := c.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, conn := range h.conns(true) {
		conn.Close()
	}
	eventually(t, "the client sees it", first.Closed)
	if got := invoke(t, c, codeEcho, nil, []byte("again")); string(got.Body) != "again" {
		t.Fatalf("%+v", got)
	}
	second, err := c.Conn(t.Context())
	if err != nil || second == first {
		t.Fatalf("the same connection, %v", err)
	}
}

func TestClientErrors(t *testing.T) {
	t.Parallel()
	nowhere := dialTo(t, ClientConfig{Addr: "127.0.0.1:1"})
	if _, err := nowhere.Invoke(
		t.Context(),
		codeEcho,
		nil,
		nil,
	); err == nil ||
		!strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Fatalf("%v", err)
	}
	h := start(t, echoRoutes())
	c := h.client(t)
	conn, err := c.Conn(t.Context())
	if err == nil {
		err = conn.OneWay(codeEcho, nil, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	c.Close()
	if _, err := c.Invoke(t.Context(), codeEcho, nil, nil); !errors.Is(err, ErrConnClosed) {
		t.Fatalf("closed client: %v", err)
	}
}

func TestClientSaysWhoItIs(t *testing.T) {
	t.Parallel()
	asked, routes := make(chan *Call, 1), echoRoutes()
	for i := range routes {
		next := routes[i].Processor
		routes[i].Processor = func(ctx context.Context, c *Call) {
			asked <- c
			next(ctx, c)
		}
	}
	h := start(t, routes)
	c := dialTo(t, ClientConfig{Addr: h.addr(), Language: protocol.LanguageGo, Version: protocol.VersionV4_9_4})
	got := invoke(t, c, codeEcho, nil, nil)
	if got.Version < 401 || got.Flag != protocol.FlagResponse {
		t.Fatalf("answer with version %d, flag %d", got.Version, got.Flag)
	}
	if call := <-asked; call.Version != protocol.VersionV4_9_4 || call.Language != protocol.LanguageGo {
		t.Fatalf("%d %s", call.Version, call.Language)
	}
	for _, conn := range h.conns(true) {
		if conn.RemoteAddr().Addr().String() != "127.0.0.1" || conn.via.Name != "broker" {
			t.Fatalf("%s %v", conn.RemoteAddr(), conn.via)
		}
	}
}
