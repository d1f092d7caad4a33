// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// maxInflatedBytes bounds what a compressed registration may unpack to.
const maxInflatedBytes = 64 << 20

// BodyCRC32 is the checksum in the header's bodyCrc32: of the body as sent, without the sign bit.
func BodyCRC32(body []byte) int32 { return int32(crc32.ChecksumIEEE(body) & math.MaxInt32) }

// EncodeCompressed returns the body in its compressed form, a zlib stream of
//
//	size  field
//	4+n   data version, JSON
//	4     number of topics, and so often
//	4+n     "name readQueueNums writeQueueNums perm filterType attributes", the last as JSON
//	4+n   filter servers, a JSON array
//	4     number of static topics, and so often
//	4+n     TopicQueueMappingInfo, JSON
//
// where 4+n is a big-endian length and as many bytes. The details of static topics, the mapping's version,
// and of each topic its flags are not in it.
func (b *RegisterBrokerBody) EncodeCompressed() []byte {
	w := &b.TopicConfigSerializeWrapper
	plain := appendSized(nil, EncodeBody(&w.DataVersion))
	plain = binary.BigEndian.AppendUint32(plain, uint32(len(w.TopicConfigTable)))
	for _, name := range slices.Sorted(maps.Keys(w.TopicConfigTable)) {
		plain = appendSized(plain, appendTopicLine(nil, new(w.TopicConfigTable[name])))
	}
	servers := bodyCodec{}
	listValue(textValue)(&servers, &b.FilterServerList)
	plain = appendSized(plain, servers.out)
	plain = binary.BigEndian.AppendUint32(plain, uint32(len(w.TopicQueueMappingInfoMap)))
	for _, name := range slices.Sorted(maps.Keys(w.TopicQueueMappingInfoMap)) {
		plain = appendSized(plain, EncodeBody(new(w.TopicQueueMappingInfoMap[name])))
	}
	var packed bytes.Buffer
	z, _ := zlib.NewWriterLevel(&packed, zlib.BestCompression) // the level exists
	_, _ = z.Write(plain)                                      // memory takes it
	_ = z.Close()
	return packed.Bytes()
}

func appendSized(dst, field []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(field)))
	return append(dst, field...)
}

func appendTopicLine(dst []byte, t *TopicConfig) []byte {
	dst = append(dst, t.TopicName...)
	for _, n := range [...]int32{t.ReadQueueNums, t.WriteQueueNums, t.Perm} {
		dst = append(dst, ' ')
		dst = strconv.AppendInt(dst, int64(n), 10)
	}
	dst = append(dst, ' ')
	dst = append(dst, t.TopicFilterType...)
	dst = append(dst, ' ')
	attributes := bodyCodec{out: dst}
	tableValue(textKey{}, textValue)(&attributes, &t.Attributes)
	return attributes.out
}

// DecodeCompressedRegisterBody reads what EncodeCompressed writes, also without static topics as brokers
// before 5.0 send it. It fails with an *Error of code SystemError and does not unpack more than 64 MiB.
func DecodeCompressedRegisterBody(data []byte) (*RegisterBrokerBody, error) {
	plain, err := inflate(data, maxInflatedBytes)
	if err != nil {
		return nil, registerError(err)
	}
	b := &RegisterBrokerBody{}
	w := &b.TopicConfigSerializeWrapper
	r := registerReader{rest: plain}
	r.body(&w.DataVersion)
	w.TopicConfigTable = map[string]TopicConfig{}
	for range r.count() {
		topic, err := parseTopicLine(string(r.sized()))
		if r.fail(err); r.err != nil {
			break
		}
		w.TopicConfigTable[topic.TopicName] = topic
	}
	servers := newBodyReader(r.sized())
	if listValue(textValue)(servers, &b.FilterServerList); servers.in.failed {
		b.FilterServerList = nil // Apache goes on without them, too
	}
	if len(r.rest) > 0 {
		w.TopicQueueMappingInfoMap = map[string]TopicQueueMappingInfo{}
		for n := r.count(); n > 0 && r.err == nil; n-- {
			info := TopicQueueMappingInfo{}
			r.body(&info)
			w.TopicQueueMappingInfoMap[info.Topic] = info
		}
	}
	if r.err != nil {
		return nil, registerError(r.err)
	}
	return b, nil
}

func registerError(err error) error {
	return &Error{Code: SystemError, Remark: "compressed RegisterBrokerBody: " + err.Error()}
}

// inflate unpacks at most limit bytes.
func inflate(data []byte, limit int) ([]byte, error) {
	z, err := zlib.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(io.LimitReader(z, int64(limit)+1))
	if err == nil {
		err = z.Close()
	}
	if err == nil && len(plain) > limit {
		err = fmt.Errorf("unpacks to more than %d bytes", limit)
	}
	return plain, err
}

// parseTopicLine reads one topic; its flags are not in the line. Attributes that cannot be read are left out,
// as Apache does.
func parseTopicLine(line string) (t TopicConfig, err error) {
	t.setDefaults()
	parts := strings.SplitN(line, " ", 6)
	if len(parts) < 5 {
		return t, fmt.Errorf("a topic needs five fields: %.80q", line)
	}
	t.TopicName, t.TopicFilterType = parts[0], parts[4]
	for i, v := range []*int32{&t.ReadQueueNums, &t.WriteQueueNums, &t.Perm} {
		n, ok := parseInt(parts[i+1])
		if !ok || int64(int32(n)) != n {
			return t, fmt.Errorf("a topic's field %d is no number: %.80q", i+1, line)
		}
		*v = int32(n)
	}
	t.Attributes = map[string]string{}
	if len(parts) == 6 && parts[5] != "" {
		c := newBodyReader([]byte(parts[5]))
		if tableValue(textKey{}, textValue)(c, &t.Attributes); c.in.failed {
			t.Attributes = map[string]string{}
		}
	}
	return t, nil
}

// registerReader reads counts and sized fields. After the first error it has nothing left.
type registerReader struct {
	rest []byte
	err  error
}

var errRegisterCut = errors.New("it ends too early")

func (r *registerReader) fail(err error) {
	if r.err == nil && err != nil {
		r.err = err
		r.rest = nil
	}
}

// word reads a number that is followed by so many bytes at least for each.
func (r *registerReader) word(each uint64) uint32 {
	if len(r.rest) < 4 {
		r.fail(errRegisterCut)
		return 0
	}
	n := binary.BigEndian.Uint32(r.rest)
	if r.rest = r.rest[4:]; uint64(n)*each > uint64(len(r.rest)) {
		r.fail(errRegisterCut)
		return 0
	}
	return n
}

// count reads the number of the sized fields that follow; each takes four bytes at least.
func (r *registerReader) count() uint32 { return r.word(4) }

// sized reads a length and as many bytes.
func (r *registerReader) sized() []byte {
	n := r.word(1)
	field := r.rest[:n]
	r.rest = r.rest[n:]
	return field
}

// body reads a sized field that is a Body.
func (r *registerReader) body(b Body) {
	c := newBodyReader(r.sized())
	if c.object(b); c.in.failed {
		r.fail(c.failure(b))
	}
}
