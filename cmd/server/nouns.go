// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	v1 "github.com/roquetmq/roquet/api/proto/roquet/v1"
	"github.com/roquetmq/roquet/internal/broker"
)

// nouns are the commands that are nothing but calls of roquet.v1, by what they look after.
//
//lint:long a table: one entry a command
func nouns(r *remote) []*cobra.Command {
	there, absent := true, false
	topic := []string{
		"queues how many queues; 8 for a new topic", "type=message_type normal, fifo, delay, transaction or mixed",
		"permission read-write, read or write", "attribute=attributes attributes to set",
	}
	group := []string{
		"consume=consume_enabled it may receive", "orderly it receives the messages of a message group in order",
		"broadcast=broadcast_enabled it may consume as a broadcast",
		"retries=retry_max_times deliveries again before a message is a dead letter; 16 for a new group",
	}
	found := "messages stored topic queue_id offset tag keys payload"
	return []*cobra.Command{
		r.noun(
			"topic",
			"Look after topics",
			&rpc{
				use: "list", short: "List topics", method: "TopicService.ListTopics", trim: ownTopics,
				table: "topics name read_queues write_queues permission message_type",
			},
			&rpc{use: "show TOPIC", short: "Show a topic", method: "TopicService.GetTopic"},
			&rpc{
				use: "create TOPIC", short: "Create a topic", method: "TopicService.PutTopic", flags: topic,
				exists: &absent, get: "TopicService.GetTopic",
			},
			&rpc{
				use: "update TOPIC", short: "Change a topic", method: "TopicService.PutTopic", flags: topic,
				exists: &there, get: "TopicService.GetTopic",
			},
			&rpc{
				use:    "delete TOPIC...",
				short:  "Delete topics and their messages",
				method: "TopicService.DeleteTopic",
			},
			&rpc{
				use: "stats TOPIC", short: "Show where the queues of a topic begin and end",
				method: "TopicService.GetTopicStats", table: "queues queue_id min_offset max_offset last_stored",
			},
		),
		r.noun(
			"group",
			"Look after consumer groups",
			&rpc{
				use: "list", short: "List groups", method: "GroupService.ListGroups", trim: ownGroups,
				table: "groups name consume_enabled orderly broadcast_enabled retry_max_times",
			},
			&rpc{use: "show GROUP", short: "Show a group", method: "GroupService.GetGroup"},
			&rpc{
				use: "create GROUP", short: "Create a group", method: "GroupService.PutGroup", flags: group,
				exists: &absent, get: "GroupService.GetGroup",
			},
			&rpc{
				use: "update GROUP", short: "Change a group", method: "GroupService.PutGroup", flags: group,
				exists: &there, get: "GroupService.GetGroup",
			},
			&rpc{
				use:    "delete GROUP...",
				short:  "Delete groups and their offsets",
				method: "GroupService.DeleteGroup",
			},
			&rpc{
				use: "clients GROUP", short: "List the connected consumers of a group",
				method: "GroupService.ListGroupClients", table: "clients client_id address language",
			},
			&rpc{
				use:    "lag GROUP [TOPIC]",
				short:  "Show how far a group is behind, queue by queue",
				method: "GroupService.GetLag",
				table:  "queues topic queue_id consumer_offset max_offset lag last_consumed",
			},
			&rpc{
				use: "reset GROUP TOPIC", short: "Make a group go on elsewhere in a topic",
				method: "GroupService.ResetOffsets", table: "queues queue_id offset", flags: []string{
					"to earliest, latest, timestamp or offset",
					"timestamp for timestamp: a time, or 90m: so long ago",
					"offset for offset: where in the queue",
					"queue=queue_id one queue only; needed for offset",
				},
			},
		),
		r.noun("message", "Find messages",
			&rpc{
				use: "show ID", short: "Show a message by its id", method: "MessageService.GetMessage",
				flags: []string{"topic its topic; not needed for an offset message id"},
			},
			&rpc{
				use: "find TOPIC KEY", short: "Find the messages of a topic that have a key, the newest first",
				method: "MessageService.FindMessages", table: found, flags: []string{
					"max how many at most, 1 to 32",
					"begin stored not before a time, or 90m: so long ago", "end stored not after it",
				},
			},
			&rpc{
				use: "trace ID", short: "Show the trace that clients wrote of a message",
				method: "MessageService.TraceMessage", table: found,
			},
			&rpc{
				use:    "browse TOPIC QUEUE_ID",
				short:  "Read a queue from an offset",
				method: "MessageService.BrowseQueue",
				table:  found,
				flags:  []string{"offset where to begin", "max how many at most, 1 to 32"},
			},
		),
		r.noun(
			"config",
			"Show and change the settings of a running server",
			&rpc{
				use:    "show",
				short:  "Show the settings in force",
				method: "ClusterService.GetConfig",
				table:  "values",
			},
			&rpc{
				use: "set KEY=VALUE...", short: "Change settings until the server ends: all of them or none",
				method: "ClusterService.UpdateConfig", table: "values", trim: setValues,
			},
		),
		r.noun("cluster", "Show brokers and clients",
			&rpc{
				use:    "show",
				short:  "Show the brokers that the name server knows",
				method: "ClusterService.GetCluster",
				table:  "brokers cluster name addresses",
			},
			&rpc{
				use: "clients", short: "List the clients that speak RocketMQ's protocols",
				method: "ClusterService.ListClients", table: "clients client_id address language group consumer",
			},
		),
	}
}

// ownTopics leaves out what the server made for itself.
func ownTopics(_, out proto.Message, all bool) {
	if list, ok := out.(*v1.ListTopicsResponse); ok && !all {
		list.Topics = slices.DeleteFunc(list.Topics, func(t *v1.Topic) bool {
			return t.GetSystem() || strings.HasPrefix(t.GetName(), "%")
		})
		list.Total = int32(len(list.Topics))
	}
}

// ownGroups leaves out what the server made for itself.
func ownGroups(_, out proto.Message, all bool) {
	if list, ok := out.(*v1.ListGroupsResponse); ok && !all {
		list.Groups = slices.DeleteFunc(
			list.Groups,
			func(g *v1.Group) bool { return broker.IsSystemGroup(g.GetName()) },
		)
		list.Total = int32(len(list.Groups))
	}
}

// setValues leaves what was set.
func setValues(in, out proto.Message, _ bool) {
	was, _ := in.(*v1.UpdateConfigRequest) // it is one
	if now, ok := out.(*v1.Config); ok {
		maps.DeleteFunc(now.Values, func(key, _ string) bool { _, set := was.GetValues()[key]; return !set })
	}
}
