// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	v1 "github.com/roquetmq/roquet/api/proto/roquet/v1"
	"github.com/roquetmq/roquet/internal/client"
)

// rpc is a command that is one call of roquet.v1. Its arguments and flags are fields of the request, and what it writes
// is the answer.
type rpc struct {
	use, short string   // for help; the fields of the arguments are in capital letters
	method     string   // TopicService.GetTopic
	condition  string   // "if" or "unless" what another method asks for is there; "": none
	get        string   // that method
	flags      []string // name or name=field, and then what it means
	table      string   // a list of the answer, and its fields that are shown; "": the fields of the answer
}

// messages makes the request and the answer of a method.
func messages(method string) (in, out protoreflect.Message, err error) {
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName("roquet.v1." + method))
	d, ok := found.(protoreflect.MethodDescriptor)
	if !ok {
		return nil, nil, fmt.Errorf("%s: %w", method, err)
	}
	input, err := protoregistry.GlobalTypes.FindMessageByName(d.Input().FullName())
	output, fault := protoregistry.GlobalTypes.FindMessageByName(d.Output().FullName())
	if err = errors.Join(err, fault); err != nil {
		return nil, nil, err
	}
	return input.New(), output.New(), nil
}

// command makes the command. Method names and fields that do not exist are bugs, and panic.
func (p *rpc) command(r *remote) *cobra.Command {
	in, _, err := messages(p.method)
	if err != nil {
		panic(err)
	}
	words := strings.Fields(p.use)[1:]
	for i := range words {
		_ = p.argument(in, i).fd.Name() // a bug panics now, not when the command is used
	}
	args, many := cobra.ExactArgs(len(words)), strings.HasSuffix(p.use, "...") && !strings.Contains(p.use, "=")
	if strings.HasSuffix(p.use, "...") {
		args = cobra.MinimumNArgs(len(words))
	} else if strings.HasSuffix(p.use, "]") {
		args = cobra.RangeArgs(len(words)-1, len(words))
	}
	cmd := r.verb(p.use, p.short, args, func(c *call) error {
		if !many {
			return p.run(c, in, c.args)
		}
		for i := len(words) - 1; i < len(c.args); i++ {
			if err := p.run(c, in, append(c.args[:len(words)-1:len(words)-1], c.args[i])); err != nil {
				return err
			}
		}
		return nil
	})
	r.addFields(cmd.Flags(), cmd, in, p.flags)
	if cmd.Name() == "list" && !strings.HasPrefix(p.method, "User") {
		cmd.Flags().BoolP("all", "a", false, "the server's own too")
	}
	return cmd
}

// addFields adds flags that set fields of a message.
func (r *remote) addFields(flags *pflag.FlagSet, cmd *cobra.Command, m protoreflect.Message, specs []string) {
	for _, spec := range specs {
		word, usage, _ := strings.Cut(spec, " ")
		name, of, ok := strings.Cut(word, "=")
		if !ok {
			of = strings.ReplaceAll(name, "-", "_")
		}
		f := fieldOf(m, of)
		short := map[protoreflect.Name]string{"group": "g", "max": "n"}[f.fd.Name()]
		if f.fd.Parent().Name() == "NewMessage" {
			short = ""
		}
		flag := flags.VarPF(f, name, short, usage)
		if f.fd.Kind() == protoreflect.BoolKind {
			flag.NoOptDefVal = "true"
		}
		if kind := strings.ToUpper(of); (kind == "TOPIC" || kind == "GROUP") && f.fd.Parent().Name() != "NewMessage" {
			_ = cmd.RegisterFlagCompletionFunc(name, // the flag was just made
				func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
					return r.complete(cmd, kind)
				})
		}
	}
}

// fill sets the fields that the arguments stand for.
func (p *rpc) fill(in protoreflect.Message, args []string) error {
	for i, arg := range args {
		if err := p.argument(in, i).Set(arg); err != nil {
			return err
		}
	}
	return nil
}

// argument is the field that an argument stands for.
func (p *rpc) argument(in protoreflect.Message, i int) field {
	words := strings.Fields(p.use)[1:]
	name := strings.ToLower(strings.Trim(words[min(i, len(words)-1)], "[]."))
	if strings.Contains(name, "=") {
		name = "values"
	}
	return fieldOf(in, name)
}

func (p *rpc) run(c *call, in protoreflect.Message, args []string) error {
	if err := p.fill(in, args); err != nil {
		return err
	}
	if put, ok := in.Interface().(*v1.PutUserRequest); ok && put.GetSecret() == "" {
		put.Secret = os.Getenv("ROQUET_SECRET")
	}
	if p.condition != "" {
		if err := p.check(c, args); err != nil {
			return err
		}
	}
	out, err := c.invoke(p.method, in)
	if err != nil {
		return err
	}
	all, _ := c.cmd.Flags().GetBool("all")
	trim(in.Interface(), out.Interface(), all)
	if out.Descriptor().Fields().Len() == 0 {
		return c.say("%sd %s", c.cmd.Name(), strings.Join(args, " "))
	}
	return c.show(out.Interface(), p.table)
}

// check asks whether what is to be created, or changed, is there.
func (p *rpc) check(c *call, args []string) error {
	in, _, err := messages(p.get)
	if err == nil {
		err = p.fill(in, args)
	}
	if err != nil {
		return err
	}
	kind, name := c.cmd.Parent().Name(), strings.Join(args, " ")
	_, err = c.invoke(p.get, in)
	switch {
	case isNotFound(err):
		if p.condition == "if" {
			return fmt.Errorf("there is no %s %s: roquet %[1]s create %[2]s", kind, name)
		}
		return nil
	case err == nil && p.condition == "unless":
		return fmt.Errorf("%s %s exists: roquet %[1]s update %[2]s changes it", kind, name)
	}
	return err
}

func isNotFound(err error) bool {
	var refused *client.Error
	return errors.As(err, &refused) && refused.Status == http.StatusNotFound
}

// invoke calls a method. Of a list that comes in pages it gathers all.
func (c *call) invoke(method string, in protoreflect.Message) (protoreflect.Message, error) {
	_, all, err := messages(method)
	if err != nil {
		return nil, err
	}
	next := all.Descriptor().Fields().ByName("next_page_token")
	for {
		page := all.New()
		err := c.Invoke(c, "/roquet.v1."+strings.Replace(method, ".", "/", 1), in.Interface(), page.Interface())
		if err != nil {
			return nil, err
		}
		proto.Merge(all.Interface(), page.Interface())
		if next == nil || page.Get(next).String() == "" {
			break
		}
		in.Set(in.Descriptor().Fields().ByName("page_token"), page.Get(next))
		all.Clear(next)
	}
	return all, nil
}
