// SPDX-License-Identifier: Apache-2.0

package message

import (
	"encoding/binary"
	"slices"
)

const reachesPastBatch = "reaches past the end of the batch"

// batchEntryBytes is a batch entry with empty body and properties.
const batchEntryBytes = 4 + 4 + 4 + 4 + 4 + 2

// DecodeBatch walks the body of a SEND_BATCH_MESSAGE request and calls each for every entry, in order, with a
// body and encoded properties that alias the input. An error of each ends the walk and is returned. An entry
// is:
//
//	off  size  field
//	0    4     totalSize, written by clients, ignored here as in the original
//	4    4     magic, 0, ignored
//	8    4     bodyCRC, 0, ignored
//	12   4     flag
//	16   4+n   body length, body
//	+0   2+n   properties length (signed 16 bits), properties
//
// Errors: *FormatError for lengths that do not fit, *SizeError for properties whose length wrapped to a
// negative number. Source: MessageExtEncoder.encode(MessageExtBatch).
func DecodeBatch(body []byte, each func(flag int32, body []byte, props string) error) error {
	for at := 0; at < len(body); {
		rest := body[at:]
		if len(rest) < batchEntryBytes {
			return &FormatError{What: "batch entry", Reason: "is cut short", At: at}
		}
		flag := int32(binary.BigEndian.Uint32(rest[12:]))
		bodyLen := int(int32(binary.BigEndian.Uint32(rest[16:])))
		if bodyLen < 0 || bodyLen > len(rest)-batchEntryBytes {
			return &FormatError{What: "batch entry body", Reason: reachesPastBatch, At: at + 16}
		}
		propsAt := 20 + bodyLen + 2
		propsLen := int(binary.BigEndian.Uint16(rest[propsAt-2:]))
		if propsLen > MaxPropertiesBytes {
			return &SizeError{What: "properties", Limit: MaxPropertiesBytes, Actual: propsLen}
		}
		if propsLen > len(rest)-propsAt {
			return &FormatError{What: "batch entry properties", Reason: reachesPastBatch, At: at + propsAt - 2}
		}
		end := propsAt + propsLen
		if err := each(flag, rest[20:20+bodyLen:20+bodyLen], aliasString(rest[propsAt:end])); err != nil {
			return err
		}
		at += end
	}
	return nil
}

// AppendBatchEntry appends one entry of a SEND_BATCH_MESSAGE body as clients write it. props must not be
// longer than MaxPropertiesBytes.
func AppendBatchEntry(dst []byte, flag int32, body []byte, props string) []byte {
	size := batchEntryBytes + len(body) + len(props)
	dst = slices.Grow(dst, size)
	be := binary.BigEndian
	dst = be.AppendUint32(dst, uint32(size))
	dst = be.AppendUint64(dst, 0)
	dst = be.AppendUint32(dst, uint32(flag))
	dst = be.AppendUint32(dst, uint32(len(body)))
	dst = append(dst, body...)
	dst = be.AppendUint16(dst, uint16(len(props)))
	return append(dst, props...)
}
