// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/roquetmq/roquet/api/proto/roquet/v1"
	"github.com/roquetmq/roquet/internal/client"
)

// pageSize is the largest page of a list.
const pageSize = 1000

// topicCommand looks after topics.
func topicCommand(r *remote) *cobra.Command {
	var system bool
	list := r.verb("list", "List topics", cobra.NoArgs, func(c *call) error {
		all, err := listTopics(c, c.Client)
		if err != nil {
			return err
		}
		if !system {
			all.Topics = slices.DeleteFunc(all.Topics, func(t *v1.Topic) bool {
				return t.GetSystem() || strings.HasPrefix(t.GetName(), "%")
			})
			all.Total = int32(len(all.Topics))
		}
		return c.show(all, "TOPIC QUEUES PERMISSION TYPE", func(row func(...any)) {
			for _, t := range all.GetTopics() {
				row(t.GetName(), queues(t), t.GetPermission(), typeName(t))
			}
		})
	})
	list.Flags().BoolVarP(
		&system,
		"all",
		"a",
		false,
		"the server's own topics too, and those of retries and dead letters",
	)
	show := r.verb("show TOPIC", "Show a topic", cobra.ExactArgs(1), func(c *call) error {
		t, err := c.GetTopic(c, &v1.GetTopicRequest{Topic: c.args[0]})
		if err != nil {
			return err
		}
		return c.showTopic(t)
	})
	stats := r.verb("stats TOPIC", "Show where the queues of a topic begin and end", cobra.ExactArgs(1), topicStats)
	remove := r.verb(
		"delete TOPIC...",
		"Delete topics and their messages",
		cobra.MinimumNArgs(1),
		func(c *call) error {
			for _, name := range c.args {
				if _, err := c.DeleteTopic(c, &v1.DeleteTopicRequest{Topic: name}); err != nil {
					return fmt.Errorf("delete topic %s: %w", name, err)
				}
			}
			return c.say("deleted %s", strings.Join(c.args, ", "))
		},
	)
	return r.noun("topic", "Look after topics",
		list, show, stats, putTopic(r, "create"), putTopic(r, "update"), remove)
}

// putTopic creates a topic that is not there, or changes one that is.
func putTopic(r *remote, name string) *cobra.Command {
	var in v1.PutTopicRequest
	var number int32
	var kind, permission string
	short := map[string]string{"create": "Create a topic", "update": "Change a topic"}[name]
	cmd := r.verb(name+" TOPIC", short, cobra.ExactArgs(1), func(c *call) error {
		in.Topic = c.args[0]
		if err := c.exists(name == "update", "topic", in.GetTopic(), func() error {
			_, err := c.GetTopic(c, &v1.GetTopicRequest{Topic: in.GetTopic()})
			return err
		}); err != nil {
			return err
		}
		if number > 0 {
			in.Queues = &number
		}
		var err error
		if in.MessageType, err = enum(v1.MessageType_value, "--type", kind, in.GetMessageType()); err != nil {
			return err
		}
		if in.Permission, err = enum(
			v1.Permission_value,
			"--permission",
			permission,
			in.GetPermission(),
		); err != nil {
			return err
		}
		t, err := c.PutTopic(c, &in)
		if err != nil {
			return err
		}
		return c.showTopic(t)
	})
	cmd.Flags().Int32VarP(&number, "queues", "q", 0, "how many queues; 8 for a new topic")
	cmd.Flags().StringVar(&kind, "type", "", "NORMAL, FIFO, DELAY, TRANSACTION or MIXED: what its messages are")
	cmd.Flags().StringVar(&permission, "permission", "", "READ_WRITE, READ or WRITE")
	cmd.Flags().StringToStringVar(&in.Attributes, "attribute", nil, "attributes to set: key=value")
	return cmd
}

// enum reads the name of an enum's value; an empty one is the value that was there.
func enum[E ~int32](values map[string]int32, flag, name string, empty E) (E, error) {
	n, ok := values[strings.ReplaceAll(strings.ToUpper(name), "-", "_")]
	if name == "" {
		return empty, nil
	} else if !ok || n == 0 {
		names := make([]string, 0, len(values))
		for value, n := range values {
			if n != 0 {
				names = append(names, value)
			}
		}
		slices.Sort(names)
		return empty, fmt.Errorf("%s %q is none of %s", flag, name, strings.Join(names, ", "))
	}
	return E(n), nil
}

func (c *call) showTopic(t *v1.Topic) error {
	return c.show(t, "", func(row func(...any)) {
		row("topic", t.GetName())
		row("read queues", t.GetReadQueues())
		row("write queues", t.GetWriteQueues())
		row("permission", t.GetPermission())
		row("type", typeName(t))
		for _, name := range slices.Sorted(maps.Keys(t.GetAttributes())) {
			row(name, t.GetAttributes()[name])
		}
	})
}

func topicStats(c *call) error {
	s, err := c.GetTopicStats(c, &v1.GetTopicStatsRequest{Topic: c.args[0]})
	if err != nil {
		return err
	}
	if err := c.show(s, "QUEUE FIRST NEXT MESSAGES LAST-STORED", func(row func(...any)) {
		for _, q := range s.GetQueues() {
			row(q.GetQueueId(), q.GetMinOffset(), q.GetMaxOffset(), q.GetMaxOffset()-q.GetMinOffset(),
				clock(q.GetLastStored()))
		}
	}); err != nil {
		return err
	}
	return c.say("%d messages, %.1f published a second", s.GetMessages(), s.GetPublishRate())
}

// listTopics reads all pages.
func listTopics(ctx context.Context, c *client.Client) (*v1.ListTopicsResponse, error) {
	all := &v1.ListTopicsResponse{}
	for token := ""; ; {
		page, err := c.ListTopics(ctx, &v1.ListTopicsRequest{PageSize: pageSize, PageToken: token})
		all.Topics = append(all.Topics, page.GetTopics()...)
		if token = page.GetNextPageToken(); err != nil || token == "" {
			all.Total = int32(len(all.Topics))
			return all, err
		}
	}
}

func queues(t *v1.Topic) string {
	if t.GetReadQueues() == t.GetWriteQueues() {
		return fmt.Sprint(t.GetReadQueues())
	}
	return fmt.Sprintf("%d read, %d write", t.GetReadQueues(), t.GetWriteQueues())
}

func typeName(t *v1.Topic) string {
	if t.GetMessageType() == v1.MessageType_MESSAGE_TYPE_UNSPECIFIED {
		return "any"
	}
	return t.GetMessageType().String()
}

// clock is a time as people here read it.
func clock(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	return t.AsTime().Local().Format("2006-01-02 15:04:05.000")
}
