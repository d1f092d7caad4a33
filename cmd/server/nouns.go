// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed" // the table
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	v1 "github.com/roquetmq/roquet/api/proto/roquet/v1"
	"github.com/roquetmq/roquet/internal/broker"
)

// commandTable is the commands that are nothing but a call of roquet.v1.
//
//go:embed commands.txt
var commandTable string

// nouns makes the commands of the table, by what they look after. What is wrong with the table panics.
func nouns(r *remote) []*cobra.Command {
	var all []*cobra.Command
	var below []*rpc
	finish := func() {
		for _, p := range below {
			all[len(all)-1].AddCommand(p.command(r))
		}
		below = nil
	}
	for line := range strings.Lines(commandTable) {
		text := strings.TrimSpace(line)
		parts := append(strings.SplitN(text, ": ", 4), "", "")
		switch indent := len(line) - len(strings.TrimLeft(line, " ")); {
		case text == "" || text[0] == '#':
		case indent == 0:
			finish()
			all = append(all, &cobra.Command{Use: parts[0], Short: parts[1], Args: cobra.NoArgs})
			r.addFlags(all[len(all)-1].PersistentFlags())
		case indent == 2:
			words := append(strings.Fields(parts[2]), "", "")
			below = append(below, &rpc{parts[0], parts[1], words[0], words[1], words[2], nil, parts[3]})
		default:
			below[len(below)-1].flags = append(below[len(below)-1].flags, strings.TrimPrefix(text, "--"))
		}
	}
	finish()
	return all
}

// trim leaves out what the server made for itself, unless all is wanted, and settings that were not set.
func trim(in, out proto.Message, all bool) {
	switch out := out.(type) {
	case *v1.ListTopicsResponse:
		out.Topics = slices.DeleteFunc(out.Topics, func(t *v1.Topic) bool {
			return !all && (t.GetSystem() || strings.HasPrefix(t.GetName(), "%"))
		})
		out.Total = int32(len(out.Topics))
	case *v1.ListGroupsResponse:
		out.Groups = slices.DeleteFunc(out.Groups, func(g *v1.Group) bool {
			return !all && broker.IsSystemGroup(g.GetName())
		})
		out.Total = int32(len(out.Groups))
	case *v1.Config:
		was, update := in.(*v1.UpdateConfigRequest)
		maps.DeleteFunc(out.Values, func(key, _ string) bool {
			_, set := was.GetValues()[key]
			return update && !set
		})
	}
}
