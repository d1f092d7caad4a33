// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"google.golang.org/grpc"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	roquetv1 "github.com/roquetmq/roquet/api/proto/roquet/v1"
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
	ctx     context.Context //nolint:containedctx // a batch lives as long as its request
	topic   string
	header  http.Header
	results []batchResult
	calls   []batchCall
	open    batchCall                          // not begun yet
	first   *protocol.SendMessageRequestHeader // of open
	body    []byte                             // of open
}

// batchResult is what became of a message.
type batchResult struct {
	sent

	err error
}

// batchCall is a call of a batch and which messages it sends.
type batchCall struct {
	*pending

	at []int
}

// add takes a message; its result is the next one.
func (b *batch) add(in *roquetv1.NewMessage) {
	o := b.door.outgoingOf(b.topic, in)
	o.keepContext(b.header)
	i := len(b.results)
	b.results = append(b.results, batchResult{sent: sent{id: o.system.GetMessageId()}})
	if o.system.MessageGroup != nil || o.system.GetDeliveryTimestamp() != nil {
		p, err := b.door.start(b.ctx, o)
		if b.results[i].err = err; err == nil {
			b.calls = append(b.calls, batchCall{p, []int{i}})
		}
		return
	}
	h, err := b.door.cfg.Rules.Outgoing(&o.m, clientOf(b.ctx).remote, o.made)
	if err != nil {
		b.results[i].err = err
		return
	}
	size := len(b.body) + entryOverhead + len(o.m.GetBody()) + len(h.Properties)
	if size > min(maxChunkBytes, b.door.cfg.MaxBodyBytes()) {
		b.flush()
	}
	if b.first == nil {
		b.first = h
	}
	b.body = message.AppendBatchEntry(b.body, 0, o.m.GetBody(), h.Properties)
	b.open.at = append(b.open.at, i)
}

// refuse takes a message that is none.
func (b *batch) refuse(err error) { b.results = append(b.results, batchResult{err: err}) }

// flush begins to send what has gathered.
func (b *batch) flush() {
	if b.first == nil {
		return
	}
	b.first.Properties, b.first.Batch = "", protocol.Some(true)
	b.open.pending = b.door.begin(b.ctx, protocol.SendBatchMessage, b.first, b.body)
	b.calls = append(b.calls, b.open)
	b.open, b.first, b.body = batchCall{}, nil, make([]byte, 0, len(b.body))
}

// finish waits until all results are there.
func (b *batch) finish() {
	b.flush()
	for _, c := range b.calls {
		answer, err := c.wait(b.ctx)
		at := sentOf("", answer.Header)
		for n, i := range c.at {
			r := &b.results[i]
			r.err, r.queueID, r.offset, r.recall = err, at.queueID, at.offset+int64(n), at.recall
		}
	}
}

// publishBatch stores a message a line and answers with a result a line; JSON is left to the generated code.
func (d *door) publishBatch(w http.ResponseWriter, r *http.Request) {
	if mediaType(r) != typeNDJSON {
		d.servePlain(w, r)
		return
	}
	b := &batch{door: d, ctx: r.Context(), topic: r.PathValue("topic"), header: r.Header}
	from := http.MaxBytesReader(w, r.Body, d.cfg.Limits.MaxBatchBytes)
	lines := bufio.NewScanner(from)
	lines.Buffer(make([]byte, 0, 64<<10), int(d.maxBody()))
	for lines.Scan() && len(b.results) < maxBatchCount {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		in := &roquetv1.NewMessage{}
		if err := readJSON(line, in); err != nil {
			b.refuse(err)
			continue
		}
		b.add(in)
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		b.refuse(tooLarge(d.maxBody()))
	case err != nil:
		b.refuse(readError(err))
	case len(b.results) == maxBatchCount:
		b.refuse(refuse(v2.Code_PAYLOAD_TOO_LARGE, "more than "+strconv.Itoa(maxBatchCount)+" messages"))
	}
	b.finish()
	w.Header().Set("Content-Type", typeNDJSON)
	out := make([]byte, 0, 128*len(b.results))
	for i := range b.results {
		out = b.results[i].appendTo(out, d)
	}
	d.write(w, out)
}

// appendTo appends a PublishResult on one line.
func (r *batchResult) appendTo(dst []byte, d *door) []byte {
	if r.err == nil {
		return r.sent.appendTo(dst)
	}
	_, e := d.errorOf(r.err)
	dst = append(append(dst, `{"error":`...), bytes.TrimSpace(d.encode(e))...)
	return append(dst, "}\n"...)
}

// PublishBatch stores messages, each on its own.
func (m messages) PublishBatch(
	ctx context.Context, in *roquetv1.PublishBatchRequest, _ ...grpc.CallOption,
) (*roquetv1.PublishBatchResponse, error) {
	if n := len(in.GetMessages()); n == 0 || n > maxBatchCount {
		return nil, badRequest(fmt.Sprintf("%d messages, wanted 1 to %d", n, maxBatchCount))
	}
	b := &batch{door: m.door, ctx: ctx, topic: in.GetTopic(), header: incomingHeader(ctx)}
	for _, one := range in.GetMessages() {
		b.add(one)
	}
	b.finish()
	out := &roquetv1.PublishBatchResponse{}
	for i := range b.results {
		r := &b.results[i]
		result := &roquetv1.PublishResult{MessageId: r.id, QueueId: r.queueID, Offset: r.offset}
		if r.recall != "" {
			result.RecallHandle = &r.recall
		}
		if r.err != nil {
			result = &roquetv1.PublishResult{}
			_, result.Error = m.errorOf(r.err)
		}
		out.Results = append(out.Results, result)
	}
	return out, nil
}
