// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"strings"
)

// Actions is a set of what can be done with a resource. Source: Action.java.
type Actions uint8

// The actions.
const (
	Pub Actions = 1 << iota
	Sub
	Create
	Update
	Delete
	Get
	List

	All Actions = 1<<iota - 1
)

// actionNames are the names of the actions in the order of their bits.
var actionNames = [...]string{"Pub", "Sub", "Create", "Update", "Delete", "Get", "List"}

// names are the names of the actions in the set.
func (a Actions) names() (names []string) {
	if a == All {
		return []string{"All"}
	}
	for bit, name := range actionNames {
		if a&(1<<bit) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// parseActions reads names in any case.
func parseActions(names []string) (Actions, error) {
	var set Actions
	for _, name := range names {
		switch bit := indexFold(actionNames[:], name); {
		case strings.EqualFold(name, "All"):
			set = All
		case bit < 0:
			return 0, refuse("%q is no action: there are %s and All", name, strings.Join(actionNames[:], ", "))
		default:
			set |= 1 << bit
		}
	}
	if set == 0 {
		return 0, refuse("The actions is empty.")
	}
	return set, nil
}

// Kind is what a resource is. Source: ResourceType.java.
type Kind uint8

// The kinds. Any stands for resources of all kinds in a rule.
const (
	Any Kind = iota
	Cluster
	Namespace
	Topic
	Group
)

var kindNames = [...]string{"Any", "Cluster", "Namespace", "Topic", "Group"}

// Resource is one cluster, topic or group.
type Resource struct {
	Kind Kind
	Name string
}

// String is the resource as rules write it, such as Topic:orders.
func (r Resource) String() string { return kindNames[r.Kind] + ":" + r.Name }

// pattern is the resources that a rule is for.
type pattern struct {
	kind   Kind
	name   string
	prefix bool // of the name; all names when that is empty
}

// parsePattern reads "Topic:name", "Group:begin*", "Cluster:*" or "*". Source: Resource.java.
func parsePattern(text string) (pattern, error) {
	if text == "*" {
		return pattern{prefix: true}, nil
	}
	kind, name, _ := strings.Cut(text, ":")
	if k := Kind(indexFold(kindNames[1:], kind) + 1); k != Any && name != "" {
		name, prefix := strings.CutSuffix(name, "*")
		return pattern{k, name, prefix}, nil
	}
	return pattern{}, refuse(
		"%q is no resource: wanted Topic:name, Group:name, Cluster:name or Namespace:name, where "+
			"the name may end with *, or * for everything",
		text,
	)
}

func (p *pattern) covers(r Resource) bool {
	switch {
	case p.kind == Any:
		return true
	case p.kind != r.Kind:
		return false
	case p.prefix:
		return strings.HasPrefix(r.Name, p.name)
	default:
		return p.name == r.Name
	}
}

// weight orders patterns that cover the same resource: the larger one decides.
func (p *pattern) weight() int {
	switch {
	case p.kind == Any:
		return 0
	case p.prefix:
		return 1 + len(p.name)
	default:
		return 1 << 20 // longer than any name
	}
}

// OfTopic is the resource that the rights to a topic hang on: for topics of retries and dead letters that is their
// group, whose name is all behind the prefix.
func OfTopic(name string) Resource {
	if r := OfGroup(name); r.Name != name {
		return r
	}
	return Resource{Topic, name}
}

// OfGroup is a consumer group; its retry topic stands for it. Source: Resource.java ofGroup.
func OfGroup(name string) Resource {
	for _, prefix := range []string{"%RETRY%", "%DLQ%"} {
		if group, ok := strings.CutPrefix(name, prefix); ok {
			return Resource{Group, group}
		}
	}
	return Resource{Group, name}
}
