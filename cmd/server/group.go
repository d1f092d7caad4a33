// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/roquetmq/roquet/api/proto/roquet/v1"
	"github.com/roquetmq/roquet/internal/broker"
	"github.com/roquetmq/roquet/internal/client"
)

// groupCommand looks after consumer groups.
func groupCommand(r *remote) *cobra.Command {
	var system bool
	list := r.verb("list", "List groups", cobra.NoArgs, func(c *call) error {
		all, err := listGroups(c, c.Client, system)
		if err != nil {
			return err
		}
		return c.show(all, "GROUP CONSUMES ORDERLY BROADCAST RETRIES", func(row func(...any)) {
			for _, g := range all.GetGroups() {
				row(g.GetName(), g.GetConsumeEnabled(), g.GetOrderly(), g.GetBroadcastEnabled(), g.GetRetryMaxTimes())
			}
		})
	})
	list.Flags().BoolVarP(&system, "all", "a", false, "the server's own groups too")
	show := r.verb("show GROUP", "Show a group", cobra.ExactArgs(1), func(c *call) error {
		g, err := c.GetGroup(c, &v1.GetGroupRequest{Group: c.args[0]})
		if err != nil {
			return err
		}
		return c.showGroup(g)
	})
	remove := r.verb(
		"delete GROUP...",
		"Delete groups and their offsets",
		cobra.MinimumNArgs(1),
		func(c *call) error {
			for _, name := range c.args {
				if _, err := c.DeleteGroup(c, &v1.DeleteGroupRequest{Group: name}); err != nil {
					return fmt.Errorf("delete group %s: %w", name, err)
				}
			}
			return c.say("deleted %s", strings.Join(c.args, ", "))
		},
	)
	clients := r.verb("clients GROUP", "List the connected consumers of a group", cobra.ExactArgs(1),
		func(c *call) error {
			all, err := c.ListGroupClients(c, &v1.ListGroupClientsRequest{Group: c.args[0]})
			if err != nil {
				return err
			}
			return c.show(all, "CLIENT ADDRESS LANGUAGE", func(row func(...any)) {
				for _, one := range all.GetClients() {
					row(one.GetClientId(), one.GetAddress(), one.GetLanguage())
				}
			})
		})
	lag := r.verb(
		"lag GROUP [TOPIC]",
		"Show how far a group is behind, queue by queue",
		cobra.RangeArgs(1, 2),
		groupLag,
	)
	return r.noun("group", "Look after consumer groups", list, show,
		putGroup(r, "create"), putGroup(r, "update"), remove, clients, lag, resetCommand(r))
}

// putGroup creates a group that is not there, or changes one that is.
func putGroup(r *remote, name string) *cobra.Command {
	var in v1.PutGroupRequest
	var consume, orderly, broadcast bool
	var retries int32
	short := map[string]string{"create": "Create a group", "update": "Change a group"}[name]
	cmd := r.verb(name+" GROUP", short, cobra.ExactArgs(1), func(c *call) error {
		in.Group = c.args[0]
		if err := c.exists(name == "update", "group", in.GetGroup(), func() error {
			_, err := c.GetGroup(c, &v1.GetGroupRequest{Group: in.GetGroup()})
			return err
		}); err != nil {
			return err
		}
		for flag, set := range map[string]func(){
			"consume":   func() { in.ConsumeEnabled = &consume },
			"orderly":   func() { in.Orderly = &orderly },
			"broadcast": func() { in.BroadcastEnabled = &broadcast },
			"retries":   func() { in.RetryMaxTimes = &retries },
		} {
			if c.cmd.Flags().Changed(flag) {
				set()
			}
		}
		g, err := c.PutGroup(c, &in)
		if err != nil {
			return err
		}
		return c.showGroup(g)
	})
	cmd.Flags().BoolVar(&consume, "consume", true, "it may receive")
	cmd.Flags().BoolVar(&orderly, "orderly", false, "it receives the messages of a message group in order")
	cmd.Flags().BoolVar(&broadcast, "broadcast", true, "it may consume as a broadcast")
	cmd.Flags().Int32Var(&retries, "retries", 16, "deliveries again before a message is a dead letter")
	return cmd
}

func (c *call) showGroup(g *v1.Group) error {
	return c.show(g, "", func(row func(...any)) {
		row("group", g.GetName())
		row("consumes", g.GetConsumeEnabled())
		row("orderly", g.GetOrderly())
		row("broadcast", g.GetBroadcastEnabled())
		row("retries", g.GetRetryMaxTimes())
		for _, name := range slices.Sorted(maps.Keys(g.GetAttributes())) {
			row(name, g.GetAttributes()[name])
		}
	})
}

func groupLag(c *call) error {
	in := &v1.GetLagRequest{Group: c.args[0]}
	if len(c.args) > 1 {
		in.Topic = c.args[1]
	}
	lag, err := c.GetLag(c, in)
	if err != nil {
		return err
	}
	if err := c.show(lag, "TOPIC QUEUE OFFSET NEXT LAG LAST-CONSUMED", func(row func(...any)) {
		for _, q := range lag.GetQueues() {
			row(q.GetTopic(), q.GetQueueId(), q.GetConsumerOffset(), q.GetMaxOffset(), q.GetLag(),
				clock(q.GetLastConsumed()))
		}
	}); err != nil {
		return err
	}
	return c.say("%d messages behind, %.1f consumed a second", lag.GetTotal(), lag.GetConsumeRate())
}

// lagCommand shows the lag of all groups, topic by topic.
func lagCommand(r *remote) *cobra.Command {
	var groups []string
	cmd := r.verb("lag", "Show how far groups are behind, topic by topic", cobra.NoArgs, func(c *call) error {
		if len(groups) == 0 {
			all, err := listGroups(c, c.Client, false)
			if err != nil {
				return err
			}
			for _, g := range all.GetGroups() {
				groups = append(groups, g.GetName())
			}
		}
		return c.showLag(groups)
	})
	cmd.Flags().StringSliceVarP(&groups, "group", "g", nil, "these groups only")
	r.completeFlag(cmd, "group", "GROUP")
	r.addFlags(cmd.Flags())
	return cmd
}

// topicLag is how far a group is behind in a topic.
type topicLag struct {
	Group string `json:"group"`
	Topic string `json:"topic"`
	Lag   int64  `json:"lag"`
}

// showLag writes a row a group and topic, the largest lag first.
func (c *call) showLag(groups []string) error {
	bar := c.progress(int64(len(groups)), "groups")
	rows := []topicLag{}
	for _, group := range groups {
		lag, err := c.GetLag(c, &v1.GetLagRequest{Group: group})
		if err != nil {
			return fmt.Errorf("lag of group %s: %w", group, err)
		}
		byTopic := map[string]int64{}
		for _, q := range lag.GetQueues() {
			byTopic[q.GetTopic()] += q.GetLag()
		}
		for _, topic := range slices.Sorted(maps.Keys(byTopic)) {
			rows = append(rows, topicLag{group, topic, byTopic[topic]})
		}
		bar.add(1)
	}
	bar.end()
	slices.SortStableFunc(rows, func(a, b topicLag) int { return cmp.Compare(b.Lag, a.Lag) })
	return c.showPlain(rows, "GROUP TOPIC LAG", func(row func(...any)) {
		for _, r := range rows {
			row(r.Group, r.Topic, r.Lag)
		}
	})
}

// resetCommand makes a group go on elsewhere.
func resetCommand(r *remote) *cobra.Command {
	var to string
	queue := int32(-1)
	cmd := r.verb(
		"reset GROUP TOPIC",
		"Make a group go on elsewhere in a topic",
		cobra.ExactArgs(2),
		func(c *call) error {
			in := &v1.ResetOffsetsRequest{Group: c.args[0], Topic: c.args[1]}
			if queue >= 0 {
				in.QueueId = &queue
			}
			if err := target(in, to); err != nil {
				return err
			}
			out, err := c.ResetOffsets(c, in)
			if err != nil {
				return err
			}
			return c.show(out, "QUEUE OFFSET", func(row func(...any)) {
				for _, q := range out.GetQueues() {
					row(q.GetQueueId(), q.GetOffset())
				}
			})
		},
	)
	cmd.Flags().StringVar(
		&to,
		"to",
		"",
		"earliest, latest, a time (2026-12-24T18:00:00Z, or 90m: so long ago), an offset",
	)
	cmd.Flags().Int32Var(&queue, "queue", -1, "one queue only; needed with an offset")
	_ = cmd.MarkFlagRequired("to") // it is there
	return cmd
}

// target reads where a group is to go on.
func target(in *v1.ResetOffsetsRequest, to string) error {
	switch offset, err := strconv.ParseInt(to, 10, 64); {
	case to == "earliest":
		in.To = v1.ResetTarget_EARLIEST
	case to == "latest":
		in.To = v1.ResetTarget_LATEST
	case err == nil:
		in.To, in.Offset = v1.ResetTarget_OFFSET, offset
		if in.QueueId == nil {
			return fmt.Errorf("--to %s is an offset, which means something in one queue only: add --queue", to)
		}
	default:
		at, err := moment(to)
		if err != nil {
			return fmt.Errorf("--to: %w", err)
		}
		in.To, in.Timestamp = v1.ResetTarget_TIMESTAMP, timestamppb.New(at)
	}
	return nil
}

// moment reads a time: RFC 3339, or a duration that it lies back.
func moment(text string) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return time.Now().Add(-d), nil
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return at, fmt.Errorf("%q is neither a time such as 2026-12-24T18:00:00Z nor a duration such as 90m", text)
	}
	return at, nil
}

// listGroups reads all pages; the server's own groups only if they are wanted.
func listGroups(ctx context.Context, c *client.Client, system bool) (*v1.ListGroupsResponse, error) {
	all := &v1.ListGroupsResponse{}
	for token := ""; ; {
		page, err := c.ListGroups(ctx, &v1.ListGroupsRequest{PageSize: pageSize, PageToken: token})
		all.Groups = append(all.Groups, page.GetGroups()...)
		if token = page.GetNextPageToken(); err != nil || token == "" {
			if !system {
				all.Groups = slices.DeleteFunc(
					all.Groups,
					func(g *v1.Group) bool { return broker.IsSystemGroup(g.GetName()) },
				)
			}
			all.Total = int32(len(all.Groups))
			return all, err
		}
	}
}
