// SPDX-License-Identifier: Apache-2.0

package sql92

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Bounds of an expression. The original has none, but for its stack.
const (
	MaxBytes = 32 << 10
	MaxDepth = 500 // levels of operands inside operands, and of parentheses
)

// parser is a recursive-descent parser: a method for each level of the grammar.
type parser struct {
	lex   lexer
	tok   token // not consumed yet
	depth int   // levels of recursion
	slots map[string]int
	names []string // of the properties, by slot
}

func newParser(text string) *parser {
	p := &parser{lex: lexer{text: text}, slots: map[string]int{}}
	p.advance()
	return p
}

// parse reads the whole expression.
func (p *parser) parse() (*node, error) {
	n, err := p.or()
	if err != nil {
		return nil, err
	}
	if p.tok.sym != symEnd && !p.atOpenComment() {
		return nil, p.unexpected("AND, OR, an operator or the end")
	}
	return p.condition(n)
}

// atOpenComment tells whether what is left is a comment at the very end that lacks its line end.
func (p *parser) atOpenComment() bool {
	rest := p.lex.text[p.tok.at:]
	return strings.HasPrefix(rest, "--") && !strings.ContainsAny(rest, "\r\n")
}

func (p *parser) advance() { p.tok = p.lex.next() }

// accept consumes the token if it is sym.
func (p *parser) accept(sym symbol) bool {
	if p.tok.sym != sym {
		return false
	}
	p.advance()
	return true
}

func (p *parser) expect(sym symbol, what string) error {
	if !p.accept(sym) {
		return p.unexpected(what)
	}
	return nil
}

func (p *parser) image(t token) string { return p.lex.text[t.at:t.end] }

func (p *parser) refuse(at int, format string, args ...any) error {
	return newSyntaxError(p.lex.text, at, fmt.Sprintf(format, args...))
}

// unexpected says that the token is none of what could follow.
func (p *parser) unexpected(wanted string) error {
	image := p.image(p.tok)
	switch {
	case p.tok.sym == symEnd:
		return p.refuse(p.tok.at, "expected %s, but the expression ends", wanted)
	case p.tok.sym == symBad && image[0] == '\'':
		return p.refuse(p.tok.at, "this string has no closing quote")
	case p.tok.sym == symBad && strings.HasPrefix(p.lex.text[p.tok.at:], "/*"):
		return p.refuse(p.tok.at, "this comment is not closed")
	case p.tok.sym == symBad:
		return p.refuse(
			p.tok.at, "%s means nothing here", quoted(p.lex.text[p.tok.at:nextRune(p.lex.text, p.tok.at)]),
		)
	}
	return p.refuse(p.tok.at, "expected %s, found %s", wanted, quoted(image))
}

// nextRune returns where the character at an offset ends.
func nextRune(s string, at int) int {
	for i := range s[at:] {
		if i > 0 {
			return at + i
		}
	}
	return len(s)
}

// enter counts a level of recursion.
func (p *parser) enter() error {
	if p.depth++; p.depth > MaxDepth {
		return p.refuse(p.tok.at, "nested deeper than %d levels", MaxDepth)
	}
	return nil
}

// add completes a node over its operands.
func (p *parser) add(n *node) (*node, error) {
	for _, operand := range n.list {
		n.depth = max(n.depth, operand.depth)
	}
	if n.left != nil {
		n.depth = max(n.depth, n.left.depth)
	}
	if n.right != nil {
		n.depth = max(n.depth, n.right.depth)
	}
	if n.depth++; n.depth > MaxDepth {
		return nil, p.refuse(n.at, "nested deeper than %d levels", MaxDepth)
	}
	n.simplify()
	return n, nil
}

func (p *parser) or() (*node, error) { return p.chain(symOr, opOr, p.and) }

func (p *parser) and() (*node, error) { return p.chain(symAnd, opAnd, p.equality) }

// chain reads operands with the same word between them.
func (p *parser) chain(word symbol, op operation, operand func() (*node, error)) (*node, error) {
	n := &node{op: op}
	for {
		next, err := operand()
		if err == nil && (len(n.list) > 0 || p.tok.sym == word) {
			next, err = p.condition(next)
		}
		if err != nil {
			return nil, err
		}
		if n.list = append(n.list, next); !p.accept(word) {
			break
		}
	}
	if len(n.list) == 1 {
		return n.list[0], nil
	}
	n.at = n.list[0].at
	return p.add(n)
}

// condition makes of an operand what is TRUE, FALSE or NULL.
func (p *parser) condition(n *node) (*node, error) {
	switch {
	case n.isCondition():
		return n, nil
	case n.isProperty():
		return p.add(&node{op: opCondition, at: n.at, left: n})
	}
	return nil, p.refuse(n.at, "this is a value, not a condition")
}

func (p *parser) equality() (*node, error) {
	left, err := p.comparison()
	for err == nil {
		n := &node{op: opEqual, at: left.at, left: left}
		negated := p.tok.sym == symNotEqual
		switch p.tok.sym {
		case symEqual, symNotEqual:
			p.advance()
			if n.right, err = p.comparison(); err == nil {
				err = p.checkEqual(left, n.right)
			}
		case symIs:
			p.advance()
			n.op, negated = opIsNull, p.accept(symNot)
			err = p.expect(symNull, "NULL or NOT NULL behind IS")
		default:
			return left, nil
		}
		if err == nil {
			left, err = p.add(n)
		}
		if err == nil && negated {
			left, err = p.add(&node{op: opNot, at: left.at, left: left})
		}
	}
	return nil, err
}

// checkEqual refuses what the original refuses as operands of = and <>.
func (p *parser) checkEqual(left, right *node) error {
	for _, n := range []*node{left, right} {
		if n.op == opConstant && n.value.kind == kindNull {
			return p.refuse(n.at, "NULL cannot be compared: use IS NULL or IS NOT NULL")
		}
	}
	if left.op == opConstant && right.op == opConstant && left.isCondition() && !right.isCondition() {
		return p.refuse(left.at, "a boolean cannot be compared with this constant")
	}
	return nil
}

func (p *parser) comparison() (*node, error) {
	left, err := p.unary()
	for err == nil {
		n := &node{at: left.at, left: left, negated: p.accept(symNot)}
		switch sym := p.tok.sym; sym {
		case symBetween, symIn, symContains, symStartsWith, symEndsWith:
			p.advance()
			err = p.phrase(n, sym)
		default:
			if n.negated {
				return nil, p.unexpected(wantedBehindNot)
			}
			if sym < symGreater || sym > symLessEqual {
				return left, nil
			}
			p.advance()
			n.op = opGreater + operation(sym-symGreater)
			err = p.order(n)
		}
		if err == nil {
			left, err = p.add(n)
		}
	}
	return nil, err
}

const wantedBehindNot = "BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH behind NOT"

// order reads the right side of > >= < <=.
func (p *parser) order(n *node) error {
	right, err := p.unary()
	if err != nil {
		return err
	}
	n.right = right
	return p.checkOrdered(n.left, right)
}

// checkOrdered refuses what has no order.
func (p *parser) checkOrdered(operands ...*node) error {
	for _, n := range operands {
		if n.isCondition() || n.op == opConstant && !n.value.isNumber() {
			return p.refuse(n.at, "only numbers and properties can be compared with >, >=, <, <= and BETWEEN")
		}
	}
	return nil
}

// phrase reads what follows BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH.
func (p *parser) phrase(n *node, sym symbol) (err error) {
	switch sym {
	case symBetween:
		n.op = opBetween
		return p.between(n)
	case symIn:
		n.op = opIn
		return p.in(n)
	}
	n.op = opContains + operation(sym-symContains)
	if n.value, err = p.str(); n.value.str == "" {
		n.left = &node{op: opConstant, at: n.at} // it is FALSE, whatever that is
	}
	return err
}

func (p *parser) between(n *node) error {
	low, err := p.unary()
	if err != nil {
		return err
	}
	if err = p.expect(symAnd, "AND and the upper bound of BETWEEN"); err != nil {
		return err
	}
	high, err := p.unary()
	if err != nil {
		return err
	}
	n.list = []*node{low, high}
	if err := p.checkOrdered(n.left, low, high); err != nil {
		return err
	}
	if low.op == opConstant && high.op == opConstant && !n.negated {
		if order, _ := compare(&high.value, &low.value); order < 0 {
			return p.refuse(low.at, "the lower bound of BETWEEN is above the upper one")
		}
	}
	return nil
}

func (p *parser) in(n *node) error {
	if !n.left.isProperty() {
		return p.refuse(n.left.at, "the left side of IN must be a property")
	}
	if err := p.expect(symOpen, "\"(\" behind IN"); err != nil {
		return err
	}
	for {
		v, err := p.str()
		if err != nil {
			return err
		}
		n.set = append(n.set, v.str)
		if !p.accept(symComma) {
			break
		}
	}
	slices.Sort(n.set)
	n.set = slices.Compact(n.set)
	return p.expect(symClose, "\",\" or \")\" in the list of IN")
}

// str reads a string literal.
func (p *parser) str() (value, error) {
	image := p.image(p.tok)
	if err := p.expect(symString, "a string in single quotes"); err != nil {
		return value{}, err
	}
	return value{kind: kindString, str: strings.ReplaceAll(image[1:len(image)-1], "''", "'")}, nil
}

func (p *parser) unary() (*node, error) {
	at := p.tok.at
	switch sym := p.tok.sym; sym {
	case symPlus, symMinus, symNot:
		if err := p.enter(); err != nil {
			return nil, err
		}
		p.advance()
		n, err := p.unary()
		p.depth--
		if err != nil || sym == symPlus {
			return n, err
		}
		if sym == symMinus {
			return p.negate(at, n)
		}
		if n, err = p.condition(n); err != nil {
			return nil, err
		}
		return p.add(&node{op: opNot, at: at, left: n})
	}
	return p.primary()
}

// negate puts a minus before an operand.
func (p *parser) negate(at int, n *node) (*node, error) {
	switch n.op {
	case opConstant, opFolded:
		return p.add(&node{op: opFolded, at: at, value: n.value.negate()})
	case opProperty:
		return p.add(&node{op: opFolded, at: at}) // a string has no sign
	}
	return p.add(&node{op: opNegate, at: at, left: n})
}

func (p *parser) primary() (*node, error) {
	n := &node{op: opConstant, at: p.tok.at}
	var err error
	switch p.tok.sym {
	case symOpen:
		return p.parentheses()
	case symProperty:
		n.op, n.slot = opProperty, p.slot(p.image(p.tok))
		p.advance()
	case symString:
		n.value, err = p.str()
	case symInteger:
		n.value, err = p.integer()
	case symFloat:
		n.value, err = p.float()
	case symTrue, symFalse:
		n.value = boolean(p.tok.sym == symTrue)
		p.advance()
	case symNull:
		p.advance()
	default:
		return nil, p.unexpected("a property, a constant or \"(\"")
	}
	if err != nil {
		return nil, err
	}
	return p.add(n)
}

func (p *parser) parentheses() (*node, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	open := p.tok.at
	p.advance()
	n, err := p.or()
	p.depth--
	if err != nil {
		return nil, err
	}
	if p.tok.sym == symEnd {
		return nil, p.refuse(open, "this parenthesis is not closed")
	}
	return n, p.expect(symClose, "AND, OR, an operator or \")\"")
}

// slot numbers the properties of the expression.
func (p *parser) slot(name string) int {
	slot, ok := p.slots[name]
	if !ok {
		slot = len(p.names)
		p.slots[name], p.names = slot, append(p.names, name)
	}
	return slot
}

func (p *parser) integer() (value, error) {
	digits := strings.TrimRight(p.image(p.tok), "lL")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return value{}, p.refuse(p.tok.at, "%s is beyond 64 bits", quoted(digits))
	}
	p.advance()
	if n == int64(int32(n)) {
		return value{kind: kindInt, num: n}, nil
	}
	return value{kind: kindLong, num: n}, nil
}

func (p *parser) float() (value, error) {
	image := p.image(p.tok)
	f, err := strconv.ParseFloat(image, 64)
	switch {
	case err != nil:
		return value{}, p.refuse(p.tok.at, "%s is greater than 1.7976931348623157E308", quoted(image))
	case f == 0:
		return value{}, p.refuse(p.tok.at, "%s is less than 4.9E-324, the least float", quoted(image))
	}
	p.advance()
	return value{kind: kindFloat, float: f}, nil
}
