// SPDX-License-Identifier: Apache-2.0

package broker

import "fmt"

// Reason is why the broker does not do what a request asks for, as far as that decides the answer's code. It is
// in every Refusal: test with errors.Is.
type Reason string

// The reasons.
const (
	NoPermission        Reason = "no permission"
	TopicNotExist       Reason = "topic not exist"              // and it may not be created
	GroupNotExist       Reason = "subscription group not exist" // and it may not be created
	IllegalParameter    Reason = "illegal parameter"
	IllegalMessage      Reason = "illegal message"   // sizes and properties have errors of package message
	IllegalOperation    Reason = "illegal operation" // too late, or against what was decided before
	SubscriptionIllegal Reason = "subscription cannot be understood"
	SubscriptionMissing Reason = "subscription not told"
	SubscriptionOld     Reason = "subscription not latest"
	FilterDataMissing   Reason = "filter data not exist"
	Failed              Reason = "failed" // for what has no code of its own
)

// Error names the reason.
func (r Reason) Error() string { return string(r) }

// Refusal says why the broker does not do what a request asks for.
type Refusal struct {
	Reason Reason
	// Cause has the text: the original's remark, where there is one, and the cause in numbers.
	Cause error
	// ForbiddenType is the number that the answer to a pull carries; 0 for none. Source: ForbiddenType.java.
	ForbiddenType int32
}

// Error returns the text.
func (e *Refusal) Error() string { return e.Cause.Error() }

// Unwrap makes it its reason and its cause.
func (e *Refusal) Unwrap() []error { return []error{e.Reason, e.Cause} }

func refuse(reason Reason, format string, args ...any) error {
	return &Refusal{Reason: reason, Cause: fmt.Errorf(format, args...)}
}

// forbid refuses a pull for lack of permission.
func forbid(forbiddenType int32, format string, args ...any) error {
	return &Refusal{Reason: NoPermission, Cause: fmt.Errorf(format, args...), ForbiddenType: forbiddenType}
}

// illegal refuses a message for a part of it.
func illegal(what, reason string) error {
	return refuse(IllegalMessage, "the message is illegal, %s %s", what, reason)
}

// notAllowed refuses the value of a parameter.
func notAllowed(what string, value any, reason string) error {
	return refuse(IllegalParameter, "%s %v is not allowed: %s", what, value, reason)
}

// NoTopic says that there is no such topic.
func NoTopic(topic string) error {
	return refuse(TopicNotExist, "topic[%s] not exist, apply first please!", topic)
}

// NoGroup says that there is no such subscription group.
func NoGroup(group string) error {
	return refuse(GroupNotExist, "subscription group not exist, %s", group)
}

// NoQueue says that a topic has no queue of that number to read.
func NoQueue(topic *TopicConfig, queueID int32) error {
	return refuse(IllegalParameter, "queueId[%d] is illegal, topic:[%s] topicConfig.readQueueNums:[%d]",
		queueID, topic.Name, topic.ReadQueueNums)
}

// noQueueToSend says that a topic has no queue of that number at all.
func noQueueToSend(topic *TopicConfig, queueID int32) error {
	return refuse(IllegalParameter, "request queueId[%d] is illegal, topic[%s] has %d read and %d write queues",
		queueID, topic.Name, topic.ReadQueueNums, topic.WriteQueueNums)
}

// Refusals for lack of permission that several kinds of requests meet.
func forbiddenBroker(addr string) error {
	return refuse(NoPermission, "the broker[%s] sending message is forbidden", addr)
}

func forbiddenSend(topic string) error {
	return refuse(NoPermission, "Sending message to topic[%s] is forbidden.", topic)
}

func forbiddenPeek(what, name string) error {
	return refuse(NoPermission, "the %s[%s] peeking message is forbidden", what, name)
}

func forbiddenGroup(group string) error {
	return forbid(2, "subscription group no permission, %s", group)
}

func forbiddenTopic(group, topic string) error {
	return forbid(5, "the consumer group[%s] is forbidden for topic[%s]", group, topic)
}
