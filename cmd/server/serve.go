// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"log/slog"
	"os"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/roquetmq/roquet/internal/config"
	"github.com/roquetmq/roquet/internal/service"
)

// memoryShare is the part of the container's memory that the garbage collector works to stay within, unless
// GOMEMLIMIT says otherwise; the rest is left to stacks, files in memory and the page cache's dirty pages.
const memoryShare = 0.8

// serveCommand runs the server until SIGTERM or SIGINT.
func serveCommand() *cobra.Command {
	var file string
	var printOnly bool
	short := "Run name server and broker (see --roles) until SIGTERM"
	cmd := local("serve", short, cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
		loaded, err := config.Load(file, os.Environ(), changedFlags(cmd.Flags()))
		if err != nil {
			return err
		}
		if printOnly {
			return loaded.Print(cmd.OutOrStdout())
		}
		level := new(slog.LevelVar)
		logger := newLogger(cmd.ErrOrStderr(), loaded.Log, level)
		if len(loaded.Ignored) > 0 {
			logger.Warn("settings of the original without effect here", "keys", loaded.Ignored)
		}
		if _, err := memlimit.Set(memlimit.WithRatio(memoryShare)); err != nil {
			logger.Debug("no memory limit was found", "error", err)
		}
		service.LogGRPC(logger)
		svc, err := service.New(loaded.Config, buildVersion(), logger, level)
		if err != nil {
			return err
		}
		return svc.Run(cmd.Context())
	})
	cmd.Long = "Run name server and broker until SIGTERM. Without a flag everything works on 127.0.0.1 with data in\n" +
		"./data.\n" +
		"Each flag has an environment variable and a key for the file; later layers win: file, environment, flag."
	cmd.Flags().StringVarP(&file, "config", "c", "", "configuration file: broker.conf, namesrv.conf or YAML")
	cmd.Flags().BoolVarP(&printOnly, "print", "p", false, "print the effective configuration and exit")
	addSettingFlags(cmd.Flags())
	return cmd
}

// settingFlags is the annotation under which a flag remembers its key.
const settingFlags = "roquet-key"

func addSettingFlags(flags *pflag.FlagSet) {
	for _, s := range config.New().Settings() {
		flags.String(s.Flag, s.Text(), s.Usage+" ["+s.Key+", "+s.Environment()+"]")
		flags.Lookup(s.Flag).Annotations = map[string][]string{settingFlags: {s.Key}}
	}
}

// changedFlags are the settings given on the command line, by key.
func changedFlags(flags *pflag.FlagSet) map[string]string {
	values := map[string]string{}
	flags.Visit(func(f *pflag.Flag) {
		if key := f.Annotations[settingFlags]; len(key) == 1 {
			values[key[0]] = f.Value.String()
		}
	})
	return values
}

// newLogger writes to w at the level, which may be changed while it is in use.
func newLogger(w io.Writer, cfg config.Log, level *slog.LevelVar) *slog.Logger {
	_ = level.UnmarshalText([]byte(cfg.Level)) // Validate has refused other names
	options := &slog.HandlerOptions{Level: level}
	var to slog.Handler = slog.NewTextHandler(w, options)
	if cfg.Format == "json" {
		to = slog.NewJSONHandler(w, options)
	}
	return slog.New(sparingLog{to, &sparingKinds{of: map[uintptr]*sparingKind{}}})
}
