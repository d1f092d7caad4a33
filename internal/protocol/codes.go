// SPDX-License-Identifier: Apache-2.0

package protocol

import "fmt"

// Code is the code of a request. The constants carry Apache's names in Go spelling; codes.txt lists them.
type Code int32

// ResponseCode is the code of an answer. Answers never leave the range of int16: the Go 4.x client reads no
// more.
type ResponseCode int32

// Error is an answer other than success: the only error a client ever sees. Remark is a sentence for the
// user.
type Error struct {
	Code   ResponseCode
	Remark string
}

// Error returns the name of the code and the remark.
func (e *Error) Error() string { return e.Code.String() + ": " + e.Remark }

// Errorf returns an Error with a formatted remark.
func Errorf(code ResponseCode, format string, args ...any) *Error {
	return &Error{Code: code, Remark: fmt.Sprintf(format, args...)}
}

// Binary headers carry the code in 16 bits, so the codes of the pop family arrive reduced by 3*65536. No
// declared code lies between these bounds, hence the wrapped value is an alias of the code. Source:
// RocketMQSerializable.java.
const (
	popWrap    = 3 << 16
	wrappedMin = 200050 - popWrap
	wrappedMax = 200151 - popWrap
)

// unwrapCode returns the request code meant by a 16-bit code of a binary header.
func unwrapCode(c int32) int32 {
	if c >= wrappedMin && c <= wrappedMax && Code(c+popWrap).Known() {
		return c + popWrap
	}
	return c
}
