// SPDX-License-Identifier: Apache-2.0

// Package filter decides which messages of a topic a subscription wants.
//
// A TAG expression is "*" or nothing for all messages, or tags separated by "||". The queue entry of a
// message keeps a 32-bit hash of its tag (message.TagsCode), so most messages are decided without reading
// them; those whose hash fits are compared by the tag itself, so that a consumer never gets a message it did
// not ask for because of a collision.
package filter

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/roquetmq/roquet/internal/message"
)

// Expression types. Source: ExpressionType of Apache RocketMQ.
const (
	TypeTag   = "TAG"
	TypeSQL92 = "SQL92"

	// ExpressionAll subscribes to every message of a topic.
	ExpressionAll = "*"

	tagSeparator = "||"
)

// ErrEmpty says that an expression of separators alone, or an empty one of another type than TAG, was given.
var ErrEmpty = errors.New("the subscription expression names nothing")

// UnsupportedError says that messages cannot be filtered by expressions of this type.
type UnsupportedError struct{ Type string }

// Error gives the original's remark.
func (e *UnsupportedError) Error() string {
	return "The broker does not support consumer to filter message by " + e.Type
}

// Subscription is a parsed expression on one topic. It is immutable and safe for concurrent use.
type Subscription struct {
	topic      string
	expression string
	exprType   string
	tags       []string // sorted, each once; empty: all messages, or none when nothing is wanted
	codes      []int64  // of the tags, same order
	all        bool

	// The two functions are made once, so that giving them to the store costs no allocation per pull.
	matchCode   func(tagsCode int64) bool
	matchRecord func(rec message.Record) bool
}

// ParseSubscription parses an expression. exprType may be empty, which means TAG. The strings are cloned. For
// TypeSQL92 a Subscription comes back that matches nothing, together with *UnsupportedError. Errors:
// ErrEmpty, *UnsupportedError. Source: FilterAPI.build.
func ParseSubscription(topic, expression, exprType string) (*Subscription, error) {
	s := &Subscription{topic: strings.Clone(topic), expression: strings.Clone(expression), exprType: TypeTag}
	if exprType != "" && exprType != TypeTag {
		if strings.TrimSpace(expression) == "" {
			return nil, fmt.Errorf("parse %s subscription: %w", exprType, ErrEmpty)
		}
		s.exprType = strings.Clone(exprType)
		s.bind()
		return s, &UnsupportedError{Type: s.exprType}
	}
	switch expression {
	case "", ExpressionAll:
		s.expression, s.all = ExpressionAll, true
		return s, nil
	}
	if strings.Trim(expression, "|") == "" && len(expression)%len(tagSeparator) == 0 {
		return nil, fmt.Errorf("parse subscription %q: %w", s.expression, ErrEmpty)
	}
	for tag := range strings.SplitSeq(s.expression, tagSeparator) {
		if tag = strings.TrimSpace(tag); tag != "" {
			s.tags = append(s.tags, tag)
		}
	}
	s.setTags(s.tags)
	return s, nil
}

// All returns the subscription to every message of topic.
func All(topic string) *Subscription {
	return &Subscription{topic: strings.Clone(topic), expression: ExpressionAll, exprType: TypeTag, all: true}
}

// setTags takes the tags wanted, and keeps their codes.
func (s *Subscription) setTags(tags []string) {
	slices.Sort(tags)
	s.tags = slices.Compact(tags)
	s.codes = make([]int64, len(s.tags))
	for i, tag := range s.tags {
		s.codes[i] = message.TagsCode(tag)
	}
	s.bind()
}

func (s *Subscription) bind() {
	s.matchCode, s.matchRecord = s.wantsCode, s.wantsRecord
}

// Topic returns the topic subscribed to.
func (s *Subscription) Topic() string { return s.topic }

// Expression returns the expression as it was given, ExpressionAll for an empty one.
func (s *Subscription) Expression() string { return s.expression }

// Type returns the expression type.
func (s *Subscription) Type() string { return s.exprType }

// Tags returns the tags wanted, sorted; empty when all messages are. It must not be changed.
func (s *Subscription) Tags() []string { return s.tags }

// IsAll reports whether every message is wanted.
func (s *Subscription) IsAll() bool { return s.all }

// Supported returns nil when messages can be filtered by this subscription, else an *UnsupportedError.
func (s *Subscription) Supported() error {
	if s.exprType != TypeTag {
		return &UnsupportedError{Type: s.exprType}
	}
	return nil
}

// Match reports whether a message with this tag, whose code is tagsCode, is wanted.
func (s *Subscription) Match(tagsCode int64, tag string) bool {
	return s.all || s.wantsCode(tagsCode) && s.wantsTag(tag)
}

// MatchCode returns the test of a queue entry by its tags code, nil when every message is wanted.
func (s *Subscription) MatchCode() func(tagsCode int64) bool { return s.matchCode }

// MatchRecord returns the exact test of a message record, nil when every message is wanted.
func (s *Subscription) MatchRecord() func(rec message.Record) bool { return s.matchRecord }

func (s *Subscription) wantsCode(tagsCode int64) bool {
	return slices.Contains(s.codes, tagsCode)
}

func (s *Subscription) wantsRecord(rec message.Record) bool {
	tag, _ := message.Property(rec.Properties(), message.PropertyTags)
	return s.wantsTag(tag)
}

func (s *Subscription) wantsTag(tag string) bool {
	if len(s.tags) <= 8 {
		return slices.Contains(s.tags, tag)
	}
	_, found := slices.BinarySearch(s.tags, tag)
	return found
}
