// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/roquetmq/roquet/api/proto/roquet/v1"
	"github.com/roquetmq/roquet/internal/broker/filter/sql92"
	"github.com/roquetmq/roquet/internal/message"
)

// tailing is what the flags of tail say, and how far each queue was read.
type tailing struct {
	*messageWriter
	from, tag, sql string
	max            int
	every          time.Duration
	expression     *sql92.Expression
	next           map[int32]int64
}

// tailCommand follows a topic. It browses: no group's offsets move, nothing is received.
func tailCommand(r *remote) *cobra.Command {
	var s tailing
	var bodies bool
	cmd := r.verb("tail TOPIC", "Follow a topic without receiving: nobody's offsets move", cobra.ExactArgs(1),
		func(c *call) error {
			s.messageWriter = &messageWriter{call: c, bodies: bodies}
			err := s.run()
			if errors.Is(err, context.Canceled) {
				return nil // by Ctrl-C, which is how it ends
			}
			return err
		})
	cmd.Example = "  roquet tail orders --tag 'paid || shipped'\n" +
		"  roquet tail orders --from -20 -o json | jq .text"
	flags := cmd.Flags()
	flags.StringVar(&s.from, "from", "latest", "earliest, latest, or -N: so many messages back in each queue")
	flags.StringVar(&s.tag, "tag", "", "with this tag, or one of several: a || b")
	flags.StringVar(&s.sql, "sql", "", "for whose properties this SQL92 expression holds")
	flags.IntVarP(&s.max, "max", "n", 0, "end after so many messages; 0: go on")
	flags.DurationVar(&s.every, "interval", 500*time.Millisecond, "how often to look")
	flags.BoolVar(&bodies, "body", false, "write bodies only, a message a line")
	r.addFlags(flags)
	return cmd
}

func (s *tailing) run() (err error) {
	if s.sql != "" {
		if s.expression, err = sql92.Compile(s.sql); err != nil {
			return fmt.Errorf("--sql: %w", err)
		}
	}
	look := time.NewTicker(max(s.every, 10*time.Millisecond))
	defer look.Stop()
	for {
		stats, err := s.GetTopicStats(s, &v1.GetTopicStatsRequest{Topic: s.args[0]})
		if err != nil {
			return err
		}
		if err := s.begin(stats); err != nil {
			return err
		}
		for _, q := range stats.GetQueues() {
			if err := s.read(q); err != nil || s.max > 0 && s.written >= s.max {
				return err
			}
		}
		select {
		case <-look.C:
		case <-s.Done():
			return s.Err()
		}
	}
}

// begin decides where each queue is read from, once for all and for those that come later at their first message.
func (s *tailing) begin(stats *v1.TopicStats) error {
	if s.next != nil {
		return nil
	}
	s.next = map[int32]int64{}
	back, err := strconv.ParseInt(s.from, 10, 64)
	for _, q := range stats.GetQueues() {
		switch {
		case s.from == "earliest":
			s.next[q.GetQueueId()] = q.GetMinOffset()
		case s.from == "latest":
			s.next[q.GetQueueId()] = q.GetMaxOffset()
		case err == nil && back < 0:
			s.next[q.GetQueueId()] = max(q.GetMaxOffset()+back, q.GetMinOffset())
		default:
			return fmt.Errorf("--from %q is neither earliest nor latest nor -N", s.from)
		}
	}
	return nil
}

// read writes what is new in a queue.
func (s *tailing) read(q *v1.QueueStats) error {
	for id := q.GetQueueId(); s.next[id] < q.GetMaxOffset(); {
		page, err := s.BrowseQueue(s, &v1.BrowseQueueRequest{Topic: s.args[0], QueueId: id, Offset: s.next[id]})
		if err != nil {
			return err
		}
		wanted := slices.DeleteFunc(page.GetMessages(), func(m *v1.Message) bool { return !s.wants(m) })
		if s.max > 0 {
			wanted = wanted[:min(len(wanted), s.max-s.written)]
		}
		err = s.write(wanted)
		if err != nil || s.max > 0 && s.written >= s.max || page.GetNextOffset() <= s.next[id] {
			return err
		}
		s.next[id] = page.GetNextOffset()
	}
	return nil
}

func (s *tailing) wants(m *v1.Message) bool {
	if s.tag != "" && s.tag != "*" {
		tags := strings.Split(s.tag, "||")
		if !slices.ContainsFunc(tags, func(tag string) bool { return strings.TrimSpace(tag) == m.GetTag() }) {
			return false
		}
	}
	return s.expression == nil || s.expression.Match(storedProperties(m))
}

// storedProperties are a message's properties, as expressions are matched against.
func storedProperties(m *v1.Message) string {
	out := message.AppendProperty(nil, message.PropertyTags, m.GetTag())
	out = message.AppendProperty(out, message.PropertyKeys, strings.Join(m.GetKeys(), " "))
	for name, value := range m.GetProperties() {
		out = message.AppendProperty(out, name, value)
	}
	return string(out)
}
