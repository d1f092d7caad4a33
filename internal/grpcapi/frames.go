// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"
	"encoding/binary"
	"reflect"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// A stream is messages in frames: a byte that says whether it is compressed, which none is here, the length in four
// bytes, the message. What follows makes them itself, so that an answer of many messages is one piece to grpc-go.
const (
	frameHead       = 1 + 4
	receivedMessage = 2 // the field of ReceiveMessageResponse that holds a message
)

// appendFrame appends a message in its frame.
func appendFrame(dst []byte, m proto.Message) ([]byte, error) {
	start := len(dst)
	dst, err := proto.MarshalOptions{}.MarshalAppend(append(dst, make([]byte, frameHead)...), m)
	binary.BigEndian.PutUint32(dst[start+1:], uint32(len(dst)-start-frameHead))
	return dst, err
}

// appendReceivedHead appends what a ReceiveMessageResponse in its frame begins with, before a message of that size.
func appendReceivedHead(dst []byte, size int) []byte {
	dst = binary.BigEndian.AppendUint32(append(dst, 0), uint32(1+protowire.SizeBytes(size)))
	dst = protowire.AppendTag(dst, receivedMessage, protowire.BytesType)
	return protowire.AppendVarint(dst, uint64(size))
}

// writeFrames writes frames to an rpc's stream. It waits while the client has not taken what was written before, and
// nobody may change the bytes afterwards. grpc-go exports no way to write more than one message at a time, and would
// wake its writer time and again; the stream in the context has the method that its own SendMsg ends in.
func writeFrames(ctx context.Context, frames ...[]byte) error {
	data := make(mem.BufferSlice, len(frames))
	for i, b := range frames {
		data[i] = mem.SliceBuffer(b)
	}
	write := reflect.ValueOf(grpc.ServerTransportStreamFromContext(ctx)).MethodByName("Write")
	noHead, noOptions := reflect.ValueOf([]byte(nil)), reflect.Zero(write.Type().In(2))
	err, _ := write.Call([]reflect.Value{noHead, reflect.ValueOf(data), noOptions})[0].Interface().(error)
	return err
}
