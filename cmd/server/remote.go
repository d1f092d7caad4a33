// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	v1 "github.com/roquetmq/roquet/api/proto/roquet/v1"
	"github.com/roquetmq/roquet/internal/client"
	"github.com/roquetmq/roquet/internal/config"
	"github.com/roquetmq/roquet/internal/protocol"
	"github.com/roquetmq/roquet/internal/remoting"
	"github.com/roquetmq/roquet/internal/service"
)

// remote is what all commands that talk to a server have in common: their flags.
type remote struct {
	client.Config
	passwordFile, output string
}

// localServer is where a server listens that was told nothing.
const localServer = "http://127.0.0.1:8080"

// addFlags adds the flags. Those that the environment may set are read by locate, so that no secret is shown as a
// default.
func (r *remote) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&r.Server, "server", localServer, "the server, any of its ports [ROQUET_SERVER]")
	flags.StringVar(&r.User, "user", "", "who asks [ROQUET_USER]")
	flags.StringVar(&r.Password, "password", "", "the user's password; others see it in ps: [ROQUET_PASSWORD]")
	flags.StringVar(&r.passwordFile, "password-file", "", "file with the user's password [ROQUET_PASSWORD_FILE]")
	flags.StringVar(&r.Token, "token", "", "a token in place of user and password [ROQUET_TOKEN]")
	flags.StringVar(&r.CAFile, "ca", "", "PEM file: who signs the server's certificate [ROQUET_CA]")
	flags.BoolVar(&r.Insecure, "insecure", false, "believe any certificate")
	flags.DurationVar(&r.Timeout, "timeout", 10*time.Second, "longest time for a call")
	flags.StringVarP(&r.output, "output", "o", "table", "table, or json for scripts")
}

// locate reads what the environment says unless a flag says it. A server that nothing names is the one that runs on
// this machine with the settings of the environment, and of the file if there is one; own tells that.
func (r *remote) locate(cmd *cobra.Command, file string) (own bool, err error) {
	own = !cmd.Flags().Changed("server") && !cmd.Flags().Changed("addr")
	for name, value := range map[string]*string{
		"server": &r.Server, "user": &r.User, "password": &r.Password, "password-file": &r.passwordFile,
		"token": &r.Token, "ca": &r.CAFile,
	} {
		env := os.Getenv("ROQUET_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")))
		if env != "" && !cmd.Flags().Changed(name) && (name != "server" || own) {
			*value, own = env, own && name != "server"
		}
	}
	loaded, err := config.Load(file, os.Environ(), nil)
	if !own || err != nil {
		if file == "" {
			err = nil // the environment is the server's to complain about
		}
		return false, err
	}
	l, scheme := &loaded.Listen, "http"
	if loaded.TLS.Mode == "enforcing" {
		scheme = "https"
	}
	host := l.BindAddress
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	port := cmp.Or(l.Port(l.HTTPPort), l.Port(l.BrokerPort), l.Port(l.NamesrvPort), l.Port(l.GRPCPort))
	r.Server = scheme + "://" + net.JoinHostPort(host, strconv.Itoa(port))
	return true, nil
}

// connect makes the client that the flags and the environment describe.
func (r *remote) connect(cmd *cobra.Command) (*client.Client, error) {
	if _, err := r.locate(cmd, ""); err != nil {
		return nil, err
	}
	if r.passwordFile != "" && r.Password == "" {
		text, err := os.ReadFile(r.passwordFile)
		if err != nil {
			return nil, fmt.Errorf("read --password-file: %w", err)
		}
		r.Password = strings.TrimRight(string(text), "\r\n")
	}
	if r.output != "table" && r.output != "json" {
		return nil, fmt.Errorf("--output %q is neither table nor json", r.output)
	}
	return client.New(r.Config)
}

// dial makes a client of the native protocol, for the same server.
func (c *call) dial(addr string) (*remoting.Client, error) {
	return remoting.NewClient(remoting.ClientConfig{
		Addr: addr, TLS: c.TLS, Language: protocol.LanguageGo, Logger: slog.New(slog.DiscardHandler),
	})
}

// native sends a request in the native protocol, signed when user and password are given. Errors: of the way only.
func (c *call) native(
	ctx context.Context, to *remoting.Client, code protocol.Code, h protocol.Header, body []byte,
) (*protocol.Command, error) {
	return to.Invoke(ctx, code, service.Signer{AccessKey: c.User, SecretKey: c.Password}.Sign(h, body), body)
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
	names, _ = (&call{Context: ctx, Client: c, remote: r, cmd: cmd}).names(word) // without an answer there are none
	return names, cobra.ShellCompDirectiveNoFileComp
}

// names are the names of all topics, or of the groups that are not the server's own.
func (c *call) names(word string) (names []string, err error) {
	method, in := "TopicService.ListTopics", proto.Message(&v1.ListTopicsRequest{PageSize: 1000})
	if word == "GROUP" {
		method, in = "GroupService.ListGroups", &v1.ListGroupsRequest{PageSize: 1000}
	}
	all, err := c.invoke(method, in.ProtoReflect())
	if err != nil {
		return nil, err
	}
	switch all := all.Interface().(type) {
	case *v1.ListTopicsResponse:
		for _, t := range all.GetTopics() {
			names = append(names, t.GetName())
		}
	case *v1.ListGroupsResponse:
		trim(nil, all, false)
		for _, g := range all.GetGroups() {
			names = append(names, g.GetName())
		}
	}
	return names, nil
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
