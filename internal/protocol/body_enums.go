// SPDX-License-Identifier: Apache-2.0

package protocol

// ConsumeType is how a group gets its messages.
type ConsumeType string

// The consume types: pull consumers, push consumers, pop consumers.
const (
	ConsumeActively  ConsumeType = "CONSUME_ACTIVELY"
	ConsumePassively ConsumeType = "CONSUME_PASSIVELY"
	ConsumePop       ConsumeType = "CONSUME_POP"
)

// MessageModel is how a group shares its messages.
type MessageModel string

// The message models: every member gets every message, each message goes to one member, lite topics.
const (
	Broadcasting  MessageModel = "BROADCASTING"
	Clustering    MessageModel = "CLUSTERING"
	LiteSelective MessageModel = "LITE_SELECTIVE"
)

// ConsumeFromWhere is where a new group begins.
type ConsumeFromWhere string

// The beginnings; those after the third are deprecated by Apache and read as the first.
const (
	ConsumeFromLastOffset            ConsumeFromWhere = "CONSUME_FROM_LAST_OFFSET"
	ConsumeFromFirstOffset           ConsumeFromWhere = "CONSUME_FROM_FIRST_OFFSET"
	ConsumeFromTimestamp             ConsumeFromWhere = "CONSUME_FROM_TIMESTAMP"
	ConsumeFromLastOffsetAndMinFirst ConsumeFromWhere = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
	ConsumeFromMinOffset             ConsumeFromWhere = "CONSUME_FROM_MIN_OFFSET"
	ConsumeFromMaxOffset             ConsumeFromWhere = "CONSUME_FROM_MAX_OFFSET"
)

// The names in the order of Java's ordinals.
var (
	consumeTypes     = [...]string{string(ConsumeActively), string(ConsumePassively), string(ConsumePop)}
	messageModels    = [...]string{string(Broadcasting), string(Clustering), string(LiteSelective)}
	consumeFromWhere = [...]string{
		string(ConsumeFromLastOffset), string(ConsumeFromLastOffsetAndMinFirst), string(ConsumeFromMinOffset),
		string(ConsumeFromMaxOffset), string(ConsumeFromFirstOffset), string(ConsumeFromTimestamp),
	}
)

// The expression types of a subscription. The empty string means ExpressionTag.
const (
	ExpressionTag   = "TAG"
	ExpressionSQL92 = "SQL92"
)

// MessageRequestMode is how a group's members get a topic's messages.
type MessageRequestMode string

// The request modes.
const (
	ModePull MessageRequestMode = "PULL"
	ModePop  MessageRequestMode = "POP"
)

// requestModes is in the order of Java's ordinals.
var requestModes = [...]string{string(ModePull), string(ModePop)}

// The types of a GroupRetryPolicy.
const (
	RetryCustomized  = "CUSTOMIZED"
	RetryExponential = "EXPONENTIAL"
)

// CMResult is what came of consuming one message.
type CMResult string

// The results.
const (
	ConsumedSuccess        CMResult = "CR_SUCCESS"
	ConsumedLater          CMResult = "CR_LATER"
	ConsumedRollback       CMResult = "CR_ROLLBACK"
	ConsumedCommit         CMResult = "CR_COMMIT"
	ConsumedThrowException CMResult = "CR_THROW_EXCEPTION"
	ConsumedReturnNull     CMResult = "CR_RETURN_NULL"
)

// cmResults is in the order of Java's ordinals.
var cmResults = [...]string{
	string(ConsumedSuccess), string(ConsumedLater), string(ConsumedRollback), string(ConsumedCommit),
	string(ConsumedThrowException), string(ConsumedReturnNull),
}
