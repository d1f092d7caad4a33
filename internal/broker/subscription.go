// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// ConsumeType is how a consumer gets its messages, by the name clients send.
type ConsumeType string

// The consume types.
const (
	ConsumeActively  ConsumeType = "CONSUME_ACTIVELY"  // pull
	ConsumePassively ConsumeType = "CONSUME_PASSIVELY" // push
	ConsumePop       ConsumeType = "CONSUME_POP"
)

// MessageModel says whether the members of a group share messages, by the name clients send.
type MessageModel string

// The message models.
const (
	Broadcasting  MessageModel = "BROADCASTING"
	Clustering    MessageModel = "CLUSTERING"
	LiteSelective MessageModel = "LITE_SELECTIVE"
)

// ConsumeFromWhere says where a group starts that has no offset yet, by the name clients send.
type ConsumeFromWhere string

// The starting points that are not deprecated.
const (
	ConsumeFromLastOffset  ConsumeFromWhere = "CONSUME_FROM_LAST_OFFSET"
	ConsumeFromFirstOffset ConsumeFromWhere = "CONSUME_FROM_FIRST_OFFSET"
	ConsumeFromTimestamp   ConsumeFromWhere = "CONSUME_FROM_TIMESTAMP"
)

// SubscriptionData is what a consumer wants of a topic. What Clients gives out is shared and must not be
// changed.
type SubscriptionData struct {
	ClassFilterMode bool
	Codes           []int32 // hash codes of Tags
	ExpressionType  string  // TAG or SQL92; empty means TAG
	SubString       string  // "*", tags joined by ||, or an SQL92 expression
	SubVersion      int64   // the higher one wins inside a group
	Tags            []string
	Topic           string
}

// sameFilter tells whether both want the same messages of the topic.
func (s *SubscriptionData) sameFilter(o *SubscriptionData) bool {
	return s.SubString == o.SubString && cmp.Or(s.ExpressionType, "TAG") == cmp.Or(o.ExpressionType, "TAG")
}

func (s *SubscriptionData) equal(o *SubscriptionData) bool {
	return s.SubVersion == o.SubVersion && s.sameFilter(o) && s.ClassFilterMode == o.ClassFilterMode
}

func (s *SubscriptionData) clone() *SubscriptionData {
	c := *s
	c.Topic, c.SubString = strings.Clone(s.Topic), strings.Clone(s.SubString)
	c.ExpressionType = strings.Clone(s.ExpressionType)
	c.Tags = make([]string, len(s.Tags))
	for i, tag := range s.Tags {
		c.Tags[i] = strings.Clone(tag)
	}
	c.Codes = slices.Clone(s.Codes)
	return &c
}

// subscriptions are one member's, by topic.
type subscriptions map[string]*SubscriptionData

func newSubscriptions(list []SubscriptionData) subscriptions {
	subs := make(subscriptions, len(list))
	for i := range list {
		if old := subs[list[i].Topic]; old == nil || list[i].SubVersion > old.SubVersion {
			c := list[i].clone()
			subs[c.Topic] = c
		}
	}
	return subs
}

// sameAs tells whether list says what is known already.
func (s subscriptions) sameAs(list []SubscriptionData) bool {
	if len(s) != len(list) {
		return false
	}
	for i := range list {
		if known := s[list[i].Topic]; known == nil || !known.equal(&list[i]) {
			return false
		}
	}
	return true
}

// unite merges what the members of a group want: of two that want the same topic the higher version wins.
// Source: ConsumerGroupInfo.java updateSubscription. Known difference: there the last heartbeat replaces the
// others'.
func unite(members map[uint64]*member) subscriptions {
	union := subscriptions{}
	for _, m := range members {
		merge(union, m.subs)
	}
	return union
}

// merge adds one member's subscriptions to the union of others.
func merge(union, subs subscriptions) {
	for topic, sub := range subs {
		if old := union[topic]; old == nil || sub.SubVersion > old.SubVersion ||
			sub.SubVersion == old.SubVersion && sub.SubString > old.SubString {
			union[topic] = sub
		}
	}
}

// ConflictKind is what is wrong among the members of a consumer group.
type ConflictKind string

// The kinds of conflicts.
const (
	// ConflictClientID: two live clients of a clustering group have one client id, so that both take the same
	// queues.
	ConflictClientID ConflictKind = "duplicate client id"
	// ConflictSubscription: members of a group do not subscribe the same, so that messages reach members that
	// do not want them, or nobody.
	ConflictSubscription ConflictKind = "subscriptions differ"
	// ConflictModel: members of a group differ in message model or consume type.
	ConflictModel ConflictKind = "message model or consume type differs"
)

// Conflict is a misconfiguration of a consumer group that two of its members show together.
type Conflict struct {
	Kind    ConflictKind
	Group   string
	Topic   string // with ConflictSubscription: the first topic that differs
	Members [2]Member
}

// String says what is wrong, and with whom.
func (c Conflict) String() string {
	what := string(c.Kind)
	if c.Topic != "" {
		what += " in topic " + c.Topic
	}
	a, b := c.Members[0], c.Members[1]
	return fmt.Sprintf("%s: %s at %s and %s at %s", what, a.ClientID, a.Channel.RemoteAddr(), b.ClientID,
		b.Channel.RemoteAddr())
}

// differing returns the first topic, in order, that only one of both wants, or that both want filtered
// differently. Retry topics do not count: every member has its group's.
func differing(a, b subscriptions) (first string, differ bool) {
	for _, of := range [...][2]subscriptions{{a, b}, {b, a}} {
		for topic, sub := range of[0] {
			other := of[1][topic]
			if !IsRetryTopic(topic) && (other == nil || !sub.sameFilter(other)) && (!differ || topic < first) {
				first, differ = topic, true
			}
		}
	}
	return first, differ
}
