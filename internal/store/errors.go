// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"

	"github.com/roquetmq/roquet/internal/message"
)

var (
	// ErrNotFound is returned when there is no message at the place asked for, or not any more.
	ErrNotFound = errors.New("no message there")
	// ErrEmptyWrite is returned by Append for a Write without messages and state.
	ErrEmptyWrite = errors.New("write has neither messages nor state")
)

// DamagedError says that messages which the index knows can not be read from the log. They are lost to
// readers; everything else is readable. Cause is a *commitlog.CorruptError with file, offset and position,
// in all but strange cases.
type DamagedError struct {
	Topic   string
	QueueID int32
	// Offset and End are the range [Offset, End) of queue offsets found unreadable. All zero when the
	// message was looked up by its log position.
	Offset, End message.QueueOffset
	Pos         message.LogOffset // of the first of them
	Cause       error
}

// Error names the messages, and through its cause the file and the position.
func (e *DamagedError) Error() string {
	if e.Topic == "" {
		return fmt.Sprintf("message at log position %d is damaged: %v", e.Pos, e.Cause)
	}
	return fmt.Sprintf("messages [%d, %d) of topic %s queue %d are damaged (log position %d): %v",
		e.Offset, e.End, e.Topic, e.QueueID, e.Pos, e.Cause)
}

// Unwrap returns the cause.
func (e *DamagedError) Unwrap() error { return e.Cause }

// IndexError refuses writes because the index met an error it can not get over. Nothing acknowledged is
// lost: the log is whole, and the index is rebuilt from it at the next start.
type IndexError struct{ Cause error }

// Error gives the cause and the cure.
func (e *IndexError) Error() string {
	return fmt.Sprintf("store refuses writes, its index failed: %v; "+
		"nothing is lost: if this does not end by itself, a restart rebuilds the index from the log", e.Cause)
}

// Unwrap returns the cause.
func (e *IndexError) Unwrap() error { return e.Cause }
