// SPDX-License-Identifier: Apache-2.0

package sql92

import "strings"

// eval evaluates a node and what is below it. It is a recursion over a tree, and not a tree of closures,
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
	case opCondition:
		if c.property(n.left.slot) != "" {
			return boolean(false)
		}
		return value{}
	case opAnd, opOr:
		return c.evalChain(n)
	}
	v := c.eval(n.left)
	if v.kind == kindFailed {
		return v
	}
	switch n.op {
	case opNegate:
		return value{}
	case opNot:
		return not(v)
	case opIsNull:
		return boolean(v.kind == kindNull)
	case opEqual:
		return c.evalEqual(&v, n.right)
	case opBetween:
		return c.evalBetween(&v, n)
	case opIn:
		if v.kind == kindNull {
			return v
		}
		return boolean(n.contains(v.str) != n.negated)
	case opContains, opStartsWith, opEndsWith:
		return evalSearch(&v, n)
	}
	return c.evalOrder(n.op, &v, n.right)
}

func not(v value) value {
	if v.kind == kindBool {
		v.num ^= 1
	}
	return v
}

// evalChain ends at the first operand that decides: FALSE for AND, TRUE for OR.
func (c *context) evalChain(n *node) value {
	decides := int64(0)
	if n.op == opOr {
		decides = 1
	}
	result := value{kind: kindBool, num: 1 - decides}
	for _, operand := range n.list {
		v := c.eval(operand)
		switch {
		case v.kind == kindFailed, v.kind == kindBool && v.num == decides:
			return v
		case v.kind == kindNull:
			result = v
		}
	}
	return result
}

func (c *context) evalEqual(left *value, n *node) value {
	right := c.eval(n)
	switch {
	case right.kind == kindFailed:
		return right
	case right.kind == kindNull:
		return boolean(left.kind == kindNull)
	case left.kind == kindNull:
		return *left
	}
	order, ok := compare(left, &right)
	if !ok {
		return value{kind: kindFailed}
	}
	return boolean(order == 0)
}

// evalOrder evaluates > >= < <= with the left side evaluated already.
func (c *context) evalOrder(op operation, left *value, n *node) value {
	if left.kind == kindNull {
		return *left
	}
	right := c.eval(n)
	if right.kind == kindNull || right.kind == kindFailed {
		return right
	}
	var order int
	var ok bool
	if left.kind == kindString && right.kind == kindString {
		order, ok = compareStrings(left.str, right.str)
	} else {
		order, ok = compare(left, &right)
	}
	switch {
	case !ok:
		return value{kind: kindFailed}
	case op == opGreater:
		return boolean(order > 0)
	case op == opGreaterEqual:
		return boolean(order >= 0)
	case op == opLess:
		return boolean(order < 0)
	}
	return boolean(order <= 0)
}

// evalBetween is left >= low AND left <= high, or with NOT left < low OR left > high.
func (c *context) evalBetween(left *value, n *node) value {
	first, second := opGreaterEqual, opLessEqual
	if n.negated {
		first, second = opLess, opGreater
	}
	v := c.evalOrder(first, left, n.list[0])
	if v.kind == kindFailed || v.kind == kindBool && v.isTrue() == n.negated {
		return v
	}
	w := c.evalOrder(second, left, n.list[1])
	if w.kind == kindFailed || w.kind == kindBool && w.isTrue() == n.negated || w.kind == kindNull {
		return w
	}
	return v
}

// evalSearch evaluates CONTAINS, STARTSWITH and ENDSWITH.
func evalSearch(v *value, n *node) value {
	search := n.value.str
	if search == "" || v.kind != kindString {
		return boolean(false)
	}
	var found bool
	switch n.op {
	case opContains:
		found = strings.Contains(v.str, search)
	case opStartsWith:
		found = strings.HasPrefix(v.str, search)
	default:
		found = strings.HasSuffix(v.str, search)
	}
	return boolean(found != n.negated)
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
		return compareInts(left.num, right.num)
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
