// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/protocol"
)

// The types of messages, in RocketMQ's words.
const (
	normal      = "NORMAL"
	fifo        = "FIFO"
	delayed     = "DELAY"
	transaction = "TRANSACTION"
	priority    = "PRIORITY"
	mixed       = "MIXED" // of topics alone
)

// outgoing is a message as any door sends it.
type outgoing struct {
	topic, typ, body, tag string
	group                 string // the message group, of FIFO
	keys                  []string
	props                 map[string]string
	delay                 time.Duration // of DELAY
	level                 int           // of DELAY, in its place; native clients alone know it
	priority              int32         // of PRIORITY, over 0; REST does not know it
	queue                 int32         // for doors whose clients choose it; with a message group they hash
}

// sent is what a door answered to a send.
type sent struct {
	id          string
	offset      int64
	recall      string
	transaction string // what ends it, as the door has it
}

// received is a message as any door receives it.
type received struct {
	id, topic, typ, body, tag, group string
	keys                             []string
	props                            map[string]string
	attempt                          int
	queue                            int32
	offset                           int64
	timed                            bool // it says when it was due
	handle                           string
}

// receiving is a receive.
type receiving struct {
	group, topic    string
	count           int
	invisible, wait time.Duration
	tag, sql        string // which messages; all when both are empty
	orderly         bool   // the group is
	attempt         string // repeats a receive whose answer was lost, in doors that know that
}

// door is one way into the server, as a client has it. Errors of type *refusal are answers of the server.
type door interface {
	name() string
	send(messages ...*outgoing) ([]sent, error) // several: as one batch
	prepare(m *outgoing) (sent, error)
	end(m *outgoing, s sent, commit bool) error
	recall(topic string, s sent) error
	receive(r *receiving) ([]received, error)
	ack(group, topic, handle string) error
	change(group, topic, handle string, invisible time.Duration) (string, error)
	bury(group, topic string, m *received) error
	close()
}

// doors opens every door of a server.
func doors(t testing.TB, addr string) []door {
	t.Helper()
	all := []door{newRemoting(t, addr), newGRPC(t, addr, "client"), newREST(addr)}
	for _, d := range all {
		t.Cleanup(d.close)
	}
	return all
}

// refusal is an error that the server answered with, in words that all doors have in common.
type refusal struct {
	kind string
	text string // as it was answered
}

func (r *refusal) Error() string { return r.kind + ": " + r.text }

// kindOf is what err is in a transcript; an error of the transport is none.
func kindOf(err error) string {
	var r *refusal
	if errors.As(err, &r) {
		return r.kind
	}
	return "broken: " + err.Error()
}

// The kinds of refusals.
const (
	illegalMessage = "illegal message"
	badHandle      = "bad receipt handle"
	badFilter      = "bad filter"
	badRequest     = "bad request"
	noTopic        = "no topic"
	noGroup        = "no group"
	noTransaction  = "no such transaction"
	forbidden      = "forbidden"
)

// responseKinds is what native clients are told.
var responseKinds = map[protocol.ResponseCode]string{
	protocol.MessageIllegal:            illegalMessage,
	protocol.NoMessage:                 badHandle,
	protocol.SubscriptionParseFailed:   badFilter,
	protocol.InvalidParameter:          badRequest,
	protocol.IllegalOperation:          badRequest,
	protocol.TopicNotExist:             noTopic,
	protocol.SubscriptionGroupNotExist: noGroup,
	protocol.NoPermission:              forbidden,
}

// statusKinds is what the others are told: gRPC by code, REST by the code's name.
var statusKinds = map[v2.Code]string{
	v2.Code_MESSAGE_CORRUPTED:                   illegalMessage,
	v2.Code_MESSAGE_BODY_EMPTY:                  illegalMessage,
	v2.Code_MESSAGE_BODY_TOO_LARGE:              illegalMessage,
	v2.Code_PAYLOAD_TOO_LARGE:                   illegalMessage,
	v2.Code_MESSAGE_PROPERTIES_TOO_LARGE:        illegalMessage,
	v2.Code_MESSAGE_PROPERTY_CONFLICT_WITH_TYPE: illegalMessage,
	v2.Code_ILLEGAL_MESSAGE_PROPERTY_KEY:        illegalMessage,
	v2.Code_ILLEGAL_MESSAGE_KEY:                 illegalMessage,
	v2.Code_ILLEGAL_MESSAGE_TAG:                 illegalMessage,
	v2.Code_ILLEGAL_MESSAGE_GROUP:               illegalMessage,
	v2.Code_ILLEGAL_DELIVERY_TIME:               illegalMessage,
	v2.Code_INVALID_RECEIPT_HANDLE:              badHandle,
	v2.Code_ILLEGAL_FILTER_EXPRESSION:           badFilter,
	v2.Code_ILLEGAL_INVISIBLE_TIME:              badRequest,
	v2.Code_BAD_REQUEST:                         badRequest,
	v2.Code_ILLEGAL_TOPIC:                       badRequest,
	v2.Code_ILLEGAL_CONSUMER_GROUP:              badRequest,
	v2.Code_TOPIC_NOT_FOUND:                     noTopic,
	v2.Code_CONSUMER_GROUP_NOT_FOUND:            noGroup,
	v2.Code_INVALID_TRANSACTION_ID:              noTransaction,
	v2.Code_FORBIDDEN:                           forbidden,
}

func statusRefusal(code v2.Code, text string) error {
	if kind, ok := statusKinds[code]; ok {
		return &refusal{kind, text}
	}
	return &refusal{code.String(), text}
}

// String is the message in a transcript: without what differs from run to run. known tells by which word a message
// id is known.
func (m *received) text(known func(id string) string) string {
	out := []string{
		m.body,
		"attempt=" + strconv.Itoa(m.attempt),
		"type=" + m.typ,
		"offset=" + strconv.FormatInt(m.offset, 10),
	}
	add := func(name, value string) {
		if value != "" {
			out = append(out, name+"="+value)
		}
	}
	add("tag", m.tag)
	add("keys", strings.Join(m.keys, ","))
	add("group", m.group)
	for _, name := range slices.Sorted(maps.Keys(m.props)) {
		out = append(out, "p."+name+"="+strconv.Quote(m.props[name]))
	}
	out = append(out, "id="+known(m.id))
	if m.timed {
		out = append(out, "due=<time>")
	}
	if m.handle != "" {
		out = append(out, "handle=<handle>")
	}
	return strings.Join(out, " ")
}

// newID makes ids of messages whose doors leave that to the client.
type newID struct {
	prefix string
	n      atomic.Int32
}

func (i *newID) next() string {
	return fmt.Sprintf("%s%08X", i.prefix, i.n.Add(1))
}
