// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"crypto/rand"
	"fmt"
	"time"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
)

// maxQuestions bounds the questions to one client that wait for an answer.
const maxQuestions = 256

// question is a command that a client answers, by its nonce. Whoever takes it out of session.mu.pending ends it.
type question struct {
	done  func(*protocol.Command, error)
	timer *time.Timer
}

func (q *question) end(cmd *protocol.Command, err error) {
	q.timer.Stop()
	q.done(cmd, err)
}

// OneWay passes on what the broker tells a client. A gRPC client has no use for most of it: it does not share
// out queues and keeps no offsets. Errors: remoting.ErrConnClosed when there is no stream, and that the client
// does not read it.
func (s *session) OneWay(code protocol.Code, _ protocol.Header, body []byte) error {
	switch code {
	case protocol.CheckTransactionState:
		m, err := delivered(message.Record(body), nil)
		if err != nil {
			return err
		}
		return s.post(&v2.TelemetryCommand{Command: &v2.TelemetryCommand_RecoverOrphanedTransactionCommand{
			RecoverOrphanedTransactionCommand: &v2.RecoverOrphanedTransactionCommand{
				Message: m, TransactionId: m.GetSystemProperties().GetMessageId(),
			},
		}})
	case protocol.NotifyConsumerIDsChanged, protocol.ResetConsumerClientOffset:
		return nil
	default:
		return fmt.Errorf("gRPC clients are not told %s", code)
	}
}

// Request asks a client; see remoting.Caller.
func (s *session) Request(
	code protocol.Code, h protocol.Header, body []byte, timeout time.Duration, done func(*protocol.Command, error),
) {
	nonce := rand.Text()
	cmd, answer, err := s.ask(code, h, body, nonce)
	if err != nil || answer != nil {
		done(answer, err)
		return
	}
	q := &question{done: done}
	if err := s.await(nonce, q, timeout); err != nil {
		done(nil, err)
		return
	}
	if err := s.post(cmd); err != nil {
		if s.take(nonce) != nil {
			q.end(nil, err)
		}
	}
}

// ask makes the command for a question, or answers it itself.
func (s *session) ask(
	code protocol.Code, h protocol.Header, body []byte, nonce string,
) (*v2.TelemetryCommand, *protocol.Command, error) {
	switch code {
	case protocol.GetConsumerRunningInfo:
		asked, ok := h.(*protocol.GetConsumerRunningInfoRequestHeader)
		if !ok || !asked.JstackEnable {
			return nil, &protocol.Command{Body: protocol.EncodeBody(s.runningInfo())}, nil
		}
		return &v2.TelemetryCommand{Command: &v2.TelemetryCommand_PrintThreadStackTraceCommand{
			PrintThreadStackTraceCommand: &v2.PrintThreadStackTraceCommand{Nonce: nonce},
		}}, nil, nil
	case protocol.ConsumeMessageDirectly:
		m, err := delivered(message.Record(body), nil)
		if err != nil {
			return nil, nil, err
		}
		return &v2.TelemetryCommand{Command: &v2.TelemetryCommand_VerifyMessageCommand{
			VerifyMessageCommand: &v2.VerifyMessageCommand{Nonce: nonce, Message: m},
		}}, nil, nil
	default:
		return nil, nil, fmt.Errorf("gRPC clients are not asked %s", code)
	}
}

func (s *session) post(cmd *v2.TelemetryCommand) error {
	s.mu.Lock()
	st := s.mu.stream
	s.mu.Unlock()
	if st == nil {
		return remoting.ErrConnClosed
	}
	return st.post(cmd)
}

// await notes a question, which ends with ErrTimeout if nothing else ends it before.
func (s *session) await(nonce string, q *question, timeout time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.ended:
		return remoting.ErrConnClosed
	case len(s.mu.pending) >= maxQuestions:
		return fmt.Errorf("%d questions to client %s wait for an answer", len(s.mu.pending), s.clientID)
	}
	s.mu.pending[nonce] = q
	q.timer = time.AfterFunc(timeout, func() {
		if s.take(nonce) != nil {
			q.done(nil, remoting.ErrTimeout)
		}
	})
	return nil
}

// take takes a question out, nil when it is over.
func (s *session) take(nonce string) *question {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.mu.pending[nonce]
	delete(s.mu.pending, nonce)
	return q
}

// answered gives a client's answer to the question with that nonce. Source: ClientActivity.java
// reportThreadStackTrace, reportVerifyMessageResult.
func (c *caller) answered(nonce string, cmd *v2.TelemetryCommand) {
	if c.session == nil {
		return
	}
	if q := c.session.take(nonce); q != nil { // else it is too late, or nobody asked
		q.end(answerOf(cmd), nil)
	}
}

func answerOf(cmd *v2.TelemetryCommand) *protocol.Command {
	code, text := cmd.GetStatus().GetCode(), cmd.GetStatus().GetMessage()
	trace := cmd.GetThreadStackTrace()
	said := code == v2.Code_OK || code == v2.Code_CODE_UNSPECIFIED
	switch {
	case code == v2.Code_VERIFY_FIFO_MESSAGE_UNSUPPORTED:
		return &protocol.Command{Code: int32(protocol.NoPermission), Remark: "forbidden to verify message"}
	case trace != nil && said:
		return &protocol.Command{
			Body: protocol.EncodeBody(&protocol.ConsumerRunningInfo{JStack: trace.GetThreadStackTrace()}),
		}
	case trace != nil:
		return &protocol.Command{Code: int32(protocol.SystemError), Remark: text}
	}
	result := &protocol.ConsumeMessageDirectlyResult{AutoCommit: true, Remark: "from gRPC client"}
	switch code {
	case v2.Code_OK:
		result.ConsumeResult = protocol.ConsumedSuccess
	case v2.Code_FAILED_TO_CONSUME_MESSAGE:
		result.ConsumeResult = protocol.ConsumedLater
	case v2.Code_MESSAGE_CORRUPTED:
		result.ConsumeResult = protocol.ConsumedReturnNull
	default:
		result.ConsumeResult, result.Remark = protocol.ConsumedThrowException, text
	}
	return &protocol.Command{Body: protocol.EncodeBody(result)}
}

// runningInfo is what this door can say of a consumer without asking it. The original's proxy lets the question
// time out.
func (s *session) runningInfo() *protocol.ConsumerRunningInfo {
	info := &protocol.ConsumerRunningInfo{Properties: map[string]string{
		"PROP_NAMESERVER_ADDR":          "",
		"PROP_CONSUME_TYPE":             string(protocol.ConsumePassively),
		"PROP_CLIENT_VERSION":           "gRPC",
		"PROP_CONSUME_ORDERLY":          "false",
		"PROP_THREADPOOL_CORE_SIZE":     "0",
		"PROP_CONSUMER_START_TIMESTAMP": "0",
	}}
	p := s.profile.Load()
	if p == nil {
		return info
	}
	if p.clientType == v2.ClientType_SIMPLE_CONSUMER {
		info.Properties["PROP_CONSUME_TYPE"] = string(protocol.ConsumeActively)
	}
	for _, entry := range p.settings.GetSubscription().GetSubscriptions() {
		if data, err := subscriptionOf(entry, p.since); err == nil {
			info.SubscriptionSet = append(info.SubscriptionSet, data)
		}
	}
	return info
}
