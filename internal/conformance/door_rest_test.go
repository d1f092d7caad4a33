// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
)

// restDoor is a program that knows JSON and HTTP, and nothing of the server's own code.
type restDoor struct {
	base   string
	client *http.Client
}

var _ door = (*restDoor)(nil)

func newREST(addr string) *restDoor {
	return &restDoor{base: "http://" + addr + "/v1", client: &http.Client{Transport: &http.Transport{}}}
}

func (d *restDoor) name() string { return "REST" }

func (d *restDoor) close() { d.client.CloseIdleConnections() }

// object is a JSON object of a request.
type object map[string]any

// restError is google.rpc.Status.
type restError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Details []struct {
		Reason string `json:"reason"`
	} `json:"details"`
}

func (e *restError) refusal() error {
	if e == nil || e.Code == 0 {
		return nil
	}
	reason := ""
	if len(e.Details) > 0 {
		reason = e.Details[0].Reason
	}
	if reason == "TRANSACTION_DECIDED" { // the others have one word for it and for more
		return &refusal{badRequest, e.Message}
	}
	if code, ok := v2.Code_value[reason]; ok {
		return statusRefusal(v2.Code(code), e.Message)
	}
	return &refusal{reason, e.Message}
}

// call makes a request; into gets what a good answer holds.
func (d *restDoor) call(method, path string, body, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, d.base+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	answer, err := d.client.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	decoder := json.NewDecoder(answer.Body)
	if answer.StatusCode/100 == 2 {
		return decoder.Decode(into)
	}
	refused := &restError{}
	if err := decoder.Decode(refused); err != nil {
		return fmt.Errorf("HTTP %d without an error in JSON: %w", answer.StatusCode, err)
	}
	if err := refused.refusal(); err != nil {
		return err
	}
	return fmt.Errorf("HTTP %d with an error of code 0", answer.StatusCode)
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s" }

func newMessage(m *outgoing) object {
	o := object{"text": m.body}
	for name, value := range map[string]string{"tag": m.tag, "group": m.group} {
		if value != "" {
			o[name] = value
		}
	}
	if len(m.keys) > 0 {
		o["keys"] = m.keys
	}
	if len(m.props) > 0 {
		o["properties"] = m.props
	}
	if m.delay > 0 {
		o["delay"] = seconds(m.delay)
	}
	return o
}

type published struct {
	MessageID     string     `json:"messageId"`
	Offset        int64      `json:"offset,string"`
	RecallHandle  string     `json:"recallHandle"`
	TransactionID string     `json:"transactionId"`
	Error         *restError `json:"error"`
}

func (p *published) sent() sent {
	return sent{id: p.MessageID, offset: p.Offset, recall: p.RecallHandle, transaction: p.TransactionID}
}

func (d *restDoor) publish(m *outgoing, verb string) (sent, error) {
	p := &published{}
	err := d.call(http.MethodPost, "/topics/"+url.PathEscape(m.topic)+"/messages"+verb, newMessage(m), p)
	return p.sent(), err
}

func (d *restDoor) prepare(m *outgoing) (sent, error) { return d.publish(m, ":prepare") }

func (d *restDoor) send(messages ...*outgoing) ([]sent, error) {
	if len(messages) == 1 {
		s, err := d.publish(messages[0], "")
		return []sent{s}, err
	}
	var bodies []object
	for _, m := range messages {
		bodies = append(bodies, newMessage(m))
	}
	answer := struct {
		Results []published `json:"results"`
	}{}
	err := d.call(http.MethodPost, "/topics/"+url.PathEscape(messages[0].topic)+"/messages:batch",
		object{"messages": bodies}, &answer)
	var all []sent
	for i := range answer.Results {
		if err == nil {
			err = answer.Results[i].Error.refusal()
		}
		all = append(all, answer.Results[i].sent())
	}
	if err == nil && len(all) != len(messages) {
		err = fmt.Errorf("%d results for %d messages", len(all), len(messages))
	}
	return all, err
}

func (d *restDoor) end(_ *outgoing, s sent, commit bool) error {
	verb := ":rollback"
	if commit {
		verb = ":commit"
	}
	return d.call(http.MethodPost, "/transactions/"+url.PathEscape(s.transaction)+verb, object{}, &object{})
}

func (d *restDoor) recall(topic string, s sent) error {
	return d.call(http.MethodPost, "/topics/"+url.PathEscape(topic)+"/messages:recall",
		object{"recallHandle": s.recall}, &object{})
}

// restMessage is roquet.v1.Message.
type restMessage struct {
	MessageID       string            `json:"messageId"`
	Topic           string            `json:"topic"`
	QueueID         int32             `json:"queueId"`
	Offset          int64             `json:"offset,string"`
	Text            string            `json:"text"`
	Body            []byte            `json:"body"`
	Tag             string            `json:"tag"`
	Keys            []string          `json:"keys"`
	Group           string            `json:"group"`
	MessageType     string            `json:"messageType"`
	DeliverAt       *string           `json:"deliverAt"`
	Properties      map[string]string `json:"properties"`
	DeliveryAttempt int               `json:"deliveryAttempt"`
	ReceiptHandle   string            `json:"receiptHandle"`
}

type restMessages struct {
	Messages []restMessage `json:"messages"`
}

func (m *restMessage) received() received {
	return received{
		id:      m.MessageID,
		topic:   m.Topic,
		typ:     m.MessageType,
		body:    m.Text + string(m.Body),
		tag:     m.Tag,
		group:   m.Group,
		keys:    m.Keys,
		props:   m.Properties,
		attempt: m.DeliveryAttempt,
		queue:   m.QueueID,
		offset:  m.Offset,
		timed:   m.DeliverAt != nil,
		handle:  m.ReceiptHandle,
	}
}

func (d *restDoor) receive(r *receiving) ([]received, error) {
	o := object{"maxMessages": r.count, "wait": seconds(r.wait), "invisible": seconds(r.invisible)}
	if r.tag != "" {
		o["tag"] = r.tag
	}
	if r.sql != "" {
		o["sql"] = r.sql
	}
	var answer restMessages
	err := d.call(http.MethodPost, "/groups/"+url.PathEscape(r.group)+"/topics/"+url.PathEscape(r.topic)+
		"/messages:receive", o, &answer)
	var all []received
	for i := range answer.Messages {
		all = append(all, answer.Messages[i].received())
	}
	return all, err
}

// settle does something with a message and returns its handle.
func (d *restDoor) settle(group, verb, handle string, more object) (string, error) {
	o := object{"receiptHandles": []string{handle}}
	for name, value := range more {
		o[name] = value
	}
	answer := struct {
		Results []struct {
			ReceiptHandle string     `json:"receiptHandle"`
			Error         *restError `json:"error"`
		} `json:"results"`
	}{}
	err := d.call(http.MethodPost, "/groups/"+url.PathEscape(group)+"/messages:"+verb, o, &answer)
	switch {
	case err != nil:
		return "", err
	case len(answer.Results) != 1:
		return "", fmt.Errorf("%d results for one handle", len(answer.Results))
	}
	return answer.Results[0].ReceiptHandle, answer.Results[0].Error.refusal()
}

func (d *restDoor) ack(group, _, handle string) error {
	_, err := d.settle(group, "ack", handle, nil)
	return err
}

func (d *restDoor) change(group, _, handle string, invisible time.Duration) (string, error) {
	if invisible == 0 {
		return d.settle(group, "nack", handle, nil)
	}
	return d.settle(group, "extend", handle, object{"invisible": seconds(invisible)})
}

func (d *restDoor) bury(group, _ string, m *received) error {
	_, err := d.settle(group, "deadLetter", m.handle, nil)
	return err
}
