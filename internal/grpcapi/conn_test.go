// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// selfSigned is a certificate for 127.0.0.1.
func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(
			1,
		),
		NotAfter:    time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// Case C145: one port serves plain text and TLS, behind a proxy that says whom it stands for (case C147) or
// not, and a client is told the address that its listener advertises.
func TestBehindAListener(t *testing.T) {
	t.Parallel()
	d := newDoor(t, nil)
	var callers []string
	d.broker.on(protocol.SendMessageV2, func(c *remoting.Call) {
		callers = append(callers, c.Peer.RemoteAddr().Addr().String()+" "+c.Via.Name+" "+c.Protocol.String())
		replySend(c)
	})
	cert := selfSigned(t)
	listener, err := remoting.NewServer(remoting.Config{
		Listeners: []remoting.Listener{{Name: "gRPC", Addr: "127.0.0.1:0", Advertised: "mq.example.com:443"}},
		TLS: &tls.Config{
			Certificates: []tls.Certificate{cert},
			NextProtos:   []string{"h2"},
		},
		HTTP2: d.server.Deliver,
	}, d.server.api.registry)
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- listener.Serve(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	addr := listener.Listeners()[0].Addr
	roots := x509.NewCertPool()
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	roots.AddCert(leaf)
	secure := credentials.NewTLS(&tls.Config{RootCAs: roots})
	proxied := func(ctx context.Context, addr string) (net.Conn, error) {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp", addr)
		if err == nil {
			for _, b := range []byte("PROXY TCP4 203.0.113.9 10.0.0.1 4711 443\r\n") { // in pieces
				if _, err := conn.Write([]byte{b}); err != nil {
					return nil, err
				}
			}
		}
		return conn, err
	}
	for _, tc := range []struct {
		name  string
		creds credentials.TransportCredentials
		dial  func(context.Context, string) (net.Conn, error)
		want  string
	}{
		{"plain", insecure.NewCredentials(), nil, "127.0.0.1 gRPC grpc"},
		{"TLS", secure, nil, "127.0.0.1 gRPC grpc"},
		{"plain behind a proxy", insecure.NewCredentials(), proxied, "203.0.113.9 gRPC grpc"},
		{"TLS behind a proxy", secure, proxied, "203.0.113.9 gRPC grpc"},
	} {
		options := []grpc.DialOption{grpc.WithTransportCredentials(tc.creds)}
		if tc.dial != nil {
			options = append(options, grpc.WithContextDialer(tc.dial))
		}
		conn, err := grpc.NewClient(addr, options...)
		if err != nil {
			t.Fatal(err)
		}
		client := v2.NewMessagingServiceClient(conn)
		sent, err := client.SendMessage(
			as(t, "c1"),
			&v2.SendMessageRequest{Messages: []*v2.Message{plain("normal", nil)}},
		)
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		wantCode(t, sent.GetStatus(), v2.Code_OK)
		if last := callers[len(callers)-1]; last != tc.want {
			t.Errorf("%s: from %s, want %s", tc.name, last, tc.want)
		}
		route, err := client.QueryRoute(
			as(t, "c1"),
			&v2.QueryRouteRequest{Topic: resource("normal"), Endpoints: endpoints("h", 1)},
		)
		if err != nil {
			t.Fatal(err)
		}
		if host := route.GetMessageQueues()[0].GetBroker().GetEndpoints().GetAddresses()[0].GetHost(); host != "mq.example.com" {
			t.Errorf("%s: told to dial %s", tc.name, host)
		}
		conn.Close()
	}
}
