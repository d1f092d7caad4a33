// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"log/slog"
	"strconv"
	"time"

	"github.com/roquetmq/roquet/internal/message"
)

// RepliesConfig configures Replies.
type RepliesConfig struct {
	// Push gives a reply to a client (PUSH_REPLY_MESSAGE_TO_CLIENT) and calls done exactly once with what
	// became of it. properties are those of req with PUSH_REPLY_TIME. It must not block. Required.
	Push func(to Channel, req *SendRequest, properties string, done func(error))
	// Logger is required.
	Logger *slog.Logger
}

// Replies passes the answers of request-reply on to who asked, and stores them. All methods are safe for
// concurrent use and none waits. Source: ReplyMessageProcessor.java. Known differences: a topic that is not
// there is not created, and a reply that nobody took is not stored.
type Replies struct {
	cfg     RepliesConfig
	topics  *Topics
	clients *Clients
	sender  *Sender
}

// NewReplies returns Replies that store through sender.
func NewReplies(cfg RepliesConfig, topics *Topics, clients *Clients, sender *Sender) *Replies {
	return &Replies{cfg: cfg, topics: topics, clients: clients, sender: sender}
}

// Reply gives the message of req to the client that its REPLY_TO_CLIENT names, and then stores it. done is
// called exactly once; stored tells whether req.Result says where the message is, else the answer to the
// replier is an id of "0" and an offset of 0. req.Done is not used. Errors: *Refusal,
// *message.PropertyError, *message.SizeError. What cannot be stored is only logged: who asked has it.
func (r *Replies) Reply(req *SendRequest, done func(req *SendRequest, stored bool, err error)) {
	to, properties, err := r.route(req)
	if err != nil {
		done(req, false, err)
		return
	}
	r.cfg.Push(to.Channel, req, properties, func(err error) {
		if err != nil {
			done(req, false, refuse(Failed, "push reply message to %s fail: %w", to.ClientID, err))
			return
		}
		r.keep(req, done)
	})
}

// route finds who asked.
func (r *Replies) route(req *SendRequest) (to Member, properties string, err error) {
	cfg, ok := r.topics.Lookup(req.Topic)
	switch {
	case IsSendForbidden(req.Topic):
		return to, "", forbiddenSend(req.Topic)
	case !ok:
		return to, "", NoTopic(req.Topic)
	case req.QueueID >= max(cfg.WriteQueueNums, cfg.ReadQueueNums):
		return to, "", noQueueToSend(cfg, req.QueueID)
	}
	if err := message.ValidateProperties(req.Properties); err != nil {
		return to, "", err
	}
	clientID, ok := message.Property(req.Properties, message.PropertyReplyToClient)
	if !ok {
		return to, "", refuse(Failed, "reply message properties[%s] is null", message.PropertyReplyToClient)
	}
	if to, ok = r.clients.ProducerByID(clientID); !ok {
		return to, "", refuse(Failed, "push reply message fail, channel of <%s> not found.", clientID)
	}
	now := strconv.FormatInt(time.Now().UnixMilli(), 10)
	return to, message.SetProperty(req.Properties, message.PropertyPushReplyTime, now), nil
}

// keep stores the reply, which was pushed.
func (r *Replies) keep(req *SendRequest, done func(*SendRequest, bool, error)) {
	req.Done = func(req *SendRequest, err error) {
		if err != nil {
			r.cfg.Logger.Warn("reply could not be stored", "topic", req.Topic, "error", err)
		}
		done(req, err == nil, nil)
	}
	r.sender.Send(req)
}
