// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
)

// nowhere as the place of a half message lets the broker find it by topic and transaction id, which is its
// message id. The original's proxy remembers the place for 30 s instead; here a transaction can be ended as
// long as it is open, after a restart too, and whichever door it came by: no producer group is compared.
const nowhere = -1

// EndTransaction commits a half message or rolls it back; with another resolution nothing happens, and the
// broker asks again later.
// Source: EndTransactionActivity.java, TransactionProcessor.java. Known difference: the original does not wait
// for the outcome.
func (a *api) EndTransaction(ctx context.Context, req *v2.EndTransactionRequest) (*v2.EndTransactionResponse, error) {
	c, err := a.caller(ctx, a.checkTopic(req.GetTopic()))
	if err == nil {
		err = a.endTransaction(ctx, &c, req)
	}
	return &v2.EndTransactionResponse{Status: ok()}, err
}

func (a *api) endTransaction(ctx context.Context, c *caller, req *v2.EndTransactionRequest) error {
	if isBlank(req.GetTransactionId()) {
		return refuse(v2.Code_INVALID_TRANSACTION_ID, "transaction id cannot be empty")
	}
	h := &protocol.EndTransactionRequestHeader{
		Topic: req.GetTopic().GetName(), TranStateTableOffset: nowhere, CommitLogOffset: nowhere,
		MsgID: req.GetMessageId(), TransactionID: req.GetTransactionId(),
		// Clients leave the source unspecified, in answers to checks too (case C024).
		FromTransactionCheck: protocol.Some(req.GetSource() != v2.TransactionSource_SOURCE_CLIENT),
	}
	switch req.GetResolution() {
	case v2.TransactionResolution_COMMIT:
		h.CommitOrRollback = message.TransactionCommit
	case v2.TransactionResolution_ROLLBACK:
		h.CommitOrRollback = message.TransactionRollback
	}
	answer, err := a.call(ctx, c, protocol.EndTransaction, h, nil)
	if answer.Code == protocol.SystemError { // there is no such transaction
		err = refuse(v2.Code_INVALID_TRANSACTION_ID, "%s", answer.Remark)
	}
	return err
}

// RecallMessage takes back a delayed message that was not delivered yet. Source: RecallMessageActivity.java,
// ProducerProcessor.java.
func (a *api) RecallMessage(ctx context.Context, req *v2.RecallMessageRequest) (*v2.RecallMessageResponse, error) {
	c, err := a.caller(ctx, a.checkTopic(req.GetTopic()))
	var id string
	if err == nil {
		id, err = a.recall(ctx, &c, req.GetTopic().GetName(), req.GetRecallHandle())
	}
	return &v2.RecallMessageResponse{Status: ok(), MessageId: id}, err
}

func (a *api) recall(ctx context.Context, c *caller, topic, handle string) (string, error) {
	if t, known := a.cfg.Metadata.Topic(topic); known {
		if err := checkType(topic, t.MessageType, typeDelay); err != nil {
			return "", err
		}
	}
	if handle == "" {
		return "", refuse(v2.Code_BAD_REQUEST, "recall handle cannot be empty")
	}
	header := &protocol.RecallMessageRequestHeader{Topic: topic, RecallHandle: handle}
	answer, err := a.call(ctx, c, protocol.RecallMessage, header, nil)
	if err != nil {
		return "", err
	}
	if h, ok := answer.Header.(*protocol.RecallMessageResponseHeader); ok {
		return h.MsgID, nil
	}
	return "", nil
}
