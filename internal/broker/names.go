// SPDX-License-Identifier: Apache-2.0

package broker

import "strings"

// The longest names that are accepted, in bytes. A group is shorter than a topic so that %RETRY%group_topic
// still fits. Source: TopicValidator.java.
const (
	MaxTopicBytes      = 127
	MaxGroupBytes      = 120
	MaxRetryTopicBytes = 255
)

// Prefixes and names that mean something to clients and tools.
const (
	RetryPrefix       = "%RETRY%"
	DLQPrefix         = "%DLQ%"
	SystemTopicPrefix = "rmq_sys_"
	SystemGroupPrefix = "CID_RMQ_SYS_"

	AutoCreateTopic        = "TBW102"
	ScheduleTopic          = "SCHEDULE_TOPIC_XXXX"
	BenchmarkTopic         = "BenchmarkTest"
	SelfTestTopic          = "SELF_TEST_TOPIC"
	OffsetMovedTopic       = "OFFSET_MOVED_EVENT"
	TraceTopic             = "RMQ_SYS_TRACE_TOPIC"
	TransHalfTopic         = "RMQ_SYS_TRANS_HALF_TOPIC"
	TransOpHalfTopic       = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
	TransRocksHalfTopic    = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
	TransRocksOpHalfTopic  = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
	TransCheckMaxTimeTopic = "TRANS_CHECK_MAX_TIME_TOPIC"
	CheckpointTopic        = "CHECKPOINT_TOPIC"
	TimerTopic             = "rmq_sys_wheel_timer"
)

// maxNameInError bounds how much of a refused name an error repeats, in bytes.
const maxNameInError = 300

// reserved refuses the name of a system topic.
func reserved(topic string) error {
	return refuse(IllegalParameter, "The topic[%s] is conflict with system topic.", topic)
}

// ValidateTopic accepts the topic names that every door accepts: ^[%|a-zA-Z0-9_-]+$, up to MaxTopicBytes, and
// up to MaxRetryTopicBytes for the retry and dead letter topics of a group. Errors: IllegalParameter. It does
// not allocate for a good name. Source: TopicValidator.java validateTopic.
func ValidateTopic(topic string) error {
	limit := MaxTopicBytes
	if IsRetryTopic(topic) || IsDLQTopic(topic) {
		limit = MaxRetryTopicBytes
	}
	return validateName("topic", topic, limit)
}

// ValidateGroup accepts the producer and consumer group names that every door accepts: the alphabet of
// topics, up to MaxGroupBytes. Errors: IllegalParameter. Source: TopicValidator.java validateGroup.
func ValidateGroup(group string) error {
	return validateName("group", group, MaxGroupBytes)
}

func validateName(what, name string, limit int) error {
	if strings.TrimSpace(name) == "" {
		return refuse(IllegalParameter, "The specified %s is blank.", what)
	}
	shown := name
	if len(name) > maxNameInError {
		shown = name[:maxNameInError] + "..."
	}
	for i := range len(name) {
		if !nameByte(name[i]) {
			return refuse(IllegalParameter,
				"The specified %s: %s, contains illegal characters, allowing only ^[%%|a-zA-Z0-9_-]+$", what, shown)
		}
	}
	if len(name) > limit {
		return refuse(IllegalParameter, "The specified %s: %s, is longer than %s max length: %d, it has %d",
			what, shown, what, limit, len(name))
	}
	return nil
}

func nameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '_' || c == '-' || c == '%' || c == '|'
}

// RetryTopic returns the topic that holds what consumers of group sent back.
func RetryTopic(group string) string { return RetryPrefix + group }

// DLQTopic returns the dead letter topic of group.
func DLQTopic(group string) string { return DLQPrefix + group }

// PopRetryTopics returns the two names under which pop consumers of group keep what they must retry of topic:
// the form of RocketMQ before 5.1 and the one after. Source: KeyBuilder.java.
func PopRetryTopics(topic, group string) []string {
	return []string{RetryPrefix + group + "_" + topic, RetryPrefix + group + "+" + topic}
}

// IsRetryTopic tells whether topic is the retry topic of a group.
func IsRetryTopic(topic string) bool { return strings.HasPrefix(topic, RetryPrefix) }

// IsDLQTopic tells whether topic is the dead letter topic of a group.
func IsDLQTopic(topic string) bool { return strings.HasPrefix(topic, DLQPrefix) }

// SystemNames tells system names from users' names: some depend on what cluster and broker are called.
type SystemNames struct {
	Cluster string
	Broker  string
}

// IsTopic tells whether topic belongs to the system: users may not create, change or delete it. It does not
// allocate. Source: TopicValidator.java isSystemTopic, TopicConfigManager.java init.
func (s SystemNames) IsTopic(topic string) bool {
	switch topic {
	case AutoCreateTopic, ScheduleTopic, BenchmarkTopic, SelfTestTopic, OffsetMovedTopic, TraceTopic,
		TransHalfTopic, TransOpHalfTopic, TransRocksHalfTopic, TransRocksOpHalfTopic, TransCheckMaxTimeTopic,
		CheckpointTopic:
		return true
	}
	if strings.HasPrefix(topic, SystemTopicPrefix) {
		return true
	}
	return topic != "" && (topic == s.Cluster || topic == s.Broker ||
		strings.HasPrefix(topic, s.Cluster) && topic[len(s.Cluster):] == replyTopicSuffix)
}

// replyTopicSuffix makes the topic of request/reply out of a cluster's name.
const replyTopicSuffix = "_REPLY_TOPIC"

// ReplyTopic returns the topic that request/reply messages of the cluster go to.
func (s SystemNames) ReplyTopic() string { return s.Cluster + replyTopicSuffix }

// ReviveTopic returns the topic that RocketMQ keeps pop acknowledgements in.
func (s SystemNames) ReviveTopic() string { return SystemTopicPrefix + "REVIVE_LOG_" + s.Cluster }

// SyncMemberTopic returns the topic by which RocketMQ brokers of one group find each other.
func (s SystemNames) SyncMemberTopic() string {
	return SystemTopicPrefix + "SYNC_BROKER_MEMBER_" + s.Broker
}

// IsSendForbidden tells whether clients may not send to topic. Source: TopicValidator.java
// isNotAllowedSendTopic.
func IsSendForbidden(topic string) bool {
	switch topic {
	case ScheduleTopic, TransHalfTopic, TransOpHalfTopic, TransRocksHalfTopic, TransRocksOpHalfTopic,
		TransCheckMaxTimeTopic, SelfTestTopic, OffsetMovedTopic:
		return true
	}
	return false
}

// IsSystemGroup tells whether group is one of the consumer groups of tools and the system itself, which need
// no subscription group of their own. Source: MixAll.java isPredefinedGroup, isSysConsumerGroup.
func IsSystemGroup(group string) bool {
	switch group {
	case "DEFAULT_CONSUMER", "DEFAULT_PRODUCER", "TOOLS_CONSUMER", "SCHEDULE_CONSUMER", "FILTERSRV_CONSUMER",
		"__MONITOR_CONSUMER", "CLIENT_INNER_PRODUCER", "SELF_TEST_P_GROUP", "SELF_TEST_C_GROUP",
		"CID_ONS-HTTP-PROXY", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_ONSAPI_PULL":
		return true
	}
	return strings.HasPrefix(group, SystemGroupPrefix)
}
