// SPDX-License-Identifier: Apache-2.0

// Command roquet is the server and the operator's tool: `roquet serve` runs name server and broker in one
// process.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	_ "time/tzdata" // a FROM scratch image has no zones for TZ

	"github.com/spf13/cobra"
	_ "golang.org/x/crypto/x509roots/fallback" // nor has it authorities for outgoing TLS
)

// version is set at build time from the repository's tag.
var version = ""

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "roquet:", err)
		os.Exit(1)
	}
}

// command is the whole command line.
func command() *cobra.Command {
	root := &cobra.Command{
		Use:          "roquet",
		Short:        "One binary that serves Apache RocketMQ's clients: name server, broker and gateway",
		SilenceUsage: true, SilenceErrors: true, Version: buildVersion(),
	}
	r := &remote{}
	root.AddCommand(serveCommand(), verifyCommand(), healthCommand(), versionCommand())
	root.AddCommand(sendCommand(r), receiveCommand(r), tailCommand(r), lagCommand(r))
	root.AddCommand(benchCommand(r), doctorCommand(r), backupCommand(r), restoreCommand())
	root.AddCommand(nouns(r)...)
	if dlq, _, err := root.Find([]string{"dlq"}); err == nil {
		dlq.AddCommand(redriveCommand(r),
			r.verb("list", "List groups that have dead letters", cobra.NoArgs, listDead))
	}
	return root
}

func versionCommand() *cobra.Command {
	return local("version", "Print the version", cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "roquet", buildVersion())
		return err
	})
}

// local is a command that asks no server as a user.
func local(
	use, short string, args cobra.PositionalArgs, run func(cmd *cobra.Command, args []string) error,
) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: args, RunE: run}
}

// buildVersion is the tag the binary was built from, or what the go tool knows of its commit.
func buildVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}
	return "devel"
}
