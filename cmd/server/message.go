// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"strings"

	v1 "github.com/roquetmq/roquet/api/proto/roquet/v1"
)

// messageWriter writes messages as they come: a line each, for people or as JSON.
type messageWriter struct {
	*call
	handles bool // receipt handles too
	bodies  bool // nothing but bodies
	written int
}

// A line for people: its columns, and how much of a body it has.
const (
	messageLine = "%-23s  %-24s  %-10s  %-16s  %s"
	shownBody   = 100
)

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
				err = w.say(messageLine, "STORED", "TOPIC/QUEUE@OFFSET", "TAG", "KEYS", "BODY")
			}
			stored := m.GetStored().AsTime().Local().Format("2006-01-02 15:04:05.000")
			place := fmt.Sprintf("%s/%d@%d", m.GetTopic(), m.GetQueueId(), m.GetOffset())
			tag, keys := printable(m.GetTag(), 0), printable(strings.Join(m.GetKeys(), " "), 0)
			if err == nil {
				err = w.say(messageLine, stored, printable(place, 0), cmp.Or(tag, "-"), cmp.Or(keys, "-"),
					printable(bodyOf(m), shownBody))
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
