// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	v1 "github.com/roquetmq/roquet/api/proto/roquet/v1"
	"github.com/roquetmq/roquet/internal/client"
)

// Limits of one receive.
const (
	maxReceive = 32
	maxWait    = 30 * time.Second
)

// receiving is what the flags of receive say.
type receiving struct {
	in          v1.ReceiveRequest
	max         int
	wait        time.Duration
	ack, bodies bool
}

// receiveCommand receives as a member of a group.
func receiveCommand(r *remote) *cobra.Command {
	var s receiving
	cmd := r.verb("receive TOPIC", "Receive messages as a group; unless acknowledged, they come again",
		cobra.ExactArgs(1), func(c *call) error { return s.run(c) })
	cmd.Example = "  roquet receive orders --group billing --max 10 --wait 5s --ack\n" +
		"  roquet receive orders -g billing --max 1000 --ack --body > bodies.txt"
	flags := cmd.Flags()
	r.addFields(flags, cmd, s.in.ProtoReflect(), []string{
		"group the consumer group", "invisible for how long nobody else of the group gets them; 30s when left out",
		"tag with this tag, or one of several: a || b", "sql for whose properties this SQL92 expression holds",
	})
	flags.IntVarP(&s.max, "max", "n", 1, "how many at most")
	flags.DurationVar(&s.wait, "wait", 0, "how long to wait when there are none")
	flags.BoolVar(&s.ack, "ack", false, "acknowledge them once they are written")
	flags.BoolVar(&s.bodies, "body", false, "write bodies only, a message a line")
	cmd.MarkFlagsMutuallyExclusive("tag", "sql")
	_ = cmd.MarkFlagRequired("group") // it is there
	r.addFlags(flags)
	return cmd
}

func (s *receiving) run(c *call) error {
	s.in.Topic = c.args[0]
	out := &messageWriter{call: c, handles: !s.ack, bodies: s.bodies}
	until := time.Now().Add(s.wait)
	for got := 0; got < s.max; {
		wait := min(max(time.Until(until), 0), maxWait, c.Timeout*3/4)
		s.in.MaxMessages, s.in.Wait = int32(min(s.max-got, maxReceive)), durationpb.New(wait)
		answer, err := c.Receive(c, &s.in)
		if err != nil {
			return err
		}
		if len(answer.GetMessages()) == 0 {
			if !time.Now().Before(until) {
				break
			}
			continue
		}
		got += len(answer.GetMessages())
		if err := errors.Join(out.write(answer.GetMessages()), s.settle(c, answer.GetMessages())); err != nil {
			return err
		}
	}
	if out.written == 0 && !s.bodies {
		return c.say("no messages")
	}
	return nil
}

// settle acknowledges what was written.
func (s *receiving) settle(c *call, messages []*v1.Message) error {
	if !s.ack {
		return nil
	}
	in := &v1.AckRequest{Group: s.in.GetGroup()}
	for _, m := range messages {
		in.ReceiptHandles = append(in.ReceiptHandles, m.GetReceiptHandle())
	}
	answer, err := c.Ack(c, in)
	if err != nil {
		return fmt.Errorf("acknowledge: %w", err)
	}
	for i, result := range answer.GetResults() {
		if result.GetError() != nil {
			return fmt.Errorf("acknowledge %s: %w", messages[i].GetMessageId(), client.NewError(0, result.GetError()))
		}
	}
	return nil
}
