// SPDX-License-Identifier: Apache-2.0

package message

import (
	"fmt"
	"iter"
	"slices"
	"strings"
)

const (
	nameSeparator     = '\x01' // between a name and its value
	propertySeparator = '\x02' // behind every value; some clients leave out the last one

	// KeySeparator stands between the keys of one KEYS value.
	KeySeparator = " "
)

// PropertyError says why an encoded properties text is refused.
type PropertyError struct {
	Name   string // the property concerned, or the text that should have been one
	Reason string
}

// Error names the property and the reason.
func (e *PropertyError) Error() string { return fmt.Sprintf("property %q %s", e.Name, e.Reason) }

// Properties yields the names and values of an encoded properties text in stored order. As in the original,
// entries with an empty name, an empty value or no name separator are skipped. A name that occurs again
// overrides: the last one counts, which is how Property reads it. Values alias props.
func Properties(props string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for len(props) > 0 {
			var name, value string
			name, value, props = cutProperty(props)
			if name != "" && value != "" && !yield(name, value) {
				return
			}
		}
	}
}

// cutProperty splits off the first entry. An entry that is no property comes back with an empty value.
func cutProperty(props string) (name, value, rest string) {
	entry, rest, _ := strings.Cut(props, string(propertySeparator))
	name, value, _ = strings.Cut(entry, string(nameSeparator))
	return name, value, rest
}

// Property returns the value of the named property; the last one when the name occurs more than once. It
// allocates nothing and the value aliases props.
func Property(props, name string) (string, bool) {
	for end := len(props); end > 0; {
		if props[end-1] == propertySeparator {
			end--
		}
		start := strings.LastIndexByte(props[:end], propertySeparator) + 1
		entry := props[start:end]
		if len(entry) > len(name)+1 && entry[len(name)] == nameSeparator && entry[:len(name)] == name {
			return entry[len(name)+1:], true
		}
		end = start
	}
	return "", false
}

// AppendProperty appends one property. dst must be empty or end behind a property, with its separator.
func AppendProperty(dst []byte, name, value string) []byte {
	dst = append(dst, name...)
	dst = append(dst, nameSeparator)
	dst = append(dst, value...)
	return append(dst, propertySeparator)
}

// AppendProperties appends an encoded properties text so that another property can follow: with its last
// separator.
func AppendProperties(dst []byte, props string) []byte {
	dst = append(dst, props...)
	if n := len(props); n > 0 && props[n-1] != propertySeparator {
		dst = append(dst, propertySeparator)
	}
	return dst
}

// SetProperty returns props with the property set, every earlier value of that name removed.
func SetProperty(props, name, value string) string {
	dst := make([]byte, 0, len(props)+len(name)+len(value)+3)
	dst = appendWithout(dst, props, name)
	return string(AppendProperty(dst, name, value))
}

// WithoutProperty returns props without the named properties. Entries that are no property go too. When there
// is nothing to remove, props itself is returned.
func WithoutProperty(props string, names ...string) string {
	if !slices.ContainsFunc(names, func(name string) bool { _, ok := Property(props, name); return ok }) {
		return props
	}
	return string(appendWithout(make([]byte, 0, len(props)+1), props, names...))
}

func appendWithout(dst []byte, props string, names ...string) []byte {
	for name, value := range Properties(props) {
		if !slices.Contains(names, name) {
			dst = AppendProperty(dst, name, value)
		}
	}
	return dst
}

// ValidateProperties reports whether a producer's encoded properties text can be stored as it is. A text in
// which a name or a value contained a separator is refused: later properties would be read differently by
// different clients. An empty name or value is allowed, and such an entry is dropped by every reader. Errors:
// *SizeError, *PropertyError.
func ValidateProperties(props string) error {
	return ScanProperties(props, func(_, _ string) {})
}

// ScanProperties does what ValidateProperties does, and on the way calls visit for every property that a
// reader will see, in stored order. When a name occurs again, the last one counts. An error may come after
// some calls. The strings alias props.
func ScanProperties(props string, visit func(name, value string)) error {
	if len(props) > MaxPropertiesBytes {
		return &SizeError{What: "properties", Limit: MaxPropertiesBytes, Actual: len(props)}
	}
	for rest := props; rest != ""; {
		var entry string
		entry, rest, _ = strings.Cut(rest, string(propertySeparator))
		name, value, isProperty := strings.Cut(entry, string(nameSeparator))
		if !isProperty && entry != "" {
			return &PropertyError{Name: entry, Reason: "has no name separator: does a name or value contain \\x02?"}
		}
		if strings.IndexByte(value, nameSeparator) >= 0 {
			return &PropertyError{Name: name, Reason: "contains \\x01 in its name or value"}
		}
		if name != "" && value != "" {
			visit(name, value)
		}
	}
	return nil
}
