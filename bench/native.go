// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// native is a connection of a 4.x client. Many may call at once; answers find their call by opaque.
type native struct {
	conn net.Conn

	mu     sync.Mutex
	opaque int32
	calls  map[int32]chan nativeReply
	err    error
}

type nativeReply struct {
	Code   int32             `json:"code"`
	Opaque int32             `json:"opaque"`
	Remark string            `json:"remark"`
	Ext    map[string]string `json:"extFields"`
	body   []byte
}

func dialNative(ctx context.Context, addr string) (*native, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	n := &native{conn: conn, calls: map[int32]chan nativeReply{}}
	go n.read()
	return n, nil
}

func (n *native) close() { _ = n.conn.Close() }

// call sends a request and waits for its answer.
func (n *native) call(ctx context.Context, code int, ext map[string]string, body []byte) (nativeReply, error) {
	head, err := json.Marshal(ext)
	if err != nil {
		return nativeReply{}, err
	}
	answer := make(chan nativeReply, 1)
	n.mu.Lock()
	n.opaque++
	opaque := n.opaque
	n.calls[opaque] = answer
	err = n.err
	if err == nil {
		_, err = n.conn.Write(frame(code, opaque, string(bytes.Trim(head, "{}")), string(body)))
	}
	n.mu.Unlock()
	if err != nil {
		return nativeReply{}, err
	}
	select {
	case r, ok := <-answer:
		if !ok {
			return r, errors.New("the connection closed")
		}
		return r, nil
	case <-ctx.Done():
		return nativeReply{}, ctx.Err()
	}
}

func (n *native) read() {
	in := bufio.NewReaderSize(n.conn, 1<<18)
	for {
		r, err := readNative(in)
		n.mu.Lock()
		if err != nil {
			n.err = err
			for _, answer := range n.calls {
				close(answer)
			}
			n.calls = nil
			n.mu.Unlock()
			return
		}
		answer := n.calls[r.Opaque]
		delete(n.calls, r.Opaque)
		n.mu.Unlock()
		if answer != nil { // else: a request of the broker, as its transaction checks
			answer <- r
		}
	}
}

func readNative(in io.Reader) (r nativeReply, err error) {
	var words [8]byte
	if _, err := io.ReadFull(in, words[:]); err != nil {
		return r, err
	}
	rest := make([]byte, binary.BigEndian.Uint32(words[:])-4)
	if _, err := io.ReadFull(in, rest); err != nil {
		return r, err
	}
	head := int(binary.BigEndian.Uint32(words[4:]) & 0xffffff)
	if head > len(rest) {
		return r, fmt.Errorf("header of %d bytes in a frame of %d", head, len(rest))
	}
	r.body = rest[head:]
	return r, json.Unmarshal(rest[:head], &r)
}

// sendExt is the header of a send, as Java clients abbreviate it.
func sendExt(topic string, queue int, sysFlag, properties string, batch bool) map[string]string {
	return map[string]string{
		"a": nativeGroup, "b": topic, "c": "TBW102", "d": "8", "e": fmt.Sprint(queue), "f": sysFlag,
		"g": fmt.Sprint(time.Now().UnixMilli()), "h": "0", "i": properties, "j": "0", "k": "false", "l": "0", "m": fmt.Sprint(batch),
	}
}
