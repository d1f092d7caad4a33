// SPDX-License-Identifier: Apache-2.0

package protocol

import "unsafe" // in this file alone

// aliasString returns b's bytes as a string without copying them; the string changes when b does. It is
// what makes decoding a header free of allocations: copying the 14 values of a send header costs 14 of
// them.
func aliasString(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// aliasBytes returns text's bytes without copying them. They must not be written.
func aliasBytes(text string) []byte {
	return unsafe.Slice(unsafe.StringData(text), len(text))
}
