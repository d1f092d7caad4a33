// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"cmp"
	"net/netip"
	"time"

	v2 "github.com/roquetmq/roquet/api/proto/apache/rocketmq/v2"
	"github.com/roquetmq/roquet/internal/message"
	"github.com/roquetmq/roquet/internal/protocol"
)

// What follows is for the REST door, so that a message is checked, kept and shown by one set of rules.

// Outgoing checks a message as SendMessage does and returns the header of the call that sends it. Its topic may
// be one that is yet to be created, and one without a message type takes all.
func (s *Server) Outgoing(
	m *v2.Message, remote netip.AddrPort, now time.Time,
) (*protocol.SendMessageRequestHeader, error) {
	a := s.api
	if err := a.checkTopic(m.GetTopic()); err != nil {
		return nil, err
	}
	all := []outgoing{{Message: m, system: m.GetSystemProperties()}}
	if err := all[0].check(a, now); err != nil {
		return nil, err
	}
	if err := all[0].encode(m.GetTopic().GetName(), remote.String()); err != nil {
		return nil, err
	}
	if topic, known := a.cfg.Metadata.Topic(m.GetTopic().GetName()); known {
		topic.MessageType = cmp.Or(topic.MessageType, typeMixed)
		if err := takenBy(topic, all); err != nil {
			return nil, err
		}
	}
	return sendHeader(all), nil
}

// Incoming makes a client's message of a stored one. It aliases rec. Errors: *message.FormatError.
func (s *Server) Incoming(rec message.Record) (*v2.Message, error) { return delivered(rec, nil) }

// StatusOf is the Status that tells a client of an error.
func (s *Server) StatusOf(err error) *v2.Status { return statusOf(err) }
