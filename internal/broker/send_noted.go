// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"strconv"
	"strings"

	"github.com/roquetmq/roquet/internal/broker/transaction"
	"github.com/roquetmq/roquet/internal/message"
)

// innerBatch is what is wrong with a batch that its producer stored as one message.
const innerBatch = "is an inner batch, and the topic does not store those"

// noted is what the broker acts on among the properties of a message. One pass over the encoded text finds
// all of it.
type noted struct {
	uniqueKey   string
	cancels     string // TIMER_DEL_UNIQKEY: the message that this one calls back
	timer       timerRequest
	delayLevel  int   // as asked for, not clamped
	priority    int32 // -1 when the message has none
	immunity    int32 // seconds before the first check-back; transaction.NoImmunity when there is none
	timerSet    bool  // the delivery time was computed before
	transaction bool
	popCK       bool
	innerBatch  bool
	group       string // the message group
}

// kind is the message's type, as metrics tell it. Source: BrokerMetricsManager.java getMessageType.
func (n *noted) kind() MessageKind {
	switch {
	case n.transaction:
		return KindTransaction
	case n.group != "":
		return KindFIFO
	case n.timer.by != "" || n.delayLevel > 0:
		return KindDelay
	}
	return KindNormal
}

// scan reads an encoded properties text. Errors: *message.SizeError, *message.PropertyError, IllegalMessage.
func (n *noted) scan(props string) error {
	*n = noted{immunity: transaction.NoImmunity, priority: -1}
	delay := ""
	err := message.ScanProperties(props, func(name, value string) {
		switch name {
		case message.PropertyUniqueKey:
			n.uniqueKey = value
		case message.PropertyDelayLevel:
			delay = value
		case message.PropertyTimerDeliverMillis:
			n.timer.note(name, value, 0)
		case message.PropertyTimerDelayMillis:
			n.timer.note(name, value, 1)
		case message.PropertyTimerDelaySeconds:
			n.timer.note(name, value, 1000)
		case message.PropertyTimerOutMillis:
			n.timerSet = true
		case message.PropertyTimerDelUniqueKey:
			n.cancels = value
		case message.PropertyTransactionPrepared:
			n.transaction = strings.EqualFold(value, "true")
		case message.PropertyCheckImmunityTimeInSeconds:
			n.immunity = immunitySeconds(value)
		case message.PropertyPriority:
			if p, err := strconv.ParseInt(value, 10, 32); err == nil {
				n.priority = max(-1, int32(p))
			}
		case message.PropertyPopCK:
			n.popCK = true
		case message.PropertyShardingKey:
			n.group = value
		case message.PropertyInnerNum:
			n.innerBatch = true
		}
	})
	if err != nil {
		return err
	}
	if delay != "" {
		if n.delayLevel, err = strconv.Atoi(delay); err != nil {
			return illegal("property "+message.PropertyDelayLevel,
				"is not the number of a delay level: "+strconv.Quote(delay))
		}
	}
	return nil
}

// check refuses a single message for what its properties and sysFlag ask for, and reports whether it is a
// half message.
func (n *noted) check(req *SendRequest) (half bool, err error) {
	if n.innerBatch || req.SysFlag&(message.SysFlagInnerBatch|message.SysFlagNeedUnwrap) != 0 {
		return false, illegal("message", innerBatch)
	}
	switch req.SysFlag & message.TransactionMask {
	case message.TransactionPrepared:
		return true, nil
	case message.TransactionRollback:
		return false, illegal("sysFlag", "says that the message was rolled back")
	}
	return n.transaction &&
		(req.ReconsumeTimes <= 0 || n.delayLevel <= 0), nil // else a retry by a client before 4.6.1
}
