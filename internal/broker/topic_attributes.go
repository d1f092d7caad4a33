// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Names of topic attributes. Source: TopicAttributes.java.
const (
	AttributeMessageType    = "message.type"
	AttributeQueueType      = "queue.type"
	AttributeCleanupPolicy  = "cleanup.policy"
	AttributeReserveTime    = "reserve.time"
	AttributeLiteExpiration = "lite.topic.expiration"

	attributePriorityFactor = "priority.factor" // of groups
)

// TypeFIFO and typePriority are values of message.type that decide how a topic is consumed.
const (
	TypeFIFO     = "FIFO"
	typePriority = "PRIORITY"
)

// attribute is what a name may be set to.
type attribute struct {
	fixed   bool // may be given on creation only
	verify  func(value string) error
	refused string // not empty: why no value is accepted
}

// ParseAttributes reads a change of attributes as tools send it, "+name=value,-name", into "+name" → value
// and "-name" → "". Errors: Failed. Source: AttributeParser.java.
func ParseAttributes(text string) (map[string]string, error) {
	changes := map[string]string{}
	if text == "" {
		return changes, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		key, value, set := strings.Cut(part, "=")
		switch {
		case set && !strings.HasPrefix(key, "+"):
			return nil, refuse(Failed, "add/alter attribute format is wrong: %s", key)
		case !set && !strings.HasPrefix(key, "-"):
			return nil, refuse(Failed, "delete attribute format is wrong: %s", key)
		}
		if _, ok := changes[key]; ok {
			return nil, refuse(Failed, "key duplication: %s", key)
		}
		changes[key] = value
	}
	return changes, nil
}

// alterAttributes applies changes ("+name" sets, "-name" takes away) to current and returns the result.
// Source: AttributeUtil.java alterCurrentAttributes.
func alterAttributes(create bool, all map[string]attribute, current, changes map[string]string) (
	map[string]string, error,
) {
	result := map[string]string{}
	maps.Copy(result, current)
	seen := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(changes)) {
		name := key[min(1, len(key)):]
		if name == "" || strings.ContainsAny(name, "+-") {
			return nil, refuse(Failed, "kv string format wrong. key: %s", key)
		}
		if seen[name] {
			return nil, refuse(Failed, "alter duplication key. key: %s", name)
		}
		seen[name] = true
		if err := alterOne(create, all, result, key[0], name, changes[key]); err != nil {
			return nil, err
		}
	}
	return result, nil
}

func alterOne(create bool, all map[string]attribute, result map[string]string, sign byte,
	name, value string,
) error {
	fail := func(reason string) error { return refuse(Failed, "%s key: %s", reason, name) }
	_, exists := result[name]
	switch {
	case create && sign != '+':
		return fail("only add attribute is supported while creating topic.")
	case sign != '+' && sign != '-':
		return fail("wrong format")
	case sign == '-' && !exists:
		return fail("attempt to delete a nonexistent")
	}
	attr, ok := all[name]
	switch {
	case !ok:
		return fail("unsupported")
	case !create && attr.fixed:
		return fail("attempt to update an unchangeable attribute.")
	case attr.refused != "":
		return fail(attr.refused)
	}
	if sign == '-' {
		delete(result, name)
		return nil
	}
	if err := attr.verify(value); err != nil {
		return fail(err.Error() + ".")
	}
	result[name] = value
	return nil
}

// topicAttributes are the attributes of topics. reserve.time needs a tiered store and is refused, as RocketMQ
// does without one; so are values that would change how a queue is stored or cleaned, since nothing here
// would act on them.
func topicAttributes() map[string]attribute {
	return map[string]attribute{
		AttributeMessageType: {verify: oneOf("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION",
			"PRIORITY", "LITE", "MIXED")},
		AttributeQueueType:      {fixed: true, verify: onlySupported("SimpleCQ", "BatchCQ")},
		AttributeCleanupPolicy:  {fixed: true, verify: onlySupported("DELETE", "COMPACTION")},
		AttributeReserveTime:    {refused: "Update topic reserveTime not supported"},
		AttributeLiteExpiration: {verify: inRange(-1, 43200)},
	}
}

// groupAttributes are the attributes of subscription groups. Source: SubscriptionGroupAttributes.java.
func groupAttributes() map[string]attribute {
	return map[string]attribute{
		attributePriorityFactor:             {verify: inRange(0, 100)},
		"lite.bind.topic":                   {verify: anyText},
		"lite.sub.model":                    {verify: oneOf("Shared", "Exclusive")},
		"lite.sub.reset.offset.exclusive":   {verify: boolean},
		"lite.sub.reset.offset.unsubscribe": {verify: boolean},
		"lite.sub.client.quota":             {verify: inRange(-1, math.MaxInt64)},
		"lite.sub.client.max.event.cnt":     {verify: inRange(1, math.MaxInt64)},
		"lite.sub.wildcard":                 {verify: boolean},
	}
}

func oneOf(values ...string) func(string) error {
	return func(value string) error {
		if !slices.Contains(values, value) {
			return fmt.Errorf("value %q is not in set: [%s]", value, strings.Join(values, ", "))
		}
		return nil
	}
}

// onlySupported accepts value, and tells a known value that is not supported from an unknown one.
func onlySupported(value, unsupported string) func(string) error {
	check := oneOf(value, unsupported)
	return func(v string) error {
		if v == unsupported {
			return fmt.Errorf("value %q is not supported, only %s", v, value)
		}
		return check(v)
	}
}

func inRange(low, high int64) func(string) error {
	return func(value string) error {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < low || n > high {
			return fmt.Errorf("value %q is not in range(%d, %d)", value, low, high)
		}
		return nil
	}
}

func boolean(value string) error {
	if !strings.EqualFold(value, "true") && !strings.EqualFold(value, "false") {
		return fmt.Errorf("boolean attribute format is wrong: %q", value)
	}
	return nil
}

func anyText(string) error { return nil }
