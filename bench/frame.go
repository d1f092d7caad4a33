// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"
)

// frame is a RemotingCommand request with a JSON header.
func frame(code int, opaque int32, ext, body string) []byte {
	head := fmt.Sprintf(`{"code":%d,"extFields":{%s},"flag":0,"language":"GO","opaque":%d,"version":473}`, code, ext, opaque)
	b := binary.BigEndian.AppendUint32(nil, uint32(4+len(head)+len(body)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(head)))
	return append(append(b, head...), body...)
}

func pullFrame(opaque int32) []byte {
	return frame(11, opaque, `"consumerGroup":"bench","topic":"first","queueId":"0","queueOffset":"1","maxMsgNums":"32",`+
		`"sysFlag":"6","commitOffset":"0","suspendTimeoutMillis":"60000","subscription":"*","subVersion":"0","expressionType":"TAG"`, "")
}

// firstSend sends one message and waits for its answer, for at most ten seconds.
func firstSend(ctx context.Context, addr string) error { return firstSendTo(ctx, addr, "first") }

func firstSendTo(ctx context.Context, addr, topic string) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	ext := `"a":"bench","b":"` + topic + `","c":"TBW102","d":"1","e":"0","f":"0","g":"1","h":"0","i":"","j":"0","k":"false","l":"0","m":"false"`
	if _, err := conn.Write(frame(310, 1, ext, "hello")); err != nil {
		return err
	}
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return fmt.Errorf("first send: %w", err)
	}
	_, err = io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(size[:])))
	return err
}
