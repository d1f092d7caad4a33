// SPDX-License-Identifier: Apache-2.0

package sql92

import (
	"fmt"
	"strings"

	"github.com/roquetmq/roquet/internal/message"
)

// Expression is a compiled expression. It is immutable and safe for concurrent use.
type Expression struct {
	text  string
	root  *node
	names []string               // of the properties, by slot
	finds message.PropertyFinder // the first foundSlots of them
}

// Compile compiles an expression; the text is cloned. Errors: *SyntaxError.
func Compile(text string) (*Expression, error) {
	if len(text) > MaxBytes {
		return nil, newSyntaxError(text, MaxBytes,
			fmt.Sprintf("%d bytes are more than the %d an expression may have", len(text), MaxBytes))
	}
	text = strings.Clone(text)
	p := newParser(text)
	root, err := p.parse()
	if err != nil {
		return nil, err
	}
	e := &Expression{text: text, root: root, names: p.names}
	for _, name := range e.names[:min(len(e.names), foundSlots)] {
		e.finds = e.finds.Add(name)
	}
	return e, nil
}

// String returns the text that was compiled.
func (e *Expression) String() string { return e.text }

// Match reports whether a message with these properties, encoded as it is stored, is wanted. It allocates
// nothing.
func (e *Expression) Match(properties string) bool {
	return e.about(properties) == isTrue
}

func (e *Expression) about(properties string) truth {
	var c context // a literal would be built elsewhere and copied, which waits for what was just written
	c.names, c.properties = e.names, properties
	e.finds.Find(properties, c.found[:len(e.finds)])
	return c.truth(e.root)
}

// foundSlots is how many of an expression's properties are found in one pass over a message's.
const foundSlots = 8

// context is the evaluation for one message.
type context struct {
	names      []string
	properties string
	found      [foundSlots]string // "" when the message has none
}

// property returns a property; a stored one is never empty.
func (c *context) property(slot int) string {
	if slot < foundSlots {
		return c.found[slot]
	}
	s, _ := message.Property(c.properties, c.names[slot])
	return s
}
