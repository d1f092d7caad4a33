// SPDX-License-Identifier: Apache-2.0

package broker

import "fmt"

// Denial says what refused a request for lack of permission.
type Denial uint8

// The denials. Those of a pull are told to clients as the number ForbiddenType returns.
const (
	DeniedBrokerSend   Denial = iota + 1 // brokerPermission lacks write, and the topic is ordered
	DeniedTopicSend                      // clients may not send to this system topic
	DeniedRetryTopic                     // the group's retry topic is not writable
	DeniedTransaction                    // transactional messages are refused
	DeniedBrokerPull                     // brokerPermission lacks read
	DeniedLitePull                       // litePullMessageEnable is false
	DeniedGroup                          // the group's consumeEnable is false
	DeniedTopicPull                      // the topic is not readable
	DeniedBroadcast                      // the group's consumeBroadcastEnable is false
	DeniedSubscription                   // the group may not read this topic
	DeniedBrokerPop                      // brokerPermission lacks read; to a receive
	DeniedBrokerPeek                     // brokerPermission lacks read; to who looks without receiving
	DeniedTopicPeek                      // the topic is not readable; to receives and those who look
)

// PermissionError refuses a request for lack of permission. Its text is the original's remark.
type PermissionError struct {
	Denial Denial
	Name   string // of the broker, topic or group concerned
	Topic  string // with DeniedSubscription: the topic that Name, a group, may not read
}

// Error returns the original's remark.
func (e *PermissionError) Error() string {
	switch e.Denial {
	case DeniedTopicSend:
		return "Sending message to topic[" + e.Name + "] is forbidden."
	case DeniedRetryTopic:
		return "the topic[" + e.Name + "] sending message is forbidden"
	case DeniedTransaction:
		return "the broker[" + e.Name + "] sending transaction message is forbidden"
	case DeniedBrokerPull:
		return "the broker[" + e.Name + "] pulling message is forbidden"
	case DeniedBrokerPop:
		return "the broker[" + e.Name + "] pop message is forbidden"
	case DeniedBrokerPeek:
		return "the broker[" + e.Name + "] peeking message is forbidden"
	case DeniedTopicPeek:
		return "the topic[" + e.Name + "] peeking message is forbidden"
	case DeniedLitePull:
		return "the broker[" + e.Name + "] for lite pull consumer is forbidden"
	case DeniedGroup:
		return "subscription group no permission, " + e.Name
	case DeniedTopicPull:
		return "the topic[" + e.Name + "] pulling message is forbidden"
	case DeniedBroadcast:
		return "the consumer group[" + e.Name + "] can not consume by broadcast way"
	case DeniedSubscription:
		return "the consumer group[" + e.Name + "] is forbidden for topic[" + e.Topic + "]"
	default:
		return "the broker[" + e.Name + "] sending message is forbidden"
	}
}

// ForbiddenType returns the number that a pull response carries in forbiddenType, 0 for none. Source:
// ForbiddenType.java.
func (e *PermissionError) ForbiddenType() int32 {
	switch e.Denial {
	case DeniedBrokerPull, DeniedLitePull:
		return 1
	case DeniedGroup:
		return 2
	case DeniedTopicPull:
		return 3
	case DeniedBroadcast:
		return 4
	case DeniedSubscription:
		return 5
	default:
		return 0
	}
}

// QueueIDError says that a topic has no queue of the number asked for.
type QueueIDError struct {
	QueueID int32
	Topic   TopicConfig
	Pull    bool // the bound is ReadQueueNums, else the larger of read and write
}

// Error names the queue and what the topic has.
func (e *QueueIDError) Error() string {
	if e.Pull {
		return fmt.Sprintf("queueId[%d] is illegal, topic:[%s] topicConfig.readQueueNums:[%d]",
			e.QueueID, e.Topic.Name, e.Topic.ReadQueueNums)
	}
	return fmt.Sprintf("request queueId[%d] is illegal, topic[%s] has %d read and %d write queues",
		e.QueueID, e.Topic.Name, e.Topic.ReadQueueNums, e.Topic.WriteQueueNums)
}

// TopicNotExistError is ErrTopicNotExist with the topic and the original's remark.
type TopicNotExistError struct {
	Topic string
	Cause error // why it was not created, nil when creation was not asked for
}

// Error returns the original's remark, and the cause.
func (e *TopicNotExistError) Error() string {
	text := "topic[" + e.Topic + "] not exist, apply first please!"
	if e.Cause != nil {
		text += " " + e.Cause.Error()
	}
	return text
}

// Is makes it an ErrTopicNotExist.
func (e *TopicNotExistError) Is(target error) bool { return target == ErrTopicNotExist }

// GroupNotExistError is ErrGroupNotExist with the group and the original's remark.
type GroupNotExistError struct{ Group string }

// Error returns the original's remark.
func (e *GroupNotExistError) Error() string { return "subscription group not exist, " + e.Group }

// Is makes it an ErrGroupNotExist.
func (e *GroupNotExistError) Is(target error) bool { return target == ErrGroupNotExist }

// IllegalError says that a message as it was sent cannot be stored. Sizes have their own type:
// *message.SizeError; so do malformed properties: *message.PropertyError.
type IllegalError struct {
	What   string // the part of the message
	Reason string
}

// Error names the part and the reason.
func (e *IllegalError) Error() string { return "the message is illegal, " + e.What + " " + e.Reason }
