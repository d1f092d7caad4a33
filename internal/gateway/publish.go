// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	roquetv1 "github.com/roquetmq/roquet/api/proto/roquet/v1"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
)

// messages is roquet.v1.MessageService. Its methods are in the file of their family.
type messages struct{ *door }

var _ roquetv1.MessageServiceClient = messages{}

// Headers of raw bodies, both ways.
const (
	headerPrefix   = "Roquet-"
	headerProperty = "Roquet-Property-"
)

// contextHeaders carry a trace, and are kept as properties of the same name.
var contextHeaders = [...]string{"traceparent", "tracestate", "baggage"}

// outgoing is a message on its way into a call.
type outgoing struct {
	m      v2.Message
	system v2.SystemProperties
	topic  v2.Resource
	made   time.Time
}

func (d *door) outgoing(topic string, body []byte) *outgoing {
	o := &outgoing{made: time.Now()}
	o.topic.Name = topic
	o.m.Topic, o.m.SystemProperties, o.m.Body = &o.topic, &o.system, body
	o.system.MessageId = string(d.cfg.IDs.Append(nil, o.made))
	return o
}

// outgoingOf takes a message of a request over.
func (d *door) outgoingOf(topic string, in *roquetv1.NewMessage) *outgoing {
	o := d.outgoing(topic, in.GetBody())
	if text := in.GetText(); text != "" {
		o.m.Body = []byte(text)
	}
	o.m.UserProperties = in.GetProperties()
	o.system.Keys = in.GetKeys()
	o.setTag(in.GetTag())
	o.setGroup(in.GetGroup())
	o.system.DeliveryTimestamp = in.GetDeliverAt()
	if delay := in.GetDelay(); delay != nil {
		o.system.DeliveryTimestamp = timestamppb.New(o.made.Add(delay.AsDuration()))
	}
	return o
}

func (o *outgoing) setTag(tag string) {
	if tag != "" {
		o.system.Tag = &tag
	}
}

func (o *outgoing) setGroup(group string) {
	if group != "" {
		o.system.MessageGroup = &group
	}
}

func (o *outgoing) setProperty(name, value string) {
	if o.m.UserProperties == nil {
		o.m.UserProperties = make(map[string]string, 4)
	}
	if _, set := o.m.UserProperties[name]; !set {
		o.m.UserProperties[name] = value
	}
}

// rawOf takes a message over whose body is the request's and whose other parts are in headers. Names of
// properties come in lower case, since HTTP does not keep it.
func (d *door) rawOf(topic string, body []byte, header http.Header) (*outgoing, error) {
	o := d.outgoing(topic, body)
	for name, values := range header {
		rest, ok := strings.CutPrefix(name, headerPrefix)
		if !ok {
			continue
		}
		switch value := values[0]; rest {
		case "Tag":
			o.setTag(value)
		case "Keys":
			o.system.Keys = strings.Fields(value)
		case "Group":
			o.setGroup(value)
		case "Delay":
			delay, err := time.ParseDuration(value)
			if err != nil {
				return nil, badRequest("Roquet-Delay: " + err.Error())
			}
			o.system.DeliveryTimestamp = timestamppb.New(o.made.Add(delay))
		default:
			if name, ok := strings.CutPrefix(name, headerProperty); ok {
				o.setProperty(strings.ToLower(name), value)
			}
		}
	}
	o.keepContext(header)
	return o, nil
}

// keepContext keeps the trace that a request belongs to with the message, unless it has one.
func (o *outgoing) keepContext(header http.Header) {
	for _, name := range contextHeaders {
		if value := header.Get(name); value != "" {
			o.setProperty(name, value)
		}
	}
}

// sent says where a message is.
type sent struct {
	id      string
	queueID int32
	offset  int64
	recall  string
}

func sentOf(id string, h protocol.Header) sent {
	s := sent{id: id}
	if h, ok := h.(*protocol.SendMessageResponseHeader); ok {
		s.queueID, s.offset, s.recall = h.QueueID, h.QueueOffset, h.RecallHandle
	}
	return s
}

// appendTo appends the fields of a PublishResponse.
func (s *sent) appendTo(dst []byte) []byte {
	dst = append(append(dst, `{"messageId":"`...), s.id...)
	dst = strconv.AppendInt(append(dst, `","queueId":`...), int64(s.queueID), 10)
	dst = strconv.AppendInt(append(dst, `,"offset":"`...), s.offset, 10)
	dst = append(dst, '"')
	if s.recall != "" {
		dst = append(append(append(dst, `,"recallHandle":"`...), s.recall...), '"')
	}
	return append(dst, "}\n"...)
}

// start begins to send a message.
func (d *door) start(ctx context.Context, o *outgoing) (*pending, error) {
	h, err := d.cfg.Rules.Outgoing(&o.m, clientOf(ctx).remote, o.made)
	if err != nil {
		return nil, err
	}
	return d.begin(ctx, protocol.SendMessageV2, h, o.m.GetBody()), nil
}

func (d *door) send(ctx context.Context, o *outgoing) (sent, error) {
	p, err := d.start(ctx, o)
	if err != nil {
		return sent{}, err
	}
	answer, err := p.wait(ctx)
	return sentOf(o.system.GetMessageId(), answer.Header), err
}

// publish stores the request's body, whatever it is; a JSON one is left to the generated code.
func (d *door) publish(w http.ResponseWriter, r *http.Request) {
	if isJSON(mediaType(r)) {
		d.servePlain(w, r)
		return
	}
	body, err := d.readBody(w, r)
	var o *outgoing
	if err == nil {
		o, err = d.rawOf(r.PathValue("topic"), body, r.Header)
	}
	var s sent
	if err == nil {
		s, err = d.send(r.Context(), o)
	}
	if err != nil {
		d.fail(w, err)
		return
	}
	w.Header().Set("Content-Type", typeJSON)
	w.WriteHeader(http.StatusCreated)
	d.write(w, s.appendTo(make([]byte, 0, 128)))
}

// Publish stores a message.
func (m messages) Publish(
	ctx context.Context, in *roquetv1.PublishRequest, _ ...grpc.CallOption,
) (*roquetv1.PublishResponse, error) {
	return m.sendOne(ctx, m.outgoingOf(in.GetTopic(), in.GetMessage()))
}

// Prepare stores a half message.
func (m messages) Prepare(
	ctx context.Context, in *roquetv1.PrepareRequest, _ ...grpc.CallOption,
) (*roquetv1.PublishResponse, error) {
	o := m.outgoingOf(in.GetTopic(), in.GetMessage())
	o.system.MessageType = v2.MessageType_TRANSACTION
	out, err := m.sendOne(ctx, o)
	if err == nil {
		id := opaque(in.GetTopic() + " " + out.GetMessageId())
		out.TransactionId = &id
	}
	return out, err
}

func (m messages) sendOne(ctx context.Context, o *outgoing) (*roquetv1.PublishResponse, error) {
	o.keepContext(incomingHeader(ctx))
	s, err := m.send(ctx, o)
	if err != nil {
		return nil, err
	}
	out := &roquetv1.PublishResponse{MessageId: s.id, QueueId: s.queueID, Offset: s.offset}
	if s.recall != "" {
		out.RecallHandle = &s.recall
	}
	return out, nil
}

// CommitTransaction delivers a half message.
func (m messages) CommitTransaction(
	ctx context.Context, in *roquetv1.CommitTransactionRequest, _ ...grpc.CallOption,
) (*roquetv1.TransactionResponse, error) {
	return m.endTransaction(ctx, in.GetTransactionId(), message.TransactionCommit)
}

// RollbackTransaction drops a half message.
func (m messages) RollbackTransaction(
	ctx context.Context, in *roquetv1.RollbackTransactionRequest, _ ...grpc.CallOption,
) (*roquetv1.TransactionResponse, error) {
	return m.endTransaction(ctx, in.GetTransactionId(), message.TransactionRollback)
}

// nowhere as the place of a half message lets the broker find it by topic and id.
const nowhere = -1

func (m messages) endTransaction(
	ctx context.Context, id string, decision int32,
) (*roquetv1.TransactionResponse, error) {
	topic, messageID, ok := strings.Cut(transparent(id), " ")
	if !ok {
		return nil, refuse(v2.Code_INVALID_TRANSACTION_ID, "transaction id is malformed")
	}
	_, err := m.call(ctx, protocol.EndTransaction, &protocol.EndTransactionRequestHeader{
		Topic: topic, ProducerGroup: topic, TranStateTableOffset: nowhere, CommitLogOffset: nowhere,
		CommitOrRollback: decision, MsgID: messageID, TransactionID: messageID,
	}, nil)
	return &roquetv1.TransactionResponse{}, err
}

// Recall takes back a message that is not due yet.
func (m messages) Recall(
	ctx context.Context, in *roquetv1.RecallRequest, _ ...grpc.CallOption,
) (*roquetv1.RecallResponse, error) {
	h := &protocol.RecallMessageRequestHeader{Topic: in.GetTopic(), RecallHandle: in.GetRecallHandle()}
	answer, err := m.call(ctx, protocol.RecallMessage, h, nil)
	out := &roquetv1.RecallResponse{}
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
