// SPDX-License-Identifier: Apache-2.0

package message

import "strings"

// PropertyKey finds one property in many encoded texts. It gives what Property gives in about half the time,
// because the name is prepared for a search by vector instructions.
type PropertyKey struct{ name string } // with its separator

// NewPropertyKey prepares a name.
func NewPropertyKey(name string) PropertyKey {
	return PropertyKey{name: name + string([]byte{nameSeparator})}
}

// Find returns the value of the property; the last one when the name occurs more than once. It allocates
// nothing and the value aliases props.
func (k PropertyKey) Find(props string) (string, bool) {
	found := ""
	for from := 0; ; {
		at := strings.Index(props[from:], k.name)
		if at < 0 {
			return found, found != ""
		}
		at += from
		if from = at + len(k.name); at > 0 && props[at-1] != propertySeparator {
			from = at + 1
			continue
		}
		value := props[from:]
		if end := strings.IndexByte(value, propertySeparator); end >= 0 {
			value = value[:end]
		}
		if value != "" {
			found = value
		}
	}
}
