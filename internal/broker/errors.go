// SPDX-License-Identifier: Apache-2.0

package broker

import "errors"

// Errors of the broker's tables. They come wrapped with what was being done; test with errors.Is.
var (
	// ErrTopicNotExist says that there is no such topic and that it may not be created.
	ErrTopicNotExist = errors.New("topic not exist")
	// ErrGroupNotExist says that there is no such subscription group and that it may not be created.
	ErrGroupNotExist = errors.New("subscription group not exist")
)

// InvalidError says which parameter of a request has a value that is not allowed.
type InvalidError struct {
	What   string // the parameter, such as "readQueueNums"
	Value  string
	Reason string
}

// Error names parameter, value and reason.
func (e *InvalidError) Error() string { return e.What + " " + e.Value + " is not allowed: " + e.Reason }
