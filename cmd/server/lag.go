// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	v1 "github.com/roquetmq/roquet/api/proto/roquet/v1"
)

// topicLag is how far a group is behind in a topic.
type topicLag struct {
	Group string `json:"group"`
	Topic string `json:"topic"`
	Lag   int64  `json:"lag"`
}

// lagCommand shows the lag of all groups, topic by topic.
func lagCommand(r *remote) *cobra.Command {
	var groups []string
	short := "Show how far groups are behind, topic by topic, the worst first"
	cmd := r.verb("lag [GROUP]...", short, cobra.ArbitraryArgs, func(c *call) (err error) {
		if groups = append(groups, c.args...); len(groups) == 0 {
			if groups, err = c.names("GROUP"); err != nil {
				return err
			}
		}
		return c.showLag(groups)
	})
	cmd.Flags().StringSliceVarP(&groups, "group", "g", nil, "these groups only")
	r.addFlags(cmd.Flags())
	return cmd
}

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
	return c.show(rows, "group topic lag")
}
