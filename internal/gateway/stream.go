// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	v1 "github.com/roquetmq/roquet/api/proto/roquet/v1"
)

const (
	// streamWait is how long a stream says nothing; then it writes something without meaning, which shows whether
	// the client is there.
	streamWait = 15 * time.Second
	// streamPatience is how long a client may take for what is written at a time.
	streamPatience = 30 * time.Second
)

// Stream is never called: door.stream serves its route.
func (*door) Stream(*v1.StreamRequest, grpc.ServerStreamingServer[v1.Message]) error {
	return errors.ErrUnsupported
}

// streaming is one stream.
type streaming struct {
	door   *door
	w      http.ResponseWriter
	out    *http.ResponseController
	group  string
	events bool // as server-sent events
	auto   bool // what is written is acknowledged
}

// stream receives messages until the client goes or the server stops. What goes wrong before anything was
// written is an answer like any other.
func (d *door) stream(w http.ResponseWriter, r *http.Request) {
	in := &v1.StreamRequest{}
	if err := runtime.PopulateQueryParameters(in, r.URL.Query(), utilities.NewDoubleArray(nil)); err != nil {
		d.fail(w, badRequest("%s", err))
		return
	}
	want := &v1.ReceiveRequest{
		Group: r.PathValue("group"), Topic: r.PathValue("topic"), MaxMessages: maxReceive,
		Invisible: in.GetInvisible(), Filter: &v1.ReceiveRequest_Tag{Tag: in.GetTag()},
	}
	if sql := in.GetSql(); sql != "" {
		want.Filter = &v1.ReceiveRequest_Sql{Sql: sql}
	}
	found, err := d.receive(r.Context(), want)
	if err != nil {
		d.fail(w, err)
		return
	}
	s := &streaming{
		door: d, w: w, out: http.NewResponseController(w), group: want.GetGroup(), events: accepts(r, typeEvents),
		auto: in.GetAck() == v1.AckMode_AUTO,
	}
	want.Wait = durationpb.New(streamWait)
	name := typeNDJSON
	if s.events {
		name = typeEvents
	}
	w.Header().Set("Content-Type", name)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	// A connection without deadlines, which only tests have, needs none lifted.
	_ = s.out.SetReadDeadline(time.Time{})
	w.WriteHeader(http.StatusOK) // so that the client knows at once that it is served
	for s.write(r.Context(), found, err) {
		select {
		case <-d.stopping:
			return
		default:
			found, err = d.receive(r.Context(), want)
		}
	}
}

// write writes what was received. False ends the stream; messages that were not written are given back.
func (s *streaming) write(ctx context.Context, found []*v1.Message, err error) bool {
	_ = s.out.SetWriteDeadline(time.Now().Add(streamPatience)) // as in stream
	var b []byte
	for _, m := range found {
		b = s.append(b, "result", m)
	}
	if err != nil {
		_, e := s.door.errorOf(err)
		b = s.append(b, "error", e)
	}
	if len(b) == 0 {
		b = s.append(b, "", nil)
	}
	_, failed := s.w.Write(b)
	if failed = errors.Join(failed, s.out.Flush()); failed != nil {
		s.door.giveBack(ctx, s.group, found)
		return false
	}
	if s.auto && len(found) > 0 { // what is not acknowledged is received again
		in := &v1.AckRequest{Group: s.group, ReceiptHandles: handlesOf(found)}
		_, _ = s.door.Ack(context.WithoutCancel(ctx), in)
	}
	return err == nil
}

// append appends one object, or something without meaning.
func (s *streaming) append(dst []byte, name string, m proto) []byte {
	end := "\n"
	if s.events {
		end = "\n\n"
	}
	switch {
	case m == nil && s.events:
		return append(dst, ":\n\n"...)
	case m == nil:
		return append(dst, end...)
	case s.events:
		dst = append(dst, "data: "...)
	}
	dst = append(append(append(dst, `{"`...), name...), `":`...)
	return append(append(append(dst, s.door.encode(m)...), '}'), end...)
}
