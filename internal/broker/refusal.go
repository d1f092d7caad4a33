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

// denied is what the original says of a denial, with the name (1) and the topic (2), and the number that a pull
// response carries for it. Source: ForbiddenType.java.
func (d Denial) denied() (remark string, forbiddenType int32) {
	said := [...]struct {
		remark        string
		forbiddenType int32
	}{
		DeniedBrokerSend:   {"the broker[%[1]s] sending message is forbidden", 0},
		DeniedTopicSend:    {"Sending message to topic[%[1]s] is forbidden.", 0},
		DeniedRetryTopic:   {"the topic[%[1]s] sending message is forbidden", 0},
		DeniedTransaction:  {"the broker[%[1]s] sending transaction message is forbidden", 0},
		DeniedBrokerPull:   {"the broker[%[1]s] pulling message is forbidden", 1},
		DeniedLitePull:     {"the broker[%[1]s] for lite pull consumer is forbidden", 1},
		DeniedGroup:        {"subscription group no permission, %[1]s", 2},
		DeniedTopicPull:    {"the topic[%[1]s] pulling message is forbidden", 3},
		DeniedBroadcast:    {"the consumer group[%[1]s] can not consume by broadcast way", 4},
		DeniedSubscription: {"the consumer group[%[1]s] is forbidden for topic[%[2]s]", 5},
		DeniedBrokerPop:    {"the broker[%[1]s] pop message is forbidden", 0},
		DeniedBrokerPeek:   {"the broker[%[1]s] peeking message is forbidden", 0},
		DeniedTopicPeek:    {"the topic[%[1]s] peeking message is forbidden", 0},
	}[d]
	return said.remark, said.forbiddenType
}

// Error returns the original's remark.
func (e *PermissionError) Error() string {
	remark, _ := e.Denial.denied()
	return fmt.Sprintf(remark, e.Name, e.Topic)
}

// ForbiddenType returns the number that a pull response carries in forbiddenType, 0 for none.
func (e *PermissionError) ForbiddenType() int32 {
	_, number := e.Denial.denied()
	return number
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
