// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	v1 "github.com/roquetmq/roquet/api/proto/roquet/v1"
	"github.com/roquetmq/roquet/internal/protocol"
)

// Bounds of a receive.
const (
	maxReceive       = 32
	maxWait          = 30 * time.Second
	defaultInvisible = 30 * time.Second
	leastInvisible   = time.Second
	mostInvisible    = 12 * time.Hour

	allQueues   int32 = -1
	initFromMax int32 = 1 // a new group begins with the last message, in a young queue with the first
)

// duration is one of a request, within bounds.
func duration(
	code v2.Code, name string, d *durationpb.Duration, none, least, most time.Duration,
) (time.Duration, error) {
	if d == nil {
		return none, nil
	}
	if v := d.AsDuration(); d.IsValid() && v >= least && v <= most {
		return v, nil
	}
	return 0, refuse(code, "%s %s, wanted %s to %s", name, d.AsDuration(), least, most)
}

// invisible is for how long a message is to be hidden.
func invisible(d *durationpb.Duration) (time.Duration, error) {
	return duration(v2.Code_ILLEGAL_INVISIBLE_TIME, "invisible", d, defaultInvisible, leastInvisible, mostInvisible)
}

// popHeader checks a receive.
func (d *door) popHeader(in *v1.ReceiveRequest) (*protocol.PopMessageRequestHeader, error) {
	wait, err := duration(v2.Code_ILLEGAL_POLLING_TIME, "wait", in.GetWait(), 0, 0, maxWait)
	if err != nil {
		return nil, err
	}
	invisible, err := invisible(in.GetInvisible())
	if err != nil {
		return nil, err
	}
	most, err := limit("maxMessages", in.GetMaxMessages(), 1, maxReceive)
	if err != nil {
		return nil, err
	}
	h := &protocol.PopMessageRequestHeader{
		ConsumerGroup: in.GetGroup(), Topic: in.GetTopic(), QueueID: allQueues,
		MaxMsgNums: most, InvisibleTime: invisible.Milliseconds(),
		PollTime: wait.Milliseconds(), BornTime: time.Now().UnixMilli(), InitMode: initFromMax,
		ExpType: protocol.ExpressionTag, Exp: "*",
		AttemptID: rand.Text(),
	}
	if tag := in.GetTag(); tag != "" {
		h.Exp = tag
	}
	if sql := in.GetSql(); sql != "" {
		h.ExpType, h.Exp = protocol.ExpressionSQL92, sql
	}
	return h, nil
}

// receive asks the broker for messages. None is no error. What a client that is gone would have got is given
// back.
func (d *door) receive(ctx context.Context, in *v1.ReceiveRequest) ([]*v1.Message, error) {
	asked, err := d.popHeader(in)
	if err != nil {
		return nil, err
	}
	answer, err := d.begin(ctx, protocol.PopMessage, asked, nil).wait(ctx, d.stopping)
	switch answer.Code {
	case protocol.PollingTimeout, protocol.PullNotFound, protocol.NoMessage, protocol.PullRetryImmediately:
		return nil, nil
	}
	switch {
	case errors.Is(err, errStopping):
		return nil, nil
	case err != nil:
		return nil, err
	}
	found, err := d.showAll(answer)
	receipts, ok := answer.Header.(*protocol.ReceiptsResponseHeader)
	if err == nil && (!ok || len(receipts.Handles) != len(found)) {
		err = errors.New("the broker's answer has not a receipt handle for each message")
	}
	if err != nil {
		return nil, err
	}
	for i, m := range found {
		m.Topic = in.GetTopic()
		m.ReceiptHandle = (&handle{in.GetTopic(), receipts.Handles[i]}).String()
	}
	if gone := ctx.Err(); gone != nil {
		d.giveBack(ctx, in.GetGroup(), found)
		return nil, gone
	}
	return found, nil
}

func (d *door) Receive(ctx context.Context, in *v1.ReceiveRequest) (*v1.ReceiveResponse, error) {
	found, err := d.receive(ctx, in)
	return &v1.ReceiveResponse{Messages: found}, err
}

// receiveOne answers with the body of one message and its other parts in headers; JSON is left to the generated
// code.
func (d *door) receiveOne(w http.ResponseWriter, r *http.Request) {
	if !accepts(r, typeRaw) {
		d.servePlain(w, r)
		return
	}
	body, err := d.readBody(w, r)
	in := &v1.ReceiveRequest{}
	if err == nil {
		err = readJSON(body, in)
	}
	in.Group, in.Topic, in.MaxMessages = r.PathValue("group"), r.PathValue("topic"), 1
	var found []*v1.Message
	if err == nil {
		found, err = d.receive(r.Context(), in)
	}
	switch {
	case err != nil:
		d.fail(w, err)
	case len(found) == 0:
		w.WriteHeader(http.StatusNoContent)
	default:
		head(w.Header(), found[0])
		payload := found[0].GetBody()
		if text := found[0].GetText(); text != "" {
			payload = []byte(text)
		}
		if _, err := w.Write(payload); err != nil {
			d.giveBack(r.Context(), in.GetGroup(), found)
		}
	}
}
