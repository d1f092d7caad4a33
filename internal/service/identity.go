// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/roquetmq/roquet/internal/config"
	"github.com/roquetmq/roquet/internal/protocol"
)

// identity is what this broker is called and where clients reach it.
type identity struct {
	cluster    string
	brokerName string
	addr       string         // host:port handed to clients
	storeHost  netip.AddrPort // addr with the host as an IP: part of every message and its id
	origin     string         // where the host was taken from
}

func (i *identity) queue(topic string, id int32) protocol.MessageQueue {
	return protocol.MessageQueue{BrokerName: i.brokerName, QueueID: id, Topic: topic}
}

// newIdentity settles the address that clients are told: brokerIP1 if set, else the address listened on, else
// (listening on all addresses) the machine's first one that is not loopback.
func newIdentity(ctx context.Context, cfg *config.Config) (*identity, error) {
	host, origin := cfg.Identity.AdvertiseHost, "brokerIP1 (--advertise)"
	if host == "" {
		host, origin = cfg.Listen.BindAddress, "bindAddress (--bind)"
		if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
			host, origin = machineAddress(ip.Is6()), "the machine's first address"
		}
	}
	ip, err := resolve(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("brokerIP1 (--advertise) %q: %w", host, err)
	}
	port := cfg.Listen.Port(cfg.Listen.BrokerPort)
	return &identity{
		cluster: cfg.Identity.ClusterName, brokerName: cfg.Identity.BrokerName, origin: origin,
		addr: net.JoinHostPort(host, strconv.Itoa(port)), storeHost: netip.AddrPortFrom(ip, uint16(port)),
	}, nil
}

// resolve turns the advertised host into the IP that message ids hold. A name that does not resolve here may
// still do so for clients; the ids then hold the loopback address.
func resolve(ctx context.Context, host string) (netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap(), nil
	}
	if host == "" {
		return netip.Addr{}, fmt.Errorf("no address: %w", net.ErrClosed)
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip4", host)
	if err != nil || len(ips) == 0 {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil //nolint:nilerr // the name may resolve for clients
	}
	return ips[0].Unmap(), nil
}

// machineAddress is the first address of an interface that is up and not loopback; loopback when there is
// none.
func machineAddress(v6 bool) string {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "127.0.0.1"
	}
	for _, a := range addrs {
		prefix, err := netip.ParsePrefix(a.String())
		ip := prefix.Addr()
		if err == nil && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() && ip.Is6() == v6 {
			return ip.String()
		}
	}
	if v6 {
		return "::1"
	}
	return "127.0.0.1"
}
