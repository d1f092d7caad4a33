// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/roquetmq/roquet/internal/client"
)

// remote is what all commands that talk to a server have in common: their flags.
type remote struct {
	client.Config
	output string
}

// addFlags adds the flags. Those that the environment may set are read by connect, so that no secret is shown as a
// default.
func (r *remote) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&r.Server, "server", "http://127.0.0.1:8080", "the server, any of its ports [ROQUET_SERVER]")
	flags.StringVar(&r.User, "user", "", "who asks [ROQUET_USER]")
	flags.StringVar(&r.Password, "password", "", "the user's password; others see it in ps: [ROQUET_PASSWORD]")
	flags.StringVar(&r.Token, "token", "", "a token in place of user and password [ROQUET_TOKEN]")
	flags.StringVar(&r.CAFile, "ca", "", "PEM file: who signs the server's certificate [ROQUET_CA]")
	flags.BoolVar(&r.Insecure, "insecure", false, "believe any certificate")
	flags.DurationVar(&r.Timeout, "timeout", 10*time.Second, "longest time for a call")
	flags.StringVarP(&r.output, "output", "o", "table", "table, or json for scripts")
}

// connect makes the client that the flags and the environment describe.
func (r *remote) connect(cmd *cobra.Command) (*client.Client, error) {
	for name, value := range map[string]*string{
		"server": &r.Server, "user": &r.User, "password": &r.Password, "token": &r.Token, "ca": &r.CAFile,
	} {
		env := os.Getenv("ROQUET_" + strings.ToUpper(name))
		if flag := cmd.Flags().Lookup(name); flag != nil && !flag.Changed && env != "" {
			*value = env
		}
	}
	if r.output != "table" && r.output != "json" {
		return nil, fmt.Errorf("--output %q is neither table nor json", r.output)
	}
	return client.New(r.Config)
}

// noun is a command that has others below it, which all talk to a server.
func (r *remote) noun(name, short string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: name, Short: short, Args: cobra.NoArgs}
	cmd.AddCommand(below...)
	r.addFlags(cmd.PersistentFlags())
	return cmd
}

// call is one run of a command: the client, and where its answer goes.
type call struct {
	context.Context // of the command's run, for every call that it makes
	*client.Client
	*remote
	cmd  *cobra.Command
	args []string
}

// verb is a command that talks to a server. The words of use behind its name that are TOPIC or GROUP complete
// themselves.
func (r *remote) verb(use, short string, args cobra.PositionalArgs, run func(*call) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: args,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := r.connect(cmd)
			if err != nil {
				return err
			}
			return run(&call{cmd.Context(), c, r, cmd, args})
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			words, i := strings.Fields(use), len(args)+1
			if strings.HasSuffix(use, "...") {
				i = min(i, len(words)-1)
			}
			if i >= len(words) {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return r.complete(cmd, strings.Trim(words[i], "[]."))
		},
	}
}

// completion is the patience of a shell that asks for names.
const completion = 2 * time.Second

// complete lists the names of what a word stands for.
func (r *remote) complete(cmd *cobra.Command, word string) (names []string, _ cobra.ShellCompDirective) {
	c, err := r.connect(cmd)
	if err != nil || word != "TOPIC" && word != "GROUP" {
		return nil, cobra.ShellCompDirectiveDefault
	}
	ctx, cancel := context.WithTimeout(context.Background(), completion)
	defer cancel()
	if word == "TOPIC" {
		all, _ := listTopics(ctx, c) // without an answer there are no names
		for _, t := range all.GetTopics() {
			names = append(names, t.GetName())
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	all, _ := listGroups(ctx, c, false) // without an answer there are no names
	for _, g := range all.GetGroups() {
		names = append(names, g.GetName())
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeFlag makes a flag complete itself as a word of verb does.
func (r *remote) completeFlag(cmd *cobra.Command, flag, word string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, // fails for a flag that does not exist, which the test would show
		func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return r.complete(cmd, word)
		})
}

// json tells whether the answer is for scripts.
func (c *call) json() bool { return c.output == "json" }

// out is where the answer goes.
func (c *call) out() io.Writer { return c.cmd.OutOrStdout() }

// say writes a line for people; scripts do not get it.
func (c *call) say(format string, args ...any) error {
	if c.json() {
		return nil
	}
	_, err := fmt.Fprintf(c.out(), format+"\n", args...)
	return err
}

// jsonLine writes a message as JSON on one line.
func (c *call) jsonLine(m proto.Message) error {
	text, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(m)
	if err == nil {
		_, err = c.out().Write(append(text, '\n'))
	}
	return err
}

// show writes a message as JSON, or the table that rows fills below a head.
func (c *call) show(m proto.Message, head string, rows func(row func(cells ...any))) error {
	text, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		return err
	}
	return c.showPlain(json.RawMessage(text), head, rows)
}

// showPlain is show for what is no message of the API.
func (c *call) showPlain(v any, head string, rows func(row func(cells ...any))) error {
	if !c.json() {
		return writeTable(c.out(), head, rows)
	}
	encoder := json.NewEncoder(c.out())
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// writeTable writes a table whose columns are as wide as they must be. Without a head there is none.
func writeTable(w io.Writer, head string, rows func(row func(cells ...any))) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(words []string) {
		_, _ = fmt.Fprintln(table, strings.Join(words, "\t")) // Flush has the error
	}
	if head != "" {
		line(strings.Fields(head))
	}
	rows(func(cells ...any) {
		words := make([]string, len(cells))
		for i, cell := range cells {
			words[i] = printable(fmt.Sprint(cell), 0)
		}
		line(words)
	})
	return table.Flush()
}

// printable is text on one line that does nothing to a terminal, cut to so many characters if it has more.
func printable(text string, limit int) string {
	out := []rune(strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case !unicode.IsPrint(r):
			return '\uFFFD'
		}
		return r
	}, strings.TrimSpace(text)))
	if limit > 0 && len(out) > limit {
		out = append(out[:limit-1], '…')
	}
	return string(out)
}

// exists checks that a thing is there, or is not, before it is changed or created; get asks for it.
func (c *call) exists(wanted bool, kind, name string, get func() error) error {
	var refused *client.Error
	err := get()
	switch {
	case errors.As(err, &refused) && refused.Status == http.StatusNotFound:
		if wanted {
			return fmt.Errorf("there is no %s %s: roquet %[1]s create %[2]s", kind, name)
		}
		return nil
	case err == nil && !wanted:
		return fmt.Errorf("%s %s exists: roquet %[1]s update %[2]s changes it", kind, name)
	}
	return err
}
