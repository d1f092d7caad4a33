// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

var rewrite = flag.Bool("rewrite", false, "write docs/cli.md anew")

const reference = "../../docs/cli.md"

// TestReference keeps docs/cli.md what the commands say of themselves.
func TestReference(t *testing.T) {
	t.Parallel()
	root := command()
	serve, _, err := root.Find([]string{"serve"})
	if err != nil {
		t.Fatal(err)
	}
	serve.Long += "\n\nWhat it can be told: roquet serve --help."
	serve.Flags().VisitAll(func(f *pflag.Flag) { f.Hidden = len(f.Annotations[settingFlags]) > 0 })
	var out bytes.Buffer
	out.WriteString("# Commands\n\nWritten by `go test ./cmd/server -run Reference -rewrite`; " +
		"how they are used: [README](../README.md#the-command-line).\n\n" +
		"Commands that talk to a server take `--server` (`ROQUET_SERVER`), `--user` with `--password-file` or `--password`, or `--token`, `--ca`,\n" +
		"`--insecure`, `--timeout`, and `-o json` for scripts; they are described once, with `roquet topic`. `roquet completion`\n" +
		"makes shells complete commands, flags, and the names of topics and groups.\n\n")
	describe(t, &out, root)
	text := empty.ReplaceAllString(out.String(), "")
	text = strings.TrimSpace(regexp.MustCompile(`\n{3,}`).ReplaceAllString(text, "\n\n")) + "\n"
	if *rewrite {
		if err := os.WriteFile(reference, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	was, err := os.ReadFile(reference)
	if err != nil || string(was) != text {
		t.Errorf("docs/cli.md is not what the commands say (%v): go test ./cmd/server -run Reference -rewrite", err)
	}
}

// TestHelpNamesEveryValue: what a flag of an enum takes stands in its help.
func TestHelpNamesEveryValue(t *testing.T) {
	t.Parallel()
	enums := 0
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			taken, ok := f.Value.(field)
			if !ok || taken.fd.Enum() == nil {
				return
			}
			enums++
			for i := 1; i < taken.fd.Enum().Values().Len(); i++ { // the first one says nothing
				name := strings.ToLower(string(taken.fd.Enum().Values().Get(i).Name()))
				if name = strings.ReplaceAll(name, "_", "-"); !strings.Contains(f.Usage, name) {
					t.Errorf("%s --%s: %q does not name %s", cmd.CommandPath(), f.Name, f.Usage, name)
				}
			}
		})
		for _, below := range cmd.Commands() {
			walk(below)
		}
	}
	if walk(command()); enums == 0 {
		t.Error("no flag is of an enum")
	}
}

// What says nothing new: inherited flags, links, flags that many commands have, a section that is empty then.
var (
	repeated = regexp.MustCompile(`(?s)### (Options inherited from parent commands|SEE ALSO).*`)
	help     = regexp.MustCompile(`^ +-h, --help `)
	shared   = regexp.MustCompile(
		`^ +(-o, )?--(server|user|password|password-file|token|ca|insecure|timeout|output) `,
	)
	empty = regexp.MustCompile("#### Options\n\n```\n```\n")
)

func describe(t *testing.T, out *bytes.Buffer, cmd *cobra.Command) {
	t.Helper()
	if cmd.Name() == "completion" || cmd.Name() == "help" {
		return
	}
	if cmd.Runnable() || cmd.Name() == "topic" {
		common := cmd.Flags().Lookup("server") != nil
		var page bytes.Buffer
		if err := doc.GenMarkdown(cmd, &page); err != nil {
			t.Fatal(err)
		}
		text := repeated.ReplaceAllString(page.String(), "")
		for line := range strings.Lines(text) {
			if !help.MatchString(line) && (!common || !shared.MatchString(line)) {
				out.WriteString(strings.Replace(line, "### ", "#### ", 1))
			}
		}
		out.WriteString("\n")
	}
	for _, below := range cmd.Commands() {
		describe(t, out, below)
	}
}
