// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strconv"
	"strings"
)

// The PROXY protocol puts one header in front of a connection that names who it is really from. Version 1 is
// a line:
//
//	PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\r\n      at most 107 bytes; or PROXY UNKNOWN ...
//
// Version 2 is binary, big-endian:
//
//	off  size  field
//	0    12    signature 0D 0A 0D 0A 00 0D 0A 51 55 49 54 0A
//	12   1     version 2 in the high half; command in the low: 0 LOCAL (the proxy's own check), 1 PROXY
//	13   1     family in the high half (1 IPv4, 2 IPv6), transport in the low (1 stream)
//	14   2     length of what follows
//	16   ..    source, destination address, source, destination port; then TLVs
//
// Source: haproxy.org/download/3.0/doc/proxy-protocol.txt.
const (
	proxyV1Prefix    = "PROXY "
	proxyV1MaxBytes  = 107
	proxyV2Signature = "\r\n\r\n\x00\r\nQUIT\n"
	proxyV2HeadBytes = 16
	proxyV2MaxBytes  = proxyV2HeadBytes + 4096 // longer headers are legal and of no use here
)

// proxyHeader is what a PROXY header says; source is the zero value when it names nobody.
type proxyHeader struct {
	size   int // bytes of the header
	source netip.AddrPort
}

// parseProxyV1 reads a header at the start of b, which begins with proxyV1Prefix. ok is false while it is
// incomplete.
func parseProxyV1(b []byte) (h proxyHeader, ok bool, err error) {
	end := bytes.Index(b[:min(len(b), proxyV1MaxBytes)], []byte("\r\n"))
	if end < 0 {
		if len(b) >= proxyV1MaxBytes {
			return h, false, ErrProxyHeader
		}
		return h, false, nil
	}
	h.size = end + 2
	fields := strings.Split(string(b[len(proxyV1Prefix):end]), " ")
	if fields[0] == "UNKNOWN" {
		return h, true, nil
	}
	if len(fields) != 5 || (fields[0] != "TCP4" && fields[0] != "TCP6") {
		return h, false, ErrProxyHeader
	}
	addr, err := netip.ParseAddr(fields[1])
	if err != nil || addr.Zone() != "" || addr.Is4() != (fields[0] == "TCP4") {
		return h, false, ErrProxyHeader
	}
	port, err := strconv.ParseUint(fields[3], 10, 16)
	if err != nil {
		return h, false, ErrProxyHeader
	}
	h.source = netip.AddrPortFrom(addr.Unmap(), uint16(port))
	return h, true, nil
}

// parseProxyV2 reads a header at the start of b, which begins with proxyV2Signature. ok is false while it is
// incomplete.
func parseProxyV2(b []byte) (h proxyHeader, ok bool, err error) {
	if len(b) < proxyV2HeadBytes {
		return h, false, nil
	}
	version, command, family := b[12]>>4, b[12]&0xF, b[13]>>4
	h.size = proxyV2HeadBytes + int(binary.BigEndian.Uint16(b[14:]))
	if version != 2 || command > 1 || h.size > proxyV2MaxBytes {
		return h, false, ErrProxyHeader
	}
	if len(b) < h.size {
		return h, false, nil
	}
	if command == 0 {
		return h, true, nil
	}
	body := b[proxyV2HeadBytes:h.size]
	switch {
	case family == 1 && len(body) >= 12:
		addr := netip.AddrFrom4([4]byte(body[:4]))
		h.source = netip.AddrPortFrom(addr, binary.BigEndian.Uint16(body[8:]))
	case family == 2 && len(body) >= 36:
		addr := netip.AddrFrom16([16]byte(body[:16])).Unmap()
		h.source = netip.AddrPortFrom(addr, binary.BigEndian.Uint16(body[32:]))
	case family == 1, family == 2:
		return h, false, ErrProxyHeader
	}
	return h, true, nil
}
