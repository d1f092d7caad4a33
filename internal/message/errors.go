// SPDX-License-Identifier: Apache-2.0

package message

import "fmt"

// Limits of the stored layout.
const (
	MaxPropertiesBytes = 32767     // encoded properties of one message: the length has 16 bits and a sign
	MaxTopicBytes      = 32767     // what the layout can hold; the broker's limit is far below
	MaxBodyBytes       = 1<<30 - 1 // what the layout can hold; maxMessageSize is far below

	maxTopicBytesV1 = 127 // longer topics are stored with MagicV2
)

// SizeError says that a part of a message is larger than its limit.
type SizeError struct {
	What   string // "topic", "properties", "body", …
	Limit  int    // bytes
	Actual int    // bytes
}

// Error names what is too large, by how much.
func (e *SizeError) Error() string {
	return fmt.Sprintf("%s of %d bytes exceeds the limit of %d bytes", e.What, e.Actual, e.Limit)
}

// FormatError says that bytes are not in the layout they should be in.
type FormatError struct {
	What   string // the field
	Reason string
	At     int // byte position in the input
}

// Error names the field, the reason and the position.
func (e *FormatError) Error() string {
	return fmt.Sprintf("%s at byte %d: %s", e.What, e.At, e.Reason)
}

// ChecksumError says that a body does not have the CRC its record states.
type ChecksumError struct{ Want, Got uint32 }

// Error gives both checksums.
func (e *ChecksumError) Error() string {
	return fmt.Sprintf("body checksum is %08x, the record states %08x", e.Got, e.Want)
}
