// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	v1 "github.com/roquetmq/roquet/api/proto/roquet/v1"
	"github.com/roquetmq/roquet/internal/client"
)

// deadPrefix begins the names of dead letter topics.
const deadPrefix = "%DLQ%"

// deadLetters is how many dead letters a group has.
type deadLetters struct {
	Group    string `json:"group"`
	Messages int64  `json:"messages"`
	Left     int64  `json:"notRedriven"`
}

func listDead(c *call) error {
	all, err := c.names("TOPIC")
	if err != nil {
		return err
	}
	rows := []deadLetters{}
	for _, name := range all {
		group, ok := strings.CutPrefix(name, deadPrefix)
		if !ok {
			continue
		}
		d, err := c.BrowseDeadLetters(c, &v1.BrowseDeadLettersRequest{Group: group, Max: 1})
		if err != nil {
			return fmt.Errorf("dead letters of group %s: %w", group, err)
		}
		left := int64(0)
		if len(d.GetMessages()) > 0 {
			left = d.GetMaxOffset() - d.GetMessages()[0].GetOffset()
		}
		rows = append(rows, deadLetters{group, d.GetMaxOffset() - d.GetMinOffset(), left})
	}
	return c.show(rows, "group messages notRedriven")
}

// redriveCommand publishes dead letters again.
func redriveCommand(r *remote) *cobra.Command {
	var limit int
	cmd := r.verb("redrive GROUP", "Publish dead letters again to the topics they came from, each once",
		cobra.ExactArgs(1), func(c *call) error {
			bar, done := c.progress(-1, "dead letters"), 0
			for limit == 0 || done < limit {
				in := &v1.RedriveDeadLettersRequest{Group: c.args[0], Max: maxBatch}
				if limit > 0 {
					in.Max = int32(min(limit-done, maxBatch))
				}
				out, err := c.RedriveDeadLetters(c, in)
				if err != nil {
					return fmt.Errorf("after %d dead letters: %w", done, err)
				}
				for _, result := range out.GetResults() {
					if result.GetError() != nil {
						return client.NewError(0, result.GetError())
					}
					if done++; c.json() {
						err = errors.Join(err, c.jsonLine(result))
					}
				}
				if err != nil {
					return err
				}
				bar.add(len(out.GetResults()))
				if out.GetRemaining() == 0 || len(out.GetResults()) == 0 {
					break
				}
			}
			bar.end()
			return c.say("redrove %d dead letters", done)
		})
	cmd.Flags().IntVarP(&limit, "max", "n", 0, "how many at most; 0: all")
	return cmd
}
