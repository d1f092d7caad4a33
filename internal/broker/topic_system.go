// SPDX-License-Identifier: Apache-2.0

package broker

// systemTopics are the topics that exist without being created. They are not in the log: they follow from the
// configuration, and a stored config of the same name takes precedence. Source: TopicConfigManager.java init.
func systemTopics(cfg *TopicsConfig) map[string]*TopicConfig {
	topics := map[string]*TopicConfig{}
	add := func(name string, queues, perm int32) {
		topics[name] = &TopicConfig{
			Name: name, ReadQueueNums: queues, WriteQueueNums: queues, Perm: perm,
			FilterType: defaultFilterType, Attributes: map[string]string{},
		}
	}
	const readWrite = PermRead | PermWrite
	named := func(disabled bool) int32 {
		if disabled {
			return PermInherit
		}
		return PermInherit | readWrite
	}
	add(SelfTestTopic, 1, readWrite)
	if !cfg.AutoCreateDisabled {
		add(AutoCreateTopic, cfg.DefaultTopicQueueNums, PermInherit|readWrite)
	}
	add(BenchmarkTopic, 1024, readWrite)
	if cfg.System.Cluster != "" {
		add(cfg.System.Cluster, 16, named(cfg.ClusterTopicDisabled))
	}
	if cfg.System.Broker != "" {
		add(cfg.System.Broker, 1, named(cfg.BrokerTopicDisabled))
	}
	add(OffsetMovedTopic, 1, readWrite)
	add(ScheduleTopic, 18, readWrite)
	if cfg.TraceTopic {
		add(TraceTopic, 1, readWrite)
	}
	add(cfg.System.ReplyTopic(), 1, readWrite)
	add(cfg.System.ReviveTopic(), 8, readWrite)
	add(cfg.System.SyncMemberTopic(), 1, PermInherit)
	add(TransHalfTopic, 1, readWrite)
	add(TransOpHalfTopic, 1, readWrite)
	add(TransRocksHalfTopic, 1, readWrite)
	add(TransRocksOpHalfTopic, 1, readWrite)
	add(CheckpointTopic, 1, readWrite)
	add(TimerTopic, 1, readWrite)
	return topics
}
