// SPDX-License-Identifier: Apache-2.0

package message

import "strings"

// PropertyFinder finds several properties in many encoded texts, in one pass over each. The elements are names with
// their separator: see Add.
type PropertyFinder []string

// Add appends a name.
func (k PropertyFinder) Add(name string) PropertyFinder {
	return append(k, name+string([]byte{nameSeparator}))
}

// Find sets values[i], which must be "", to what Property gives for the i-th name, for as many names as there are
// values. It allocates nothing; the values alias props.
func (k PropertyFinder) Find(props string, values []string) {
	k = k[:len(values)]
	for props != "" {
		entry := props
		if end := strings.IndexByte(props, propertySeparator); end >= 0 {
			entry, props = props[:end], props[end+1:]
		} else {
			props = ""
		}
		for i, key := range k {
			if len(entry) > len(key) && entry[0] == key[0] && entry[:len(key)] == key {
				values[i] = entry[len(key):]
			}
		}
	}
}
