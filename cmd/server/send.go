// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	v1 "github.com/roquetmq/roquet/api/proto/roquet/v1"
	"github.com/roquetmq/roquet/internal/client"
)

// Bounds of what is sent in one request, and of a line of --file.
const (
	maxBatch      = 500
	maxBatchBytes = 1 << 20
	maxLine       = 16 << 20
)

// sending is what the flags of send say.
type sending struct {
	message v1.NewMessage // but for its payload
	count   int
	file    string
}

// sendCommand publishes.
func sendCommand(r *remote) *cobra.Command {
	var s sending
	cmd := r.verb("send TOPIC [BODY]", "Send messages; BODY - reads one from standard input", cobra.RangeArgs(1, 2),
		func(c *call) error { return s.run(c) })
	cmd.Example = "  roquet send orders hello --tag paid --key order-1\n" +
		"  roquet send orders --file messages.txt        # a message a line; - is standard input\n" +
		"  roquet send orders reminder --delay 90m"
	flags := cmd.Flags()
	r.addFields(flags, cmd, s.message.ProtoReflect(), []string{
		"tag one word that groups can select messages by", "key=keys words that the message can be found by",
		"group message group: its messages stay in order", "property=properties properties of its own",
		"priority how urgent it is, in a topic for priorities: 0 or more", "delay deliver it after so long",
		"at=deliver_at deliver it at a time: 2026-12-24T18:00:00Z",
	})
	flags.IntVar(&s.count, "count", 1, "send it so often")
	flags.StringVar(&s.file, "file", "", "send each line of a file; - is standard input")
	cmd.MarkFlagsMutuallyExclusive("delay", "at")
	r.addFlags(flags)
	return cmd
}

func (s *sending) run(c *call) error {
	b := &batch{call: c, sending: s, bar: c.progress(-1, "messages"), in: v1.PublishBatchRequest{Topic: c.args[0]}}
	switch {
	case s.file != "" && (len(c.args) > 1 || s.count != 1):
		return errors.New("--file brings the bodies itself: leave out BODY and --count")
	case s.file != "":
		return s.sendLines(b)
	case len(c.args) < 2:
		return errors.New("no message: roquet send TOPIC BODY, or BODY - for standard input, or --file")
	}
	body := []byte(c.args[1])
	if c.args[1] == "-" {
		var err error
		if body, err = io.ReadAll(c.cmd.InOrStdin()); err != nil {
			return err
		}
	}
	for range s.count {
		if err := b.add(body); err != nil {
			return err
		}
	}
	return b.finish()
}

// sendLines sends each line that is not empty.
func (s *sending) sendLines(b *batch) (err error) {
	in := b.cmd.InOrStdin()
	if s.file != "-" {
		file, err := os.Open(s.file)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }() // it was only read
		in = file
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		if line := bytes.TrimSuffix(lines.Bytes(), []byte("\r")); len(line) > 0 {
			if err := b.add(line); err != nil {
				return err
			}
		}
	}
	return errors.Join(b.finish(), lines.Err())
}

// batch gathers messages and sends them some at a time.
type batch struct {
	*call
	*sending
	bar          progress
	in           v1.PublishBatchRequest
	size         int // bytes of bodies gathered
	sent, failed int
	cause        error // of the first failure
}

func (b *batch) add(body []byte) error {
	if len(b.in.Messages) >= maxBatch || b.size > 0 && b.size+len(body) > maxBatchBytes {
		if err := b.flush(); err != nil {
			return err
		}
	}
	m, _ := proto.Clone(&b.message).(*v1.NewMessage) // it is one
	if m.Payload = (&v1.NewMessage_Text{Text: string(body)}); !utf8.Valid(body) {
		m.Payload = &v1.NewMessage_Body{Body: bytes.Clone(body)}
	}
	b.in.Messages, b.size = append(b.in.Messages, m), b.size+len(body)
	return nil
}

func (b *batch) flush() error {
	out, err := b.PublishBatch(b, &b.in)
	if err != nil {
		return fmt.Errorf("after %d messages: %w", b.sent, err)
	}
	for _, result := range out.GetResults() {
		switch {
		case result.GetError() == nil && b.json():
			err = errors.Join(err, b.jsonLine(result))
		case result.GetError() == nil && b.count == 1 && b.file == "":
			err = b.show(result, "")
		case result.GetError() != nil && b.cause == nil:
			b.cause = client.NewError(0, result.GetError())
		}
		if result.GetError() != nil {
			b.failed++
		}
	}
	b.sent += len(out.GetResults())
	b.bar.add(len(b.in.Messages))
	b.in.Messages, b.size = nil, 0
	return err
}

// finish sends the rest and says how many were stored.
func (b *batch) finish() error {
	if len(b.in.Messages) > 0 {
		if err := b.flush(); err != nil {
			return err
		}
	}
	b.bar.end()
	switch {
	case b.failed == 1 && b.sent == 1:
		return b.cause
	case b.failed > 0:
		return fmt.Errorf("%d messages sent, %d refused, the first because: %w", b.sent-b.failed, b.failed, b.cause)
	case b.sent == 1 && b.file == "":
		return nil // it was shown
	}
	return b.say("sent %d messages", b.sent)
}
