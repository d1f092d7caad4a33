// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// vector is a frame that a real client or broker sent; testdata/wire/index.txt says which and how it was
// caught.
type vector struct {
	file      string // client/CODE.direction
	client    string
	code      Code // of the request, for answers too
	direction string
	frame     []byte // whole, with its length word
}

// answer reports whether the frame answers a request.
func (v *vector) answer() bool { return strings.Contains(v.direction, "answer") }

// wireVectors reads the golden vectors.
func wireVectors(tb testing.TB) []vector {
	tb.Helper()
	byName := map[string]Code{}
	for _, code := range Codes() {
		byName[code.String()] = code
	}
	index, err := os.ReadFile(filepath.Join("testdata", "wire", "index.txt"))
	if err != nil {
		tb.Fatal(err)
	}
	var vectors []vector
	for line := range strings.Lines(string(index)) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		client, name, _ := strings.Cut(words[0], "/")
		code, direction, _ := strings.Cut(name, ".")
		frame, err := os.ReadFile(filepath.Join("testdata", "wire", words[0]))
		if err != nil {
			tb.Fatal(err)
		}
		if !byName[code].Known() {
			tb.Fatalf("%s: no such code", words[0])
		}
		vectors = append(vectors, vector{words[0], client, byName[code], direction, frame})
	}
	return vectors
}

// decode returns the vector's command, from a copy of its frame.
func (v *vector) decode(t *testing.T) Command {
	t.Helper()
	n, err := FrameSize(v.frame)
	if err != nil || n != len(v.frame)-FrameLengthBytes {
		t.Fatalf("frame size %d, %v; the file has %d bytes", n, err, len(v.frame))
	}
	c, err := DecodeFrame(slices.Clone(v.frame[FrameLengthBytes:]))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestWireDecode compares every field with what an independent reader makes of the frame: encoding/json for
// JSON headers, encoding/binary for the others.
func TestWireDecode(t *testing.T) {
	t.Parallel()
	for _, v := range wireVectors(t) {
		t.Run(v.file, func(t *testing.T) {
			t.Parallel()
			c := v.decode(t)
			want := readIndependently(t, v.frame)
			if !v.answer() {
				want.Code = int32(v.code) // binary headers cut it to 16 bits
			}
			if diff := cmp.Diff(want, plainOf(&c)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if c.IsResponse() != v.answer() {
				t.Errorf("flag %d", c.Flag)
			}
		})
	}
}

// TestWireEncode encodes every decoded frame again. The bytes are the same but for:
//   - the order of the ext fields: ours are sorted, Java's come in the order of a HashMap, which is no part of the format;
//   - an empty `"extFields":{}` and an empty `"remark":""`, which a decoded command does not tell from absent ones;
//   - the Go client: it orders its members differently, so of its frames the
//     decoded fields are compared instead of the bytes.
func TestWireEncode(t *testing.T) {
	t.Parallel()
	for _, v := range wireVectors(t) {
		t.Run(v.file, func(t *testing.T) {
			t.Parallel()
			c := v.decode(t)
			got := encodeAgain(&c)
			if c.Language == LanguageGo {
				again, err := DecodeFrame(slices.Clone(got[FrameLengthBytes:]))
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(plainOf(&c), plainOf(&again)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				return
			}
			if diff := cmp.Diff(string(sortedFrame(t, v.frame)), string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// baseFields are the ext fields that no header of ours has: those of headers.txt, and ReqT, which the Java
// client's StreamTypeRPCHook adds to what consumers send.
var baseFields = map[string]bool{"ns": true, "nsd": true, "bname": true, "oway": true, "lo": true, "ReqT": true}

// TestWireHeaders decodes every frame's ext fields into its typed header and encodes that again: nothing
// but the base fields is lost, nothing is added but the fields that are always written.
func TestWireHeaders(t *testing.T) {
	t.Parallel()
	requests, answers := headersByCode()
	used := map[string]bool{}
	for _, v := range wireVectors(t) {
		c := v.decode(t)
		h := requests[v.code]
		if v.answer() {
			h = answers[v.code]
		}
		if h == nil || c.Ext.Len() == 0 {
			for key := range c.Ext.All() {
				if !baseFields[key] {
					t.Errorf("%s: no header for field %s", v.file, key)
				}
			}
			continue
		}
		if v.answer() && c.Code != int32(Success) && c.Code != int32(PullNotFound) && v.code != PullMessage {
			continue // an error's fields are none or the few that every answer of the code has
		}
		used[v.file] = true
		h = newLike(h)
		if err := h.DecodeExt(&c.Ext); err != nil {
			t.Errorf("%s: %v", v.file, err)
			continue
		}
		again := throughFrame(t, c.Serialize, h)
		checkKept(t, v.file, &c.Ext, &again.Ext)
	}
	if len(used) < 100 {
		t.Errorf("only %d vectors have a typed header", len(used))
	}
}

// checkKept compares the fields a frame had with those its typed header writes.
func checkKept(t *testing.T, file string, had, writes *Ext) {
	t.Helper()
	for key, value := range had.All() {
		if got, ok := writes.Get(key); value != "" && !baseFields[key] && (!ok || got != value) {
			t.Errorf("%s: field %s was %q and is %q, %v", file, key, value, got, ok)
		}
	}
	for key, value := range writes.All() {
		if _, ok := had.Get(
			key,
		); !ok && value != "false" && value != "true" && value != "0" && value != "-1" &&
			value != "" {
			t.Errorf("%s: field %s=%q was not there", file, key, value)
		}
	}
}

// headersByCode returns the typed headers of requests and of answers that the vectors need.
func headersByCode() (requests, answers map[Code]Header) {
	requests = map[Code]Header{
		SendMessage:                   &SendMessageRequestHeader{},
		SendMessageV2:                 &SendMessageRequestHeaderV2{},
		SendBatchMessage:              &SendMessageRequestHeaderV2{},
		SendReplyMessageV2:            &SendMessageRequestHeaderV2{},
		SendReplyMessage:              &SendMessageRequestHeader{},
		ConsumerSendMsgBack:           &ConsumerSendMsgBackRequestHeader{},
		EndTransaction:                &EndTransactionRequestHeader{},
		RecallMessage:                 &RecallMessageRequestHeader{},
		PullMessage:                   &PullMessageRequestHeader{},
		LitePullMessage:               &PullMessageRequestHeader{},
		QueryConsumerOffset:           &QueryConsumerOffsetRequestHeader{},
		UpdateConsumerOffset:          &UpdateConsumerOffsetRequestHeader{},
		GetConsumerListByGroup:        &GetConsumerListByGroupRequestHeader{},
		UnregisterClient:              &UnregisterClientRequestHeader{},
		SearchOffsetByTimestamp:       &SearchOffsetRequestHeader{},
		GetMaxOffset:                  &GetMaxOffsetRequestHeader{},
		GetMinOffset:                  &GetMinOffsetRequestHeader{},
		GetEarliestMsgStoreTime:       &GetEarliestMsgStoretimeRequestHeader{},
		QueryMessage:                  &QueryMessageRequestHeader{},
		ViewMessageByID:               &ViewMessageRequestHeader{},
		PopMessage:                    &PopMessageRequestHeader{},
		AckMessage:                    &AckMessageRequestHeader{},
		NotifyConsumerIDsChanged:      &NotifyConsumerIdsChangedRequestHeader{},
		CheckTransactionState:         &CheckTransactionStateRequestHeader{},
		InvokeBrokerToResetOffset:     &ResetOffsetRequestHeader{},
		ResetConsumerClientOffset:     &ResetOffsetRequestHeader{},
		GetConsumerRunningInfo:        &GetConsumerRunningInfoRequestHeader{},
		PushReplyMessageToClient:      &ReplyMessageRequestHeader{},
		UpdateAndCreateTopic:          &CreateTopicRequestHeader{},
		DeleteTopicInBroker:           &DeleteTopicRequestHeader{},
		DeleteTopicInNamesrv:          &DeleteTopicFromNamesrvRequestHeader{},
		GetTopicConfig:                &GetTopicConfigRequestHeader{},
		GetTopicStatsInfo:             &GetTopicStatsInfoRequestHeader{},
		GetAllSubscriptionGroupConfig: &GetAllSubscriptionGroupRequestHeader{},
		DeleteSubscriptionGroup:       &DeleteSubscriptionGroupRequestHeader{},
		GetConsumerConnectionList:     &GetConsumerConnectionListRequestHeader{},
		GetProducerConnectionList:     &GetProducerConnectionListRequestHeader{},
		GetConsumeStats:               &GetConsumeStatsRequestHeader{},
		QueryTopicConsumeByWho:        &QueryTopicConsumeByWhoRequestHeader{},
		QueryConsumeQueue:             &QueryConsumeQueueRequestHeader{},
		ViewBrokerStatsData:           &ViewBrokerStatsDataRequestHeader{},
		GetBrokerConsumeStats:         &GetConsumeStatsInBrokerHeader{},
		GetRouteInfoByTopic:           &GetRouteInfoRequestHeader{},
		PutKVConfig:                   &PutKVConfigRequestHeader{},
		DeleteKVConfig:                &DeleteKVConfigRequestHeader{},
		RegisterBroker:                &RegisterBrokerRequestHeader{},
	}
	send, pull := &SendMessageResponseHeader{}, &PullMessageResponseHeader{}
	answers = map[Code]Header{
		SendMessage:                   send,
		SendMessageV2:                 send,
		SendBatchMessage:              send,
		SendReplyMessageV2:            send,
		SendReplyMessage:              send,
		RecallMessage:                 &RecallMessageResponseHeader{},
		PullMessage:                   pull,
		LitePullMessage:               pull,
		QueryConsumerOffset:           &QueryConsumerOffsetResponseHeader{},
		SearchOffsetByTimestamp:       &SearchOffsetResponseHeader{},
		GetMaxOffset:                  &GetMaxOffsetResponseHeader{},
		GetMinOffset:                  &GetMinOffsetResponseHeader{},
		GetEarliestMsgStoreTime:       &GetEarliestMsgStoretimeResponseHeader{},
		QueryMessage:                  &QueryMessageResponseHeader{},
		PopMessage:                    &PopMessageResponseHeader{},
		HeartBeat:                     &HeartbeatResponseHeader{},
		GetBrokerConfig:               &GetBrokerConfigResponseHeader{},
		GetAllSubscriptionGroupConfig: &GetAllSubscriptionGroupResponseHeader{},
		RegisterBroker:                &RegisterBrokerResponseHeader{},
	}
	return requests, answers
}

// readIndependently decodes a frame with the standard library.
func readIndependently(t *testing.T, frame []byte) plain {
	t.Helper()
	size := int(binary.BigEndian.Uint32(frame[4:]) & 0xFFFFFF)
	header, body := frame[8:8+size], frame[8+size:]
	if frame[4] == byte(SerializeROCKETMQ) {
		return readBinary(t, header, string(body))
	}
	var h struct {
		Code, Version, Opaque, Flag int32
		Language, Remark            string
		ExtFields                   map[string]string
	}
	if err := json.Unmarshal(header, &h); err != nil {
		t.Fatal(err)
	}
	if len(h.ExtFields) == 0 {
		h.ExtFields = nil
	}
	return plain{
		Code:     h.Code,
		Version:  h.Version,
		Opaque:   h.Opaque,
		Flag:     h.Flag,
		Language: LanguageCode(slices.Index(languageNames[:], h.Language)),
		Remark:   h.Remark,
		Ext:      h.ExtFields,
		Body:     string(body),
	}
}

func readBinary(t *testing.T, header []byte, body string) plain {
	t.Helper()
	r := bytes.NewReader(header)
	read := func(into any) {
		if err := binary.Read(r, binary.BigEndian, into); err != nil {
			t.Fatal(err)
		}
	}
	text := func(n int) string {
		b := make([]byte, n)
		if _, err := io.ReadFull(r, b); err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	var fixed struct {
		Code         int16
		Language     uint8
		Version      int16
		Opaque, Flag int32
		Remark       int32
	}
	read(&fixed)
	p := plain{
		Code: int32(
			fixed.Code,
		),
		Language:  LanguageCode(fixed.Language),
		Version:   int32(fixed.Version),
		Opaque:    fixed.Opaque,
		Flag:      fixed.Flag,
		Remark:    text(int(fixed.Remark)),
		Body:      body,
		Serialize: SerializeROCKETMQ,
	}
	var size, valueLen int32
	var keyLen int16
	for read(&size); r.Len() > 0; {
		read(&keyLen)
		key := text(int(keyLen))
		read(&valueLen)
		if p.Ext == nil {
			p.Ext = map[string]string{}
		}
		p.Ext[key] = text(int(valueLen))
	}
	return p
}

// sortedFrame returns the frame with its ext fields in ascending order, and without them when there are
// none. Everything else keeps its bytes.
func sortedFrame(t *testing.T, frame []byte) []byte {
	t.Helper()
	size := int(binary.BigEndian.Uint32(frame[4:]) & 0xFFFFFF)
	header, body := frame[8:8+size], frame[8+size:]
	if frame[4] == byte(SerializeROCKETMQ) {
		header = sortedBinary(t, header)
	} else {
		header = sortedJSON(t, header)
	}
	sorted := binary.BigEndian.AppendUint32(nil, uint32(4+len(header)+len(body)))
	sorted = binary.BigEndian.AppendUint32(sorted, uint32(frame[4])<<24|uint32(len(header)))
	return append(append(sorted, header...), body...)
}

func sortedJSON(t *testing.T, header []byte) []byte {
	t.Helper()
	var members struct{ ExtFields json.RawMessage }
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(header, &members); err != nil {
		t.Fatal(err)
	}
	header = bytes.Replace(header, []byte(`"remark":"",`), nil, 1)
	if members.ExtFields == nil {
		return header
	}
	if err := json.Unmarshal(members.ExtFields, &fields); err != nil {
		t.Fatal(err)
	}
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		pairs = append(pairs, `"`+name+`":`+string(fields[name]))
	}
	if len(pairs) == 0 {
		return bytes.Replace(header, []byte(`"extFields":{},`), nil, 1)
	}
	return bytes.Replace(header, members.ExtFields, []byte("{"+strings.Join(pairs, ",")+"}"), 1)
}

func sortedBinary(t *testing.T, header []byte) []byte {
	t.Helper()
	p := readBinary(t, header, "")
	size := 0
	var entries []byte
	for _, name := range slices.Sorted(maps.Keys(p.Ext)) {
		entries = append(entries, entry(len(name), name, len(p.Ext[name]), p.Ext[name])...)
		size = len(entries)
	}
	return append(slices.Clone(header[:len(header)-size]), entries...)
}
