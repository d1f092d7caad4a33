// SPDX-License-Identifier: Apache-2.0

package service

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/roquetmq/roquet/internal/config"
)

// certificates is the TLS of all listeners. Without a certificate it makes one up at the start, since most 5.x
// clients speak TLS, and check nothing, unless told otherwise. Source: TlsHelper.java.
// Known differences: a trustCertPath is always used, also without tls.server.authClient; a given certificate
// wins over tls.test.mode.enable.
type certificates struct {
	cfg     *config.TLS
	log     *slog.Logger
	stamp   string // of the files; of newCertificates and then of whoever calls check
	current atomic.Pointer[tls.Config]
}

// certificatesPeriod is how often the files are looked at.
const certificatesPeriod = 10 * time.Second

// newCertificates reads the files; nil when there is to be no TLS.
func newCertificates(cfg *config.TLS, log *slog.Logger) (*certificates, error) {
	if cfg.Mode == "disabled" || (cfg.ServerCert == "" && !cfg.SelfSigned) {
		return nil, nil
	}
	c := &certificates{cfg: cfg, log: log}
	c.stamp = c.filesStamp()
	return c, c.load()
}

// server returns what listeners use: for each connection the certificate of that moment.
func (c *certificates) server() *tls.Config {
	if c == nil {
		return nil
	}
	current := func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current.Load(), nil }
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: current}
}

// check reads the files again if they have changed. Files that cannot be used leave the old ones in use.
func (c *certificates) check(time.Time) {
	stamp := c.filesStamp()
	if stamp == c.stamp {
		return
	}
	c.stamp = stamp
	if err := c.load(); err != nil {
		c.log.Warn("new TLS files cannot be used: the old ones stay in use until the files change", "error", err)
		return
	}
	c.log.Info("TLS files were read again; connections that are open keep what they have")
}

// filesStamp changes when a file does; a link is followed, so that a mounted secret is seen to change.
func (c *certificates) filesStamp() string {
	var b strings.Builder
	for _, name := range []string{c.cfg.ServerCert, c.cfg.ServerKey, c.cfg.ServerTrust} {
		if info, err := os.Stat(name); err == nil {
			fmt.Fprint(&b, info.ModTime().UnixNano(), " ", info.Size(), ";")
		}
	}
	return b.String()
}

// load replaces the certificate. Whoever can speak HTTP/1.1 means REST, whoever only HTTP/2 means gRPC, and native
// clients name no protocol.
func (c *certificates) load() error {
	next := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1", "h2"}}
	var err error
	if c.cfg.ServerCert == "" {
		next.Certificates, err = selfSigned()
	} else {
		next.Certificates, err = keyPair("tls.server.certPath", c.cfg.ServerCert, c.cfg.ServerKey)
	}
	if err != nil {
		return err
	}
	if next.ClientCAs, err = trusted("tls.server.trustCertPath", c.cfg.ServerTrust); err != nil {
		return err
	}
	switch c.cfg.ClientAuth {
	case "optional":
		next.ClientAuth = tls.VerifyClientCertIfGiven
	case "require":
		next.ClientAuth = tls.RequireAndVerifyClientCert
	}
	c.current.Store(next)
	return nil
}

// clientTLS is how this broker speaks to name servers; nil for plain text. Its certificate is read when it is
// asked for, so that a new one is used by the next connection.
func clientTLS(cfg *config.TLS) (*tls.Config, error) {
	if !cfg.Client {
		return nil, nil
	}
	roots, err := trusted("tls.client.trustCertPath", cfg.ClientTrust)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: roots,
		InsecureSkipVerify: roots == nil && !cfg.AuthServer,
	}
	if cfg.ClientCert == "" {
		return c, nil
	}
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := keyPair("tls.client.certPath", cfg.ClientCert, cfg.ClientKey)
		if err != nil {
			return nil, err
		}
		return &pair[0], nil
	}
	_, err = c.GetClientCertificate(nil)
	return c, err
}

func keyPair(key, certPath, keyPath string) ([]tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(certPath, keyPath)
	if err != nil {
		return nil, fmt.Errorf("%s %s with key %s (PEM, not encrypted): %w", key, certPath, keyPath, err)
	}
	return []tls.Certificate{pair}, nil
}

// trusted reads certificates of authorities; nil when path is empty.
func trusted(key, path string) (*x509.CertPool, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: %s holds no PEM certificate", key, path)
	}
	return pool, nil
}

// selfSigned makes up a certificate that lasts as long as the process.
func selfSigned() ([]tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "roquet, self-signed"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(10, 0, 0), DNSNames: []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, err
}
