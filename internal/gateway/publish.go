// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	v1 "github.com/roquetmq/roquet/api/proto/roquet/v1"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
)

// headerPrefix begins the headers of raw bodies, both ways.
const headerPrefix = "Roquet-"

// contextHeaders carry a trace, and are kept as properties of the same name in lower case.
var contextHeaders = [...]string{"Traceparent", "Tracestate", "Baggage"}

// carried tells which headers go into the context of a request in plain JSON.
func carried(name string) (string, bool) { return name, slices.Contains(contextHeaders[:], name) }

// dropUnprintable takes out of the headers of a trace what W3C has percent-encoded and gRPC's metadata cannot contain.
func dropUnprintable(h http.Header) {
	for _, name := range contextHeaders {
		if values, has := h[name]; has {
			h[name] = slices.DeleteFunc(values, func(v string) bool { return strings.ContainsFunc(v, unprintable) })
		}
	}
}

// headerOf finds the values of a header that is carried.
func headerOf(ctx context.Context) func(name string) []string {
	return func(name string) []string { return metadata.ValueFromIncomingContext(ctx, name) }
}

// outgoing is a message on its way into a call.
type outgoing struct {
	m      v2.Message
	system v2.SystemProperties
	topic  v2.Resource
	made   time.Time
}

// outgoing takes a message of a request over. The trace that the request belongs to, in its headers, is kept with it,
// unless it has one. Several headers of a name are one list.
func (d *door) outgoing(topic string, in *v1.NewMessage, header func(name string) []string) *outgoing {
	o := &outgoing{made: time.Now()}
	o.topic.Name = topic
	o.m.Topic, o.m.SystemProperties = &o.topic, &o.system
	o.m.Body, o.m.UserProperties = in.GetBody(), in.GetProperties()
	if text := in.GetText(); text != "" {
		o.m.Body = []byte(text)
	}
	o.system.MessageId, o.system.Keys = string(d.cfg.IDs.Append(nil, o.made)), in.GetKeys()
	if tag := in.GetTag(); tag != "" {
		o.system.Tag = &tag
	}
	if group := in.GetGroup(); group != "" {
		o.system.MessageGroup = &group
	}
	o.system.DeliveryTimestamp, o.system.Priority = in.GetDeliverAt(), in.Priority
	if delay := in.GetDelay(); delay != nil {
		from := o.made
		if delay.AsDuration() < 0 { // it is refused as a time is that is negative
			from = time.Unix(0, 0)
		}
		o.system.DeliveryTimestamp = timestamppb.New(from.Add(delay.AsDuration()))
	}
	for _, name := range contextHeaders {
		value := strings.Join(header(name), ",")
		name = strings.ToLower(name)
		if _, has := o.m.UserProperties[name]; has || value == "" {
			continue
		}
		if o.m.UserProperties == nil {
			o.m.UserProperties = map[string]string{}
		}
		o.m.UserProperties[name] = value
	}
	return o
}

// rawMessage is a message whose body is the request's and whose other parts are in headers. Names of properties
// come in lower case, since HTTP does not keep theirs.
func rawMessage(body []byte, header http.Header) (*v1.NewMessage, error) {
	in := &v1.NewMessage{Payload: &v1.NewMessage_Body{Body: body}}
	for name, values := range header {
		name, ours := strings.CutPrefix(name, headerPrefix)
		property, isProperty := strings.CutPrefix(name, "Property-")
		switch value := values[0]; {
		case !ours:
		case name == "Tag":
			in.Tag = value
		case name == "Keys":
			in.Keys = strings.Fields(value)
		case name == "Group":
			in.Group = value
		case name == "Priority":
			n, err := strconv.ParseInt(value, 10, 32)
			if err != nil {
				return nil, badRequest("Roquet-Priority: %s", err.Error())
			}
			in.Priority = new(int32(n))
		case name == "Delay":
			delay, err := time.ParseDuration(value)
			if err != nil {
				return nil, badRequest("Roquet-Delay: %v", err)
			}
			in.Due = &v1.NewMessage_Delay{Delay: durationpb.New(delay)}
		case isProperty:
			if in.Properties == nil {
				in.Properties = map[string]string{}
			}
			in.Properties[strings.ToLower(property)] = value
		default:
			return nil, badRequest("header Roquet-%s is none of a message: wanted Roquet-Tag, -Keys, -Group, "+
				"-Priority, -Delay or -Property-NAME", name)
		}
	}
	return in, nil
}

// place notes where a message is.
func place(to *v1.PublishResult, h protocol.Header, add int64) {
	if h, ok := h.(*protocol.SendMessageResponseHeader); ok {
		to.QueueId, to.Offset = h.QueueID, h.QueueOffset+add
		if h.RecallHandle != "" {
			to.RecallHandle = &h.RecallHandle
		}
	}
}

// appendResult appends a result as JSON on a line.
func (d *door) appendResult(dst []byte, r *v1.PublishResult) []byte {
	if r.GetError() != nil {
		dst = append(append(dst, `{"error":`...), d.encode(r.GetError())...)
		return append(dst, "}\n"...)
	}
	dst = append(append(dst, `{"messageId":"`...), r.GetMessageId()...)
	dst = strconv.AppendInt(append(dst, `","queueId":`...), int64(r.GetQueueId()), 10)
	dst = strconv.AppendInt(append(dst, `,"offset":"`...), r.GetOffset(), 10)
	if r.RecallHandle != nil {
		dst = append(append(dst, `","recallHandle":"`...), r.GetRecallHandle()...)
	}
	return append(dst, "\"}\n"...)
}

// send stores a message.
func (d *door) send(ctx context.Context, o *outgoing) (*v1.PublishResult, error) {
	h, err := d.cfg.Rules.Outgoing(&o.m, clientOf(ctx).remote, o.made)
	if err != nil {
		return nil, err
	}
	answer, err := d.call(ctx, protocol.SendMessageV2, h, o.m.GetBody())
	out := &v1.PublishResult{MessageId: o.system.GetMessageId()}
	place(out, answer.Header, 0)
	return out, err
}

// publish stores a message: the request's body itself, or one in JSON.
func (d *door) publish(w http.ResponseWriter, r *http.Request) {
	body, err := d.readBody(w, r)
	in := &v1.NewMessage{}
	switch {
	case err != nil:
	case isJSON(mediaType(r)):
		err = readJSON(body, in)
	default:
		in, err = rawMessage(body, r.Header)
	}
	var out *v1.PublishResult
	if err == nil {
		out, err = d.send(r.Context(), d.outgoing(r.PathValue("topic"), in, r.Header.Values))
	}
	if err != nil {
		d.fail(w, err)
		return
	}
	d.write(w, typeJSON, http.StatusCreated, d.appendResult(make([]byte, 0, 128), out))
}

// Publish is never called: door.publish serves its route.
func (*door) Publish(context.Context, *v1.PublishRequest) (*v1.PublishResult, error) {
	return nil, errors.ErrUnsupported
}

func (d *door) Prepare(ctx context.Context, in *v1.PrepareRequest) (*v1.PublishResult, error) {
	o := d.outgoing(in.GetTopic(), in.GetMessage(), headerOf(ctx))
	o.system.MessageType = v2.MessageType_TRANSACTION
	out, err := d.send(ctx, o)
	if err == nil {
		out.TransactionId = new(opaque(in.GetTopic() + " " + out.GetMessageId()))
	}
	return out, err
}

func (d *door) CommitTransaction(
	ctx context.Context, in *v1.CommitTransactionRequest,
) (*v1.TransactionResponse, error) {
	return d.endTransaction(ctx, in.GetTopic(), in.GetTransactionId(), message.TransactionCommit)
}

func (d *door) RollbackTransaction(
	ctx context.Context, in *v1.RollbackTransactionRequest,
) (*v1.TransactionResponse, error) {
	return d.endTransaction(ctx, in.GetTopic(), in.GetTransactionId(), message.TransactionRollback)
}

func (d *door) ResumeTransaction(
	ctx context.Context, in *v1.ResumeTransactionRequest,
) (*v1.TransactionResponse, error) {
	h := &protocol.ResumeCheckHalfMessageRequestHeader{MsgID: in.GetMessageId()}
	_, err := d.change(ctx, protocol.ResumeCheckHalfMessage, h, nil)
	return &v1.TransactionResponse{}, err
}

// nowhere as the place of a half message lets the broker find it by topic and id.
const nowhere = -1

func (d *door) endTransaction(
	ctx context.Context, topic, id string, decision int32,
) (*v1.TransactionResponse, error) {
	if topic == "" {
		var ok bool
		if topic, id, ok = strings.Cut(transparent(id), " "); !ok {
			return nil, refuse(v2.Code_INVALID_TRANSACTION_ID, "transaction id is malformed")
		}
	}
	answer, err := d.change(ctx, protocol.EndTransaction, &protocol.EndTransactionRequestHeader{
		Topic: topic, TranStateTableOffset: nowhere, CommitLogOffset: nowhere,
		CommitOrRollback: decision, MsgID: id, TransactionID: id,
	}, nil)
	if answer.Code == protocol.IllegalOperation { // the first decision wins
		err = &refusal{http.StatusConflict, "TRANSACTION_DECIDED", answer.Remark}
	}
	return &v1.TransactionResponse{}, err
}

func (d *door) Recall(ctx context.Context, in *v1.RecallRequest) (*v1.RecallResponse, error) {
	h := &protocol.RecallMessageRequestHeader{Topic: in.GetTopic(), RecallHandle: in.GetRecallHandle()}
	answer, err := d.change(ctx, protocol.RecallMessage, h, nil)
	out := &v1.RecallResponse{}
	if h, ok := answer.Header.(*protocol.RecallMessageResponseHeader); ok {
		out.MessageId = h.MsgID
	}
	return out, err
}

// opaque hides what an id is made of, and lets it be part of a path or a header.
func opaque(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// transparent is what opaque hid; "" for what it did not make.
func transparent(id string) string {
	b, err := base64.RawURLEncoding.DecodeString(id)
	if err != nil {
		return ""
	}
	return string(b)
}
