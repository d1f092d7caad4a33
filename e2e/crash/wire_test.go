// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// The driver speaks the wire by itself, with nothing of roquet's own code, so that a fault in a codec cannot
// hide itself.

type answer struct {
	Code   int               `json:"code"`
	Opaque int32             `json:"opaque"`
	Remark string            `json:"remark"`
	Ext    map[string]string `json:"extFields"`
	body   []byte
}

func (a *answer) number(key string) int64 {
	n, err := strconv.ParseInt(a.Ext[key], 10, 64)
	if err != nil {
		return -1
	}
	return n
}

func frame(code int, opaque int32, ext map[string]string, body []byte) []byte {
	head, err := json.Marshal(map[string]any{
		"code": code, "extFields": ext, "flag": 0, "language": "GO", "opaque": opaque, "version": 473,
	})
	if err != nil {
		panic(err)
	}
	b := binary.BigEndian.AppendUint32(nil, uint32(4+len(head)+len(body)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(head)))
	return append(append(b, head...), body...)
}

func readAnswer(r *bufio.Reader) (*answer, error) {
	var word [8]byte
	if _, err := io.ReadFull(r, word[:]); err != nil {
		return nil, err
	}
	total, head := binary.BigEndian.Uint32(word[:]), binary.BigEndian.Uint32(word[4:])&0xffffff
	if total < 4+head || total > 16<<20 {
		return nil, fmt.Errorf("frame of %d bytes with a header of %d", total, head)
	}
	buf := make([]byte, total-4)
	if _, err := io.ReadFull(r, buf); err != nil {
		return nil, err
	}
	a := &answer{body: buf[head:]}
	return a, json.Unmarshal(buf[:head], a)
}

// call sends one request on its own connection and waits for its answer.
func call(addr string, code int, ext map[string]string, body []byte) (*answer, error) {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return nil, err
	}
	if _, err := conn.Write(frame(code, 1, ext, body)); err != nil {
		return nil, err
	}
	return readAnswer(bufio.NewReader(conn))
}

// sendExt is the header of SEND_MESSAGE_V2 for a topic that the broker creates with 4 queues.
func sendExt(queue int, key string) map[string]string {
	return map[string]string{
		"a": "crash_producer", "b": topic, "c": "TBW102", "d": strconv.Itoa(queueCount), "e": strconv.Itoa(queue), "f": "0",
		"g": strconv.FormatInt(time.Now().UnixMilli(), 10), "h": "0", "i": "UNIQ_KEY\x01" + key + "\x02KEYS\x01" + key + "\x02",
		"j": "0", "k": "false", "l": "0", "m": "false",
	}
}

// stored is one record of a pull's body, as far as the driver looks at it.
type stored struct {
	queueOffset int64
	body        string
}

// records splits a pull's body: total size at 0, queue offset at 20, IPv4 hosts, body length at 84.
func records(b []byte) ([]stored, error) {
	var out []stored
	for len(b) > 0 {
		if len(b) < 91 {
			return nil, fmt.Errorf("record of %d bytes", len(b))
		}
		size, bodyLen := int(binary.BigEndian.Uint32(b)), int(binary.BigEndian.Uint32(b[84:]))
		if size > len(b) || 88+bodyLen > size {
			return nil, fmt.Errorf("record says %d bytes with a body of %d, %d are left", size, bodyLen, len(b))
		}
		out = append(out, stored{int64(binary.BigEndian.Uint64(b[20:])), string(b[88 : 88+bodyLen])})
		b = b[size:]
	}
	return out, nil
}
