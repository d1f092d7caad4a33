// SPDX-License-Identifier: Apache-2.0

package sql92

import "slices"

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
)

// node is a part of a compiled expression. What it needs is said at its operation.
type node struct {
	op          operation
	negated     bool // opBetween and all behind it: with NOT
	slot        int
	depth       int // levels below and with this node
	at          int // offset in the text, for errors
	value       value
	left, right *node
	list        []*node
	set         []string // sorted
}

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
