// SPDX-License-Identifier: Apache-2.0

package sql92

import (
	"math"
	"slices"
)

// operation is what a node does.
type operation uint8

const (
	opConstant     operation = iota // a literal: value
	opFolded                        // a value known when compiling, but no literal
	opProperty                      // the property of a slot
	opNegate                        // minus a condition: NULL, unless that fails
	opCondition                     // a property that stands for a condition
	opNot                           // of left
	opAnd                           // of list
	opOr                            // of list
	opEqual                         // left and right
	opIsNull                        // left
	opGreater                       // this and the next three: left and right
	opGreaterEqual                  //
	opLess                          //
	opLessEqual                     //
	opBetween                       // left between list[0] and list[1]
	opIn                            // left in set
	opContains                      // this and the next two: left, value
	opStartsWith                    //
	opEndsWith                      //
	opSimple                        // the property of a slot: is value, or from value to most; see simplify
)

// node is a part of a compiled expression. What it needs is said at its operation.
type node struct {
	op          operation
	negated     bool // opBetween and all behind it: with NOT
	slot        int
	depth       int // levels below and with this node
	at          int // offset in the text, for errors
	value       value
	most        int64 // opSimple: the greatest number that fits
	left, right *node
	list        []*node
	set         []string // sorted
}

// isKnown tells whether the value is known when compiling.
func (n *node) isKnown() bool { return n.op == opConstant || n.op == opFolded }

func (n *node) isProperty() bool { return n.op == opProperty }

// isCondition tells whether the node can stand where a boolean is needed. The literals NULL, TRUE and FALSE
// can; a property can only as opCondition.
func (n *node) isCondition() bool {
	switch n.op {
	case opConstant:
		return n.value.kind == kindNull || n.value.kind == kindBool
	case opFolded, opProperty, opNegate:
		return false
	}
	return true
}

// simplify makes an opSimple of a property's comparison with a string or with whole numbers of one kind.
func (n *node) simplify() {
	if n.left == nil || !n.left.isProperty() {
		return
	}
	bound := n.right
	if n.op == opBetween {
		bound = n.list[0]
	}
	if bound == nil || !bound.isKnown() {
		return
	}
	v := bound.value
	low, high := v.num, v.num
	switch whole := v.kind == kindInt || v.kind == kindLong; {
	case n.op == opEqual && (whole || v.kind == kindString):
	case !whole:
		return
	case n.op == opBetween && n.list[1].isKnown() && n.list[1].value.kind == v.kind:
		high = n.list[1].value.num
	case n.op == opGreaterEqual:
		high = math.MaxInt64
	case n.op == opLessEqual:
		low = math.MinInt64
	case n.op == opGreater && v.num < math.MaxInt64:
		low, high = v.num+1, math.MaxInt64
	case n.op == opLess && v.num > math.MinInt64:
		low, high = math.MinInt64, v.num-1
	default:
		return
	}
	n.op, n.slot, n.value, n.most = opSimple, n.left.slot, v, high
	n.value.num = low
}

// kind is the type of a value.
type kind uint8

const (
	kindNull   kind = iota
	kindFailed      // no value: the evaluation ends here
	kindBool        // num is 0 or 1
	kindInt         // 32 bits in num
	kindLong        // 64 bits in num
	kindFloat       // in float
	kindString      // str
)

// value is what a node evaluates to.
type value struct {
	kind  kind
	num   int64
	float float64
	str   string
}

func (v *value) isNumber() bool {
	return v.kind == kindInt || v.kind == kindLong || v.kind == kindFloat
}

func boolean(b bool) value {
	if b {
		return value{kind: kindBool, num: 1}
	}
	return value{kind: kindBool}
}

// negate is the value with the other sign.
func (v *value) negate() value {
	if !v.isNumber() {
		return value{}
	}
	return value{kind: v.kind, num: -v.num, float: -v.float}
}

// contains tells whether the set of an opIn has s.
func (n *node) contains(s string) bool {
	if len(n.set) <= 8 {
		return slices.Contains(n.set, s)
	}
	_, found := slices.BinarySearch(n.set, s)
	return found
}
