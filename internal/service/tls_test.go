// SPDX-License-Identifier: Apache-2.0

package service

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/roquetmq/roquet/internal/config"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// authority signs certificates and writes them to files.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, key: newKey(t), file: filepath.Join(t.TempDir(), "ca.crt")}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.write(a.file, "CERTIFICATE", a.sign(a.cert, a.key))
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return der
}

func (a *authority) write(path, kind string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// issue writes a certificate with that serial number, and its key.
func (a *authority) issue(serial int64, certFile, keyFile string) {
	a.t.Helper()
	key := newKey(a.t)
	a.write(certFile, "CERTIFICATE", a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "node"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, key))
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(keyFile, "PRIVATE KEY", der)
}

// client trusts the authority and shows the certificate in the files, if any.
func (a *authority) client(files ...string) *tls.Config {
	a.t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(a.parsed())
	c := &tls.Config{RootCAs: roots}
	if len(files) == 2 {
		pair, err := tls.LoadX509KeyPair(files[0], files[1])
		if err != nil {
			a.t.Fatal(err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c
}

func (a *authority) parsed() *x509.Certificate {
	a.t.Helper()
	pair, err := os.ReadFile(a.file)
	if err != nil {
		a.t.Fatal(err)
	}
	block, _ := pem.Decode(pair)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert
}

// native, overGRPC and overHTTP ask the server at addr for a sign of life; c is nil for plain text.
func native(ctx context.Context, addr string, c *tls.Config) error {
	client, err := remoting.NewClient(remoting.ClientConfig{Addr: addr, TLS: c})
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = client.Invoke(ctx, protocol.GetBrokerConfig, nil, nil)
	return err
}

func overGRPC(ctx context.Context, addr string, c *tls.Config) error {
	creds := insecure.NewCredentials()
	if c != nil {
		creds = credentials.NewTLS(c)
	}
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(creds))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	return err
}

// overHTTP offers HTTP/2 besides HTTP/1.1, as browsers and curl do.
func overHTTP(ctx context.Context, addr string, c *tls.Config) error {
	scheme := "http"
	if c != nil {
		scheme = "https"
		c = c.Clone()
		c.NextProtos = []string{"h2", "http/1.1"}
	}
	transport := &http.Transport{TLSClientConfig: c}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+addr+"/healthz", nil)
	if err != nil {
		return err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err = io.Copy(io.Discard, resp.Body); err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %s", resp.Status)
	}
	return err
}

var doorsOfTests = []struct {
	name string
	ask  func(context.Context, string, *tls.Config) error
}{{"native", native}, {"gRPC", overGRPC}, {"HTTP", overHTTP}}

// lockedLog is a log that several goroutines write and a test reads.
type lockedLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedLog) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

// secured is a running service with a gRPC and an HTTP port too, whose certificate has serial number 10.
func secured(t *testing.T, change func(*config.Config)) (*wire, *authority, *lockedLog) {
	t.Helper()
	a, log, dir := newAuthority(t), new(lockedLog), t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	a.issue(10, cert, key)
	w := startLogged(t, slog.New(slog.NewTextHandler(log, nil)), func(cfg *config.Config) {
		cfg.TLS.ServerCert, cfg.TLS.ServerKey, cfg.TLS.ServerTrust = cert, key, a.file
		cfg.Listen.GRPCPort, cfg.Listen.HTTPPort = freePort(t), freePort(t)
		if change != nil {
			change(cfg)
		}
	})
	return w, a, log
}

func (w *wire) ports() []string {
	l := w.svc.cfg.Listen
	var addrs []string
	for _, port := range []int{l.BrokerPort, l.GRPCPort, l.HTTPPort} {
		addrs = append(addrs, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	}
	return addrs
}

// Every door on every port, plain and with TLS, in the three modes; what enforcing closes stands in the log.
func TestC145PlainAndTLSOnEveryPort(t *testing.T) {
	t.Parallel()
	for _, mode := range []struct {
		name          string
		plain, secure bool
	}{{"permissive", true, true}, {"enforcing", false, true}, {"disabled", true, false}} {
		t.Run(mode.name, func(t *testing.T) {
			t.Parallel()
			w, a, log := secured(t, func(cfg *config.Config) { cfg.TLS.Mode = mode.name })
			for _, addr := range w.ports() {
				for _, door := range doorsOfTests {
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
					plain, secure := door.ask(ctx, addr, nil), door.ask(ctx, addr, a.client())
					cancel()
					if (plain == nil) != mode.plain || (secure == nil) != mode.secure {
						t.Errorf("%s on %s: plain %v, TLS %v", door.name, addr, plain, secure)
					}
				}
			}
			if got := log.count("enforces TLS"); (got > 0) == mode.plain {
				t.Errorf("%d lines about plain text", got)
			}
		})
	}
}

func TestMutualTLSOnEveryDoor(t *testing.T) {
	t.Parallel()
	w, a, _ := secured(t, func(cfg *config.Config) {
		cfg.TLS.ClientAuth, cfg.TLS.Mode = "require", "enforcing"
	})
	stranger := newAuthority(t)
	dir := t.TempDir()
	for i, issuer := range []*authority{a, stranger} {
		issuer.issue(20, filepath.Join(dir, strconv.Itoa(i)+".crt"), filepath.Join(dir, strconv.Itoa(i)+".key"))
	}
	for _, tc := range []struct {
		name   string
		client *tls.Config
		want   bool
	}{
		{"signed by the authority", a.client(filepath.Join(dir, "0.crt"), filepath.Join(dir, "0.key")), true},
		{"signed by another", a.client(filepath.Join(dir, "1.crt"), filepath.Join(dir, "1.key")), false},
		{"none", a.client(), false},
	} {
		for _, door := range doorsOfTests {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			if err := door.ask(ctx, w.addr, tc.client); (err == nil) != tc.want {
				t.Errorf("%s, certificate %s: %v", door.name, tc.name, err)
			}
			cancel()
		}
	}
}

// serial is the number of the certificate that a new connection is shown.
func serial(t *testing.T, addr string, c *tls.Config) int64 {
	t.Helper()
	conn, err := (&tls.Dialer{Config: c}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	secure, ok := conn.(*tls.Conn)
	if !ok {
		t.Fatalf("%T", conn)
	}
	return secure.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

func TestC148CertificatesChangeUnderARunningServer(t *testing.T) {
	t.Parallel()
	w, a, log := secured(t, nil)
	open, err := remoting.NewClient(remoting.ClientConfig{Addr: w.addr, TLS: a.client()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(open.Close)
	before, err := open.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cert, key := w.svc.cfg.TLS.ServerCert, w.svc.cfg.TLS.ServerKey
	for _, step := range []struct {
		name     string
		change   func()
		serial   int64
		warnings int
	}{
		{"nothing", func() {}, 10, 0},
		{"a new pair", func() { a.issue(11, cert, key) }, 11, 0},
		{"a key of another pair", func() { a.issue(12, cert, key+".other") }, 11, 1},
		{"nothing since", func() {}, 11, 1},
		{"a key cut short", func() { a.write(key, "PRIVATE KEY", []byte("x")) }, 11, 2},
		{"no files", func() { os.Remove(cert); os.Remove(key) }, 11, 3},
		{"a good pair again", func() { a.issue(13, cert, key) }, 13, 3},
	} {
		step.change()
		w.svc.certs.check(time.Now())
		if got := serial(t, w.addr, a.client()); got != step.serial {
			t.Errorf("%s: certificate %d, want %d", step.name, got, step.serial)
		}
		if got := log.count("cannot be used"); got != step.warnings {
			t.Errorf("%s: %d warnings, want %d", step.name, got, step.warnings)
		}
		if _, err := open.Invoke(t.Context(), protocol.GetBrokerConfig, nil, nil); err != nil {
			t.Errorf("%s: the open connection: %v", step.name, err)
		}
	}
	if now, err := open.Conn(t.Context()); now != before || err != nil {
		t.Errorf("the open connection was made again: %v", err)
	}
}

// Java, Go, C# and C++ clients of 5.x speak TLS and check nothing unless they are told otherwise.
func TestTLSWithoutACertificate(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	for _, door := range doorsOfTests {
		if err := door.ask(t.Context(), w.addr, &tls.Config{InsecureSkipVerify: true}); err != nil {
			t.Errorf("%s: %v", door.name, err)
		}
	}
	for text, change := range map[string]func(*config.TLS){
		"tls.server.certPath none.crt":      func(c *config.TLS) { c.ServerCert, c.ServerKey = "none.crt", "none.key" },
		"tls.server.trustCertPath: tls_tes": func(c *config.TLS) { c.ServerTrust = "tls_test.go" },
	} {
		cfg := config.New()
		change(&cfg.TLS)
		if _, err := newCertificates(&cfg.TLS, nil); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %s", err, text)
		}
	}
	if c, err := newCertificates(&config.TLS{Mode: "permissive"}, nil); c.server() != nil || err != nil {
		t.Errorf("TLS though nothing asks for it: %v", err)
	}
}

// A broker registers with a name server that wants TLS and a certificate; one that it does not trust hears nothing.
func TestRegistrationOverTLS(t *testing.T) {
	t.Parallel()
	names, a, _ := secured(t, func(cfg *config.Config) {
		cfg.Roles, cfg.TLS.ClientAuth, cfg.TLS.Mode = []string{config.RoleNameServer}, "require", "enforcing"
		cfg.Listen.NamesrvPort, cfg.Listen.BrokerPort = cfg.Listen.BrokerPort, 0
	})
	cert, key := filepath.Join(t.TempDir(), "b.crt"), filepath.Join(t.TempDir(), "b.key")
	a.issue(30, cert, key)
	client, err := remoting.NewClient(remoting.ClientConfig{Addr: names.addr, TLS: a.client(cert, key)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	for _, tc := range []struct {
		trust, says string
		want        protocol.ResponseCode
	}{
		{newAuthority(t).file, "unknown authority", protocol.TopicNotExist},
		{a.file, "registered with name server", protocol.Success},
	} {
		log := new(lockedLog)
		w := startLogged(t, slog.New(slog.NewTextHandler(log, nil)), func(cfg *config.Config) {
			cfg.Roles, cfg.Identity.NamesrvAddrs = []string{config.RoleBroker}, []string{names.addr}
			cfg.TLS.Client, cfg.TLS.ClientCert, cfg.TLS.ClientKey, cfg.TLS.ClientTrust = true, cert, key, tc.trust
		})
		w.topic("t", 3)
		w.eventually(tc.says, func() bool { return log.count(tc.says) > 0 })
		w.eventually("the route", func() bool {
			return names.callBy(client, protocol.GetRouteInfoByTopic,
				&protocol.GetRouteInfoRequestHeader{Topic: "t"}, nil).Code == int32(tc.want)
		})
	}
}
