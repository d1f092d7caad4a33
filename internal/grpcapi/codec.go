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

// encoded is an answer in its wire form, in one piece or two that nobody changes any more.
type encoded struct{ head, body []byte }

// Marshal encodes v.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	e, ok := v.(*encoded)
	switch {
	case !ok:
		return c.CodecV2.Marshal(v)
	case e.body == nil:
		return mem.BufferSlice{mem.SliceBuffer(e.head)}, nil
	}
	return mem.BufferSlice{mem.SliceBuffer(e.head), mem.SliceBuffer(e.body)}, nil
}

const (
	receivedMessage = 2     // the field of ReceiveMessageResponse that holds a message
	answerHeadBytes = 1 + 5 // room for its tag and length
	// copiedBytes is the size up to which a body is copied behind the rest; a larger one is a piece of its own.
	copiedBytes = 1 << 10
	// otherBytes is about what is encoded besides the body.
	otherBytes = 448
)

// appendReceived appends a ReceiveMessageResponse with the message to dst, and returns what it appended too, which
// aliases dst.
func appendReceived(dst []byte, rec message.Record, d *delivery) ([]byte, encoded, error) {
	begin := len(dst)
	dst, body, err := appendDelivered(append(dst, make([]byte, answerHeadBytes)...), rec, d)
	if err != nil {
		return dst, encoded{}, err
	}
	// The length is known now: it goes right before the message, and what is before that is left out.
	size := uint64(len(dst) - begin - answerHeadBytes + len(body))
	start := begin + answerHeadBytes - 1 - protowire.SizeVarint(size)
	head := protowire.AppendTag(dst[start:start:len(dst)], receivedMessage, protowire.BytesType)
	protowire.AppendVarint(head, size)
	if len(body) <= copiedBytes {
		dst, body = append(dst, body...), nil
	}
	return dst, encoded{head: dst[start:len(dst):len(dst)], body: body}, nil
}
