// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/roquetmq/roquet/api/proto/roquet/v1"
)

// messageWriter writes messages as they come: a line each, for people or as JSON.
type messageWriter struct {
	*call
	handles bool // receipt handles too
	bodies  bool // nothing but bodies
	written int
}

// shownBody is how much of a body a line for people has.
const shownBody = 100

func (w *messageWriter) write(messages []*v1.Message) error {
	for _, m := range messages {
		var err error
		switch {
		case w.bodies:
			_, err = fmt.Fprintf(w.out(), "%s\n", bodyOf(m))
		case w.json():
			err = w.jsonLine(m)
		default:
			if w.written == 0 {
				err = w.say("%-23s  %-24s  %-10s  %-16s  %s", "STORED", "TOPIC/QUEUE@OFFSET", "TAG", "KEYS", "BODY")
			}
			place := fmt.Sprintf("%s/%d@%d", m.GetTopic(), m.GetQueueId(), m.GetOffset())
			if err == nil {
				err = w.say(
					"%-23s  %-24s  %-10s  %-16s  %s",
					clock(m.GetStored()),
					printable(place, 0),
					orDash(m.GetTag()),
					orDash(strings.Join(m.GetKeys(), " ")),
					printable(bodyOf(m), shownBody),
				)
			}
			if err == nil && w.handles {
				err = w.say("  receipt handle %s", m.GetReceiptHandle())
			}
		}
		if err != nil {
			return err
		}
		w.written++
	}
	return nil
}

// bodyOf is a body as text; one that is none is in base64.
func bodyOf(m *v1.Message) string {
	if _, ok := m.GetPayload().(*v1.Message_Body); ok {
		return "base64:" + base64.StdEncoding.EncodeToString(m.GetBody())
	}
	return m.GetText()
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return printable(text, 0)
}

// messageCommand finds messages.
func messageCommand(r *remote) *cobra.Command {
	var topic string
	show := r.verb("show ID", "Show a message by its id", cobra.ExactArgs(1), func(c *call) error {
		m, err := c.GetMessage(c, &v1.GetMessageRequest{Id: c.args[0], Topic: topic})
		if err != nil {
			return err
		}
		return c.showMessage(m)
	})
	show.Flags().StringVar(&topic, "topic", "", "its topic; not needed for an offset message id")
	r.completeFlag(show, "topic", "TOPIC")
	trace := r.verb(
		"trace ID",
		"Show the trace that clients wrote of a message",
		cobra.ExactArgs(1),
		func(c *call) error {
			found, err := c.TraceMessage(c, &v1.TraceMessageRequest{Id: c.args[0]})
			if err != nil {
				return err
			}
			return (&messageWriter{call: c}).write(found.GetMessages())
		},
	)
	return r.noun("message", "Find messages", show, findCommand(r), trace)
}

// findCommand finds messages by a key.
func findCommand(r *remote) *cobra.Command {
	in := &v1.FindMessagesRequest{}
	var begin, end string
	cmd := r.verb(
		"find TOPIC KEY",
		"Find the messages of a topic that have a key, the newest first",
		cobra.ExactArgs(2),
		func(c *call) error {
			in.Topic, in.Key = c.args[0], c.args[1]
			for text, at := range map[*string]**timestamppb.Timestamp{&begin: &in.Begin, &end: &in.End} {
				if *text == "" {
					continue
				}
				t, err := moment(*text)
				if err != nil {
					return err
				}
				*at = timestamppb.New(t)
			}
			found, err := c.FindMessages(c, in)
			if err != nil {
				return err
			}
			w := &messageWriter{call: c}
			if err := w.write(found.GetMessages()); err != nil || w.written > 0 {
				return err
			}
			return c.say("no messages")
		},
	)
	cmd.Flags().Int32VarP(&in.Max, "max", "n", maxReceive, "how many at most")
	cmd.Flags().StringVar(&begin, "begin", "", "stored not before a time, or 90m: so long ago")
	cmd.Flags().StringVar(&end, "end", "", "stored not after a time, or 90m: so long ago")
	return cmd
}

func (c *call) showMessage(m *v1.Message) error {
	return c.show(m, "", func(row func(...any)) {
		row("message id", m.GetMessageId())
		row("offset message id", m.GetOffsetMessageId())
		row("topic", m.GetTopic())
		row("queue", m.GetQueueId())
		row("offset", m.GetOffset())
		row("type", m.GetMessageType())
		row("tag", orDash(m.GetTag()))
		row("keys", orDash(strings.Join(m.GetKeys(), " ")))
		row("group", orDash(m.GetGroup()))
		row("born", clock(m.GetBorn()), "at", m.GetBornHost())
		row("stored", clock(m.GetStored()))
		if m.GetDeliverAt() != nil {
			row("deliver at", clock(m.GetDeliverAt()))
		}
		if m.GetOriginTopic() != "" {
			row("origin", m.GetOriginTopic(), m.GetOriginMessageId())
		}
		for _, name := range slices.Sorted(maps.Keys(m.GetProperties())) {
			row("property "+name, m.GetProperties()[name])
		}
		row("body", bodyOf(m))
	})
}
