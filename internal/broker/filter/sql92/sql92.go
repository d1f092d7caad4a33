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
	keys  []message.PropertyKey // by slot
	slots map[string]int        // of the properties
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
	return &Expression{text: text, root: root, keys: p.keys, slots: p.slots}, nil
}

// String returns the text that was compiled.
func (e *Expression) String() string { return e.text }

// Match reports whether a message with these properties, encoded as it is stored, is wanted. It allocates
// nothing.
func (e *Expression) Match(properties string) bool {
	c := context{keys: e.keys, properties: properties}
	v := c.eval(e.root)
	return v.isTrue()
}

// cachedSlots is how many of an expression's properties are looked up only once per message.
const cachedSlots = 8

// context is the evaluation for one message.
type context struct {
	keys       []message.PropertyKey
	properties string
	known      [cachedSlots]bool
	found      [cachedSlots]string // "" when the message has none
}

// property returns a property; a stored one is never empty.
func (c *context) property(slot int) string {
	if slot >= cachedSlots {
		s, _ := c.keys[slot].Find(c.properties)
		return s
	}
	if !c.known[slot] {
		c.known[slot] = true
		c.found[slot], _ = c.keys[slot].Find(c.properties)
	}
	return c.found[slot]
}
