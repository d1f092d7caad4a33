// SPDX-License-Identifier: Apache-2.0

package sql92

import "slices"

// Required returns values of which the property must have one for the expression to be TRUE; nil when the
// expression does not show that so simply. An index of the property can decide most messages by it.
func (e *Expression) Required(property string) []string {
	slot := slices.Index(e.names, property)
	if slot < 0 {
		return nil
	}
	return required(e.root, slot)
}

func required(n *node, slot int) []string {
	switch n.op {
	case opSimple:
		if n.slot == slot && n.value.kind == kindString {
			return []string{n.value.str}
		}
	case opEqual:
		constant := n.left.op == opConstant && n.left.value.kind == kindString
		if n.right.isProperty() && n.right.slot == slot && constant {
			return []string{n.left.value.str}
		}
	case opIn:
		if n.left.slot == slot && !n.negated {
			return n.set
		}
	case opAnd: // every operand is TRUE then: the one that says most
		var least []string
		for _, operand := range n.list {
			if values := required(operand, slot); values != nil && (least == nil || len(values) < len(least)) {
				least = values
			}
		}
		return least
	case opOr: // one operand is TRUE then, nobody knows which
		var all []string
		for _, operand := range n.list {
			values := required(operand, slot)
			if values == nil {
				return nil
			}
			all = append(all, values...)
		}
		return all
	}
	return nil
}
