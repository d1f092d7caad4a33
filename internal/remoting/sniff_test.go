// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/roquetmq/roquet/internal/protocol"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		in   string
		want kind
	}{
		{"", kindMore},
		{"\x00", kindNative},
		{"\x01\x00", kindNative},
		{"\x02", kindUnknown},
		{"\x16", kindTLS},
		{"G", kindMore},
		{"GET", kindMore},
		{"GET ", kindHTTP1},
		{"GETX", kindUnknown},
		{"P", kindMore},
		{"PR", kindMore},
		{"PRI", kindMore},
		{"PRI * HTTP/2.0\r\n", kindHTTP2},
		{"PRO", kindMore},
		{"PROXY ", kindProxyV1},
		{"PUT /", kindHTTP1},
		{"PATCH /", kindHTTP1},
		{"POST /x HTTP/1.1", kindHTTP1},
		{"DELETE ", kindHTTP1},
		{"\r", kindMore},
		{proxyV2Signature, kindProxyV2},
		{"\r\n\r\nx", kindUnknown},
		{"SSH-2.0", kindUnknown},
		{"\xff\xff", kindUnknown},
		{"HEAD /", kindHTTP1},
		{"OPTIONS *", kindHTTP1},
		{"TRACE /", kindHTTP1},
		{"CONNECT a:1", kindHTTP1},
	} {
		if got := classify([]byte(tc.in)); got != tc.want {
			t.Errorf("%q: %d, want %d", tc.in, got, tc.want)
		}
	}
}

func TestEveryPrefixOfAnOpeningWantsMore(t *testing.T) {
	t.Parallel()
	for _, o := range openings {
		for n := range len(o.text) {
			if got := classify([]byte(o.text[:n])); got != kindMore {
				t.Errorf("%q: %d", o.text[:n], got)
			}
		}
	}
}

// proxyV2 is a version 2 header with one TLV behind the addresses.
func proxyV2(command byte, source, target netip.AddrPort) []byte {
	family := byte(0x11)
	if source.Addr().Is6() {
		family = 0x21
	}
	body := append(source.Addr().AsSlice(), target.Addr().AsSlice()...)
	body = binary.BigEndian.AppendUint16(body, source.Port())
	body = binary.BigEndian.AppendUint16(body, target.Port())
	body = append(body, 0xE0, 0, 3, 'v', 'p', 'c')
	b := append([]byte(proxyV2Signature), 0x20|command, family)
	b = binary.BigEndian.AppendUint16(b, uint16(len(body)))
	return append(b, body...)
}

// TestC147ProxyHeaderByteByByte: the header is waited for, whatever pieces it comes in, and names the client.
func TestC147ProxyHeaderByteByByte(t *testing.T) {
	t.Parallel()
	v4, v6 := netip.MustParseAddrPort("192.0.2.7:56324"), netip.MustParseAddrPort("[2001:db8::7]:56324")
	h := start(t, echoRoutes())
	for _, tc := range []struct {
		name, header string
		want         netip.AddrPort // zero: the connection's own
	}{
		{"v1 IPv4", "PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\n", v4},
		{"v1 IPv6", "PROXY TCP6 2001:db8::7 2001:db8::1 56324 443\r\n", v6},
		{"v1 unknown", "PROXY UNKNOWN\r\n", netip.AddrPort{}},
		{"v2 IPv4", string(proxyV2(1, v4, netip.MustParseAddrPort("198.51.100.1:443"))), v4},
		{"v2 IPv6", string(proxyV2(1, v6, netip.MustParseAddrPort("[2001:db8::1]:443"))), v6},
		{"v2 local", string(proxyV2(0, v4, v4)), netip.AddrPort{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			nc := h.dial(t)
			for i := range len(tc.header) {
				write(t, nc, []byte(tc.header[i:i+1]))
			}
			write(t, nc, frameOf(codeEcho, 1, nil, nil))
			readFrame(t, nc)
			want := tc.want
			if !want.IsValid() {
				want = nc.LocalAddr().(*net.TCPAddr).AddrPort()
			}
			found := false
			for _, conn := range h.conns(true) {
				found = found || conn.RemoteAddr() == want
			}
			if !found {
				t.Fatalf("no connection from %s", want)
			}
			_ = nc.Close()
		})
	}
	eventually(t, "all are counted out", func() bool {
		h.doors.mu.Lock()
		defer h.doors.mu.Unlock()
		return h.doors.total == 0 && len(h.doors.byIP) == 0
	})
}

func TestBrokenProxyHeaders(t *testing.T) {
	t.Parallel()
	h := start(t, echoRoutes(), withListener(Listener{Name: "broker"}),
		withListener(Listener{Name: "closed", NoProxy: true}))
	long := proxyV2(1, netip.MustParseAddrPort("1.2.3.4:5"), netip.MustParseAddrPort("1.2.3.4:5"))
	binary.BigEndian.PutUint16(long[14:], 60000)
	version := append([]byte(proxyV2Signature), 0x31, 0x11, 0, 12)
	for name, header := range map[string]string{
		"no end": "PROXY TCP4 " + strings.Repeat("1", 200), "family": "PROXY TCP5 1.2.3.4 1.2.3.4 1 2\r\n",
		"address": "PROXY TCP4 1.2.3 1.2.3.4 1 2\r\n", "port": "PROXY TCP4 1.2.3.4 1.2.3.4 70000 2\r\n",
		"mixed": "PROXY TCP4 ::1 ::1 1 2\r\n", "v2 long": string(long), "v2 version": string(version),
		"v2 short": proxyV2Signature + "\x21\x11\x00\x02ab", "twice": "PROXY UNKNOWN\r\nPROXY UNKNOWN\r\n",
	} {
		nc := h.dial(t)
		write(t, nc, []byte(header))
		t.Log(name)
		wantClosed(t, nc)
	}
	nc, err := net.Dial("tcp", h.Listeners()[1].Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	write(t, nc, []byte("PROXY UNKNOWN\r\n"))
	wantClosed(t, nc)
	h.wantLog(t, "PROXY header from 127.0.0.1")
}

// TestC003HTTPOnTheNativePort: recognised, answered, or told at once that it is not served.
func TestC003HTTPOnTheNativePort(t *testing.T) {
	t.Parallel()
	notReady := errors.New("the disk is full")
	h := start(t, echoRoutes(), func(cfg *Config, _ *RegistryConfig) {
		cfg.Ready = func() error { return notReady }
	})
	for _, tc := range []struct {
		path   string
		status int
		text   string
	}{
		{"/healthz", 200, "ok\n"}, {"/readyz", 503, "the disk is full\n"}, {"/", 404, "remoting port"},
	} {
		resp, err := http.Get("http://" + h.addr() + tc.path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != tc.status || !strings.Contains(string(text), tc.text) {
			t.Errorf("%s: %d %q %v", tc.path, resp.StatusCode, text, err)
		}
	}
	nc := h.dial(t)
	write(t, nc, []byte(http2Preface))
	answer, err := io.ReadAll(nc)
	if err != nil || !strings.Contains(string(answer), "no gRPC door") {
		t.Fatalf("%q %v", answer, err)
	}
	h.wantLog(t, "no gRPC door")
}

// TestHandedConnections: another door gets every byte, the client's address and the listener; its connection
// is counted until it closes it.
func TestHandedConnections(t *testing.T) {
	t.Parallel()
	grpc, web := NewConnListener("grpc"), NewConnListener("http")
	h := start(
		t,
		echoRoutes(),
		func(cfg *Config, _ *RegistryConfig) { cfg.HTTP1, cfg.HTTP2 = web.Deliver, grpc.Deliver },
	)
	for _, tc := range []struct {
		door  *ConnListener
		hello string
	}{{grpc, http2Preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"}, {web, "POST /v1 HTTP/1.1\r\nHost: x\r\n\r\n"}} {
		nc := h.dial(t)
		write(t, nc, []byte("PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\n"))
		write(t, nc, []byte(tc.hello))
		conn, err := tc.door.Accept()
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(tc.hello))
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != tc.hello {
			t.Fatalf("%q %v", got, err)
		}
		via, ok := conn.(interface{ Listener() *Listener })
		if !ok || via.Listener() != h.Listeners()[0] || conn.RemoteAddr().String() != "192.0.2.7:56324" {
			t.Fatalf("%v from %s", via, conn.RemoteAddr())
		}
		write(t, conn, []byte("hi"))
		if _, err := io.ReadFull(nc, got[:2]); err != nil || string(got[:2]) != "hi" {
			t.Fatalf("%q %v", got[:2], err)
		}
		if n := h.Open(); n != 1 {
			t.Fatalf("%d open", n)
		}
		_, _ = conn.Close(), conn.Close()
		if n := h.Open(); n != 0 {
			t.Fatalf("%d open", n)
		}
	}
	_ = web.Close()
	if _, err := web.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
	nc := h.dial(t)
	write(t, nc, []byte("GET / HTTP/1.1\r\n\r\n"))
	wantClosed(t, nc)
}

func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "roquet"}, NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"roquet"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestC145TLSAndPlainOnOnePort: permissive serves both, enforcing and disabled close the other kind.
func TestC145TLSAndPlainOnOnePort(t *testing.T) {
	t.Parallel()
	server := &tls.Config{Certificates: []tls.Certificate{selfSigned(t)}}
	client := &tls.Config{InsecureSkipVerify: true} // as the original's clients do by default
	h := start(t, echoRoutes(), func(cfg *Config, _ *RegistryConfig) {
		cfg.TLS = server
		cfg.Listeners = []Listener{
			{Name: "both"},
			{Name: "only", TLS: TLSEnforcing},
			{Name: "never", TLS: TLSDisabled},
		}
	})
	for i, tc := range []struct{ plain, secure bool }{{true, true}, {false, true}, {true, false}} {
		addr := h.Listeners()[i].Addr
		for _, secure := range []bool{false, true} {
			want, cfg := tc.plain, ClientConfig{Addr: addr}
			if secure {
				want, cfg.TLS = tc.secure, client
			}
			c := dialTo(t, cfg)
			for _, body := range []string{"hello", strings.Repeat("x", 3<<20)} {
				got, err := c.Invoke(t.Context(), codeEcho, nil, []byte(body))
				if (err == nil) != want || (want && string(got.Body) != body) {
					t.Errorf("%s, TLS %v: %v", h.Listeners()[i].Name, secure, err)
				}
			}
		}
	}
	nc := h.dial(t)
	write(t, nc, []byte("PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\n")) // in front of TLS
	secure := tls.Client(nc, client)
	write(t, secure, frameOf(codeEcho, 5, nil, nil))
	if got := readFrame(t, secure); got.Opaque != 5 {
		t.Fatalf("%+v", got)
	}
}

func TestListenersAreChecked(t *testing.T) {
	t.Parallel()
	_, err := NewServer(Config{
		Listeners: []Listener{{Name: "a", Addr: "nonsense"}, {Name: "b", Addr: ":0", Advertised: "x"}},
	}, clientSide(t))
	for _, part := range []string{"listener a: address", "listener b: advertised"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error lacks %q: %v", part, err)
		}
	}
	s, err := NewServer(
		Config{Listeners: []Listener{{Name: "a", Addr: "127.0.0.1:0"}, {Name: "b", Addr: "203.0.113.1:1"}}},
		clientSide(t),
	)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Listen(t.Context()); err == nil || !strings.Contains(err.Error(), "listener b") {
		t.Fatalf("bound a foreign address: %v", err)
	}
	if err := s.Serve(t.Context()); !errors.Is(err, ErrServerClosed) {
		t.Fatalf("served without listening: %v", err)
	}
	_ = protocol.Success
}

const http2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
