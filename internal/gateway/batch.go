// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net/http"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	v1 "github.com/roquetmq/roquet/api/proto/roquet/v1"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
)

const (
	// maxChunkBytes is how much of a batch is sent at a time, if the largest message is not smaller. The next
	// chunk is read while the one before is stored.
	maxChunkBytes = 1 << 20
	entryOverhead = 4 + 4 + 4 + 4 + 4 + 2 // of a message in the body of a batch

	// maxBatchCount bounds the messages of one request, and so the results that are kept for its answer.
	maxBatchCount = 100_000
)

// batch is the messages of one request on their way. Those that nothing is asked for are sent together, many in
// a call, which is all or nothing; the others one by one.
type batch struct {
	door    *door
	ctx     context.Context
	topic   string
	header  func(name string) []string
	results []*v1.PublishResult
	calls   []batchCall
	chunk   batchCall                          // not begun yet
	first   *protocol.SendMessageRequestHeader // of the chunk
	body    []byte                             // of the chunk
}

// batchCall is a call of a batch and what it sends.
type batchCall struct {
	*pending

	results []*v1.PublishResult
}

// add takes a message; its result is the next one.
func (b *batch) add(in *v1.NewMessage) {
	o := b.door.outgoing(b.topic, in, b.header)
	h, err := b.door.cfg.Rules.Outgoing(&o.m, clientOf(b.ctx).remote, o.made)
	if err != nil {
		b.refuse(err)
		return
	}
	result := &v1.PublishResult{MessageId: o.system.GetMessageId()}
	b.results = append(b.results, result)
	size := entryOverhead + len(o.m.GetBody()) + len(h.Properties)
	most := min(maxChunkBytes, b.door.cfg.MaxBodyBytes())
	if o.system.MessageGroup != nil || o.system.Priority != nil || o.system.GetDeliveryTimestamp() != nil ||
		size > most {
		b.flush() // what came before is stored before
		p := b.door.begin(b.ctx, protocol.SendMessageV2, h, o.m.GetBody())
		b.calls = append(b.calls, batchCall{p, []*v1.PublishResult{result}})
		return
	}
	if len(b.body)+size > most {
		b.flush()
	}
	if b.first == nil {
		b.first = h
	}
	b.body = message.AppendBatchEntry(b.body, 0, o.m.GetBody(), h.Properties)
	b.chunk.results = append(b.chunk.results, result)
}

// refuse takes a message that cannot be sent.
func (b *batch) refuse(err error) {
	_, e := b.door.errorOf(err)
	b.results = append(b.results, &v1.PublishResult{Error: e})
}

// flush begins to send what has gathered.
func (b *batch) flush() {
	if b.first == nil {
		return
	}
	b.first.Properties, b.first.Batch = "", protocol.Some(true)
	b.chunk.pending = b.door.begin(b.ctx, protocol.SendBatchMessage, b.first, b.body)
	b.calls = append(b.calls, b.chunk)
	b.chunk, b.first, b.body = batchCall{}, nil, make([]byte, 0, len(b.body))
}

// finish waits until all results are there.
func (b *batch) finish() []*v1.PublishResult {
	b.flush()
	for _, c := range b.calls {
		answer, err := c.wait(b.ctx, nil)
		for n, r := range c.results {
			place(r, answer.Header, int64(n))
			if err != nil {
				r.Reset()
				_, r.Error = b.door.errorOf(err)
			}
		}
	}
	return b.results
}

// publishBatch stores a message a line and answers with a result a line; JSON is left to the generated code. The
// results end with one that says why, when not all lines were read.
func (d *door) publishBatch(w http.ResponseWriter, r *http.Request) {
	if mediaType(r) != typeNDJSON {
		d.servePlain(w, r)
		return
	}
	b := &batch{door: d, ctx: r.Context(), topic: r.PathValue("topic"), header: r.Header.Values}
	lines := bufio.NewScanner(http.MaxBytesReader(w, r.Body, maxNDJSONBytes))
	lines.Buffer(make([]byte, 0, 64<<10), int(d.maxBody()))
	for lines.Scan() && len(b.results) < maxBatchCount {
		in := &v1.NewMessage{}
		line := bytes.TrimSpace(lines.Bytes())
		if err := readJSON(line, in); err != nil {
			b.refuse(err)
		} else if len(line) > 0 {
			b.add(in)
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		b.refuse(tooLarge(d.maxBody()))
	case err != nil:
		b.refuse(readError(err))
	case len(b.results) == maxBatchCount:
		b.refuse(refuse(v2.Code_PAYLOAD_TOO_LARGE, "more than %d messages", maxBatchCount))
	}
	results := b.finish()
	out := make([]byte, 0, 128*len(results))
	for _, result := range results {
		out = d.appendResult(out, result)
	}
	d.write(w, typeNDJSON, http.StatusOK, out)
}

func (d *door) PublishBatch(ctx context.Context, in *v1.PublishBatchRequest) (*v1.PublishBatchResponse, error) {
	if n := len(in.GetMessages()); n == 0 || n > maxBatchCount {
		return nil, badRequest("%d messages, wanted 1 to %d", n, maxBatchCount)
	}
	b := &batch{door: d, ctx: ctx, topic: in.GetTopic(), header: headerOf(ctx)}
	for _, one := range in.GetMessages() {
		b.add(one)
	}
	return &v1.PublishBatchResponse{Results: b.finish()}, nil
}
