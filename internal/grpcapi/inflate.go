// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"bytes"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/roquetmq/roquet/internal/message"
)

// maxInflatedBytes bounds what a compressed body may come to; a larger one is delivered compressed.
const maxInflatedBytes = 64 << 20

// inflate returns the plain body. What it is compressed with, its first bytes say; the sysFlag says so too, but
// not of old clients, and gRPC clients call everything GZIP. ok is false when the body is none of these, is
// damaged or is too large.
func inflate(body []byte, sysFlag int32) (plain []byte, ok bool) {
	from := bytes.NewReader(body)
	var r io.Reader
	var err error
	switch {
	case bytes.HasPrefix(body, []byte{0x1f, 0x8b}):
		r, err = gzip.NewReader(from)
	case bytes.HasPrefix(body, []byte{0x04, 0x22, 0x4d, 0x18}):
		r = lz4.NewReader(from)
	case bytes.HasPrefix(body, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		var d *zstd.Decoder
		d, err = zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxMemory(maxInflatedBytes))
		if err == nil {
			defer d.Close()
			r = d
		}
	case sysFlag&message.CompressionMask != message.CompressionLZ4 &&
		sysFlag&message.CompressionMask != message.CompressionZSTD:
		r, err = zlib.NewReader(from)
	default:
		return nil, false
	}
	if err != nil {
		return nil, false
	}
	var out bytes.Buffer
	n, err := out.ReadFrom(io.LimitReader(r, maxInflatedBytes+1))
	if err != nil || n > maxInflatedBytes {
		return nil, false
	}
	return out.Bytes(), true
}
