// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/roquetmq/roquet/internal/message"
)

// codec is grpc-go's protobuf codec, which also takes messages that are encoded already.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(grpcproto.Name)} }

// encoded is an answer in its wire form. Marshal gives it to grpc-go, which releases it.
type encoded struct{ bytes *[]byte }

// Marshal encodes v.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if e, ok := v.(encoded); ok {
		return mem.BufferSlice{mem.NewBuffer(e.bytes, mem.DefaultBufferPool())}, nil
	}
	return c.CodecV2.Marshal(v)
}

// receivedMessage is the field of ReceiveMessageResponse that holds a message.
const receivedMessage = 2

// answerHeadBytes is room for the field's tag and length.
const answerHeadBytes = 1 + 5

// encodeReceived is a ReceiveMessageResponse with the message.
func encodeReceived(rec message.Record, d *delivery) (encoded, error) {
	pool := mem.DefaultBufferPool()
	buf := pool.Get(len(rec) + len(d.handle) + 256)
	body, err := appendDelivered((*buf)[:answerHeadBytes], rec, d)
	if err != nil {
		pool.Put(buf)
		return encoded{}, err
	}
	// The length is known now; it goes before the message, right-aligned, and what is before that is cut off.
	size := len(body) - answerHeadBytes
	start := answerHeadBytes - 1 - protowire.SizeVarint(uint64(size))
	head := protowire.AppendTag(body[:start], receivedMessage, protowire.BytesType)
	protowire.AppendVarint(head, uint64(size))
	*buf = body[start:]
	return encoded{buf}, nil
}
