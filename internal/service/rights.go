// SPDX-License-Identifier: Apache-2.0

package service

import (
	"reflect"
	"strings"

	"github.com/roquetmq/roquet/internal/auth"
	p "github.com/roquetmq/roquet/internal/protocol"
)

// right is what a request needs: any of the actions with each topic and each group that it names, or with the
// cluster. An empty one asks for credentials only. codes.txt of package protocol has the right of each code.
type right struct {
	topic, group, cluster auth.Actions
	optional              bool // old clients may name nothing
}

// needs is the topics and groups that one call is about.
type needs struct{ topics, groups []string }

// isRetryOfGroup tells whether a retry topic's group is one that is asked for besides. What was popped is settled by
// the name of its retry topic, which goes on with the topic behind the group.
func (n *needs) isRetryOfGroup(code p.Code, name string) bool {
	settles := code == p.AckMessage || code == p.BatchAckMessage || code == p.ChangeMessageInvisibleTime
	for _, group := range n.groups {
		rest, ok := strings.CutPrefix(name, auth.OfGroup(group).Name)
		if ok && (rest == "" || settles && (rest[0] == '_' || rest[0] == '+')) {
			return true
		}
	}
	return false
}

// read takes the names out of the header, which it decodes for who comes after, or else out of the body.
func (n *needs) read(c *call) error {
	if c.Header == nil && c.Ext != nil {
		if h := p.RequestHeader(c.Code); h != nil {
			if err := h.DecodeExt(c.Ext); err != nil {
				return err
			}
			c.Header = h
		}
	}
	var from any = c.Header
	var err error
	if c.Header == nil {
		from, err = namesInBody(c)
	}
	if err == nil && from != nil {
		n.collect(reflect.ValueOf(from))
	}
	return err
}

// collect finds the names by what headers and bodies call them. A producer's group is a name without rights, and so is
// the group that offsets are copied from.
func (n *needs) collect(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			n.collect(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			n.collect(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			switch name, f := v.Type().Field(i).Name, v.Field(i); name {
			case "Topic", "OriginTopic", "TopicName", "TopicList":
				n.topics = appendNames(n.topics, f, ";")
			case "ConsumerGroup", "Group", "GroupName", "DestGroup", "CompareGroup", "FilterGroups":
				n.groups = appendNames(n.groups, f, ",")
			case "ConsumerDataSet", "SubscriptionDataSet", "MQSet", "Acks", "TopicConfigList", "GroupConfigList":
				n.collect(f)
			}
		}
	}
}

func appendNames(names []string, f reflect.Value, separator string) []string {
	if f.Kind() == reflect.String && f.String() != "" {
		return append(names, strings.Split(f.String(), separator)...)
	}
	return names
}
