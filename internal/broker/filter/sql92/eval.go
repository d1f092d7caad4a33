// SPDX-License-Identifier: Apache-2.0

package sql92

import (
	"cmp"
	"strings"
)

// truth is what a condition evaluates to. Conditions are most of an expression, and a truth is cheaper to hand up than
// a value.
type truth uint8

const (
	unknown truth = iota // NULL
	isFalse
	isTrue
	noTruth // the evaluation ends here
)

func truthOf(b bool) truth {
	if b {
		return isTrue
	}
	return isFalse
}

// eval evaluates an operand and what is below it. It is a recursion over a tree, and not a tree of closures,
// because calls of closures would make c escape: one allocation a message.
func (c *context) eval(n *node) value {
	switch n.op {
	case opConstant, opFolded:
		return n.value
	case opProperty:
		if s := c.property(n.slot); s != "" {
			return value{kind: kindString, str: s}
		}
		return value{}
	}
	switch c.truth(n) {
	case isFalse:
		return boolean(false)
	case isTrue:
		return boolean(true)
	case noTruth:
		return value{kind: kindFailed}
	}
	return value{}
}

// truth evaluates a condition, or a value that stands for one.
func (c *context) truth(n *node) truth {
	switch n.op {
	case opSimple:
		return c.simple(n)
	case opAnd, opOr:
		return c.chain(n)
	case opNot:
		return c.truth(n.left).not()
	case opCondition:
		if c.property(n.left.slot) != "" {
			return isFalse
		}
		return unknown
	case opConstant, opFolded, opProperty:
		v := c.eval(n)
		return v.truth()
	}
	left := c.eval(n.left)
	if left.kind == kindFailed {
		return noTruth
	}
	switch n.op {
	case opNegate:
		return unknown
	case opIsNull:
		return truthOf(left.kind == kindNull)
	case opEqual:
		return c.equal(&left, n.right)
	case opBetween:
		return c.between(&left, n)
	case opIn:
		if left.kind == kindNull {
			return unknown
		}
		return truthOf(n.contains(left.str) != n.negated)
	case opContains, opStartsWith, opEndsWith:
		return search(&left, n)
	}
	return c.ordered(n.op, &left, n.right)
}

// simple evaluates the commonest conditions, a property against a string or whole numbers, without values in between.
func (c *context) simple(n *node) truth {
	s := c.property(n.slot)
	if s == "" {
		return unknown
	}
	if n.value.kind == kindString {
		return truthOf(s == n.value.str)
	}
	bits := uint(64)
	if n.value.kind == kindInt {
		bits = 32
	}
	v, ok := parseInteger(s, bits)
	if !ok {
		return noTruth
	}
	return truthOf((n.value.num <= v && v <= n.most) != n.negated)
}

func (v *value) truth() truth {
	switch v.kind {
	case kindFailed:
		return noTruth
	case kindBool:
		return truthOf(v.num != 0)
	}
	return unknown
}

func (t truth) not() truth {
	switch t {
	case isFalse:
		return isTrue
	case isTrue:
		return isFalse
	}
	return t
}

// chain ends at the first operand that decides: FALSE for AND, TRUE for OR.
func (c *context) chain(n *node) truth {
	decides := truthOf(n.op == opOr)
	result := decides.not()
	for _, operand := range n.list {
		switch t := c.truth(operand); t {
		case noTruth, decides:
			return t
		case unknown:
			result = unknown
		}
	}
	return result
}

// operand evaluates a node; a constant is not copied.
func (c *context) operand(n *node, room *value) *value {
	if n.op == opConstant {
		return &n.value
	}
	*room = c.eval(n)
	return room
}

func (c *context) equal(left *value, n *node) truth {
	var room value
	right := c.operand(n, &room)
	switch {
	case right.kind == kindFailed:
		return noTruth
	case right.kind == kindNull:
		return truthOf(left.kind == kindNull)
	case left.kind == kindNull:
		return unknown
	case left.kind == kindString && right.kind == kindString:
		return truthOf(left.str == right.str)
	}
	order, ok := compare(left, right)
	if !ok {
		return noTruth
	}
	return truthOf(order == 0)
}

// ordered evaluates > >= < <= with the left side evaluated already.
func (c *context) ordered(op operation, left *value, n *node) truth {
	if left.kind == kindNull {
		return unknown
	}
	var room value
	right := c.operand(n, &room)
	if right.kind == kindNull || right.kind == kindFailed {
		return right.truth()
	}
	var order int
	var ok bool
	if left.kind == kindString && right.kind == kindString {
		order, ok = compareStrings(left.str, right.str)
	} else {
		order, ok = compare(left, right)
	}
	switch {
	case !ok:
		return noTruth
	case op == opGreater:
		return truthOf(order > 0)
	case op == opGreaterEqual:
		return truthOf(order >= 0)
	case op == opLess:
		return truthOf(order < 0)
	}
	return truthOf(order <= 0)
}

// between is left >= low AND left <= high, or with NOT left < low OR left > high.
func (c *context) between(left *value, n *node) truth {
	first, second := opGreaterEqual, opLessEqual
	if n.negated {
		first, second = opLess, opGreater
	}
	decides := truthOf(n.negated)
	t := c.ordered(first, left, n.list[0])
	if t == noTruth || t == decides {
		return t
	}
	if u := c.ordered(second, left, n.list[1]); u != decides.not() {
		return u
	}
	return t
}

// search evaluates CONTAINS, STARTSWITH and ENDSWITH.
func search(v *value, n *node) truth {
	text := n.value.str
	if text == "" || v.kind != kindString {
		return isFalse
	}
	var found bool
	switch n.op {
	case opContains:
		found = strings.Contains(v.str, text)
	case opStartsWith:
		found = strings.HasPrefix(v.str, text)
	default:
		found = strings.HasSuffix(v.str, text)
	}
	return truthOf(found != n.negated)
}

// compareStrings orders strings as the floats they stand for.
func compareStrings(left, right string) (int, bool) {
	a, ok := parseFloat(left)
	if !ok {
		return 0, false
	}
	b, ok := parseFloat(right)
	return compareFloats(a, b), ok
}

// compare orders two values that are not NULL, after it converted one to the kind of the other. It is false
// when that cannot be. A boolean is less than everything but a string, and a number less than a boolean.
func compare(left, right *value) (int, bool) {
	switch {
	case left.kind == kindString && right.kind == kindString:
		return strings.Compare(left.str, right.str), true
	case left.kind == kindString:
		v, ok := convert(left.str, right.kind)
		if !ok {
			return 0, false
		}
		return compareSame(&v, right), true
	case right.kind == kindString:
		if left.kind == kindBool {
			return 0, false // the original converts the wrong side
		}
		v, ok := convert(right.str, left.kind)
		if !ok {
			return 0, false
		}
		return compareSame(left, &v), true
	case (left.kind == kindBool) != (right.kind == kindBool):
		return -1, true
	}
	return compareSame(left, right), true
}

// compareSame orders two booleans or two numbers.
func compareSame(left, right *value) int {
	if left.kind != kindFloat && right.kind != kindFloat {
		return cmp.Compare(left.num, right.num)
	}
	return compareFloats(left.asFloat(), right.asFloat())
}

func (v *value) asFloat() float64 {
	if v.kind == kindFloat {
		return v.float
	}
	return float64(v.num)
}

// convert reads a string as a value of a kind.
func convert(s string, to kind) (value, bool) {
	v, ok := value{kind: to}, true
	switch to {
	case kindBool:
		v = boolean(parseBool(s))
	case kindInt:
		v.num, ok = parseInteger(s, 32)
	case kindLong:
		v.num, ok = parseInteger(s, 64)
	default:
		v.float, ok = parseFloat(s)
	}
	return v, ok
}
