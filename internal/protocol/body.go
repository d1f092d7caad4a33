// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"strings"
)

// Body is one of the JSON bodies of this package, a pointer to its struct. Every struct names its fields
// once, in the order of their JSON names; the same list writes and reads it.
//
// Written text is what Apache 5.5's fastjson 2 writes: names sorted, nulls left out, no white space, map keys
// that are message queues as bare objects ({{"brokerName":"b","queueId":0,"topic":"t"}:5}, which is no JSON,
// but what every Java client reads). One difference, which every client reads and strict parsers need:
// integer keys are quoted ({"0":…} for {0:…}). Map keys are sorted, where Apache's come in a HashMap's order.
//
// Reading is tolerant; see lenient. Fields that are absent have the defaults of Apache's class. Text is
// copied: a body may outlive the frame.
type Body interface {
	fields(c *bodyCodec)
}

// defaulter is a Body whose absent fields are not all zero.
type defaulter interface {
	setDefaults()
}

// AppendBody appends b's text to dst.
func AppendBody(dst []byte, b Body) []byte {
	c := bodyCodec{out: dst}
	c.object(b)
	return c.out
}

// EncodeBody returns b's text.
func EncodeBody(b Body) []byte { return AppendBody(make([]byte, 0, 256), b) }

// DecodeBody reads a body of type T. It fails with an *Error of code SystemError whose remark says what is
// wrong and where, also when data is empty or null. The cost of hostile text is bounded: see maxBodyDepth and
// its neighbours.
func DecodeBody[T any, P BodyOf[T]](data []byte) (*T, error) {
	value := new(T)
	c := newBodyReader(data)
	if c.in.absent() {
		c.in.fail("it is null")
	}
	objectValue[T, P](c, value)
	if c.in.failed {
		return nil, c.failure(value)
	}
	return value, nil
}

// EncodeBodies returns the text of an array of bodies.
func EncodeBodies[T any, P BodyOf[T]](values []T) []byte {
	c := bodyCodec{out: make([]byte, 0, 256)}
	listValue(objectValue[T, P])(&c, &values)
	return c.out
}

// DecodeBodies reads an array of bodies; it fails like DecodeBody.
func DecodeBodies[T any, P BodyOf[T]](data []byte) ([]T, error) {
	var values []T
	c := newBodyReader(data)
	listValue(objectValue[T, P])(c, &values)
	if c.in.failed {
		return nil, c.failure(values)
	}
	return values, nil
}

func newBodyReader(data []byte) *bodyCodec {
	c := &bodyCodec{reading: true, in: lenient{data: data}}
	if len(data) > maxBodyBytes {
		c.in.fail(fmt.Sprintf("%d bytes are more than %d", len(data), maxBodyBytes))
	}
	return c
}

// failure describes why value could not be read.
func (c *bodyCodec) failure(value any) error {
	name := strings.NewReplacer("*", "", "[]", "", "protocol.", "").Replace(fmt.Sprintf("%T", value))
	return &Error{Code: SystemError, Remark: fmt.Sprintf("%s: byte %d: %s", name, c.in.errPos, c.in.reason)}
}
