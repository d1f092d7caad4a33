// SPDX-License-Identifier: Apache-2.0

package protocol

// SerializeType is the form of a frame's header.
type SerializeType uint8

// The two header forms.
const (
	SerializeJSON     SerializeType = 0
	SerializeROCKETMQ SerializeType = 1
)

// String returns the form's name as JSON headers carry it.
func (t SerializeType) String() string {
	if t > SerializeROCKETMQ {
		return "UNKNOWN"
	}
	return [...]string{"JSON", "ROCKETMQ"}[t]
}

// Bits of Command.Flag.
const (
	FlagResponse int32 = 1 << 0 // the frame answers a request of the peer
	FlagOneWay   int32 = 1 << 1 // no answer is wanted, not even for an error
)

// Versions of Apache releases that behaviour depends on; a version is the ordinal of MQVersion.java's enum.
const (
	VersionV4_9_3 int32 = 399
	VersionV4_9_4 int32 = 401 // from here on clients want route JSON with quoted keys
	VersionV5_3_1 int32 = 475 // newer clients understand GO_AWAY
	VersionV5_5_0 int32 = 513

	// VersionCurrent is the version this implementation answers and asks with.
	VersionCurrent = VersionV5_5_0
)

// Command is one decoded frame, or the fixed part of one to be written. Code is a Code in a request and a
// ResponseCode in an answer (FlagResponse). Its strings and slices alias the frame; see DecodeFrame. A
// Command may be copied as long as only one of the copies is decoded into again.
type Command struct {
	Code      int32
	Version   int32 // ordinal of the sender's release
	Opaque    int32 // chosen by the requester, repeated in the answer
	Flag      int32
	Language  LanguageCode
	Serialize SerializeType
	Remark    string // "" when absent
	Ext       Ext
	Body      []byte // nil when empty
}

// IsResponse reports whether the frame answers a request.
func (c *Command) IsResponse() bool { return c.Flag&FlagResponse != 0 }

// IsOneWay reports whether the sender wants no answer.
func (c *Command) IsOneWay() bool { return c.Flag&FlagOneWay != 0 }
