// SPDX-License-Identifier: Apache-2.0

package message

import "unsafe"

// aliasString views b as a string without copying: topics and properties of a decoded record are read far
// more often than kept, and a copy would cost one allocation each per message. The caller must not change b
// while the string lives; records are immutable once they are laid down.
func aliasString(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b))
}
