// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	v1 "github.com/roquetmq/roquet/api/proto/roquet/v1"
)

// configCommand shows and changes a running server's settings.
func configCommand(r *remote) *cobra.Command {
	show := r.verb("show [KEY]...", "Show settings in force", cobra.ArbitraryArgs, func(c *call) error {
		all, err := c.GetConfig(c, &v1.GetConfigRequest{})
		if err != nil {
			return err
		}
		for _, key := range c.args {
			if _, ok := all.GetValues()[key]; !ok {
				return fmt.Errorf("there is no setting %q: roquet config show lists all", key)
			}
		}
		maps.DeleteFunc(all.Values, func(key, _ string) bool {
			return len(c.args) > 0 && !slices.Contains(c.args, key)
		})
		return c.showConfig(all)
	})
	set := r.verb(
		"set KEY=VALUE...",
		"Change settings until the server ends: all of them or none",
		cobra.MinimumNArgs(1),
		func(c *call) error {
			in := &v1.UpdateConfigRequest{Values: map[string]string{}}
			for _, pair := range c.args {
				key, value, ok := strings.Cut(pair, "=")
				if !ok {
					return fmt.Errorf("%q is not KEY=VALUE", pair)
				}
				in.Values[key] = value
			}
			all, err := c.UpdateConfig(c, in)
			if err != nil {
				return err
			}
			maps.DeleteFunc(all.Values, func(key, _ string) bool { _, ok := in.GetValues()[key]; return !ok })
			return c.showConfig(all)
		},
	)
	return r.noun("config", "Show and change the settings of a running server", show, set)
}

func (c *call) showConfig(all *v1.Config) error {
	return c.show(all, "KEY VALUE", func(row func(...any)) {
		for _, key := range slices.Sorted(maps.Keys(all.GetValues())) {
			row(key, all.GetValues()[key])
		}
	})
}
