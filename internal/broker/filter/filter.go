// SPDX-License-Identifier: Apache-2.0

// Package filter decides which messages of a topic a subscription wants.
//
// A TAG expression is "*" or nothing for all messages, or tags separated by "||". The queue entry of a
// message keeps a 32-bit hash of its tag (message.TagsCode), so most messages are decided without reading
// them; those whose hash fits are compared by the tag itself, so that a consumer never gets a message it did
// not ask for because of a collision.
//
// An SQL92 expression is evaluated on the properties of every message, its tag among them: see [sql92]. When it
// says of the tag that it must be one of some values, the queue entry decides here too.
//
// Parsing costs more than a whole pull does otherwise; [Cache] keeps what was parsed.
package filter

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/roquetmq/roquet/internal/broker/filter/sql92"
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

// UnsupportedError says that messages cannot be filtered by expressions of this type: there is no such type,
// or it is switched off.
type UnsupportedError struct{ Type string }

// Error gives the original's remark.
func (e *UnsupportedError) Error() string {
	return "The broker does not support consumer to filter message by " + e.Type
}

// Subscription is a parsed expression. It is immutable and safe for concurrent use.
type Subscription struct {
	expression string
	exprType   string
	tags       []string // sorted, each once; empty: all messages, or none when nothing is wanted
	codes      []int64  // of the tags that a message may have
	all        bool
	sql        *sql92.Expression // nil for TAG

	// The two functions are made once, so that giving them to the store costs no allocation per pull.
	matchCode   func(tagsCode int64) bool
	matchRecord func(rec message.Record) bool
}

// Parse parses an expression. exprType may be empty, which means TAG. The strings are cloned.
// Errors: ErrEmpty, *UnsupportedError, *sql92.SyntaxError. Source: FilterAPI.build, SqlFilter.compile.
func Parse(expression, exprType string) (*Subscription, error) {
	s := &Subscription{expression: strings.Clone(expression), exprType: TypeTag}
	if IsSQL(exprType) {
		if strings.TrimSpace(expression) == "" {
			return nil, fmt.Errorf("parse %s subscription: %w", exprType, ErrEmpty)
		}
		if exprType != TypeSQL92 {
			return nil, &UnsupportedError{Type: strings.Clone(exprType)}
		}
		var err error
		if s.sql, err = sql92.Compile(s.expression); err != nil {
			return nil, err
		}
		s.exprType, s.matchRecord = TypeSQL92, s.wantsProperties
		if tags := s.sql.Required(message.PropertyTags); tags != nil {
			s.setCodes(tags)
		}
		return s, nil
	}
	if isAll(expression) {
		return All(), nil
	}
	if strings.Trim(expression, "|") == "" && len(expression)%len(tagSeparator) == 0 {
		return nil, fmt.Errorf("parse subscription %q: %w", s.expression, ErrEmpty)
	}
	for tag := range strings.SplitSeq(s.expression, tagSeparator) {
		if tag = strings.TrimSpace(tag); tag != "" {
			s.tags = append(s.tags, tag)
		}
	}
	slices.Sort(s.tags)
	s.tags = slices.Compact(s.tags)
	s.setCodes(s.tags)
	s.matchRecord = s.wantsRecord
	return s, nil
}

func isAll(expression string) bool { return expression == "" || expression == ExpressionAll }

// IsSQL reports whether expressions of this type are for the property filter: all but TAG, also by no name,
// are.
func IsSQL(exprType string) bool { return exprType != "" && exprType != TypeTag }

// All returns the subscription to every message.
func All() *Subscription {
	return &Subscription{expression: ExpressionAll, exprType: TypeTag, all: true}
}

// setCodes takes the tags that a message may have.
func (s *Subscription) setCodes(tags []string) {
	s.codes = make([]int64, len(tags))
	for i, tag := range tags {
		s.codes[i] = message.TagsCode(tag)
	}
	s.matchCode = s.wantsCode
}

// Expression returns the expression as it was given, ExpressionAll for an empty one.
func (s *Subscription) Expression() string { return s.expression }

// Type returns the expression type.
func (s *Subscription) Type() string { return s.exprType }

// Match reports whether a message is wanted.
func (s *Subscription) Match(rec message.Record) bool {
	return s.matchRecord == nil || s.matchRecord(rec)
}

// MatchCode returns the test of a queue entry by its tags code, nil when every message may be wanted.
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

func (s *Subscription) wantsProperties(rec message.Record) bool {
	return s.sql.Match(rec.Properties())
}

func (s *Subscription) wantsTag(tag string) bool {
	if len(s.tags) <= 8 {
		return slices.Contains(s.tags, tag)
	}
	_, found := slices.BinarySearch(s.tags, tag)
	return found
}
